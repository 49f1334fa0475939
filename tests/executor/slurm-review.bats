#!/usr/bin/env bats
# Slurm: what a review of the executor found. Verdicts of jobs that Slurm itself ends, repair while a watcher lives,
# and runs that cannot be reached.
# SPDX-License-Identifier: Apache-2.0

load ../lib/executor.bash

setup_file() { setup_cluster; }
teardown_file() { remove_cluster; }
setup() { setup_executor slurm; }
teardown() {
    [ -n "${T:-}" ] || return 0 # it was skipped
    slurm_mend
    teardown_executor
}

job_of() { slurm squeue -h -t all -n "forge-$1" -o %i; }
slot_of() { grep -lF "\"run_id\": \"$1\"" "$FORGE_HOME"/active/* || grep -lF "\"run_id\":\"$1\"" "$FORGE_HOME"/active/*; }
is_empty() { [ ! -s "$1" ]; }

@test "a job that Slurm ends at its time limit is killed for its time, and not cancelled" {
    start
    slurm scontrol update jobid="$(job_of "$id")" EndTime=now
    finished "$id"
    verdict killed wall_time 124
    [[ "$(field .completion_notes)" == *TIMEOUT* ]]
}

@test "a node that is taken away politely: lost, and tried again" {
    # The command is given time to end, and forge there, too.
    start --retry host_lost=1
    node=$(slurm squeue -h -t all -n "forge-$id" -o %N)
    slurm scontrol update nodename="$node" state=DOWN reason=away
    open_gate
    finished "$id"
    [ "$(field .attempt)" -eq 2 ]
    verdict succeeded exit 0
    [ "$(of "$(field .parent_run)" .reason)" = host_lost ]
}

@test "a run whose directory is gone is lost while others are watched" {
    start
    first=$id
    submit -i "$T/gate" -- sh -c "$(gated)"
    is_in "$id" running
    rm -r "$shared/$first.job"
    slurm scancel "$(job_of "$first")"
    run "$FORGE" wait -q "$first"
    [ "$(of "$first" .status)" = lost ]
    [ "$(of "$id" .status)" = running ]
    open_gate
    finished "$id"
    verdict succeeded exit 0
}

@test "a slot that was left after the verdict is repaired, and the watcher ends" {
    start
    slot=$(slot_of "$id")
    cp "$slot" "$T/slot"
    open_gate
    finished "$id"
    patiently is_empty "$slot"
    # As if its supervisor had been killed before it emptied the slot.
    cat "$T/slot" >"$slot"
    "$FORGE" ps >/dev/null
    patiently is_empty "$slot"
    patiently no_watcher
    [ "$(of "$id" .status)" = succeeded ]
}

@test "a shared directory that was replaced is refused; a run that cannot be reached is given up with --now" {
    declare_cluster "max_lag: 1s"
    start
    mv "$shared" "$shared.away"
    mkdir "$shared"
    forge_run -- true
    [ "$status" -eq 125 ]
    grep -q "not the directory that it was before" "$err"
    run "$FORGE" kill "$id"
    [ "$status" -eq 1 ]
    [[ "$output" == *"cannot be reached now"* ]]
    [ "$(of "$id" .status)" = running ]
    run "$FORGE" kill --now "$id"
    [ "$status" -eq 0 ]
    [ "$(of "$id" .status)" = lost ]
    rmdir "$shared"
    mv "$shared.away" "$shared"
    "$FORGE" gc >/dev/null
    open_gate
}

@test "memory is raised beyond what this host has: the cluster decides" {
    configure 'host: {budget: {cpus: 64, memory: 100M}}' "executors: {slurm: {$(cluster)}}"
    forge_run --memory 128M --retry memory=1 -- python3 -c 'b = b"x" * (150 << 20)'
    verdict succeeded exit 0
    [ "$(field .attempt)" -eq 2 ]
    [ "$(field .limits.memory_bytes)" -eq $((256 << 20)) ]
}

@test "a reason that does not pass has its minute from when it came" {
    declare_cluster "options: [--hold]" "max_pending: 1h"
    submit --cpus 64 -- true
    has_job() { [ -n "$(job_of "$id")" ]; }
    patiently has_job
    slot=$(slot_of "$id")
    # It was submitted long ago, for another reason.
    echo "{\"submitted_at\": $(($(date +%s) - 600))}" >>"$slot"
    run slurm scontrol release "$(job_of "$id")" # it is, and Slurm complains
    is_hopeless() { "$FORGE" ps | grep -qE "^$id .*pending: (PartitionConfig|Resources|BadConstraints)"; }
    patiently is_hopeless
    [ "$(of "$id" .status)" = queued ]
    "$FORGE" kill "$id"
    [ "$(of "$id" .status)" = cancelled ]
}

@test "a watcher can be ended as any process can" {
    start
    pid=$(watchers)
    [ "$(grep -o '^SigBlk:.*' "/proc/$pid/status" | awk '{ print $2 }')" = 0000000000000000 ]
    kill "$pid"
    patiently gone "$pid"
    open_gate
    finished "$id"
    verdict succeeded exit 0
}
