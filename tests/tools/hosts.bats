#!/usr/bin/env bats
# Hosts that lack something [43]: the run is refused with 125, the message names what is wrong
# here and how to change it, nothing is left, and the command never ran in something weaker.
# Each place is made for real where a test can (namespaces of our own, mounts in a private
# mount namespace), else with the shim. Needs root of the host; the runs are mostly a user's.
# SPDX-License-Identifier: Apache-2.0

# Every kind of namespace there is, as flags of clone and unshare.
NEW=7e020000
user=${FORGE_TEST_UID:-12345}

setup() {
    : "${FORGE:?set FORGE to the program under test}" "${NOSYS:?set NOSYS to the shim}"
    bats_require_minimum_version 1.5.0
    [ "$(id -u)" -eq 0 ] || skip "only root can make such hosts"
    . "$BATS_TEST_DIRNAME/../lib/cgroups.bash"
    # Not below the runner's directory, which is root's alone.
    dir=$(mktemp -d)
    chmod 755 "$dir"
    mkdir -m 700 "$dir/home" "$dir/work"
    export FORGE FORGE_HOME=$dir/home FORGE_CONFIG=$dir/forge.yaml HOME=$dir
    cd "$dir"
    configure
    give "$user"
    # Commands to put before another: an ordinary user with cgroups of its own, uid 0 of that
    # user's namespace, and the user in cgroups that are root's.
    as_user=("$BATS_TEST_DIRNAME/delegate.sh" --user "$user" env FORGE_HOME="$FORGE_HOME")
    new_namespace=(unshare --user --map-root-user --mount --pid --fork --mount-proc)
    nested=("${as_user[@]}" "${new_namespace[@]}")
    undelegated=(setpriv --reuid "$user" --regid "$user" --clear-groups)
}

teardown() { [ -z "${dir:-}" ] || rm -rf "$dir"; }

configure() { printf '%s\n' "version: 1" "workdir: $dir/work/{run_id}" "$@" >"$FORGE_CONFIG"; }

# give UID: the state, the configuration and the place of the workdirs are that user's.
give() { chown -R "$1" "$dir/home" "$dir/work" "$FORGE_CONFIG"; }

# first SCRIPT: sets $after to a command that runs the script before another, as root in a
# mount namespace of its own. $$ of the script is then forge, unless something is in between.
first() { after=(unshare --mount --propagation private sh -ec "$1"'; exec "$@"' sh); }

# The same with /proc/sys/kernel replaced by these sysctls: NAME VALUE...
with_sysctls() {
    first "mount -t tmpfs none /proc/sys/kernel
        while [ \$# -gt 0 ] && [ \"\$1\" != -- ]; do echo \"\$2\" >\"/proc/sys/kernel/\$1\"; shift 2; done; shift"
    after+=("$@" --)
}

# attempt COMMAND...: a run through the command. $said is all that forge says of it.
attempt() {
    run --separate-stderr "$@" "$FORGE" run --json -- sh -c 'echo it ran'
    said=$output$stderr
    echo "$status: $(jq -r .completion_notes <<<"$output" 2>/dev/null) $stderr"
}

# nothing_left: of all runs of this test, neither workdir nor cgroup nor slot.
nothing_left() {
    local id own
    [ -z "$(ls "$dir/work")" ]
    [ -z "$(find "$FORGE_HOME" -path '*/active/*' -type f -size +0)" ]
    for id in "$FORGE_HOME"/runs/*; do
        [ -e "$id" ] || continue
        id=${id##*/}
        for own in $(own_cgroups); do
            [ -z "$(find "$own" -name "forge-$id")" ]
        done
    done
}

# refused TEXT COMMAND...: with the text, nothing left, and the command never ran.
refused() {
    local text=$1
    shift
    attempt "$@"
    [ "$status" -eq 125 ]
    [[ "$said" == *"$text"* ]]
    run grep -rls 'it ran' "$FORGE_HOME/runs" --include=stdout
    [ -z "$output" ]
    nothing_left
}

# works COMMAND...: the same place without the obstacle, so that refused() can tell.
works() {
    attempt "$@"
    [ "$status" -eq 0 ]
    [ "$(jq -r .isolation.level <<<"$output")" = full ]
    grep -rqs 'it ran' "$FORGE_HOME/runs" --include=stdout
    nothing_left
    rm -rf "$FORGE_HOME"/runs/*
}

@test "[43] no user namespace may be made: the sysctl is named" {
    works "${nested[@]}"
    refused 'user.max_user_namespaces=15000 (it is 0)' \
        "${nested[@]}" sh -c 'echo 0 >/proc/sys/user/max_user_namespaces; exec "$@"' sh
}

@test "[43] no namespace of another kind may be made: that one is named" {
    for kind in net mnt pid ipc uts; do
        refused "user.max_${kind}_namespaces=15000 (it is 0)" "${nested[@]}" \
            sh -c "echo 0 >/proc/sys/user/max_${kind}_namespaces"'; exec "$@"' sh
    done
}

@test "[43] namespaces are used up around us: it says so" {
    # One is left, and it is not for the run.
    refused 'user.max_*_namespaces is used up' "${as_user[@]}" unshare --user --map-root-user \
        sh -c 'echo 1 >/proc/sys/user/max_user_namespaces; exec "$@"' sh "${new_namespace[@]}"
}

@test "[43] user namespaces are for root only (Debian's sysctl): it is named" {
    with_sysctls unprivileged_userns_clone 0
    refused 'sysctl kernel.unprivileged_userns_clone=1' \
        "${after[@]}" "${as_user[@]}" "$NOSYS" clone3=EPERM --
    with_sysctls unprivileged_userns_clone 1
    refused '' "${after[@]}" "${as_user[@]}" "$NOSYS" clone3=EPERM --
    [[ "$said" != *unprivileged_userns_clone* ]]
}

@test "[43] AppArmor restricts user namespaces (Ubuntu 24.04): sysctl and profile are named" {
    # There clone works, and what needs a capability of the new namespace does not.
    for call in clone3=EPERM sethostname=EPERM mount=EACCES; do
        with_sysctls apparmor_restrict_unprivileged_userns 1
        refused "profile with 'userns,' (forge setup --user NAME does, as root; docs/HOSTS.md), or sysctl kernel.apparmor_restrict_unprivileged_userns=0" \
            "${after[@]}" "${as_user[@]}" "$NOSYS" $call --
        with_sysctls apparmor_restrict_unprivileged_userns 0
        refused '' "${after[@]}" "${as_user[@]}" "$NOSYS" $call --
        [[ "$said" != *apparmor_restrict* ]]
    done
}

@test "[43] AppArmor does not restrict root, and is not named to it" {
    give 0
    with_sysctls apparmor_restrict_unprivileged_userns 1
    refused '' "${after[@]}" "$NOSYS" sethostname=EPERM --
    [[ "$said" != *apparmor_restrict* ]]
}

@test "[43] an AppArmor profile of a container is named" {
    give 0
    echo 'docker-default (enforce)' >profile
    # The kernel's own way to refuse: a chroot. The profile is what is looked for first.
    first "mount --bind '$dir/profile' /proc/\$\$/attr/current
        $(declare -f make_root); make_root '$dir/root'"
    refused "profile 'docker-default'" "${after[@]}" chroot "$dir/root"
    [[ "$said" == *"--security-opt apparmor=unconfined"* ]]
}

# make_root DIR: this host again, below a directory that is no mount point.
make_root() {
    mkdir "$1"
    for d in bin sbin lib lib32 lib64 libx32; do
        [ ! -L "/$d" ] || ln -s "$(readlink "/$d")" "$1/$d"
    done
    for d in usr etc dev proc sys tmp run; do
        mkdir "$1/$d"
        mount --rbind "/$d" "$1/$d"
    done
}

@test "[43] in a chroot: refused by the kernel itself, and it says why" {
    give 0
    first "$(declare -f make_root); make_root '$dir/root'"
    works "${after[@]}"
    rm -rf root
    refused 'refuses user namespaces in a chroot' "${after[@]}" chroot "$dir/root"
}

@test "[43] a kernel without a kind of namespace: it is named" {
    first 'mount -t tmpfs none /proc/$$/ns
        for kind in user mnt ipc uts net; do : >/proc/$$/ns/$kind; done'
    give 0
    refused 'built without pid namespaces' "${after[@]}" "$NOSYS" clone3=EINVAL --
}

@test "[43] parts of /proc are covered, as in a container: what and how to uncover it" {
    works "${nested[@]}"
    for cover in 'mount --bind /dev/null /proc/interrupts' 'mount -t tmpfs none /proc/irq' \
        'mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys'; do
        refused "covered, here /proc/" "${nested[@]}" sh -ec "$cover"'; exec "$@"' sh
        [[ "$said" == *'--security-opt systempaths=unconfined (podman: unmask=ALL)'* ]]
    done
}

@test "[43] ... also for root of the host" {
    give 0
    first 'mount --bind /dev/null /proc/interrupts'
    works unshare --mount --pid --fork --mount-proc
    refused 'covered, here /proc/interrupts' unshare --pid --fork --mount-proc "${after[@]}"
}

# What Docker's default seccomp profile refuses of what we use, without CAP_SYS_ADMIN.
docker_filter=(clone3 clone=EPERM:$NEW unshare=EPERM:$NEW setns=EPERM mount=EPERM umount2=EPERM
    open_tree=EPERM move_mount=EPERM mount_setattr=EPERM fsopen=EPERM fsconfig=EPERM
    fsmount=EPERM pivot_root=EPERM sethostname=EPERM)

@test "[43] in Docker's default seccomp filter: it is named, as user and as root" {
    refused '--security-opt seccomp=unconfined' "${as_user[@]}" "$NOSYS" "${docker_filter[@]}" --
    [[ "$said" == *"make the sandbox's namespaces: Operation not permitted"* ]]
    give 0
    refused '--security-opt seccomp=unconfined' "$NOSYS" "${docker_filter[@]}" --
}

@test "[43] whatever is refused alone, the command does not run without it" {
    works "${as_user[@]}" "$NOSYS" clone3 --
    for call in clone3 setresuid setresgid sethostname mount umount2 open_tree move_mount \
        mount_setattr fsopen fsconfig fsmount pivot_root unshare capset prctl symlinkat \
        landlock_create_ruleset landlock_add_rule landlock_restrict_self setrlimit:prlimit64; do
        calls=()
        for c in ${call//:/ }; do calls+=("$c=EPERM"); done
        refused '' "${as_user[@]}" "$NOSYS" "${calls[@]}" --
        [[ "$said" == *"not permitted"* || "$said" == *"cannot enforce"* ]]
    done
}

@test "[43] root without a capability: the message names it and how to get it" {
    give 0
    works
    for cap in sys_admin setuid setgid chown; do
        refused "it lacks CAP_${cap^^}" setpriv --bounding-set="-$cap" --inh-caps="-$cap"
        [[ "$said" == *"--cap-add ${cap^^}"* ]]
    done
}

@test "[43] no delegated cgroup: refused, with the place and the way" {
    refused 'docs/HOSTS.md' "${undelegated[@]}"
    if [ -d /sys/fs/cgroup/memory ]; then
        own=$(own_cgroups | grep /memory)
        [[ "$said" == *"make a cgroup below $own: Permission denied"*"give it to you"* ]]
    else
        [[ "$said" == *"Delegate=yes"* ]]
    fi
}

@test "[43] ... and doctor names forge setup as the fix" {
    give "$user"
    run "${undelegated[@]}" env HOME="$dir" "$FORGE" doctor
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"To fix:"*"memory"*"forge setup --user"* ]]
}

@test "[43] ... and on cgroup v1 the script of forge setup gives the user groups" {
    [ -d /sys/fs/cgroup/memory ] || skip "no cgroup v1 here"
    mkdir -p host/etc
    echo 'nobody:x:65534:65534::/:/bin/sh' >host/etc/passwd
    give 0
    "$FORGE" setup --root host --user nobody
    give 65534
    # The groups of this test are the whole hierarchy for it; those of the host stay as they are.
    mapfile -t own < <(own_cgroups)
    run --separate-stderr unshare --cgroup --mount --propagation private sh -ec '
        script=$1
        shift
        while [ "$1" != -- ]; do
            tree=${1#/sys/fs/cgroup/}
            mount --bind "$1" "/sys/fs/cgroup/${tree%%/*}"
            shift
        done
        shift
        "$script" start
        "$script" enter nobody $$
        exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"' \
        sh "$PWD/host/etc/init.d/forge-cgroups" "${own[@]}" -- "$FORGE" run --json -- sh -c 'echo it ran'
    echo "$output$stderr"
    [ "$status" -eq 0 ]
    [ "$(jq -r .isolation.level <<<"$output")" = full ]
    [ "$(jq -r .isolation.mechanisms.cgroup <<<"$output")" = v1 ]
    for group in "${own[@]}"; do
        [ ! -d "$group/forge-user-nobody" ] || rmdir "$group/forge-user-nobody"
    done
}

@test "[43] ... naming what may be missing is not enough: nobody chose to go without" {
    configure 'sandbox:' '  allow_missing: [memory, swap, cpus, pids, cpu_time]'
    give "$user"
    refused 'cgroup manager' "${undelegated[@]}"
}

@test "[43] ... and by choice it runs, and the record says what nobody enforced" {
    configure 'sandbox:' '  cgroup: none' '  allow_missing: [memory, swap, cpus, pids, cpu_time]'
    give "$user"
    attempt "${undelegated[@]}"
    [ "$status" -eq 0 ]
    [ "$(jq -r '.isolation.missing | sort | join(" ")' <<<"$output")" = "cpu_time cpus memory pids swap" ]
    [ "$(jq -r .isolation.level <<<"$output")" = partial ]
    [ "$(jq -r .isolation.mechanisms.cgroup <<<"$output")" = none ]
    nothing_left
}

@test "[43] a read-only /sys/fs/cgroup, as in a container: it says so" {
    give 0
    # Each hierarchy, or the one that a unified host has.
    first 'mountpoint -q /sys/fs/cgroup/memory && set -- /sys/fs/cgroup/*/ -- "$@" ||
            set -- /sys/fs/cgroup -- "$@"
        while [ "$1" != -- ]; do
            if mountpoint -q "$1"; then mount --bind "$1" "$1" && mount -o remount,bind,ro "$1"; fi
            shift
        done
        shift'
    refused '/sys/fs/cgroup is read-only here: give the container a writable one' "${after[@]}"
}

@test "[43] no cgroup file system at all: refused" {
    give 0
    first 'mount -t tmpfs none /sys/fs/cgroup'
    refused 'docs/HOSTS.md' "${after[@]}"
}
