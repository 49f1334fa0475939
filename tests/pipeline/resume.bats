#!/usr/bin/env bats
# Heads, supervisors and inputs that go away while a pipeline runs: nothing finished is lost, nothing runs twice.
# SPDX-License-Identifier: Apache-2.0

load ../lib/pipeline.bash
setup() {
    setup_pipeline
    # A directory that every run sees and that is no part of a key.
    gated_config
}
teardown() { teardown_pipeline; }

gated_config() {
    chmod 755 "$T/gate"
    configure 'host: {budget: {cpus: 64, memory: 64G}}' "read_only: [$T/gate]"
}

# slow: three steps; the second waits until there is a file gate/open.
slow() {
    cat >pipeline.yaml <<Y
name: slow
steps:
  a: {run: echo 1 >o, outputs: [o]}
  b:
    inputs: {o: a/o}
    run: |
      until [ -e $T/gate/open ]; do sleep 0.05; done
      echo b >o
    outputs: [o]
  c: {inputs: {o: b/o}, run: 'cat \$o >o', outputs: [o]}
Y
}

start() { start_head "$@"; }
# The step that waits for the gate.
running_run() { forge ps -a --json --status running | jq -r 'select(.analysis_id | test("[.](b|fit)$")) | .run_id' | head -1; }
is_running() { [ -n "$(running_run)" ]; }

@test "the head is killed: its step goes on, and the next head takes the result" {
    slow
    start
    patiently is_running
    kill -KILL "$head"
    wait "$head" || true
    is_running
    start
    patiently event note b
    touch "$T/gate/open"
    wait "$head"
    [ "$(runs_of slow.a)" -eq 1 ]
    [ "$(runs_of slow.b)" -eq 1 ]
    [ "$(runs_of slow.c)" -eq 1 ]
    cp head.json run.json
    [ "$(output_of c o)" = b ]
}

@test "the head is killed, and the step ends before the next head comes" {
    slow
    start
    patiently is_running
    kill -KILL "$head"
    wait "$head" || true
    touch "$T/gate/open"
    patiently_not is_running
    pipeline_run
    [ "$(ran)" = c ]
    [ "$(runs_of slow.b)" -eq 1 ]
}

@test "a supervisor is killed: the step is lost, and runs again" {
    slow
    start
    patiently is_running
    kill -KILL "$(supervisor_of "$(running_run)")"
    ended "$head"
    [ "$status" -eq 1 ]
    event failed b
    touch "$T/gate/open"
    pipeline_run
    [ "$(ran)" = "b c" ]
    [ "$(why b)" = "its last run was lost: host_lost" ]
    [ "$(runs_of slow.a)" -eq 1 ]
}

@test "... at once, where retry says so" {
    slow
    sed -i 's/  b:/  b:\n    retry: {host_lost: {times: 1}}/' pipeline.yaml
    start
    patiently is_running
    first=$(running_run)
    kill -KILL "$(supervisor_of "$first")"
    patiently event retry b
    touch "$T/gate/open"
    wait "$head"
    cp head.json run.json
    [ "$(forge show --json "$(run_of b)" | jq -r .parent_run)" = "$first" ]
    [ "$(forge show --json "$(run_of b)" | jq -r .attempt)" = 2 ]
}

verdicts() { find "$FORGE_HOME/runs" -name record.json | wc -l; }
# courier_of HEAD: the process that reports its steps to the store.
courier_of() { pgrep -P "$(pgrep -P "$1" -x forge-launcher)" -x forge-courier; }

@test "the courier of all steps is killed, again and again: every verdict is in the store" {
    printf 'name: many\nsteps: {a: {foreach: {i: [%s]}, run: "sleep 0.1; echo $i >o", outputs: [o]}}' "$(seq -s, 40)" >pipeline.yaml
    start -j 3
    killed=0
    for i in 1 2 3 4 5; do
        patiently courier_of "$head"
        courier=$(courier_of "$head")
        # A step has ended, and its supervisor waits for the courier that does not answer.
        kill -STOP "$courier"
        before=$(verdicts)
        patiently sh -c '[ "$(find "$0/runs" -name record.json | wc -l)" -gt "$1" ]' "$FORGE_HOME" "$before"
        kill -KILL "$courier"
        killed=$((killed + 1))
    done
    [ "$killed" -eq 5 ]
    ended "$head"
    [ "$status" -eq 0 ]
    [ "$(forge ps -a --json --status succeeded | wc -l)" -eq 40 ]
    # Not delivered by this command, and no user was told of a store that cannot be reached.
    [ -z "$(jq -r 'select(.event == "warning") | .text' head.json)" ]
    run forge ps -a
    says_not "delivered"
}

@test "SIGTERM cancels what runs; the same command goes on" {
    slow
    start
    patiently is_running
    kill -TERM "$head"
    ended "$head"
    [ "$status" -eq 130 ]
    [ "$(forge ps -a --json | jq -r 'select(.analysis_id == "slow.b") | .status')" = cancelled ]
    touch "$T/gate/open"
    pipeline_run
    [ "$(ran)" = "b c" ]
}

@test "... also what a head started that was killed, and not what another pipeline runs" {
    slow
    start
    patiently is_running
    kill_head
    run_id=$(running_run)
    start
    patiently event note b
    kill -TERM "$head"
    ended "$head"
    [ "$status" -eq 130 ]
    is_in "$run_id" cancelled
    # The same step, of another file.
    mkdir -m 755 other
    cp pipeline.yaml other/
    start other
    patiently is_running
    run_id=$(running_run)
    start_head
    patiently event note b
    kill -TERM "$head"
    ended "$head"
    [ "$status" -eq 130 ]
    has_status "$run_id" running
    touch "$T/gate/open"
    is_in "$run_id" succeeded
}

@test "two heads on one pipeline: the second shows the first" {
    slow
    start
    patiently is_running
    forge pipeline run --json >second.json 2>second.err 3>&- &
    second=$!
    patiently event started b second.json
    touch "$T/gate/open"
    wait "$head"
    wait "$second"
    grep -q "running already" second.err
    [ "$(runs_of slow.b)" -eq 1 ]
    event 'done' c second.json
}

@test "the second head takes over when the first is killed" {
    slow
    start
    patiently is_running
    forge pipeline run --json >second.json 2>second.err 3>&- &
    second=$!
    patiently event started b second.json
    kill -KILL "$head"
    wait "$head" || true
    patiently grep -q "going on" second.err
    touch "$T/gate/open"
    wait "$second"
    [ "$(runs_of slow.a)" -eq 1 ]
    [ "$(runs_of slow.b)" -eq 1 ]
}

@test "two pipelines with the same step at once: it is computed once" {
    slow
    sed 's/name: slow/name: other/' pipeline.yaml >other.yaml
    start
    patiently is_running
    forge pipeline run --json other.yaml >second.json 2>/dev/null 3>&- &
    second=$!
    patiently event note b second.json
    touch "$T/gate/open"
    wait "$head"
    wait "$second"
    [ "$(forge ps -aq | wc -l)" -eq 3 ]
    # The last step was computed by whichever of them came first.
    [ "$(jq 'select(.event == "end") | .tasks | .cached + .done' second.json)" -eq 3 ]
}

@test "a file that is edited while the pipeline runs: the running one keeps its copy" {
    slow
    printf 'import os\nopen("o", "w").write(open(os.environ["o"]).read() + "old")\n' >c.py
    sed -i "s/run: 'cat .*', outputs/script: c.py, outputs/" pipeline.yaml
    start
    patiently is_running
    sed -i 's/echo b/echo changed/' pipeline.yaml
    sed -i 's/old/new/' c.py
    touch "$T/gate/open"
    wait "$head"
    cp head.json run.json
    [ "$(output_of c o)" = $'b\nold' ]
    pipeline_run
    [ "$(why c)" != "" ]
    [ "$(output_of c o)" = $'changed\nnew' ]
}

@test "an input that changes while its step runs: the result is not used" {
    slow
    echo 1 >data/x
    sed -i 's/    inputs: {o: a\/o}/    inputs: {o: a\/o, x: data\/x}/' pipeline.yaml
    start
    patiently is_running
    echo 2 >data/x
    touch "$T/gate/open"
    ended "$head"
    [ "$status" -eq 1 ]
    [ "$(forge ps -a --json | jq -r 'select(.analysis_id == "slow.b") | .reason')" = input ]
    grep -q "data/x changed while it ran" head.err head.json
    # Back to the first content: that key has no result.
    echo 1 >data/x
    pipeline_run
    [ "$(ran)" = "b c" ]
}

@test "an input that is gone before its step starts" {
    slow
    echo 1 >data/x
    sed -i "s/  c: {inputs: {o: b\/o}/  c: {inputs: {o: b\/o, x: data\/x}/" pipeline.yaml
    start
    patiently is_running
    rm data/x
    touch "$T/gate/open"
    ended "$head"
    [ "$status" -eq 1 ]
    grep -q "data/x: No such file" head.json
}

@test "a damaged result is noticed, reported and computed again" {
    slow
    touch "$T/gate/open"
    pipeline_run
    digest=$(forge show --json "$(run_of b)" | jq -r '.outputs[0].sha256' | cut -d: -f2)
    object=$FORGE_HOME/objects/${digest:0:2}/${digest:2}
    chmod u+w "$object"
    printf x >"$object"
    run forge pipeline explain b
    says "b: rerun: output o is damaged"
    pipeline_run
    [ "$(ran)" = b ]
    [ "$(why b)" = "output o is damaged" ]
    [ "$(cat "$object")" = b ]
    rm -f "$object"
    pipeline_run
    [ "$(why b)" = "output o is gone" ]
    run forge pipeline run
    says "3 steps up to date"
}

@test "a checkpoint comes back after a limit, and forge resume gives more" {
    cat >pipeline.yaml <<'Y'
name: train
steps:
  fit:
    checkpoint: state
    limits: {memory: 48M}
    run: |
      n=$(cat state/n 2>/dev/null || echo 0)
      echo "begins at $n" >&2
      echo $((n + 1)) >state/n
      python3 -c 'x = bytearray(64 << 20)'
      echo $n >model
    outputs: [model]
Y
    run forge pipeline run
    [ "$status" -eq 1 ]
    says "Killed: memory"
    cd /
    run forge resume --memory 512M train.fit
    [ "$status" -eq 0 ]
    says "1 ran"
    run forge logs train.fit
    says "begins at 1"
    cd "$T/project"
    run forge pipeline run
    says "1 step up to date"
    run forge resume train.fit
    says "1 step up to date"
    # Another key has nothing of this checkpoint.
    sed -i 's/begins/starts/; s/48M/512M/' pipeline.yaml
    pipeline_run
    run forge logs train.fit
    says "starts at 0"
    # On success the checkpoint is no output, and nobody misses it.
    [ "$(forge show --json train.fit | jq '.outputs | length')" -eq 1 ]
    says_not "not kept"
}

@test "a checkpoint comes back after the supervisor was killed" {
    cat >pipeline.yaml <<Y
name: train
steps:
  fit:
    checkpoint: state/deep
    run: |
      n=\$(cat state/deep/n 2>/dev/null || echo 0)
      echo "begins at \$n" >&2
      echo \$((n + 1)) >state/deep/n
      until [ -e $T/gate/open ]; do sleep 0.05; done
      echo \$n >model
    outputs: [model]
Y
    start
    patiently is_running
    patiently grep -q "begins at 0" "$FORGE_HOME/runs/$(running_run)/stderr"
    kill -KILL "$(supervisor_of "$(running_run)")"
    wait "$head" || true
    touch "$T/gate/open"
    pipeline_run
    [ "$(output_of fit model)" = 1 ]
}

@test "retry: the head tries again with more memory" {
    cat >pipeline.yaml <<'Y'
name: hungry
steps:
  eat:
    limits: {memory: 48M}
    retry: {memory: {times: 2, factor: 4}}
    run: python3 -c 'x = bytearray(64 << 20)' && echo >o
    outputs: [o]
Y
    pipeline_run
    [ "$(jq -r 'select(.event == "retry") | .with' run.json)" = "--memory 192M" ]
    [ "$(forge show --json "$(run_of eat)" | jq .attempt)" -eq 2 ]
    [ "$(forge ps -aq | wc -l)" -eq 2 ]
}

@test "forge resume and forge rerun say what they are for" {
    slow
    touch "$T/gate/open"
    pipeline_run
    run forge rerun "$(run_of b)"
    [ "$status" -eq 125 ]
    says "is step b of pipeline slow"
    forge run -q --id plain -- true
    run forge resume plain
    [ "$status" -eq 125 ]
    says "has succeeded"
    run forge run -q --id broken --memory 48M -- python3 -c 'x = bytearray(64 << 20)'
    [ "$status" -eq 137 ]
    run forge resume -q --memory 256M broken
    [ "$status" -eq 0 ]
}

@test "a store that is away for a moment: what runs goes on, and so does the pipeline" {
    [ "${FORGE_TEST_STORE:-sqlite}" = postgres ] || skip "PostgreSQL only"
    slow
    start
    patiently is_running
    "$BATS_TEST_DIRNAME/../tools/with-postgres.sh" --kill
    touch "$T/gate/open"
    patiently grep -q '"event":"warning"' head.json
    "$BATS_TEST_DIRNAME/../tools/with-postgres.sh" --start
    wait "$head"
    [ "$(runs_of slow.a)" -eq 1 ]
    [ "$(runs_of slow.b)" -eq 1 ]
    cp head.json run.json
    [ "$(output_of c o)" = b ]
}

# hungry: a step that needs more than its memory, of a parameter, after one that can be given.
hungry() {
    mkdir -p "it's here" g
    echo given >g/o
    cat >"it's here/pipeline.yaml" <<'Y'
name: hungry
params: {n: 1}
entries: {mid: [b]}
steps:
  a: {run: 'echo real >o', outputs: [o]}
  b:
    inputs: {o: a/o}
    limits: {memory: 40M}
    run: |
      head -c 60M /dev/zero | tail -c 59M | wc -c >/dev/null
      echo "$n $(cat $o)" >p
    outputs: [p]
Y
}

@test "forge resume goes on with the parameters and the entry that the pipeline had" {
    hungry
    run forge pipeline run "it's here" -p "n=it's 5" --entry mid --given a=g
    [ "$status" -eq 1 ]
    says "to go on: forge pipeline run 'it'\''s here"
    says "-p 'n=it'\''s 5' --entry mid --given a=g"
    # What was told to be typed does the same again.
    command=$(sed -n 's/.*to go on: //p' <<<"$output" | head -1)
    run bash -c "$command"
    [ "$status" -eq 1 ]
    says_not "unknown"
    run forge rerun hungry.b
    [ "$status" -eq 125 ]
    says "-p 'n=it'\''s 5' --entry mid --given a=$PWD/g --force b"
    cd /
    run forge resume --memory 300M hungry.b
    [ "$status" -eq 0 ]
    [ "$(forge outputs --cat p hungry.b)" = "it's 5 given" ]
    [ "$(runs_of hungry.a)" -eq 0 ]
    forge show --json hungry.b | jq -e '.step.parts.params.n == "it'\''s 5" and .step.given.entry == "mid"'
}

@test "forge resume reads the file of parameters again" {
    hungry
    echo 'n: seven' >given.yaml
    run forge pipeline run "it's here" --params given.yaml
    [ "$status" -eq 1 ]
    run forge resume --memory 300M hungry.b
    [ "$status" -eq 0 ]
    [ "$(forge outputs --cat p hungry.b)" = "seven real" ]
    [ "$(runs_of hungry.a)" -eq 1 ]
}

@test "forge resume --detach of a step prints its run, and the pipeline goes on by itself" {
    hungry
    cat >>"it's here/pipeline.yaml" <<'Y'
  c: {inputs: {p: b/p}, run: 'cat $p >q', outputs: [q]}
Y
    run forge pipeline run "it's here" -p n=3
    [ "$status" -eq 1 ]
    # Whoever reads its output is not kept waiting.
    id=$(forge resume --detach --json --memory 300M hungry.b | jq -r .run_id)
    run forge wait "$id"
    [ "$status" -eq 0 ]
    has_c() { [ "$(forge ps --json --status succeeded --analysis hungry.c | wc -l)" -eq 1 ]; }
    patiently has_c
    [ "$(forge outputs --cat q hungry.c)" = "3 real" ]
    # What cannot be resumed is told to the one that asks.
    mv "it's here" elsewhere
    run forge resume --detach --memory 400M hungry.b
    [ "$status" -eq 125 ]
    says "No such file or directory"
}

# pre -> bad, pre -> other, and long; pre (of generation $1) and long wait for a gate each. bad fails.
gates() {
    mkdir -p "$T/gate"
    chmod 755 "$T/gate"
    configure 'host: {budget: {cpus: 64, memory: 64G}}' "read_only: [$T/gate]"
    cat >pipeline.yaml <<Y
name: gates
steps:
  pre: {run: 'until [ -e $T/gate/$1 ]; do sleep 0.05; done; echo $1 >o', outputs: [o]}
  bad: {inputs: {o: pre/o}, run: 'exit 3', outputs: [x]}
  other: {inputs: {o: pre/o}, run: 'cat \$o >y', outputs: [y]}
Y
}

@test "forge resume --detach answers although the step waits for others, and nothing depends on who asked" {
    gates one
    touch "$T/gate/one"
    run forge pipeline run -q
    [ "$status" -eq 1 ]
    bad=$(forge ps -q --analysis gates.bad)
    gates two
    run --separate-stderr forge resume --detach --json "$bad"
    [ "$status" -eq 0 ]
    [ "$(jq -c '[.run_id, .existing, .pipeline, .task]' <<<"$output")" = '[null,false,"gates","bad"]' ]
    # That process is gone when the step gets its run; what follows runs all the same.
    [ "$(forge ps -q --analysis gates.bad | wc -l)" -eq 1 ]
    touch "$T/gate/two"
    has_other() { [ "$(forge ps -q --status succeeded --analysis gates.other | wc -l)" -eq 2 ]; }
    patiently has_other
    [ "$(forge outputs --cat y "$(forge ps -q -n 1 --analysis gates.other)")" = two ]
    [ "$(forge ps -q --analysis gates.bad | wc -l)" -eq 2 ]
    # And for a person.
    gates three
    run --separate-stderr forge resume --detach "$bad"
    [ "$status" -eq 0 ]
    [ -z "$output" ]
    # shellcheck disable=SC2154 # set by run
    [[ "$stderr" == *"the pipeline goes on; bad has no run yet"* ]]
    touch "$T/gate/three"
    has_third() { [ "$(forge ps -q --status succeeded --analysis gates.other | wc -l)" -eq 3 ]; }
    patiently has_third
}

@test "forge resume --detach while another head runs: the old run is no answer" {
    gates one
    cat >>pipeline.yaml <<Y
  long: {run: 'until [ -e $T/gate/long ]; do sleep 0.05; done; echo >z', outputs: [z]}
Y
    touch "$T/gate/one"
    start_head
    has_failed() { [ "$(forge ps -q --status failed --analysis gates.bad | wc -l)" -eq 1 ]; }
    patiently has_failed
    bad=$(forge ps -q --analysis gates.bad)
    [ "$(forge resume --detach --json --memory 300M "$bad" 2>/dev/null | jq -r .run_id)" = null ]
    touch "$T/gate/long"
    is_new() { [ "$(forge ps -q --status failed --analysis gates.bad | wc -l)" -eq 2 ]; }
    patiently is_new
    [ "$(forge show --json "$(forge ps -q -n 1 --analysis gates.bad)" | jq .limits.memory_bytes)" -eq $((300 << 20)) ]
    ended "$head" || true
}

@test "forge resume of a step takes limits, and refuses what it would not do" {
    gates one
    touch "$T/gate/one"
    run forge pipeline run -q
    bad=$(forge ps -q --analysis gates.bad)
    for option in --network=host --env=A=1 --executor=local --id=foo --priority=5 --input=/etc --output=x --keep --retry=oom=1; do
        run forge resume "$option" "$bad"
        [ "$status" -eq 125 ]
        name=${option#--}
        says "--${name%%=*} is not for a step of a pipeline"
    done
    run forge resume --detach --until-closed "$bad"
    [ "$status" -eq 125 ]
    says "--until-closed does not go with --detach"
    [ "$(forge ps -q --analysis gates.bad | wc -l)" -eq 1 ]
}

@test "commands that go on are whole: long ones, the store, the configuration, hostile names" {
    mkdir sub
    cat >sub/-e.yaml <<'Y'
name: long
params: {l: [], q: 1}
steps:
  u: {foreach: {n: $l}, run: 'echo $n $q >o', outputs: [o]}
  v: {inputs: {o: u/o}, run: 'exit 3', outputs: [x]}
Y
    cd sub
    list=$(seq -f sample%05g -s, 80)
    cp "$FORGE_CONFIG" ../other.yaml
    run forge pipeline run --config ../other.yaml -p "l=$list" -p q=9 -- -e.yaml
    [ "$status" -eq 1 ]
    command=$(sed -n 's/^to go on: //p' <<<"$output")
    [[ "$command" == "forge pipeline run ./-e.yaml "*" --config ../other.yaml"* ]] || [[ "$command" == *"--config ../other.yaml"* ]]
    run bash -c "$command"
    [ "$status" -eq 1 ]
    says_not "unknown"
    run forge rerun long.v
    [ "$status" -eq 125 ]
    command=$(sed -n 's/.*To run it again: //p' <<<"$output")
    [[ "$command" == *"sample00080 -p q=9"*"--force v" ]]
    run bash -c "$command"
    [ "$status" -eq 1 ]
    says "80 up to date"
    # What is not up to date is so for these parameters.
    run forge pipeline outputs -p "l=a b" -p q=8 ./-e.yaml
    [ "$status" -eq 1 ]
    says "forge pipeline run ./-e.yaml -p 'l=a b' -p q=8"
}
