#!/usr/bin/env bats
# Workdirs that hold more than one "device": subvolumes of btrfs, which a run may make, are removed
# with it; what is mounted there is somebody else's and is not touched. Needs root, for the mounts.
# SPDX-License-Identifier: Apache-2.0

user=${FORGE_TEST_UID:-12345}

setup() {
    : "${FORGE:?set FORGE to the program under test}"
    bats_require_minimum_version 1.5.0
    [ "$(id -u)" -eq 0 ] || skip "only root can mount"
    dir=$(mktemp -d)
    chmod 755 "$dir"
    mkdir -m 700 "$dir/home"
    mkdir "$dir/disk"
    export FORGE FORGE_HOME=$dir/home FORGE_CONFIG=$dir/forge.yaml HOME=$dir
    printf '%s\n' "version: 1" "workdir: $dir/disk/work/{run_id}" >"$FORGE_CONFIG"
    cd "$dir"
    pid=
}

teardown() {
    [ -n "${dir:-}" ] || return 0
    [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
    if mountpoint -q "$dir/disk"; then
        umount "$dir/disk"
    fi
    rm -rf "$dir"
}

# mount_btrfs OWNER: on disk, with a directory for workdirs.
mount_btrfs() {
    command -v mkfs.btrfs >/dev/null || skip "no mkfs.btrfs here (btrfs-progs)"
    truncate -s 200M image
    mkfs.btrfs -q image
    mount -o loop image disk || skip "no loop device or no btrfs in this kernel"
    mkdir -m 700 disk/work
    chown -R "$1" disk/work home forge.yaml
}

# Subvolumes in directories in subvolumes, a read-only snapshot with the place of a subvolume in
# it, and both far below each other.
nest='set -e
    btrfs -q subvolume create sub
    mkdir -p sub/a/b
    btrfs -q subvolume create sub/a/inner
    echo x >sub/a/inner/file
    btrfs -q subvolume snapshot -r sub sub/snapshot
    d=sub/a/inner
    for i in $(seq 100); do mkdir $d/d; d=$d/d; done
    for i in $(seq 40); do btrfs -q subvolume create $d/s; d=$d/s; done
    echo x >$d/file
    chmod 0 sub/a'

# gone: the run succeeded, and no subvolume is left of it.
gone() {
    echo "$status $stderr"
    [ "$status" -eq 0 ]
    [ "$(jq -r .cleanup_error <<<"$output")" = null ]
    [ -z "$(ls disk/work)" ]
    [ -z "$(btrfs subvolume list disk)" ]
}

@test "[15] subvolumes that a run made are removed with its workdir" {
    mount_btrfs 0
    run --separate-stderr "$FORGE" run --json -- bash -c "$nest"
    gone
}

@test "[15] ... also of an ordinary user" {
    mount_btrfs "$user"
    run --separate-stderr "$BATS_TEST_DIRNAME/delegate.sh" --user "$user" \
        env FORGE_HOME="$FORGE_HOME" "$FORGE" run --json -- bash -c "$nest"
    gone
}

@test "--keep gives subvolumes to the caller too" {
    mount_btrfs 0
    run --separate-stderr "$FORGE" run --json --keep -- \
        sh -c 'btrfs -q subvolume create sub && mkdir sub/a && touch sub/a/file'
    [ "$status" -eq 0 ]
    [ "$(find disk/work -mindepth 1 -printf '%U\n' | sort -u)" = 0 ]
    compgen -G "disk/work/*/sub/a/file"
}

@test "[15] what somebody mounts in a workdir is not emptied, and said" {
    mkdir -m 700 disk/work
    mkdir victim
    echo data >victim/file
    mkfifo stdin
    # In a mount namespace of its own, so that a failure leaves no mount. Same file system.
    unshare --mount --propagation private "$FORGE" run --json --stdin -- \
        sh -c 'mkdir m; echo ready; read -r _' <stdin >record 2>err 3>&- &
    pid=$!
    exec {feed}>stdin
    until grep -qs ready "$FORGE_HOME"/runs/*/stdout; do kill -0 "$pid"; done
    nsenter --target "$pid" --mount mount --bind "$dir/victim" "$(echo "$dir"/disk/work/*/work)/m"
    echo >&"$feed"
    exec {feed}>&-
    wait "$pid"
    pid=
    [ "$(cat victim/file)" = data ]
    [[ "$(jq -r .cleanup_error record)" == *"cross-device"* ]]
    # Without the mount the next repair removes it.
    run "$FORGE" gc
    [ "$status" -eq 0 ]
    [ -z "$(ls disk/work)" ]
    [ "$(cat victim/file)" = data ]
}
