#!/usr/bin/env bats
# What forge says of a pipeline: plans and explanations, dropped outputs, the report, and a second head.
# SPDX-License-Identifier: Apache-2.0

load ../lib/pipeline.bash
setup() { setup_pipeline; }
teardown() { teardown_pipeline; }

# a -> b -> c; the outputs of a and b are dropped.
dropped_chain() {
    cat >pipeline.yaml <<'Y'
name: chain
params: {n: 1}
steps:
  a: {run: "echo a >o.txt; echo p >p.txt", outputs: [{path: o.txt, temp: true}, p.txt]}
  b: {inputs: {o: a/o.txt}, run: 'cat $o >x', outputs: [{path: x, temp: true}]}
  c: {inputs: {x: b/x}, run: 'cat $x >y; echo $n >>y', outputs: [y]}
Y
    pipeline_run
}

@test "plan: the steps whose dropped outputs are needed again, one after the other" {
    dropped_chain
    run forge pipeline run -n -p n=2
    says "a: rerun: its temporary output o.txt is needed by b"
    says "b: rerun: its temporary output x is needed by c"
    says "c: rerun: parameter n changed"
    run forge pipeline explain -p n=2 a
    says "a: rerun: its temporary output o.txt is needed by b"
    [ "$(forge pipeline status -p n=2 --json | jq -c '[.[] | .state, .run_id]')" = '["ready",null,"ready",null,"ready",null]' ]
    # What it says is what happens.
    pipeline_run -p n=2
    [ "$(ran)" = "a b c" ]
    [ "$(why a)" = "its temporary output o.txt is needed by b" ]
    run forge pipeline run -n -p n=2
    says_not rerun
}

@test "plan: a step that only may run does not make others run" {
    dropped_chain
    cat >>pipeline.yaml <<'Y'
  e: {run: 'echo 1 >o', outputs: [o]}
  f: {inputs: {o: a/o.txt, e: e/o}, run: 'cat $o $e >x', outputs: [x]}
Y
    pipeline_run
    # Its result comes out the same.
    sed -i 's/echo 1 >o/echo  1 >o/' pipeline.yaml
    run forge pipeline run -n
    says "a: up to date"
    says "its temporary output o.txt is made again if f runs"
    says "e: rerun: the command changed"
    says "f: waiting: after e has run"
    pipeline_run
    [ "$(ran)" = e ]
}

# A step b that waits until the gate is open.
gated() {
    chmod 755 "$T/gate"
    configure 'host: {budget: {cpus: 64, memory: 64G}}' "read_only: [$T/gate]"
    cat >pipeline.yaml <<Y
name: gated
steps:
  a: {run: echo a >o, outputs: [o]}
  b: {inputs: {o: a/o}, run: 'until [ -e $T/gate/open ]; do sleep 0.05; done; cat \$o >x', outputs: [x]}
  c: {inputs: {x: b/x}, run: 'cat \$x >y', outputs: [y]}
Y
}

@test "status of a step that runs: the run, and the state running" {
    gated
    start_head
    patiently is_running
    id=$(running_run)
    run forge pipeline status
    says "b: running (run $id)"
    says "c: waiting: after b has run"
    run forge pipeline explain b
    says "b: running (run $id)"
    [ "$(forge pipeline status --json | jq -r '.[1] | "\(.state) \(.run_id)"')" = "running $id" ]
    # One with another command is not the one that runs.
    sed 's/cat \$o >x/cat $o $o >x/' pipeline.yaml >other.yaml
    run forge pipeline explain -f other.yaml b
    says "b: run: it has not run yet"
    touch "$T/gate/open"
    ended "$head"
    run forge pipeline status
    says_not running
}

@test "report: a step that failed has its verdict, its run and its times" {
    printf 'name: rep\nsteps:\n  a: {run: "exit 3", outputs: [o]}\n  b: {inputs: {o: a/o}, run: "cat $o >x", outputs: [x]}\n' >pipeline.yaml
    run forge pipeline report
    says "none: no step has a run that succeeded"
    pipeline_run || true
    id=$(run_of a)
    run forge pipeline report
    says '<td>a</td><td class="failed">failed</td>'
    says "<code>$id</code></td><td>Failed: exit code 3"
    says_not "- of -"
    says '<div class="bar failed"'
    says 'fill="#f2b8b5"'
    says "none: no step has a run that succeeded"
    # It was edited since.
    sed -i 's/exit 3/exit 4/' pipeline.yaml
    run forge pipeline report
    says "Failed: exit code 3"
    says "Since then: the command changed"
    sed -i 's/exit 4/echo >o/' pipeline.yaml
    pipeline_run
    run forge pipeline report
    says_not '"failed"'
    says_not "no run that succeeded"
}

@test "a pipeline of the same name in another directory explains nothing" {
    mkdir q
    chmod 755 q
    printf 'name: same\nsteps: {index: {run: "echo 1 >o", outputs: [o]}}' >pipeline.yaml
    printf 'name: same\nsteps: {index: {run: "echo 2 >o", outputs: [o]}}' >q/pipeline.yaml
    pipeline_run
    run forge pipeline explain -f q/pipeline.yaml index
    [ "$output" = "index: run: it has not run yet" ]
    pipeline_run q
    [ "$(why index)" = "it has not run yet" ]
    # Its own last run does, also below newer runs of the other one.
    sed -i 's/echo 1/echo 3/' pipeline.yaml
    run forge pipeline explain index
    [ "$output" = "index: rerun: the command changed" ]
}

@test "plan with files that are given: it says so" {
    dropped_chain
    mkdir given
    echo G >given/x
    run forge pipeline run -n --only c --given b=given
    says "b: given: the files in given"
    run forge pipeline run -n --given b=given
    [ "$status" -ne 0 ]
    says "--given: b would run, although it is given"
}

@test "a dropped output is said to be one, and how to get it" {
    dropped_chain
    run forge outputs chain.a
    says "o.txt was temporary, and dropped when the last step that reads it had succeeded"
    says "/pipeline.yaml --only a --force a\` makes it again"
    says_not "were removed"
    run forge outputs --cat o.txt chain.a
    [ "$status" -eq 1 ]
    says "was temporary, and dropped when the last step that reads it had succeeded"
    says_not "left no output"
    run forge outputs --cat other chain.a
    says "left no output other"
    # What a user removes is another matter.
    forge rm -f --outputs-only chain.a >/dev/null
    run forge outputs chain.a
    says "1 of its outputs was removed"
    says "o.txt was temporary"
    run forge outputs --cat p.txt chain.a
    [ "$status" -eq 1 ]
    says "output p.txt of run"
    says "was removed"
}

@test "outputs --copy of what is dropped copies nothing, and the command in its hint makes it" {
    dropped_chain
    run forge pipeline outputs --only a --only b --copy cc
    [ "$status" -eq 1 ]
    says "nothing is copied: a/o.txt and 1 other file were temporary, and dropped"
    [ ! -e cc ]
    run forge pipeline outputs -p n=1 --only b --copy cc
    says "nothing is copied: b/x was temporary, and dropped"
    command=$(sed -n 's/.*hint: `\(.*\)` makes it again/\1/p' <<<"$output")
    [[ "$command" == *" --only a --only b --force b" ]]
    eval "$command --json" >run.json
    forge pipeline outputs -p n=1 --only b --copy cc
    [ "$(cat cc/b/x)" = a ]
    # Without the step before it, the error names that.
    run forge pipeline run --only b --force b
    says "step a: temporary output o.txt is dropped"
    says "--only a as well makes it again"
}

# The time of the whole is not the same to the microsecond.
without_time() { sed -E 's/, [0-9.]+ [a-z]+$/, TIME/' "$1"; }

@test "a second head prints the sentences and the table of the first" {
    gated
    cat >>pipeline.yaml <<'Y'
  d: {foreach: {v: [p, q]}, run: 'echo $v >o', outputs: [{path: o, temp: true}]}
  e: {inputs: {o: d/o}, run: 'cat $o/*/o >x', outputs: [x]}
  f: {inputs: {o: a/o}, run: "echo >y; exit 4", outputs: [y], retry: {exit: {times: 1}}}
  g: {inputs: {f: f/y}, run: "true"}
  h: {when: $no, run: "true"}
  i: {run: "sleep 0.01; echo >x", outputs: [x]}
params: {no: false}
Y
    forge pipeline run --json --only i >run.json
    forge pipeline run >first.out 2>first.err 3>&- &
    first=$!
    patiently is_running
    forge pipeline run >second.out 2>second.err 3>&- &
    second=$!
    patiently grep -q "running already" second.err
    # It has what was before it, too.
    patiently grep -q "failed f" second.err
    touch "$T/gate/open"
    ended "$first"
    [ "$status" -eq 1 ]
    ended "$second"
    [ "$status" -eq 1 ]
    diff first.err <(grep -v "running already" second.err)
    diff <(without_time first.out) <(without_time second.out)
    grep -q "^b .*done" second.out
    grep -q "^to go on: " second.out
    run cat second.out second.err
    says_not "forge: begin"
    # With nothing to do, the same as well.
    printf 'name: z\nsteps: {a: {run: "until [ -e %s/gate/again ]; do sleep 0.05; done; echo >o", outputs: [o]}}' "$T" >pipeline.yaml
    forge pipeline run -q 3>&- &
    first=$!
    patiently is_running
    forge pipeline run -q >second.out 2>second.err 3>&- &
    second=$!
    patiently grep -q "running already" second.err
    touch "$T/gate/again"
    ended "$first"
    ended "$second"
    [ "$status" -eq 0 ]
    [ ! -s second.out ]
}

@test "a second head that takes over prints its own table" {
    gated
    start_head
    patiently is_running
    forge pipeline run >second.out 2>second.err 3>&- &
    second=$!
    patiently grep -q "running already" second.err
    kill_head
    patiently grep -q "going on" second.err
    touch "$T/gate/open"
    ended "$second"
    [ "$status" -eq 0 ]
    [ "$(grep -c ^STEP second.out)" -eq 1 ]
    grep -Eq "^c +done" second.out
}

@test "an output that is only a link: links are not kept, and the message says so" {
    cat >pipeline.yaml <<'Y'
steps:
  a: {run: "echo >f; ln -s f l1", outputs: ["l*"]}
  b: {run: "mkfifo p", outputs: [p]}
  c: {run: "ln -s nowhere l1; echo >l2", outputs: ["l*"]}
Y
    run forge pipeline run
    [ "$status" -eq 1 ]
    says "it left no output 'l*', only symbolic links, which are not kept."
    says "it left no output 'p', only special files, which are not kept."
    says "1 ran, 0 up to date, 2 failed"
}

@test "a file whose name is not UTF-8 is named" {
    touch "data/$(printf 'a\xe9b')" data/x
    printf 'steps: {a: {inputs: {f: "data/*"}, run: "true"}}' >pipeline.yaml
    run forge pipeline lint
    [ "$status" -eq 1 ]
    says "'data/*': the name of the file '"
    says '/data/a\xe9b'"' is not UTF-8"
    printf 'steps: {a: {foreach: {f: "data/*"}, run: "true"}}' >pipeline.yaml
    run forge pipeline lint
    says 'the value '"'"'a\xe9b'"' is not UTF-8"
}

@test "parameters: the form of a list, and a pipeline that has none" {
    printf 'params: {ks: [1, 2]}\nsteps: {a: {foreach: {k: $ks}, run: "echo $k"}}' >pipeline.yaml
    run forge pipeline lint -p 'ks=[1,5]'
    [ "$status" -eq 1 ]
    says "'[1' has brackets"
    says "with -p, a list is NAME=VALUE,VALUE"
    run forge pipeline lint -p ks=1,5
    [ "$status" -eq 0 ]
    printf 'steps: {a: {run: "true"}}' >pipeline.yaml
    run forge pipeline lint -p zz=1
    says "unknown parameter 'zz' (there are none)"
}

@test "a dropped output whose inputs are dropped too: the hint leads to the command that makes it" {
    dropped_chain
    run forge outputs chain.b
    command=$(sed -n 's/.*hint: `\(.*\) --copy DIR` says how to make it again/\1/p' <<<"$output")
    [[ "$command" == "forge pipeline outputs "*" --only b" ]]
    run bash -c "$command --copy $T/got"
    [ "$status" -ne 0 ]
    command=$(sed -n 's/.*hint: `\(.*\)` makes it again/\1/p' <<<"$output")
    run bash -c "$command"
    [ "$status" -eq 0 ]
    [ "$(forge outputs --cat x chain.b)" = a ]
}

@test "lint and mcp: what is skipped reads nothing, and parameters come later" {
    cat >pipeline.yaml <<'Y'
name: later
params: {use: "no"}
steps:
  a: {when: '$use == yes', inputs: {f: nowhere.txt}, run: 'cat $f >o', outputs: [o]}
  b: {run: 'echo >o', outputs: [o]}
Y
    forge pipeline lint
    forge pipeline run -q
    run forge pipeline lint -p use=yes
    [ "$status" -ne 0 ]
    says "nowhere.txt"
    printf 'name: each\nparams: {dir: none}\nsteps:\n  s: {foreach: {f: "$dir/*.fq"}, run: "echo >o", outputs: [o]}\n' >each.yaml
    run forge pipeline lint each.yaml
    [ "$status" -ne 0 ]
    # An agent gives the parameter.
    run forge mcp --pipeline each.yaml </dev/null
    [ "$status" -eq 0 ]
}

@test "plan: a run of another FORGE_HOME in the same store is not taken for one of this" {
    printf 'name: two\nsteps:\n  a: {run: "echo a >o", outputs: [o]}\n' >pipeline.yaml
    store=${FORGE_STORE:-sqlite:$FORGE_HOME/forge.db}
    forge pipeline run -q --store "$store"
    id=$(forge ps -q -n 1 --store "$store")
    mkdir -m 700 "$T/second"
    FORGE_HOME=$T/second run forge pipeline run -n --store "$store"
    says "a: run: it has not run yet in this FORGE_HOME (run $id is $(id -un)'s)"
}
