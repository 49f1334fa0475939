#!/bin/bash
# run-systemd.sh SHARE: boots the image of mkroot.sh and runs SHARE/guest-run in it as root,
# from a service. Shows the console; returns guest-run's exit status.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
here=$(dirname "$(realpath "$0")")
share=$(realpath "$1")
image=$("$here/mkroot.sh")
run=$(mktemp -d)
trap 'rm -rf "$run"' EXIT

rm -f "$share/rc"
# The image stays as it is: what the guest writes goes into a copy-on-write file.
TMPDIR=/dev/shm timeout -k 5 "${UML_TIMEOUT:-300}" taskset -c "${UML_CPU:-0}" \
    "$here/linux-uml" mem="${UML_MEM:-1024M}" ubd0="$run/cow,$image" root=/dev/ubda rw \
    init=/lib/systemd/systemd systemd.show_status=0 forge.share="$share" \
    uml_dir="$run/" umid=guest con=null con0=null,fd:1 con1=null,fd:1 loglevel=1 \
    </dev/null | tr -d '\r' || true
exit "$(cat "$share/rc" 2>/dev/null || echo 125)"
