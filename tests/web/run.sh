#!/bin/bash
# run.sh: the dashboard in a real browser, against a real `forge serve` with real runs. Prints TAP.
# $FORGE is the program, $FORGE_BUILD its build directory: screenshots are left in $FORGE_BUILD/web-shots.
# WEB_KEEP=DIR keeps what npm installed there. WEB_ONLY=REGEX runs only some tests of the browser.
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail
here=$(dirname "$(realpath "$0")")
web=${WEB_SOURCE:-$here/../../web}
: "${FORGE:?set FORGE to the program under test}"

fail() {
    echo "not ok 1 $1"
    echo 1..1
    exit 1
}

for program in node npm; do
    command -v "$program" >/dev/null || fail "the dashboard is tested with $program, which is missing"
done
work=${WEB_KEEP:-$(mktemp -d)}
[ -n "${WEB_KEEP:-}" ] || trap 'rm -rf "$work"' EXIT
mkdir -p "$work/web" "$work/browser"

# install DIR FROM: what a lock file pins, and no script of it.
install() {
    cp "$2/package.json" "$2/package-lock.json" "$2/.npmrc" "$1/" || return
    cmp -s "$1/package-lock.json" "$1/node_modules/.lock" && return
    (cd "$1" && npm ci --ignore-scripts --no-audit --no-fund --prefer-offline >"$1/npm.log" 2>&1) || {
        sed 's/^/# /' "$1/npm.log"
        return 1
    }
    cp "$1/package-lock.json" "$1/node_modules/.lock"
}

install "$work/web" "$web" || fail "npm installs what the dashboard is built with"
install "$work/browser" "$here" || fail "npm installs what the browser is driven with"
rm -rf "$work/web/src"
cp -r "$web/src" "$web/build.mjs" "$web/tsconfig.json" "$work/web/"
rc=0
if (cd "$work/web" && node_modules/.bin/tsc --noEmit -p . 2>&1) | sed 's/^/# /'; then
    echo "ok 1 the types of the dashboard are right"
else
    echo "not ok 1 the types of the dashboard are right"
    rc=1
fi
if grep -q '"resolved"' "$web/package-lock.json" "$here/package-lock.json"; then
    echo "not ok 2 the lock files name no registry"
    rc=1
else
    echo "ok 2 the lock files name no registry"
fi
echo 1..2

(cd "$work/web" && node build.mjs "$work/pure" --pure) || fail "the functions without a page can be bundled"
WEB_PURE=$work/pure/pure.mjs WEB_SRC=$web/src node --test-reporter=tap "$here/unit.test.mjs" || rc=1
# Import looks for packages beside the file that imports.
cp "$here"/*.mjs "$work/browser/"
WEB_SHOTS=${FORGE_BUILD:-$work}/web-shots WEB_HELP=$here node "$work/browser/browser.mjs" || rc=1
exit "$rc"
