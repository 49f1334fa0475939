#!/usr/bin/env bats
# One pipeline on this machine, in containers and on a cluster: its steps read each other's outputs, and a step on the
# cluster outlives the head of its pipeline and its own supervisor.
# SPDX-License-Identifier: Apache-2.0

load ../lib/pipeline.bash
load ../lib/executor.bash

setup_file() {
    setup_cluster
    setup_engines docker podman
}
teardown_file() {
    engines_remove
    remove_cluster
}
setup() {
    setup_executor slurm
    skip_unless "no container engine of our own: this host has no $(engines_missing)" test -n "${FORGE_ENGINES:-}"
    setup_project
    # A directory that every run sees and that is no part of a key.
    chmod 755 "$T/gate"
    budget "read_only: [$T/gate]"
}
teardown() {
    [ -n "${T:-}" ] || return 0 # it was skipped
    cd "$T"
    teardown_executor
}

# mixed: a step on each executor, in a row. Each says that it has begun, and reads its input when its gate is open.
mixed() {
    printf '%s\n' 'name: mixed' 'steps:' >pipeline.yaml
    row numbers local '' 'seq 4 >o'
    row squares docker numbers 'awk "{ print \$1 * \$1 }" $in >o'
    row sum slurm squares 'awk "{ n += \$1 } END { print n }" $in >o'
    row text podman sum 'echo "the sum is $(cat $in)" >o'
    row upper slurm text 'tr a-z A-Z <$in >o'
    row end local upper 'sed "s/$/!/" $in >o'
}
# row STEP EXECUTOR FROM COMMAND
row() {
    printf '  %s:\n    executor: %s\n    shell: sh\n    outputs: [o]\n    limits: {memory: 256M}\n' "$1" "$2"
    [ -z "$3" ] || printf '    inputs: {in: %s/o}\n' "$3"
    printf '    run: |\n      echo ready\n      until [ -e %s/gate/%s ] || [ -e %s/gate/open ]; do sleep 0.02; done\n      %s\n' "$T" "$1" "$T" "$4"
} >>pipeline.yaml

# begin STEP: the pipeline runs up to this step, which waits; $id is its run.
begin() {
    local step
    mixed
    for step in numbers squares sum text upper end; do
        [ "$step" != "$1" ] || break
        touch "$T/gate/$step"
    done
    start_head
    patiently event run "$1"
    id=$(jq -r "select(.event == \"run\" and .task == \"$1\") | .run_id" head.json)
    patiently says_ready
}

# Each step ran once, the last head has the right result, and another one has nothing to do.
each_ran_once() {
    local step
    for step in numbers squares sum text upper end; do
        echo "$step: $(runs_of "mixed.$step") runs"
        [ "$(runs_of "mixed.$step")" -eq 1 ] || {
            forge ps -a --json | jq -c "select(.analysis_id == \"mixed.$step\") | [.run_id, .status, .reason, .completion_notes]"
            return 1
        }
    done
    cp head.json run.json
    [ "$(output_of end o)" = "THE SUM IS 30!" ]
    pipeline_run
    [ -z "$(ran)" ]
    [ "$(count cached)" -eq 6 ]
    forge gc
    [ -z "$(find "$FORGE_HOME/staging" -mindepth 1)" ]
}

kill_supervisor() {
    local pid
    pid=$(supervisor_of "$id")
    kill -KILL "$pid"
    patiently gone "$pid"
}

@test "steps on four executors read each other's outputs; then nothing runs" {
    mixed
    open_gate
    start_head
    ended "$head"
    [ "$status" -eq 0 ]
    each_ran_once
    [ "$(of "$(run_of numbers)" .executor)" = local ]
    [ "$(of "$(run_of squares)" .executor)" = docker ]
    [ "$(of "$(run_of sum)" .executor)" = slurm ]
    [ "$(of "$(run_of text)" .executor)" = podman ]
    # Where a step runs is no part of its key.
    sed -i 's/executor: slurm/executor: local/' pipeline.yaml
    pipeline_run
    [ -z "$(ran)" ]
}

@test "the head is killed while a job runs: the next one follows the job" {
    begin sum
    kill_head
    start_head
    patiently event started sum
    [ "$(slurm_jobs | wc -l)" -eq 1 ]
    open_gate
    ended "$head"
    [ "$status" -eq 0 ]
    each_ran_once
}

@test "head and supervisor are killed while a job runs: gc leaves its inputs, and the next head takes its result" {
    begin sum
    kill_head
    kill_supervisor
    forge gc
    start_head
    patiently event started sum
    [ "$(slurm_jobs | wc -l)" -eq 1 ]
    forge gc
    open_gate
    ended "$head"
    [ "$status" -eq 0 ]
    each_ran_once
}

@test "head and supervisor are killed, and the job ends before the next head comes" {
    begin sum
    kill_head
    kill_supervisor
    open_gate
    finished "$id"
    [ "$status" -eq 0 ]
    start_head
    ended "$head"
    [ "$status" -eq 0 ]
    cp head.json run.json
    [ "$(ran)" = "end text upper" ]
    each_ran_once
}

@test "the supervisor of a job is killed, and the head is not: it follows the job" {
    begin sum
    kill_supervisor
    patiently event note sum
    [ "$(slurm_jobs | wc -l)" -eq 1 ]
    open_gate
    ended "$head"
    [ "$status" -eq 0 ]
    each_ran_once
}

@test "head and supervisor are killed one step after the other, on each executor that outlives them" {
    local step
    begin squares
    for step in squares sum text upper; do
        if [ "$step" != squares ]; then
            start_head
            patiently event run "$step"
            id=$(jq -r "select(.event == \"run\" and .task == \"$step\") | .run_id" head.json)
            patiently says_ready
        fi
        kill_head
        kill_supervisor
        forge gc
        touch "$T/gate/$step"
    done
    open_gate
    start_head
    ended "$head"
    [ "$status" -eq 0 ]
    each_ran_once
}

@test "SIGTERM ends a job that was followed" {
    begin sum
    kill_head
    kill_supervisor
    start_head
    patiently event started sum
    kill -TERM "$head"
    ended "$head"
    [ "$status" -eq 130 ]
    [ "$(of "$id" .status)" = cancelled ]
    patiently no_jobs
}
