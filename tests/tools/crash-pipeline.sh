#!/bin/bash
# crash-pipeline.sh FORGE N: crash-pipeline.py with N kills on SQLite, then with N/4 on a PostgreSQL server that is
# killed as well. TAP.
# SPDX-License-Identifier: Apache-2.0
here=$(dirname "$(realpath "$0")")
if [ -z "${CRASH_INSIDE:-}" ] && [ "$(id -u)" -eq 0 ]; then
    CRASH_INSIDE=1 exec "$here/delegate.sh" "$here/$(basename "$0")" "$@"
fi
forge=$(realpath "$1")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
printf 'host: {budget: {cpus: 64, memory: 64G}}\nworkdir: %s/work-{run_id}\n' "$dir" >"$dir/forge.yaml"
export FORGE_CONFIG=$dir/forge.yaml
rc=0
mkdir -m 700 "$dir/sqlite" "$dir/postgres"

with_server() {
    FORGE_STORE=$FORGE_TEST_PG FORGE_HOME=$dir/postgres "$here/crash-pipeline.py" "$forge" "$1" "$here/with-postgres.sh" |
        sed -E 's/^((not )?ok [0-9]+ )/\1postgres: /'
    return "${PIPESTATUS[0]}"
}
if [ "${3:-}" = --server ]; then
    with_server "$2"
    exit
fi
FORGE_HOME=$dir/sqlite "$here/crash-pipeline.py" "$forge" "$2" || rc=1
"$here/with-postgres.sh" "$here/$(basename "$0")" "$forge" $(($2 / 4)) --server || rc=1
exit "$rc"
