#!/usr/bin/env bats
# The pipeline file: what is accepted, and where an error is.
# SPDX-License-Identifier: Apache-2.0

load ../lib/pipeline.bash
setup() { setup_pipeline; }
teardown() { teardown_pipeline; }

# refused TEXT...: lint fails with each text; the file comes on standard input.
refused() {
    cat >pipeline.yaml
    run forge pipeline lint
    [ "$status" -eq 1 ] || return 1
    local text
    for text; do
        says "$text" || return 1
    done
}

@test "lint: counts steps and tasks, and runs nothing" {
    three_steps
    run forge pipeline lint
    [ "$status" -eq 0 ]
    says "pipeline.yaml: 3 steps, 4 tasks"
    [ "$(forge ps -aq | wc -l)" -eq 0 ]
}

@test "lint: JSON is accepted" {
    printf '{"steps": {"a": {"run": "true"}}}' >p.json
    run forge pipeline lint p.json
    [ "$status" -eq 0 ]
    says "1 steps, 1 tasks"
}

@test "lint: a directory with a pipeline.yaml" {
    mkdir sub
    printf 'steps: {a: {run: "true"}}' >sub/pipeline.yaml
    run forge pipeline lint sub
    [ "$status" -eq 0 ]
}

@test "lint: unknown keys have a place and a near miss" {
    refused "pipeline.yaml:3:5: steps.a: unknown key 'input'" "did you mean 'inputs'" <<'Y'
steps:
  a:
    input: {x: y}
    run: "true"
Y
    refused "pipeline.yaml:1:1:" "unknown key 'step'" <<<'step: {a: {run: "true"}}'
    refused "memory is a limit: write limits:" <<<'steps: {a: {run: "true", memory: 2G}}'
    refused "steps.a.limits: unknown key 'memroy'" <<<'steps: {a: {run: "true", limits: {memroy: 2G}}}'
    refused "steps.a.limits.memory" <<<'steps: {a: {run: "true", limits: {memory: lots}}}'
    refused "steps.a.retry: " <<<'steps: {a: {run: "true", retry: {hunger: {times: 2}}}}'
}

@test "lint: a step has one command" {
    refused "steps.a: has neither run nor script" <<<'steps: {a: {outputs: [x]}}'
    refused "steps.a: has both run and script" <<<'steps: {a: {run: "true", script: x.py}}'
    refused "steps.a: args are for a script" <<<'steps: {a: {run: "true", args: [1]}}'
    refused "steps: there are none" <<<'name: x'
}

@test "lint: cycles are named" {
    refused "steps that wait for each other: a -> b -> a" <<'Y'
steps:
  a: {inputs: {x: b/x}, run: "true", outputs: [x]}
  b: {inputs: {x: a/x}, run: "true", outputs: [x]}
Y
    refused "steps that wait for each other: a -> a" <<<'steps: {a: {inputs: {x: a/x}, run: "true", outputs: [x]}}'
}

@test "lint: an output that the other step has not" {
    refused "pipeline.yaml:3:20: steps.b.inputs: step a has no output 'y.txt' (has: x.txt)" <<'Y'
steps:
  a: {run: "true", outputs: [x.txt]}
  b: {inputs: {in: a/y.txt}, run: "true"}
Y
    refused "step a declares no outputs" <<'Y'
steps:
  a: {run: "true"}
  b: {inputs: {in: a/y.txt}, run: "true"}
Y
}

@test "lint: outputs stay in the step" {
    refused "steps.a.outputs:" "'..'" <<<'steps: {a: {run: "true", outputs: [../x]}}'
    refused "steps.a.outputs:" <<<'steps: {a: {run: "true", outputs: [/etc/x]}}'
    refused "inputs/ has the inputs of the step" <<<'steps: {a: {run: "true", outputs: [inputs/x]}}'
    refused "'x' is there twice" <<<'steps: {a: {run: "true", outputs: [x, x]}}'
}

@test "lint: a name that is a step and a file is ambiguous" {
    mkdir a
    refused "'a/x' is ambiguous" "Write ./a/x for the file" <<'Y'
steps:
  a: {run: "true", outputs: [x]}
  b: {inputs: {in: a/x}, run: "true"}
Y
}

@test "lint: names of variables" {
    refused "steps.a.inputs: 'PATH' is a variable that every run has" <<<'steps: {a: {inputs: {PATH: x}, run: "true"}}'
    refused "names with FORGE_ are taken" <<<'steps: {a: {inputs: {FORGE_X: x}, run: "true"}}'
    refused "'n' is an input and a parameter" <<<'{params: {n: 1}, steps: {a: {inputs: {n: x}, run: "true"}}}'
    refused "there is no parameter 'm'" <<<'{params: {n: 1}, steps: {a: {run: "true", outputs: [out-$m]}}}'
    refused "unknown parameter 'm'" <<<'{params: {n: 1}, steps: {a: {script: x.py, params: [m]}}}'
}

@test "lint: foreach" {
    refused "no file matches 'data/*.none'" <<<'steps: {a: {foreach: {f: data/*.none}, run: "true"}}'
    refused "'x' is there twice" <<<'steps: {a: {foreach: {f: [x, x]}, run: "true"}}'
    refused "must have one * and no ?" <<<'steps: {a: {foreach: {f: "*/*.x"}, run: "true"}}'
    refused "the list is empty" <<<'steps: {a: {foreach: {f: []}, run: "true"}}'
    refused "cannot be the name of a task" <<<'steps: {a: {foreach: {f: [".."]}, run: "true"}}'
}

@test "lint: when" {
    refused "steps.a.when: 'x y' is no condition" <<<'steps: {a: {when: x y, run: "true"}}'
    refused "compares no numbers" <<<'steps: {a: {when: a < b, run: "true"}}'
}

@test "lint: hostile names of steps" {
    refused "steps: " <<<'steps: {"../x": {run: "true"}}'
    refused "steps: " <<<'steps: {"a b": {run: "true"}}'
    refused "steps: " <<<$'steps: {"a\\u001b[2J": {run: "true"}}'
}

@test "lint: ten thousand steps, chains and names that are numbers" {
    python3 - >pipeline.yaml <<'PY'
print("steps:")
for i in range(10000):
    print(f"  s{i}: {{run: 'true', outputs: [o]" + (f", inputs: {{x: s{i - 1}/o}}}}" if i else "}"))
PY
    run forge pipeline lint
    [ "$status" -eq 0 ]
    says "10000 steps, 10000 tasks"
    echo '  s77: {run: "true"}' >>pipeline.yaml
    run forge pipeline lint
    [ "$status" -eq 1 ]
    says "duplicate key 's77' (first on line 79)"
}

@test "parameters: -p, --params, unknown ones, lists" {
    cat >pipeline.yaml <<'Y'
params: {n: 1, names: [a, b]}
steps: {one: {foreach: {x: $names}, run: 'echo $n $x >o', outputs: [o]}}
Y
    run forge pipeline lint -p m=2
    [ "$status" -eq 1 ]
    says "unknown parameter 'm'"
    run forge pipeline lint -p names=a,b,c
    says "3 tasks"
    echo 'names: [u, v, w, x]' >p.yaml
    run forge pipeline lint --params p.yaml
    says "4 tasks"
    echo 'nam: [u]' >p.yaml
    run forge pipeline lint --params p.yaml
    says "p.yaml:1:1: unknown parameter 'nam'"
    pipeline_run -p n=7 -p names=z
    [ "$(output_of 'one[z]' o)" = "7 z" ]
}

@test "graph: text, Mermaid, SVG" {
    three_steps
    run forge pipeline graph
    [ "${lines[0]}" = "upper (2 tasks)" ]
    [ "${lines[1]}" = "join <- upper" ]
    [ "${lines[2]}" = "count <- join" ]
    run forge pipeline graph --format mermaid
    says "flowchart TD"
    says "s0 --> s1"
    forge pipeline graph --format svg >g.svg
    python3 -c 'import xml.dom.minidom as m; d = m.parse("g.svg"); assert len(d.getElementsByTagName("rect")) == 3'
}

@test "schema: is the one of the documents, and fits the examples" {
    forge pipeline schema >schema.json
    cmp schema.json "$BATS_TEST_DIRNAME/../../docs/pipeline.schema.json"
    # Every key that lint knows is in it.
    [ "$(jq -r '.properties.steps.additionalProperties.properties | has("checkpoint")' schema.json)" = true ]
    [ "$(jq -r '.properties.steps.additionalProperties.additionalProperties' schema.json)" = false ]
}

@test "lint looks for what the steps name: runtimes, executors, scripts, and steps that were meant" {
    for change in 'runtime: genomix' 'executor: sge' 'script: nothere.py' 'profile: huge'; do
        printf 'name: x\nsteps:\n  a: {run: true, outputs: [o]}\n  b: {%s, inputs: {o: a/o}, outputs: [p]}\n' "$change" >pipeline.yaml
        case $change in script*) ;; *) sed -i 's/, inputs/, run: "true", inputs/' pipeline.yaml ;; esac
        run forge pipeline lint
        [ "$status" -eq 1 ]
        says "pipeline.yaml:4:"
        says "steps.b.${change%%:*}: "
        says "${change#*: }"
    done
    printf 'name: x\nsteps:\n  align: {run: true, outputs: [o]}\n  b: {run: true, inputs: {o: alinn/o}, outputs: [p]}\n' >pipeline.yaml
    run forge pipeline lint
    [ "$status" -eq 1 ]
    says "alinn/o: No such file or directory"
    says "did you mean the step 'align'?"
}

@test "two files that would have one name are an error before anything runs" {
    mkdir -p d
    echo x >d/o.txt
    printf 'name: x\nsteps:\n  a: {run: "echo 1 >o.txt", outputs: [o.txt]}\n  b: {run: "cat $i/* >p", inputs: {i: [a/o.txt, ./d/o.txt]}, outputs: [p]}\n' >pipeline.yaml
    run forge pipeline lint
    [ "$status" -eq 1 ]
    says "steps.b.inputs.i: two files have the name 'o.txt'"
}

@test "an option that a verb does nothing with is refused" {
    printf 'name: x\nsteps:\n  a: {run: "echo 1 >o", outputs: [o]}\n' >pipeline.yaml
    for words in "run --copy there" "run --format svg" "lint --force a" "graph --stop" "status -y" "clean --entry x" \
        "outputs -n" "run -j 0" "run --stop --keep-going" "run --only a --from a" "schema --replace"; do
        # shellcheck disable=SC2086 # words
        run forge pipeline $words
        [ "$status" -ne 0 ]
        says "usage: forge pipeline"
    done
    run forge pipeline run --format svg
    says "pipeline run: --format does nothing there (it is of: graph)"
    run forge pipeline run --keep-going -j 1
    [ "$status" -eq 0 ]
}

@test "what cannot begin does not say that something goes on" {
    printf 'name: x\nentries: {mid: [b]}\nsteps:\n  a: {run: "echo 1 >o", outputs: [o]}\n  b: {run: "cat $o >p", inputs: {o: a/o}, outputs: [p]}\n' >pipeline.yaml
    for words in "--entry mid" "--given a=/nope --entry mid" "--only b"; do
        # shellcheck disable=SC2086 # words
        run forge pipeline run $words
        [ "$status" -ne 0 ]
        says_not "goes on without this process"
    done
}
