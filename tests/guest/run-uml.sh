#!/bin/bash
# run-uml.sh WORKDIR COMMAND: runs the shell command in a kernel of its own with a unified
# cgroup v2 hierarchy and returns its exit status. No image, no privileges, no KVM: the host's
# / is the guest's read-only root, WORKDIR is writable at the same path.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
here=$(dirname "$(realpath "$0")")
work=$(realpath "$1")
run=$(mktemp -d)
trap 'rm -rf "$run"' EXIT
printf '%s\n' "$2" >"$run/command"

# One CPU, or the tracer and the traced chase each other over two; memory on a tmpfs.
TMPDIR=/dev/shm timeout -k 5 "${UML_TIMEOUT:-300}" taskset -c "${UML_CPU:-0}" \
    "$here/linux-uml" mem="${UML_MEM:-768M}" root=/dev/root rootfstype=hostfs rootflags=/ ro \
    init="$here/uml-init" WORK="$work" RUN="$run" uml_dir="$run/" umid=guest \
    ${UML_DISK:+ubd0="$UML_DISK"} con=null con0=null,fd:1 con1=null,fd:1 loglevel=1 </dev/null | tr -d '\r' || true
exit "$(cat "$run/rc" 2>/dev/null || echo 125)"
