#!/bin/bash
# systemd.sh FORGE: systemd-test.sh in a guest booted with systemd. TAP.
# SPDX-License-Identifier: Apache-2.0
here=$(dirname "$(realpath "$0")")
if ! command -v linux.uml >/dev/null || ! command -v mmdebstrap >/dev/null; then
    echo "ok 1 systemd in a guest # skip user-mode-linux or mmdebstrap is not installed"
    echo 1..1
    exit 0
fi
share=$(mktemp -d)
trap 'rm -rf "$share"' EXIT
cp "$1" "$share/forge"
cp "$here/../tools/tap.sh" "$here/checks.sh" "$here/systemd-test.sh" "$share/"
echo 'exec sh /mnt/share/systemd-test.sh' >"$share/guest-run"
"$here/run-systemd.sh" "$share"
