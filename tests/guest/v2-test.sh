#!/bin/sh
# v2-test.sh FORGE PROBE: the manager "v2" on a real unified hierarchy, inside the guest of
# run-uml.sh: as root, and as an ordinary user with a delegated subtree. TAP.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../tools/tap.sh"
. "$(dirname "$0")/checks.sh"

cg=/sys/fs/cgroup
# hostfs knows only the host's users: everything forge touches is on a tmpfs.
cp "$1" /tmp/forge
cp "$2" /tmp/forge-probe
chmod 755 /tmp/forge /tmp/forge-probe
export FORGE=/tmp/forge

# A group that gives its children all controllers, as a service manager would keep one.
parent=$cg/tests
mkdir "$parent"
echo '+cpu +memory +pids +io' >"$cg/cgroup.subtree_control"
echo '+cpu +memory +pids +io' >"$parent/cgroup.subtree_control"

# in_group COMMAND...: runs it alone in a new group of its own, as $who.
in_group() {
    group=$parent/$who-$(cat /proc/sys/kernel/random/uuid)
    mkdir "$group"
    if [ "$who" = user ]; then
        chown 1000:1000 "$group" "$group/cgroup.procs" "$group/cgroup.threads" \
            "$group/cgroup.subtree_control"
        set -- setpriv --reuid 1000 --regid 1000 --clear-groups "$@"
    fi
    # exec_in=exec: in the background, the process started is the command's own
    ${exec_in:-} sh -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' "$group" "$@"
}

# Groups of runs below that of the last in_group; the supervisors' own leaf is no run's.
groups_left() {
    find "$cg/tests" -mindepth 2 -type d -name 'forge-*' ! -name forge-supervisors
}

# From outside: init and the command are in the run's group, the supervisor is not.
lives_in_its_group() {
    start_in_background in_group
    procs=$(cat "$(groups_left)/cgroup.procs")
    is "$who: init and the command are in the run's group" "$(echo "$procs" | wc -l)" 2
    # shellcheck disable=SC2154 # start_in_background set it
    is "$who: ... and the supervisor is not" "$(echo "$procs" | grep -x "$pid")" ""
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null
    in_group "$FORGE" gc >"$home/gc" 2>&1
    is "$who: after SIGKILL of the supervisor gc leaves no group" "$(groups_left)" ""
    is "$who: ... and the record is closed as lost" \
        "$(jq -r .status "$FORGE_HOME"/runs/*/record.json | grep -c lost)" 1
}

# The clock is stepped while a run sleeps: its time limit must not notice.
survives_clock_steps() {
    (exec_in="exec" && in_group "$FORGE" run --json --timeout 2s --grace 100ms -- sleep 77) \
        >"$home/record" 2>"$home/stderr" &
    pid=$!
    until [ -n "$(sleepers)" ]; do :; done
    date -s '+1 day' >/dev/null
    date -s '-2 days' >/dev/null
    wait "$pid"
    # shellcheck disable=SC2034 # verdict_is looks at it
    status=$?
    verdict_is "a stepped clock does not end a run" "124 killed wall_time"
    is "$who: ... nor keep it" "$(field '.usage.wall_seconds | . >= 2 and . < 6')" true
    date -s '+1 day' >/dev/null
}

# Frozen from outside, it cannot answer a signal; it must die all the same.
kills_the_frozen() {
    start_in_background in_group
    echo 1 >"$(groups_left)/cgroup.freeze"
    kill -TERM "$pid"
    until grep -q cancelled "$FORGE_HOME"/runs/*/events.jsonl; do :; done
    kill -TERM "$pid"
    wait "$pid"
    # shellcheck disable=SC2034 # verdict_is looks at it
    status=$?
    verdict_is "a frozen run is killed" "130 cancelled cancelled"
    is "$who: ... with all it started" "$(sleepers)" ""
}

# On a host where whoever changes its ids can be debugged, init must not be: without Landlock nothing else
# keeps the command, which has the same uid, from reading it.
hides_init() {
    echo 1 >/proc/sys/fs/suid_dumpable
    record "$@" -- sh -c 'cat /proc/1/environ || cat /proc/1/maps || ls /proc/1/fd/ || echo safe'
    is "$who: init cannot be read where ids change nothing" "$(cat "$(field .logs.stdout)")" safe
    echo 0 >/proc/sys/fs/suid_dumpable
}

# With swap on, a limit that only counts memory would let the rest move there.
limits_swap() {
    if ! mkswap -q /dev/ubda 2>/dev/null || ! swapon /dev/ubda; then
        skip "$who: swap does not help" "the guest has no disk to swap to"
        return
    fi
    # tail keeps what has no line end: more than the limit, less than limit and swap
    record "$@" -- --memory 48M -- sh -c 'head -c 80M /dev/zero | tail >/dev/null'
    verdict_is "swap does not help" "137 killed memory"
    is "$who: ... which is not missing" "$(field '.isolation.missing | index("swap")')" null
    swapoff /dev/ubda
}

# ext4 on the guest's disk, and a limit on that.
limits_io() {
    if ! mkfs.ext4 -q -F /dev/ubda 2>/dev/null || ! mkdir -p /tmp/disk || ! mount -t ext4 /dev/ubda /tmp/disk; then
        skip "$who: the I/O rate holds" "the guest has no disk with ext4"
        return
    fi
    chmod 1777 /tmp/disk
    record "$@" -- --io-rate 4M -- true
    verdict_is "on a tmpfs an I/O rate is refused" "125 rejected sandbox"
    ok "$who: ... by name" grep -q 'is on tmpfs' "$home/record"
    cp forge.yaml later.yaml
    echo 'workdir: /tmp/disk/{id}' >>forge.yaml
    record "$@" -- -- /tmp/forge-probe io-rate 8 4
    ok "$who: without a limit the disk is faster" grep -q '^broke' "$(field .logs.stdout)"
    is "$who: ... and the io controller stays off" "$(grep -cw io "$group/cgroup.subtree_control")" 0
    record "$@" -- --io-rate 4M -- /tmp/forge-probe io-rate 8 4
    ok "$who: the I/O rate holds" grep '^held' "$(field .logs.stdout)"
    note "$(cat "$(field .logs.stdout)") $(field .completion_notes)"
    is "$who: ... by the io controller" "$(grep -cw io "$group/cgroup.subtree_control")" 1
    # syncfs has the kernel's own threads write back, which on v2 is charged to the run.
    record "$@" -- --io-rate 4M -- sh -c 'head -c 8M /dev/zero >file && sync -f .'
    is "$who: ... for buffered writes as well" "$(field '.usage.wall_seconds | . > 1.5 and . < 20')" true ||
        note "$(field .usage.wall_seconds)"
    record "$@" -- --io-rate 1M --timeout 1s --grace 100ms --memory 256M -- /tmp/forge-probe io-stuck 32
    verdict_is "a run that waits for its disk ends on time" "124 killed wall_time"
    is "$who: ... not when the disk has done it" "$(field '.usage.wall_seconds < 8')" true ||
        note "$(field .usage.wall_seconds)"
    without_io "$@"
    mv later.yaml forge.yaml
    umount /tmp/disk
}

# Kernel memory that no controller counts: refused at a number, or the run is ended for it.
limits_kernel_memory() {
    record "$@" -- --memory 16M --timeout 60s -- /tmp/forge-probe file-locks 200 5
    verdict_is "locks of files end the run" "137 killed memory"
    ok "$who: ... and the sentence says what it was" grep -q "of the host's kernel memory" "$home/record"
    record "$@" -- --memory 64M --timeout 60s -- /tmp/forge-probe netlink-errors 600 1
    is "$who: sockets are refused at their number" "$(field '.usage.sockets_refused >= 1')" true
}

# What is held where nobody looks counts for the disk limit.
limits_held_disk() {
    for attack in fill-lines fill-programs fill-locked; do
        record "$@" -- --disk 20M --timeout 60s -- /tmp/forge-probe "$attack" 120
        verdict_is "$attack is over the disk limit" "137 killed disk"
    done
    record "$@" -- --disk 20M -- /tmp/forge-probe allocate 100
    ok "$who: blocks cannot be taken without writing" grep -q '^held' "$(field .logs.stdout)"
}

# A program of the host that takes cores gets none of a run, whatever the run does to its limits.
gives_no_core() {
    printf '#!/bin/sh\necho seen >>/tmp/cores\n' >/tmp/take-core
    chmod 755 /tmp/take-core
    rm -f /tmp/cores
    echo '|/tmp/take-core' >/proc/sys/kernel/core_pattern
    record "$@" -- -- /tmp/forge-probe core
    ok "$who: the core limit cannot be changed" grep -q '^held' "$(field .logs.stdout)"
    is "$who: no core leaves the run" "$(cat /tmp/cores 2>/dev/null)" ""
    # So that this can fail: outside there is one, also at a limit of 0.
    sh -c 'ulimit -c 0; kill -ABRT $$' 2>/dev/null
    is "$who: ... and outside one does" "$(head -n 1 /tmp/cores 2>/dev/null)" seen
    echo core >/proc/sys/kernel/core_pattern
}

# A group whose parent does not give the io controller, as a user's manager does not.
without_io() {
    parent=$cg/narrow
    mkdir -p "$parent"
    echo '+cpu +memory +pids' >"$parent/cgroup.subtree_control"
    record "$@" -- --io-rate 4M -- true
    parent=$cg/tests
    verdict_is "without the io controller an I/O rate is refused" "125 rejected sandbox"
    ok "$who: ... by name" grep -q 'the io controller, .* ubda, is not delegated to' "$home/record"
}

for who in root user; do
    home=/tmp/$who
    mkdir -p "$home/state"
    printf 'sandbox:\n  allow_missing: [landlock]\n' >"$home/forge.yaml"
    [ "$who" = root ] || chown -R 1000:1000 "$home"
    cd "$home" || exit 1
    export HOME="$home" FORGE_HOME="$home/state"
    note "as $who"

    mv forge.yaml later.yaml
    refuses_without_landlock in_group
    mv later.yaml forge.yaml

    succeeds in_group v2
    is "$who: exactly Landlock is missing" \
        "$(jq -r '.isolation.missing | sort | join(" ")' "$home/record")" "landlock"
    is "$who: the level says so" "$(jq -r .isolation.level "$home/record")" partial
    lives_in_its_group
    limits_memory in_group
    limits_memory_of_all in_group
    limits_pids in_group
    limits_cpus in_group
    limits_cpu_time in_group
    limits_wall_time in_group
    cancels in_group
    rm -rf "$FORGE_HOME"/runs
    kills_the_frozen
    survives_clock_steps
    hides_init in_group
    limits_kernel_memory in_group
    limits_held_disk in_group
    gives_no_core in_group
    limits_swap in_group
    limits_io in_group
    is "$who: no group of a run is left" "$(groups_left)" ""
    is "$who: no workdir is left" "$(find /tmp -maxdepth 1 -name 'scidex-*')" ""
    # Landlock is not there, so full it is not; nothing else may be wrong.
    in_group "$FORGE" doctor --json >"$home/doctor" 2>/dev/null
    is "$who: doctor exits 1" $? 1
    # User-Mode Linux takes int 0x80 for the 64-bit call of that number, so there is no foreign
    # ABI to refuse: the filter judges the call that is really made.
    is "$who: doctor finds nothing broken, and all but Landlock holds" \
        "$(jq -r '[.checks[] | select(.state != "pass" and .promise != "foreign ABIs") |
            .state + " " + .promise] | join(", ")' "$home/doctor")" "cannot second wall, cannot host network" ||
        note "$(jq -c '.checks[] | select(.state != "pass")' "$home/doctor")"
    ok "$who: doctor looked at many promises" \
        test "$(jq '[.checks[] | select(.state == "pass")] | length' "$home/doctor")" -ge 10
done
done_testing
