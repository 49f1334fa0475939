#!/bin/bash
# delegate.sh [--user UID] COMMAND...: runs the command in cgroups of its own, given to UID,
# and as UID (in the groups $FORGE_TEST_GROUPS); without --user as we are. Needs root. This is what docs/HOSTS.md tells an
# administrator of a cgroup v1 or hybrid host to do. On a unified host nothing is made: there
# forge asks systemd.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$(realpath "$0")")/../lib/cgroups.bash"
uid=
if [ "$1" = --user ]; then
    uid=$2
    shift 2
fi

name=delegated-$$
made=()
# Whatever a test left running or lying in our groups does not outlive us.
leave() {
    local dir pid
    for dir in "${made[@]}"; do
        echo $$ >"${dir%/*}/cgroup.procs" 2>/dev/null || true
    done
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        # A group may go while find looks at it: that is no failure of the command.
        find "${made[@]}" -name cgroup.procs -exec cat {} + 2>/dev/null | while read -r pid; do
            kill -KILL "$pid" 2>/dev/null || true
        done || true
        find "${made[@]}" -depth -type d -exec rmdir {} ';' 2>/dev/null || true
        [ -n "$(find "${made[@]}" -maxdepth 0 2>/dev/null)" ] || return 0
        sleep 0.1
    done
}

if [ -d /sys/fs/cgroup/memory ]; then
    trap leave EXIT
    while read -r own; do
        mkdir "$own/$name"
        made+=("$own/$name")
        echo $$ >"$own/$name/cgroup.procs"
        [ -z "$uid" ] || chown "$uid" "$own/$name" "$own/$name/cgroup.procs" "$own/$name/tasks" 2>/dev/null || true
    done < <(own_cgroups)
fi

if [ -z "$uid" ]; then
    "$@"
else
    home=$(mktemp -d)
    chown "$uid" "$home"
    export HOME=$home TMPDIR=/tmp USER=user$uid
    unset FORGE_HOME XDG_STATE_HOME XDG_RUNTIME_DIR
    rc=0
    groups=(--clear-groups)
    [ -z "${FORGE_TEST_GROUPS:-}" ] || groups=(--groups "$FORGE_TEST_GROUPS")
    setpriv --reuid "$uid" --regid "$uid" "${groups[@]}" "$@" || rc=$?
    rm -rf "$home"
    exit "$rc"
fi
