# pipeline.bash: for tests of forge pipeline, on top of store.bash. The current directory is the user's project.
# shellcheck shell=bash disable=SC2034,SC2154 # the tests' variables and ours
# SPDX-License-Identifier: Apache-2.0
load ../lib/store.bash

setup_pipeline() {
    setup_store
    setup_project
}

# For a test that has its store already.
setup_project() {
    mkdir -p "$T/project/data" "$T/bin"
    ln -sf "$FORGE" "$T/bin/forge"
    export PATH=$T/bin:$PATH
    # Inputs of root's runs are read by another user.
    chmod 755 "$T" "$T/project" "$T/project/data"
    cd "$T/project" || return
}

teardown_pipeline() {
    cd "$T" || return
    teardown_store
}

# The state of a task: from what `forge pipeline run --json` printed last into run.json.
pipeline_run() { forge pipeline run --json "$@" >run.json; }
# ran: the tasks that were started, with blanks between them, sorted.
ran() { jq -r 'select(.event == "started") | .task' run.json | sort | xargs; }
# why TASK: the reason that was given.
why() { jq -r "select(.event == \"started\" and .task == \"$1\") | .why" run.json; }
# count STATE: tasks that ended in it.
count() { jq "select(.event == \"end\") | .tasks.$1" run.json; }
# run_of TASK: the id of its last run.
run_of() { jq -r "select(.task == \"$1\" and .run_id) | .run_id" run.json | tail -1; }
# output_of TASK FILE: the content of an output.
output_of() {
    local id
    id=$(run_of "$1")
    rm -rf "$T/copied"
    forge outputs --copy "$T/copied" "$id" >/dev/null
    cat "$T/copied/$2"
}

# Three steps in a row, the first of two tasks.
three_steps() {
    echo hello >data/a.txt
    echo world >data/b.txt
    cat >pipeline.yaml <<'YAML'
name: three
params: {end: "!"}
steps:
  upper:
    foreach: {f: "data/*.txt"}
    inputs: {in: data/$f.txt}
    run: tr a-z A-Z <$in >out.txt
    outputs: [out.txt]
  join:
    inputs: {parts: upper/out.txt}
    run: |
      cat $parts/*/out.txt >all.txt
      echo "$end" >>all.txt
    outputs: [all.txt]
  count:
    inputs: {all: join/all.txt}
    script: count.py
    env: {LABEL: lines}
    outputs: [n.json]
YAML
    cat >count.py <<'PY'
import json, os
text = open(os.environ["all"]).read()
json.dump({os.environ["LABEL"]: len(text.splitlines())}, open("n.json", "w"))
PY
}

# start_head [ARG...]: a head in the background, its events in head.json; $head is its pid.
start_head() {
    rm -f head.json # of the head before
    forge pipeline run --json "$@" >head.json 2>head.err 3>&- &
    head=$!
}
kill_head() {
    kill -KILL "$head"
    wait "$head" || true
}

# ended PID: waits for it; $status is its exit status.
ended() {
    status=0
    wait "$1" || status=$?
}

# event NAME TASK [FILE]: it was reported.
event() { jq -en "[inputs | select(.event == \"$1\" and .task == \"$2\")] | length > 0" "${3:-head.json}" >/dev/null 2>&1; }
is_running() { [ "$(forge ps -aq --status running | wc -l)" -ge "${1:-1}" ]; }
# runs_of ANALYSIS: how many there have been.
runs_of() { forge ps -a --json | jq -r "select(.analysis_id == \"$1\") | .run_id" | wc -l; }
supervisor_of() { forge show --json "$1" | jq .supervisor.pid; }
running_run() { forge ps -aq --status running | head -1; }

patiently_not() { patiently is_not "$@"; }
is_not() { ! "$@"; }
