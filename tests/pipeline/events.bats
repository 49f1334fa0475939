#!/usr/bin/env bats
# The events of a pipeline: what programs learn of its graph and of its tasks.
# SPDX-License-Identifier: Apache-2.0

load ../lib/pipeline.bash
setup() { setup_pipeline; }
teardown() { teardown_pipeline; }

# plan FILTER: of the event "plan" in a file of events.
plan() { jq -c "select(.event == \"plan\") | $1" "${2:-run.json}"; }

@test "the event plan lists all tasks and what they wait for" {
    three_steps
    pipeline_run
    [ "$(plan '[.tasks[].task]')" = '["upper[a]","upper[b]","join","count"]' ]
    [ "$(plan '[.tasks[].step]')" = '["upper","upper","join","count"]' ]
    [ "$(plan '[.tasks[].needs]')" = '[[],[],["upper[a]","upper[b]"],["join"]]' ]
    # The second event, in the journal as well: programs read that while the pipeline runs.
    journal=$(echo "$FORGE_HOME"/pipelines/*/events.jsonl)
    [ "$(sed -n 2p "$journal" | jq -r .event)" = plan ]
    [ "$(plan . "$journal")" = "$(plan .)" ]
}

@test "events of tasks that do not run: cached and given with a run, left and skipped in the plan" {
    printf 'name: p\nparams: {deep: false}\nsteps: {a: {run: "echo a >o", outputs: [o]}, b: {inputs: {o: a/o}, run: "cat $o >o", outputs: [o]}, c: {inputs: {o: b/o}, run: "cat $o >o", outputs: [o]}, d: {when: $deep, inputs: {o: b/o}, run: "true"}}' >pipeline.yaml
    pipeline_run
    first=$(run_of a)
    [ "$(plan '.tasks[] | select(.task == "d") | .skipped')" = '"when: $deep"' ]
    pipeline_run
    [ "$(jq -r 'select(.event == "cached" and .task == "a") | .run_id' run.json)" = "$first" ]
    pipeline_run --only b --force b
    [ "$(jq -r 'select(.event == "given") | "\(.task) \(.run_id)"' run.json)" = "a $first" ]
    [ "$(plan '[.tasks[] | select(.left) | .task] | sort')" = '["a","c"]' ]
}

@test "in the plan, a step stands for its tasks where there are many" {
    values=$(seq -s, 250)
    printf 'name: wide\nsteps: {a: {foreach: {i: [%s]}, run: "echo $i >o", outputs: [o]}, b: {inputs: {o: a/o}, run: "cat $o/*/o >o", outputs: [o]}, c: {foreach: {i: [%s]}, inputs: {o: a/o}, run: "cat $o >o", outputs: [o]}}' "$values" "$values" >pipeline.yaml
    # Nothing needs to run for it: the first event is there, and then it is ended.
    forge pipeline run --json >run.json 3>&- &
    head=$!
    timeout 30 bash -c 'until grep -q "\"plan\"" run.json; do sleep 0.05; done'
    kill "$head"
    wait "$head" || true
    [ "$(plan '.tasks | length')" = 501 ]
    [ "$(plan '.tasks[] | select(.task == "b") | .needs')" = '[{"step":"a","tasks":250}]' ]
    [ "$(plan '.tasks[] | select(.task == "c[7]") | .needs')" = '["a[7]"]' ]
}
