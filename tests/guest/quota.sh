#!/bin/bash
# quota.sh FORGE PROBE: quota-test.sh in a guest with an XFS disk that has project quotas. TAP.
# SPDX-License-Identifier: Apache-2.0
here=$(dirname "$(realpath "$0")")
if ! command -v linux.uml >/dev/null || ! command -v mkfs.xfs >/dev/null; then
    echo "ok 1 project quotas in a guest # skip user-mode-linux or xfsprogs is not installed"
    echo 1..1
    exit 0
fi
disk=$(mktemp)
trap 'rm -f "$disk"' EXIT
truncate -s 320M "$disk"
mkfs.xfs -q -f "$disk"
UML_DISK=$disk "$here/run-uml.sh" "$here/../.." \
    "sh '$here/quota-test.sh' '$(realpath "$1")' '$(realpath "$2")'"
