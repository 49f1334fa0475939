#!/bin/sh
# install-deps.sh GROUP...: installs the Debian packages of a group that are not there yet.
# Touches neither the network nor root rights when nothing is missing.
# SPDX-License-Identifier: Apache-2.0
set -eu

packages() {
    case $1 in
    build) echo gcc libc6-dev make meson ninja-build pkg-config libcmocka-dev libyaml-dev libjansson-dev \
        libseccomp-dev libsystemd-dev libsqlite3-dev libssl-dev libpq-dev libcurl4-openssl-dev libmicrohttpd-dev scdoc ;;
    runtimes) echo bcftools bedtools bowtie2 python3-anndata python3-ipykernel python3-matplotlib \
        python3-nbclient python3-nbformat python3-numpy python3-pandas python3-scipy \
        python3-sklearn r-base-core r-cran-irkernel r-cran-mass r-cran-survival samtools ;;
    test) packages demo
        packages runtimes
        echo bats bsdextrautils btrfs-progs busybox-static chromium clang conmon crun curl docker.io e2fsprogs iproute2 jq libcurl4 \
            libmicrohttpd12 man-db mmdebstrap munge mypy passwd podman postgresql procps prometheus python3 \
            python3-jsonschema python3-pip python3-setuptools python3-venv python3-wheel runc shellcheck slurm-wlm snakemake \
            strace tmux uidmap user-mode-linux util-linux xfsprogs zsh
        # Another Node than Debian's is as good.
        command -v node >/dev/null && command -v npm >/dev/null || echo nodejs npm ;;
    demo) packages build
        echo bcftools bedtools bowtie2 bowtie2-examples jq python3 python3-matplotlib python3-numpy python3-pandas \
            python3-scipy python3-sklearn samtools ;;
    bench) packages build
        echo bubblewrap busybox-static curl docker.io firejail jq munge podman python3 runc slurm-wlm snakemake sqlite3 util-linux wrk ;;
    *)
        echo "install-deps.sh: unknown group '$1' (have: build, test, demo, bench, runtimes)" >&2
        exit 2
        ;;
    esac
}

is_installed() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        echo "install-deps.sh: needs root or sudo to install:$missing" >&2
        exit 1
    fi
}

[ $# -gt 0 ] || set -- build
if ! command -v dpkg-query >/dev/null; then
    echo "install-deps.sh: not a Debian system; please see to these yourself:" >&2
    for group; do packages "$group"; done >&2
    exit 0
fi

missing=
for group; do
    list=$(packages "$group")
    for package in $list; do
        is_installed "$package" || missing="$missing $package"
    done
done
[ -n "$missing" ] || exit 0

echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
as_root apt-get update -qq
# shellcheck disable=SC2086 # a list of names
as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends $missing >/dev/null
