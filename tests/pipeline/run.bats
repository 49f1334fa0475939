#!/usr/bin/env bats
# Steps run once, and again when something that they depend on changes: exactly these, with the reason.
# SPDX-License-Identifier: Apache-2.0

load ../lib/pipeline.bash
setup() { setup_pipeline; }
teardown() { teardown_pipeline; }

@test "a pipeline runs, and then it is up to date" {
    three_steps
    run forge pipeline run
    [ "$status" -eq 0 ]
    says "4 ran, 0 up to date"
    run forge pipeline run
    [ "$status" -eq 0 ]
    says "4 steps up to date"
    [ "$(forge ps -aq | wc -l)" -eq 4 ]
    pipeline_run
    [ "$(ran)" = "" ]
    [ "$(output_of count n.json)" = '{"lines": 3}' ]
}

@test "each step is a run, with limits and a record of the step" {
    three_steps
    pipeline_run
    forge show --json "$(run_of 'upper[b]')" >r.json
    [ "$(jq -r .analysis_id r.json)" = three.upper.b ]
    [ "$(jq -r .step.pipeline r.json)" = three ]
    [ "$(jq -r .step.task r.json)" = 'upper[b]' ]
    [ "$(jq -r .step.parts.params.f r.json)" = null ]
    [ "$(jq -r .isolation.level r.json)" = full ]
    [ "$(jq -r '.inputs[0].path' r.json)" = "$T/project/data/b.txt" ]
}

# changed WHAT TASKS WHY TASK: after a change these tasks run, and one of them for this reason.
changed() {
    pipeline_run
    [ "$(ran)" = "$1" ] || { echo "ran: $(ran)"; return 1; }
    # shellcheck disable=SC2053 # a pattern
    [[ "$(why "$3")" == $2 ]] || { echo "why: $(why "$3")"; return 1; }
}

@test "one part of the key at a time: exactly the right steps run again" {
    three_steps
    pipeline_run
    # an input: its task, and what follows from it
    echo again >data/b.txt
    changed "count join upper[b]" "input in: b.txt changed (sha256 * -> *)" 'upper[b]'
    # content that comes out the same stops there
    echo AGAIN >data/b.txt
    changed "upper[b]" "input in: b.txt changed*" 'upper[b]'
    # a file more
    echo more >data/c.txt
    changed "count join upper[c]" "it has not run yet" 'upper[c]'
    # the command
    sed -i 's/tr a-z A-Z/tr a-z b-za/' pipeline.yaml
    changed "count join upper[a] upper[b] upper[c]" "the command changed" 'upper[a]'
    # the script
    echo '# a comment' >>count.py
    changed "count" "script count.py changed (sha256 * -> *)" count
    # a variable of the step
    sed -i 's/LABEL: lines/LABEL: rows/' pipeline.yaml
    changed "count" "variable LABEL changed (lines -> rows)" count
    # the declared outputs
    sed -i 's/outputs: \[n.json\]/outputs: ["*.json"]/' pipeline.yaml
    changed "count" "the declared outputs changed" count
    # the network
    sed -i 's/script: count.py/script: count.py\n    network: host/' pipeline.yaml
    changed "count" "the network changed (none -> host)" count
    # a parameter: only the steps that use it
    sed -i 's/end: "!"/end: "?"/' pipeline.yaml
    changed "count join" "parameter end changed (! -> \?)" join
    # back again: everything is known, nothing runs
    sed -i 's/end: "?"/end: "!"/' pipeline.yaml
    pipeline_run
    [ "$(ran)" = "" ]
}

@test "the runtime is part of the key" {
    three_steps
    mkdir -p "$T/env/bin"
    printf '#!/bin/sh\necho 1\n' >"$T/env/bin/tool"
    chmod -R a+rx "$T/env"
    printf 'steps: {a: {runtime: mine, run: tool >o, outputs: [o]}}' >pipeline.yaml
    configure 'host: {budget: {cpus: 64, memory: 64G}}' 'runtimes:' "  mine: {kind: prefix, prefix: $T/env, commands: [tool]}"
    pipeline_run
    [ "$(ran)" = a ]
    pipeline_run
    [ "$(ran)" = "" ]
    printf '#!/bin/sh\necho 2\n' >"$T/env/bin/tool"
    changed a "the runtime changed (* -> *)" a
    [ "$(output_of a o)" = 2 ]
}

@test "not part of the key: limits, order, names, places" {
    three_steps
    pipeline_run
    sed -i 's/script: count.py/script: count.py\n    limits: {memory: 1G, cpus: 2}/' pipeline.yaml
    pipeline_run
    [ "$(ran)" = "" ]
    # another pipeline in another place, with other names of steps
    mkdir -p "$T/other"
    chmod 755 "$T/other"
    cp -r data count.py "$T/other/"
    sed 's/name: three/name: other/; s/upper/large/; s/  join:/  both:/; s/join\//both\//' pipeline.yaml >"$T/other/pipeline.yaml"
    cd "$T/other"
    pipeline_run
    [ "$(ran)" = "" ]
    [ "$(count cached)" -eq 4 ]
}

@test "explain and status say why, before anything runs" {
    three_steps
    run forge pipeline status
    says "upper[a]: run: it has not run yet"
    says "join: waiting: after upper[a] has run"
    pipeline_run
    echo new >data/a.txt
    run forge pipeline explain 'upper[a]'
    says "upper[a]: rerun: input in: a.txt changed (sha256"
    run forge pipeline explain upper
    says "upper[b]: up to date (run "
    run forge pipeline explain nothing
    [ "$status" -eq 1 ]
    says "unknown step 'nothing'"
    run forge pipeline run -n --json
    [ "$(jq -r '.[] | select(.task == "join") | .state' <<<"$output")" = waiting ]
    [ "$(forge ps -aq | wc -l)" -eq 4 ]
}

@test "--force, --from, --only" {
    three_steps
    pipeline_run
    pipeline_run --force join
    [ "$(ran)" = join ]
    [ "$(why join)" = forced ]
    pipeline_run --from join
    [ "$(ran)" = "count join" ]
    echo x >data/a.txt
    pipeline_run --only 'upper[a]'
    [ "$(ran)" = 'upper[a]' ]
    pipeline_run
    [ "$(ran)" = "count join" ]
    run forge pipeline run --only nothing
    [ "$status" -eq 1 ]
    says "--only: unknown step 'nothing'"
}

@test "--entry: what comes before is taken from the store, or given" {
    three_steps
    echo 'entries: {end: count}' >>pipeline.yaml
    run forge pipeline run --entry end
    [ "$status" -eq 1 ]
    says "step join has no result yet"
    says "--given join=DIR"
    mkdir given
    printf 'a\nb\n' >given/all.txt
    pipeline_run --entry end --given join=given
    [ "$(ran)" = count ]
    [ "$(output_of count n.json)" = '{"lines": 2}' ]
    pipeline_run
    [ "$(count "done")" -eq 4 ]
    echo changed >data/a.txt
    pipeline_run --entry end
    [ "$(ran)" = "" ]
    run forge pipeline run --entry nothing
    says "unknown entry 'nothing' (have: end)"
}

@test "when: a step and what follows from it are skipped; a step that gathers takes the others" {
    cat >pipeline.yaml <<'Y'
params: {deep: no}
steps:
  one: {foreach: {x: [a, b, c]}, when: $x != b, run: 'echo $x >o', outputs: [o]}
  all: {inputs: {o: one/o}, run: 'cat $o/*/o >o', outputs: [o]}
  more: {when: $deep, run: echo >o, outputs: [o]}
  last: {inputs: {o: more/o}, run: "true"}
Y
    # The file of this test has its variables in quotes where YAML needs them.
    pipeline_run
    [ "$(ran)" = "all one[a] one[c]" ]
    [ "$(count skipped)" -eq 3 ]
    [ "$(output_of all o)" = $'a\nc' ]
    pipeline_run -p deep=yes
    [ "$(ran)" = "last more" ]
}

@test "two steps over the same list are joined value by value" {
    cat >pipeline.yaml <<'Y'
params: {names: [a, b, c]}
steps:
  one: {foreach: {x: $names}, run: 'echo $x >o', outputs: [o]}
  two: {foreach: {x: $names, y: [1, 2]}, inputs: {o: one/o}, run: 'echo $(cat $o) $y >p', outputs: [p]}
  three: {foreach: {y: [1, 2]}, inputs: {p: two/p}, run: 'cat $p/*/p >q', outputs: [q]}
Y
    pipeline_run
    [ "$(count "done")" -eq 11 ]
    [ "$(output_of 'two[b,2]' p)" = "b 2" ]
    [ "$(output_of 'three[1]' q)" = $'a 1\nb 1\nc 1' ]
}

@test "inputs are read-only, and a step sees nothing else of the others" {
    cat >pipeline.yaml <<'Y'
steps:
  a: {run: echo 1 >x; echo 2 >y, outputs: [x, y]}
  b:
    inputs: {in: a/x}
    run: |
      for f in $in inputs/new inputs/in/new; do
        if echo evil >$f; then echo "wrote $f"; fi
      done 2>/dev/null
      rm -f $in 2>/dev/null || true
      ls -R inputs >list
    outputs: [list]
Y
    pipeline_run
    run output_of b list
    says_not "wrote"
    says_not "y"
    [ "$(output_of a x)" = 1 ]
}

@test "a failed step stops only what depends on it; the rest and the command are listed" {
    cat >pipeline.yaml <<'Y'
name: half
steps:
  bad: {run: echo no >&2; exit 3, outputs: [x]}
  after: {inputs: {x: bad/x}, run: "true"}
  good: {run: echo 1 >x, outputs: [x]}
  also: {inputs: {x: good/x}, run: cat $x}
Y
    run forge pipeline run
    [ "$status" -eq 1 ]
    says "2 ran, 0 up to date, 1 failed, 1 not run"
    says "to go on: forge pipeline run pipeline.yaml"
    says "exit code 3"
    pipeline_run || true
    [ "$(ran)" = bad ]
    [ "$(why bad)" = "its last run failed: exit" ]
    pipeline_run --stop || true
    [ "$(count blocked)" -eq 1 ]
}

@test "a failed command in a pipe fails the step" {
    printf 'steps: {a: {run: "false | cat >o", outputs: [o]}}' >pipeline.yaml
    run forge pipeline run
    [ "$status" -eq 1 ]
    printf 'steps: {a: {run: "echo $undefined >o", outputs: [o]}}' >pipeline.yaml
    run forge pipeline run
    [ "$status" -eq 1 ]
}

@test "a step that leaves no declared output has failed" {
    printf 'steps: {a: {run: "true", outputs: [o.txt]}}' >pipeline.yaml
    run forge pipeline run
    [ "$status" -eq 1 ]
    says "it left no output 'o.txt'"
}

@test "values are never part of the shell's text" {
    cat >pipeline.yaml <<'Y'
params: {evil: '$(touch pwned); "; touch pwned #'}
steps: {a: {run: 'printf %s "$evil" >o; ls >l', outputs: [o, l]}}
Y
    pipeline_run
    [ "$(output_of a o)" = '$(touch pwned); "; touch pwned #' ]
    run output_of a l
    says_not pwned
}

@test "a notebook is a step; its parameters are those of the pipeline" {
    echo 3 >data/n
    cat >pipeline.yaml <<'Y'
params: {factor: 2}
steps:
  book: {runtime: notebook, inputs: {n: data/n}, params: [factor], script: book.ipynb, outputs: [outputs/book.ipynb, r.json]}
Y
    mkdir -p "$T/runtimes.d"
    cp "$BATS_TEST_DIRNAME/../../examples/runtimes/notebook.yaml" "$T/runtimes.d/"
    python3 - <<'PY'
import json
cell = lambda text, tags: {"cell_type": "code", "execution_count": None, "metadata": {"tags": tags}, "outputs": [], "source": text}
json.dump({"cells": [cell("factor = 1", ["parameters"]),
                     cell("import os, json\njson.dump(int(open(os.environ['n']).read()) * int(factor), open('r.json', 'w'))", [])],
           "metadata": {"kernelspec": {"name": "python3", "display_name": "p", "language": "python"}}, "nbformat": 4, "nbformat_minor": 5},
          open("book.ipynb", "w"))
PY
    pipeline_run
    [ "$(output_of book r.json)" = 6 ]
    pipeline_run -p factor=5
    [ "$(why book)" = "parameter factor changed (2 -> 5)" ]
}
