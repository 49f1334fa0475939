#!/usr/bin/env bats
# Notebooks in Python and R, executed for real.
# SPDX-License-Identifier: Apache-2.0
load ../lib/store.bash

setup() {
    setup_store
    mkdir runtimes.d
    cp "$(dirname "$BATS_TEST_DIRNAME")/../examples/runtimes/notebook.yaml" runtimes.d
}

teardown() { teardown_store; }

# notebook FILE LANGUAGE PARAMETERS-CELL CELL
notebook() {
    jq -n --arg language "$2" --arg first "$3" --arg second "$4" '{
        nbformat: 4, nbformat_minor: 4,
        metadata: {kernelspec: {name: "any", display_name: "any", language: $language}},
        cells: [{cell_type: "code", execution_count: null, outputs: [], source: $first, metadata: {tags: ["parameters"]}},
                {cell_type: "code", execution_count: null, outputs: [], source: $second, metadata: {}}]}' >"$1"
}

# executed NAME: what became of it, as $T/got/outputs/NAME. No pipe: jq takes no input for a yes.
executed() { "$FORGE" outputs --copy "$T/got" "$(field .run_id)" >/dev/null && [ -s "$T/got/outputs/$1" ]; }

@test "a notebook is executed with parameters, under its profile, and is an output" {
    notebook a.ipynb python 'n = 1; who = "x"' 'print(who, n * 2)'
    forge_run -r notebook -p n=21 -p who=world a.ipynb
    [ "$status" -eq 0 ]
    [ "$(field .profile)" = notebook ]
    [ "$(cat "$out")" = "world 42" ]
    executed a.ipynb
    jq -e '.cells[1].metadata.tags == ["injected-parameters"]' "$T/got/outputs/a.ipynb"
    [ "$(jq -r '.cells[2].outputs[0].text | [.] | flatten | join("")' "$T/got/outputs/a.ipynb")" = "world 42" ]
}

@test "a failing cell: the run fails, the notebook has the traceback" {
    notebook a.ipynb python 'n = 1' 'n / 0'
    forge_run -r notebook a.ipynb
    [ "$status" -eq 1 ]
    [ "$(field .status)" = failed ]
    executed a.ipynb
    jq -e '.cells[1].outputs[0].ename == "ZeroDivisionError"' "$T/got/outputs/a.ipynb"
    grep -q ZeroDivisionError "$(field .logs.stderr)"
}

@test "a kernel that eats its memory is reported as memory" {
    notebook a.ipynb python 'n = 1' 'x = bytearray(700 << 20)'
    forge_run -r notebook --memory 300M a.ipynb
    [ "$status" -eq 137 ]
    [ "$(field .reason)" = memory ]
}

@test "a kernel that dies is told" {
    notebook a.ipynb python 'n = 1' 'import os; os.kill(os.getpid(), 9)'
    forge_run -r notebook a.ipynb
    [ "$status" -eq 1 ]
    grep -q 'kernel died' "$(field .logs.stderr)"
}

@test "R notebooks too" {
    notebook a.ipynb R 'n <- 1' 'cat(n, mean(mtcars$mpg) > 20)'
    forge_run -r notebook -p n=7 a.ipynb
    cat "$(field .logs.stderr)"
    [ "$status" -eq 0 ]
    [[ "$(cat "$out")" == *"7 TRUE"* ]]
}

@test "parameters are for notebooks, and must have a name" {
    run "$FORGE" run -p n=1 -- true
    [ "$status" -eq 125 ]
    notebook a.ipynb python 'n = 1' 'n'
    run "$FORGE" run -r notebook -p '1x=2' a.ipynb
    [ "$status" -eq 125 ]
    echo '{}' >bad.ipynb
    forge_run -r notebook bad.ipynb
    [ "$(field .status)" = failed ]
}

@test "the kernel is the runtime's Python, whatever the host has registered" {
    /usr/bin/python3 -m venv --without-pip --system-site-packages venv
    chmod -R go+rX venv .
    printf 'runtimes:\n  v: {kind: venv, prefix: %s/venv, python: [nbclient, ipykernel]}\n' "$T" >runtimes.d/v.yaml
    notebook a.ipynb python 'n = 1' 'import sys; print(sys.prefix)'
    forge_run -r v a.ipynb
    [ "$status" -eq 0 ]
    [ "$(cat "$out")" = "$T/venv" ]
}

@test "parameters once more replace those of before; without a tagged cell they come first" {
    notebook a.ipynb python 'n = 1' 'print(n)'
    forge_run -r notebook -p n=2 a.ipynb
    [ "$(cat "$out")" = 2 ]
    executed a.ipynb
    cp "$T/got/outputs/a.ipynb" b.ipynb
    forge_run -r notebook -p n=3 b.ipynb
    [ "$(cat "$out")" = 3 ]
    jq 'del(.cells[].metadata.tags) | .cells |= .[-1:]' a.ipynb >c.ipynb
    forge_run -r notebook -p 'n="two words"' c.ipynb
    [ "$(cat "$out")" = "two words" ]
    # Text that is no JSON is text; a quote in it is a quote.
    forge_run -r notebook -p "n=it's \"so\"; import os" c.ipynb
    [ "$(cat "$out")" = "it's \"so\"; import os" ]
}

@test "a runtime that cannot execute notebooks says so, and the run fails" {
    /usr/bin/python3 -m venv --without-pip venv
    chmod -R go+rX venv .
    printf 'runtimes:\n  bare: {kind: venv, prefix: %s/venv}\n' "$T" >runtimes.d/bare.yaml
    notebook a.ipynb python 'n = 1' 'print(n)'
    forge_run -r bare a.ipynb
    [ "$status" -eq 3 ]
    [ "$(field .status)" = failed ]
    grep -q 'this runtime cannot execute notebooks' "$(field .logs.stderr)"
}
