#!/usr/bin/env bats
# Manager "none", by explicit choice: no cgroup, and what needs none holds all the same. What is
# not enforced stands in the record.
# SPDX-License-Identifier: Apache-2.0

load ../lib/forge.bash
setup() {
    setup_forge
    configure 'sandbox:' '  cgroup: none' '  allow_missing: [memory, swap, cpus, pids, cpu_time]'
    OPTS=(-i "$PROBE")
    # A time that no other process sleeps.
    nap=61.$$$BATS_TEST_NUMBER
}
teardown() { teardown_forge; }

# A script: three that sleep until killed, of which two have left the session and one its
# parent, and then what is given.
family() {
    echo "sleep $nap & setsid sleep $nap & (setsid sleep $nap &) & echo started; $1"
}
has_started() { grep -qs started "$FORGE_HOME"/runs/*/stdout; }
# All three sleepers are there: so no_family can tell.
has_family() { [ "$(pgrep -cf "^sleep $nap")" -eq 3 ]; }
no_family() { ! pgrep -f "^sleep $nap"; }

# The family was there, the verdict is this, and nobody is left.
family_died() {
    grep -q started "$out"
    verdict "$@"
    no_family
}

@test "none: a run works, and the record names what nobody enforced" {
    forge_run -- sh -c 'echo hello >file; cat file'
    [ "$status" -eq 0 ]
    [ "$(cat "$out")" = hello ]
    [ "$(field '.isolation.missing | sort | join(" ")')" = "cpu_time cpus memory pids swap" ]
    [ "$(field .isolation.level)" = partial ]
    [ "$(field .isolation.mechanisms.cgroup)" = none ]
    # What was not measured is not a zero.
    for key in memory_peak_bytes pids_peak cpu_seconds; do
        [ "$(field ".usage.$key")" = null ]
    done
    [ ! -e "$(field .workdir)" ]
}

@test "none: without leave to go without, it is refused and all of it is named" {
    configure 'sandbox:' '  cgroup: none'
    forge_run -- echo ran
    [ "$status" -eq 125 ]
    [ "$(field .status)" = rejected ]
    [[ "$(field .completion_notes)" == *"nothing enforces: memory, swap, cpus, pids, cpu_time"*allow_missing* ]]
    [ ! -s "$out" ]
    # One that is not named is enough.
    configure 'sandbox:' '  cgroup: none' '  allow_missing: [memory, swap, cpus, cpu_time]'
    forge_run -- echo ran
    [ "$status" -eq 125 ]
    [[ "$(field .completion_notes)" == *"nothing enforces: pids."* ]]
}

@test "none: leave to go without is not the choice to: where cgroups are, they are used" {
    configure 'sandbox:' '  allow_missing: [memory, swap, cpus, pids, cpu_time]'
    forge_run --memory 64M -- "$PROBE" mem-one 256
    verdict killed memory 137
    [ "$(field .isolation.level)" = full ]
}

@test "none: the wall time ends the whole tree" {
    forge_run --timeout 300ms --grace 100ms -- sh -c "$(family wait)"
    family_died killed wall_time 124
}

@test "none: ... also one that ignores being asked, after its grace" {
    forge_run --timeout 300ms --grace 200ms -- sh -c "$(family "trap '' TERM INT HUP; exec $PROBE stubborn 60")"
    family_died killed wall_time 124
    no_process_named stubborn
    awk -v t="$(field .usage.wall_seconds)" 'BEGIN { exit !(t >= 0.5 && t < 1.5) }'
}

@test "none: when the command ends, the rest of the tree goes with it" {
    forge_run -- sh -c "$(family 'exit 7')"
    [ "$status" -eq 7 ]
    grep -q started "$out"
    no_family
}

@test "none: the output limit ends the whole tree, to the byte" {
    forge_run --output-limit 64K -- sh -c "$(family "exec $PROBE flood 1")"
    family_died killed output 137
    [ "$(stat -c %s "$out")" -eq 65536 ]
}

@test "none: the disk limit ends the whole tree" {
    forge_run --disk 16M -- sh -c "$(family "exec $PROBE fill-many 64")"
    family_died killed disk 137
    forge_run --inodes 500 -- sh -c "$(family "exec $PROBE fill-inodes 100000")"
    family_died killed disk 137
}

@test "none: the disk limit counts deleted files too" {
    OPTS=(--disk 16M)
    for attack in fill-deleted fill-mapped; do
        probe "$attack" 64
        verdict killed disk 137
    done
}

@test "none: cancelled, the whole tree is gone" {
    background "$FORGE" run -q --grace 100ms -- sh -c "$(family wait)"
    wait_for has_started
    wait_for has_family
    status=0
    kill -TERM "$pid"
    wait "$pid" || status=$?
    [ "$status" -eq 130 ]
    no_family
}

@test "none: with the supervisor killed, nothing lives on" {
    background "$FORGE" run -q -- sh -c "$(family wait)"
    wait_for has_started
    wait_for has_family
    kill -KILL "$pid"
    wait "$pid" || true
    started=()
    wait_for no_family
    run "$FORGE" gc
    [ "$status" -eq 0 ]
}

@test "none: the sandbox is as closed as with cgroups" {
    holds cgroup
    holds core
    [ "$(field .isolation.mechanisms.seccomp)" = filter ]
}
