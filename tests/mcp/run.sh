#!/bin/bash
# run.sh [FILE...]: the tests of `forge mcp` with the protocol's own clients, as TAP. The clients are those of
# package-lock.json; they are fetched once, into $FORGE_BUILD or a temporary directory.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
here=$(dirname "$(realpath "$0")")
: "${FORGE:?set FORGE to the program under test}"
FORGE=$(realpath "$FORGE")
export FORGE
major=$(node -p 'process.versions.node.split(".")[0]' 2>/dev/null) || major=0
if [ "$major" -lt 20 ] || ! command -v npm >/dev/null; then
    if [ "${FORGE_MUST_WORK:-}" = 1 ]; then
        printf 'not ok 1 the clients of the protocol need Node 20 and npm\n1..1\n'
        exit 1
    fi
    printf 'ok 1 the clients of the protocol # skip needs Node 20 and npm\n1..1\n'
    exit 0
fi
if [ -n "${FORGE_BUILD:-}" ]; then
    clients=$FORGE_BUILD/mcp-clients-$(cat "$here/package.json" "$here/package-lock.json" | sha256sum | cut -c1-16)
else
    clients=$(mktemp -d)
    trap 'rm -rf "$clients"' EXIT
fi
if [ ! -e "$clients/complete" ]; then
    mkdir -p "$clients"
    cp "$here/package.json" "$here/package-lock.json" "$here/.npmrc" "$clients/"
    (cd "$clients" && npm ci --ignore-scripts --no-audit --no-fund >npm.log 2>&1) || {
        sed 's/^/# /' "$clients/npm.log"
        printf 'not ok 1 npm fetches the clients of the protocol\n1..1\n'
        exit 1
    }
    touch "$clients/complete"
fi
ln -sfn "$clients/node_modules" "$here/node_modules"
cd "$here"
[ $# -gt 0 ] || set -- ./*.test.mjs
node --test --test-concurrency=1 --test-reporter=tap "$@"
