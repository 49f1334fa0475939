#!/bin/bash
# as-user.sh [--nested] COMMAND...: runs the command as an ordinary user with cgroups of its
# own, or (--nested) as uid 0 of that user's own namespace. Needs root.
#   FORGE=... FORGE_PROBE=... tests/sandbox/as-user.sh bats tests/sandbox
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
delegate=$(dirname "$(realpath "$0")")/../tools/delegate.sh
mode=user
inside=()
if [ "${1:-}" = --nested ]; then
    shift
    mode=nested
    inside=(unshare --user --map-root-user --mount)
fi
exec "$delegate" --user "${FORGE_TEST_UID:-12345}" env FORGE_TEST_MODE=$mode "${inside[@]}" "$@"
