#!/bin/bash
# uml.sh FORGE PROBE: v2-test.sh, places-test.sh, setup-test.sh, container-test.sh and rootless-test.sh, each in a guest with a unified hierarchy. TAP.
# SPDX-License-Identifier: Apache-2.0
here=$(dirname "$(realpath "$0")")
forge=$(realpath "$1") probe=$(realpath "$2")
if ! command -v linux.uml >/dev/null; then
    echo "ok 1 unified cgroup v2 in a guest # skip user-mode-linux is not installed"
    echo 1..1
    exit 0
fi
disk=$(mktemp) # to swap to, and to limit
trap 'rm -f "$disk"' EXIT
truncate -s 64M "$disk"
rc=0
UML_DISK=$disk "$here/run-uml.sh" "$here/../.." "sh '$here/v2-test.sh' '$forge' '$probe'" || rc=1
"$here/run-uml.sh" "$here/../.." "sh '$here/places-test.sh' '$forge'" || rc=1
"$here/run-uml.sh" "$here/../.." "sh '$here/setup-test.sh' '$forge' '$probe'" || rc=1
if command -v podman >/dev/null; then
    "$here/run-uml.sh" "$here/../.." "sh '$here/container-test.sh' '$forge'" || rc=1
    "$here/run-uml.sh" "$here/../.." "sh '$here/rootless-test.sh' '$forge'" || rc=1
else
    printf 'ok 1 forge in a container # skip podman is not installed\n1..1\n'
fi
exit $rc
