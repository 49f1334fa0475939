#!/usr/bin/env bats
# What a hostile reader of the first version found: wrong results, lost ones, and who is trusted.
# SPDX-License-Identifier: Apache-2.0

load ../lib/pipeline.bash
setup() { setup_pipeline; }
teardown() { teardown_pipeline; }

has_runs() { [ -n "$(forge ps -rq)" ]; }

gate_config() {
    chmod 755 "$T/gate"
    configure 'host: {budget: {cpus: 64, memory: 64G}}' "read_only: [$T/gate]"
}

@test "a value that is no UTF-8 is refused: keys could not tell it from another" {
    printf 'params: {x: q}\nsteps: {a: {run: "echo $x >o", outputs: [o]}}' >pipeline.yaml
    run forge pipeline run -p x=$'\xff'
    [ "$status" -eq 1 ]
    says "the value of 'x' is not UTF-8"
}

@test "whether an input is a file or a directory is part of the key" {
    echo 1 >data/a.txt
    printf 'steps: {a: {inputs: {x: data/a.txt}, run: "echo $x >o", outputs: [o]}}' >pipeline.yaml
    pipeline_run
    [ "$(output_of a o)" = inputs/x/a.txt ]
    sed -i 's|x: data/a.txt|x: [data/a.txt]|' pipeline.yaml
    pipeline_run
    [ "$(why a)" = "an input is a file now, or a directory" ]
    [ "$(output_of a o)" = inputs/x ]
    # A directory by its name, with a slash at its end.
    printf 'steps: {a: {inputs: {x: data/}, run: "ls $x >o", outputs: [o]}}' >pipeline.yaml
    pipeline_run
    [ "$(output_of a o)" = a.txt ]
}

@test "nothing of the caller's environment reaches a step" {
    configure 'host: {budget: {cpus: 64, memory: 64G}}' 'env: {pass: [SECRET_MODE, TZ]}'
    printf 'steps: {a: {run: "date -d @0 +%%H >o; echo $LANG $TZ ${SECRET_MODE-none} >>o", outputs: [o]}}' >pipeline.yaml
    TZ=Asia/Tokyo LANG=de_DE.UTF-8 SECRET_MODE=1 pipeline_run
    [ "$(output_of a o)" = $'00\nC.UTF-8 UTC none' ]
    # What the configuration sets does, and is part of the key.
    configure 'host: {budget: {cpus: 64, memory: 64G}}' 'env: {set: {SECRET_MODE: "2"}}'
    pipeline_run
    [ "$(why a)" = "variable SECRET_MODE is new" ]
    [ "$(output_of a o)" = $'00\nC.UTF-8 UTC 2' ]
}

@test "patterns of temporary and other outputs that overlap" {
    cat >pipeline.yaml <<'Y'
steps:
  make: {run: 'echo a >a.bam; echo k >keep.bam', outputs: [{path: "*.bam", temp: true}, keep.bam]}
  read: {inputs: {b: "make/*.bam"}, run: 'ls $b >o', outputs: [o]}
Y
    pipeline_run
    pipeline_run
    [ "$(ran)" = "" ]
    [ "$(output_of read o)" = $'a.bam\nkeep.bam' ]
}

@test "a temporary output is not dropped where it is the result of another step or pipeline" {
    mkdir -p q
    chmod 755 q
    printf 'name: one\nsteps: {a: {run: "date +%%N >precious", outputs: [precious]}}' >pipeline.yaml
    cat >q/pipeline.yaml <<'Y'
name: two
steps:
  a: {run: "date +%N >precious", outputs: [{path: precious, temp: true}]}
  r: {inputs: {p: a/precious}, run: 'cat $p >o', outputs: [o]}
Y
    pipeline_run
    before=$(output_of a precious)
    pipeline_run q
    [ "$(ran)" = r ]
    pipeline_run
    [ "$(ran)" = "" ]
    [ "$(output_of a precious)" = "$before" ]
    # Two steps of one file with one key, of which one keeps it.
    cat >pipeline.yaml <<'Y'
name: three
steps:
  t: {run: "echo same >x", outputs: [{path: x, temp: true}]}
  r: {inputs: {x: t/x}, run: 'cat $x >o', outputs: [o]}
  k: {run: "echo same >x", outputs: [x]}
Y
    pipeline_run
    [ "$(output_of k x)" = same ]
}

@test "several steps that need a temporary output again wait for the one that makes it" {
    cat >pipeline.yaml <<'Y'
params: {v: 1}
steps:
  d: {run: 'sleep 0.3; echo D >o', outputs: [{path: o, temp: true}]}
  e: {run: 'sleep 0.1; echo $v >o', outputs: [o]}
  w1: {inputs: {f: d/o}, run: 'cat $f >o; echo $v >>o', outputs: [o]}
  w2: {inputs: {f: d/o, e: e/o}, run: 'cat $f $e >o', outputs: [o]}
  w3: {inputs: {f: d/o}, run: 'cat $f >o; echo 3 $v >>o', outputs: [o]}
Y
    pipeline_run
    pipeline_run -p v=2
    [ "$(ran)" = "d e w1 w2 w3" ]
    [ "$(output_of w2 o)" = $'D\n2' ]
    [ "$(output_of w3 o)" = $'D\n3 2' ]
    # One that cannot be made again takes all of them with it.
    sed -i 's/sleep 0.3; echo D/exit 1; echo D/' pipeline.yaml
    run forge pipeline run -p v=3
    [ "$status" -eq 1 ]
    says "1 failed"
    says_not "left no output"
}

@test "--only takes the result of this file and of these parameters" {
    mkdir -p q r
    chmod 755 q r
    for d in q r; do
        printf 'name: study\nparams: {v: 1}\nsteps: {a: {run: "echo %s $v >o", outputs: [o]}, b: {inputs: {o: a/o}, run: "cat $o >o", outputs: [o]}}' "$d" >$d/pipeline.yaml
    done
    pipeline_run q
    pipeline_run r
    pipeline_run q --only b
    [ "$(ran)" = "" ]
    [ "$(output_of b o)" = "q 1" ]
    pipeline_run q -p v=2
    pipeline_run q --only b
    [ "$(output_of b o)" = "q 1" ]
    # None with these parameters: the last one of this file is taken, and that is said.
    pipeline_run q -p v=3 --only b
    [ "$(jq -r 'select(.event == "note" and .task == "a") | .text' run.json)" = "is not up to date; its last result is used" ]
    [ "$(output_of b o)" = "q 2" ]
}

@test "clean: of this file alone, and nothing while a step cannot be evaluated" {
    mkdir -p q r
    chmod 755 q r
    echo 1 >r/in
    printf 'name: study\nsteps: {a: {run: "echo q >o", outputs: [o]}}' >q/pipeline.yaml
    printf 'name: study\nsteps: {a: {inputs: {i: in}, run: "cat $i >o", outputs: [o]}}' >r/pipeline.yaml
    pipeline_run q
    pipeline_run r
    forge pipeline clean q -y
    pipeline_run r
    [ "$(ran)" = "" ]
    mv r/in r/elsewhere
    run forge pipeline clean r -n
    says "every run of this pipeline is the result of a step"
}

@test "a checkpoint from before a success is none to go on from" {
    cat >pipeline.yaml <<'Y'
params: {fail: 1}
steps:
  a:
    checkpoint: ck
    run: |
      ls ck >o
      if [ ! -e ck/state ]; then echo >ck/state; exit 3; fi
    outputs: [o]
Y
    pipeline_run || true
    pipeline_run
    [ "$(output_of a o)" = state ]
    pipeline_run --force a || true
    [ "$(count failed)" -eq 1 ]
}

@test "a checkpoint that was not restored to its end is not taken for one" {
    gate_config
    cat >pipeline.yaml <<Y
steps:
  a:
    checkpoint: ck
    run: |
      [ -e ck/1 ] || { for i in \$(seq 400); do echo \$i >ck/\$i; done; exit 3; }
      ls ck | wc -l >o
    outputs: [o]
Y
    pipeline_run || true
    # The next run is killed at some moment while it restores the files, or a little before or after.
    for delay in 0.005 0.02 0.03 0.04; do
        forge pipeline run --json >head.json 2>/dev/null 3>&- &
        head=$!
        patiently grep -qE '"event":"(run|end)"' head.json
        pause "$delay"
        id=$(jq -r 'select(.event == "run") | .run_id' head.json)
        [ -n "$id" ] || break # it was too fast for us, and has succeeded
        pid=$(cat "$FORGE_HOME"/active/* | jq -r "select(.run_id == \"$id\") | .pid" 2>/dev/null | head -1) || true
        kill -KILL "$head" || true
        [ -z "$pid" ] || kill -KILL "$pid" || true
        wait "$head" || true
    done
    pipeline_run
    [ "$(output_of a o)" = 400 ]
}

@test "forge resume does not open what only the store says" {
    printf 'name: p\nsteps: {a: {run: exit 1}}' >pipeline.yaml
    pipeline_run || true
    id=$(run_of a)
    : >"$FORGE_HOME/runs/$id/record.json"
    forge gc >/dev/null
    run forge resume "$id"
    [ "$status" -eq 125 ]
    says "does not say where the pipeline is"
}

@test "names of outputs cannot drive a terminal" {
    cat >pipeline.yaml <<'Y'
steps: {a: {run: 'touch "$(printf "x\033]0;PWN\007")"', outputs: ["x*"]}}
Y
    pipeline_run
    forge pipeline outputs >listed
    run ! grep -q $'\033' listed
}

@test "an interrupt right after a start is not lost" {
    gate_config
    printf 'steps: {a: {run: "until [ -e %s/gate/open ]; do sleep 0.05; done"}}' "$T" >pipeline.yaml
    for _ in 1 2 3 4 5; do
        # That of the round before is no sign of this one.
        rm -f head.json
        forge pipeline run --json >head.json 2>/dev/null 3>&- &
        head=$!
        patiently grep -q '"event":"started"' head.json
        kill -INT "$head"
        patiently gone "$head"
        status=0
        wait "$head" || status=$?
        [ "$status" -eq 130 ]
    done
}

@test "a second head with other parameters runs after the first" {
    gate_config
    printf 'params: {v: 1}\nsteps: {a: {run: "until [ -e %s/gate/open ]; do sleep 0.05; done; echo $v >o", outputs: [o]}}' "$T" >pipeline.yaml
    forge pipeline run -q 3>&- &
    first=$!
    patiently has_runs
    forge pipeline run --json -p v=2 >run.json 2>second.err 3>&- &
    second=$!
    patiently grep -q "running already" second.err
    touch "$T/gate/open"
    wait "$first"
    wait "$second"
    [ "$(output_of a o)" = 2 ]
}

@test "a step that waits for another pipeline takes nobody's place" {
    gate_config
    mkdir q
    chmod 755 q
    printf 'name: one\nsteps: {a: {run: "until [ -e %s/gate/open ]; do sleep 0.05; done; echo >o", outputs: [o]}}' "$T" >pipeline.yaml
    { sed 's/name: one/name: two/; s/}}$/},/' pipeline.yaml; echo ' b: {run: "echo b >o", outputs: [o]}}'; } >q/pipeline.yaml
    forge pipeline run -q 3>&- &
    first=$!
    patiently has_runs
    forge pipeline run --json -j 1 q >run.json 3>&- &
    second=$!
    patiently grep -q '"event":"done","task":"b"' run.json
    touch "$T/gate/open"
    wait "$first"
    wait "$second"
}

@test "few descriptors: fewer tasks at once, and none fails" {
    printf 'steps: {a: {foreach: {i: [%s]}, run: "echo $i"}}' "$(seq -s, 60)" >pipeline.yaml
    (
        ulimit -n 64
        pipeline_run -j 60
    )
    [ "$(count "done")" -eq 60 ]
}

@test "values with commas, and names that are too long, are refused before anything runs" {
    printf 'steps: {a: {foreach: {x: ["p,q", p], y: [r, "q,r"]}, run: "true"}}' >pipeline.yaml
    run forge pipeline lint
    [ "$status" -eq 1 ]
    says "'p,q' has a comma"
    long=$(printf '%0120d' 0)
    printf 'steps: {a: {foreach: {x: [%sa], y: [%sb], z: [%sc]}, run: "true"}}' "$long" "$long" "$long" >pipeline.yaml
    run forge pipeline lint
    says "more than 255 bytes"
}

@test "a file that is missing, or a step that is misspelled, is found before anything runs" {
    cat >pipeline.yaml <<'Y'
steps:
  slow: {run: echo >o, outputs: [o]}
  next: {inputs: {a: slow/o, b: slwo/o}, run: "true"}
Y
    run forge pipeline run
    [ "$status" -eq 1 ]
    says "pipeline.yaml:3:30: steps.next.inputs.b:"
    says "No such file"
    [ "$(forge ps -aq | wc -l)" -eq 0 ]
    run forge pipeline lint
    [ "$status" -eq 1 ]
}

@test "a notebook that is edited while the pipeline runs: its step fails, and the next command runs it" {
    gate_config
    mkdir -p "$T/runtimes.d"
    cp "$BATS_TEST_DIRNAME/../../examples/runtimes/notebook.yaml" "$T/runtimes.d/"
    cat >pipeline.yaml <<Y
steps:
  s: {run: 'until [ -e $T/gate/open ]; do sleep 0.05; done; echo 1 >o', outputs: [o]}
  n: {runtime: notebook, inputs: {f: s/o}, script: nb.ipynb}
Y
    jq -n '{nbformat: 4, nbformat_minor: 4, metadata: {kernelspec: {name: "python3", display_name: "p"}}, cells: [{cell_type: "code", execution_count: null, outputs: [], source: "1", metadata: {}}]}' >nb.ipynb
    forge pipeline run --json >run.json 3>&- &
    head=$!
    patiently grep -q '"event":"run"' run.json
    sed -i 's/"1"/"2"/' nb.ipynb
    touch "$T/gate/open"
    status=0
    wait "$head" || status=$?
    [ "$status" -eq 1 ]
    grep -q "nb.ipynb changed while it ran" run.json
    pipeline_run
    [ "$(ran)" = n ]
    printf 'steps: {n: {script: nb.ipynb, checkpoint: c}}' >pipeline.yaml
    run forge pipeline lint
    says "a notebook has no checkpoint"
}

@test "a row of a shared store that others wrote is no result" {
    [ "${FORGE_TEST_STORE:-sqlite}" = postgres ] || skip "PostgreSQL only"
    printf 'params: {v: 1}\nsteps: {a: {run: "echo $v >o", outputs: [o]}}' >pipeline.yaml
    pipeline_run
    one=$(run_of a)
    pipeline_run -p v=2
    two=$(run_of a)
    # The key of the second run, on a row that has the output of the first.
    pg_sql "INSERT INTO runs (run_id, analysis_id, status, created_at, username, step_key, record)
        SELECT '7zzzzzzzzzzzzzzzzzzzzzzzzz', analysis_id, 'succeeded', created_at, username, step_key, '{}' FROM runs WHERE run_id = '$two'" "$database"
    pg_sql "INSERT INTO outputs SELECT '7zzzzzzzzzzzzzzzzzzzzzzzzz', path, size, sha256, stored_as FROM outputs WHERE run_id = '$one'" "$database"
    pipeline_run -p v=2
    [ "$(ran)" = "" ]
    [ "$(run_of a)" = "$two" ]
}
