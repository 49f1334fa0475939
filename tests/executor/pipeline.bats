#!/usr/bin/env bats
# Pipelines whose steps run in containers and here: they read each other's outputs, and a step in a container outlives
# the head of its pipeline and its own supervisor.
# SPDX-License-Identifier: Apache-2.0

load ../lib/pipeline.bash
load ../lib/executor.bash

setup_file() { setup_engines docker podman; }
teardown_file() { engines_remove; }
setup() {
    setup_executor docker
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

# slow EXECUTOR: three steps; the second is there, and reads its input when there is a file gate/open.
slow() {
    cat >pipeline.yaml <<Y
name: slow
executor: local
steps:
  a: {run: seq 4 >o, outputs: [o]}
  b:
    executor: $1
    shell: sh
    inputs: {o: a/o}
    run: |
      echo ready
      $(gated)
      awk '{ n += \$1 } END { print n }' \$o >o
    outputs: [o]
  c: {inputs: {o: b/o}, run: 'sed s/\$/!/ \$o >o', outputs: [o]}
Y
}

# begin_slow EXECUTOR: the pipeline runs, its step b among others; $id is that run.
begin_slow() {
    slow "$1"
    start_head
    patiently event run b
    id=$(jq -r 'select(.event == "run" and .task == "b") | .run_id' head.json)
    patiently says_ready
}

# Each step ran once, and the last head took the results of all.
each_ran_once() {
    [ "$(runs_of slow.a)" -eq 1 ]
    [ "$(runs_of slow.b)" -eq 1 ]
    [ "$(runs_of slow.c)" -eq 1 ]
    cp head.json run.json
    [ "$(output_of c o)" = "10!" ]
    pipeline_run
    [ -z "$(ran)" ]
    [ "$(count cached)" -eq 3 ]
    # What killed supervisors have left is removed, now that no run needs it.
    forge gc
    [ -z "$(find "$FORGE_HOME/staging" -mindepth 1)" ]
}

@test "steps here, in Docker and in Podman read each other's outputs; then nothing runs" {
    cat >pipeline.yaml <<'Y'
name: mixed
params: {parts: [x, y]}
steps:
  make: {foreach: {part: $parts}, run: 'echo "$part" >o.txt', outputs: [o.txt]}
  join:
    executor: docker
    shell: sh
    inputs: {all: make/o.txt}
    run: cat $all/*/o.txt | tr a-z A-Z >joined
    outputs: [joined]
  count:
    executor: podman
    inputs: {text: join/joined, x: "make/o.txt"}
    script: count.py
    outputs: [n.json]
  end: {inputs: {n: count/n.json, text: join/joined}, run: 'cat $n $text >end', outputs: [end]}
Y
    cat >count.py <<'PY'
import json, os
json.dump(len(open(os.environ["text"]).readlines()), open("n.json", "w"))
PY
    pipeline_run
    [ "$(ran)" = "count end join make[x] make[y]" ]
    [ "$(of "$(run_of "make[x]")" .executor)" = local ]
    [ "$(of "$(run_of join)" .executor)" = docker ]
    [ "$(of "$(run_of count)" .executor)" = podman ]
    [ "$(output_of end end)" = $'2X\nY' ]
    pipeline_run
    [ -z "$(ran)" ]
    [ "$(count cached)" -eq 5 ]
    # Where a step runs is no part of its key.
    sed -i 's/executor: docker/executor: podman/' pipeline.yaml
    pipeline_run
    [ -z "$(ran)" ]
}

# killed_head EXECUTOR: the next head follows the run of the first.
killed_head() {
    begin_slow "$1"
    kill_head
    start_head
    patiently event started b
    [ "$(containers "$1" | wc -l)" -eq 1 ]
    open_gate
    ended "$head"
    [ "$status" -eq 0 ]
    each_ran_once
}
@test "Docker: the head is killed while a container runs: the next one follows it" { killed_head docker; }
@test "Podman: the head is killed while a container runs: the next one follows it" { killed_head podman; }

# Another supervisor attends the run.
is_adopted() {
    local now
    now=$(jq -rs 'map(select(.pid)) | last | .pid' "$FORGE_HOME"/active/*)
    [ "$now" != "$pid" ] && is_not gone "$now"
}

# killed_both EXECUTOR: and its supervisor. gc must not remove what the container still needs.
killed_both() {
    begin_slow "$1"
    pid=$(supervisor_of "$id")
    kill_head
    kill -KILL "$pid"
    patiently gone "$pid"
    # This starts another supervisor.
    forge gc
    patiently is_adopted
    start_head
    patiently event started b
    [ "$(containers "$1" | wc -l)" -eq 1 ]
    forge gc
    open_gate
    ended "$head"
    [ "$status" -eq 0 ]
    each_ran_once
}
@test "Docker: head and supervisor are killed: the container goes on, and the next head takes its result" { killed_both docker; }
@test "Podman: head and supervisor are killed: the container goes on, and the next head takes its result" { killed_both podman; }

@test "head and supervisor are killed, and the step ends before the next head comes" {
    begin_slow docker
    pid=$(supervisor_of "$id")
    kill_head
    kill -KILL "$pid"
    patiently gone "$pid"
    open_gate
    forge gc
    finished "$id"
    [ "$status" -eq 0 ]
    start_head
    ended "$head"
    [ "$status" -eq 0 ]
    cp head.json run.json
    [ "$(ran)" = c ]
    each_ran_once
}

@test "head and supervisor are killed, and nothing but the next head comes" {
    begin_slow docker
    pid=$(supervisor_of "$id")
    kill_head
    kill -KILL "$pid"
    patiently gone "$pid"
    open_gate
    start_head
    ended "$head"
    [ "$status" -eq 0 ]
    each_ran_once
}

@test "the supervisor is killed, and the head is not: it follows the container" {
    begin_slow docker
    pid=$(supervisor_of "$id")
    kill -KILL "$pid"
    patiently gone "$pid"
    patiently event note b
    [ "$(containers docker | wc -l)" -eq 1 ]
    open_gate
    ended "$head"
    [ "$status" -eq 0 ]
    each_ran_once
}

@test "SIGTERM ends a run that was followed, if it is of the same pipeline" {
    begin_slow docker
    kill_head
    start_head
    patiently event started b
    kill -TERM "$head"
    ended "$head"
    [ "$status" -eq 130 ]
    cat head.json
    [ "$(of "$id" .status)" = cancelled ]
    [ -z "$(containers docker)" ]
}

@test "... and leaves it alone if it is of another pipeline, which goes on" {
    begin_slow docker
    first=$head
    sed 's/name: slow/name: other/' pipeline.yaml >other.yaml
    forge pipeline run --json other.yaml >second.json 2>second.err 3>&- &
    second=$!
    patiently event started b second.json
    kill -TERM "$second"
    ended "$second"
    [ "$status" -eq 130 ]
    jq -r 'select(.event == "failed") | .notes' second.json | grep -F "run $id goes on"
    has_status "$id" running
    open_gate
    ended "$first"
    [ "$status" -eq 0 ]
    each_ran_once
}

@test "a followed run is seen to end while other steps come and go" {
    begin_slow docker
    kill_head
    printf '  noise: {foreach: {i: [%s]}, run: ": $i"}\n' "$(seq -s, 400)" >>pipeline.yaml
    start_head --jobs 3
    patiently event started b
    open_gate
    patiently event 'done' b
    [ "$(jq -s 'map(select(.event == "done")) | length' head.json)" -lt 400 ]
    kill_head
}

@test "the supervisor is killed again and again while a head follows its run" {
    begin_slow docker
    for _ in 1 2 3; do
        pid=$(jq -rs 'map(select(.pid)) | last | .pid' "$FORGE_HOME"/active/*)
        kill -KILL "$pid"
        patiently is_adopted
    done
    [ "$(containers docker | wc -l)" -eq 1 ]
    open_gate
    ended "$head"
    [ "$status" -eq 0 ]
    each_ran_once
}
