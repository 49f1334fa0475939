#!/usr/bin/env bats
# A notebook as it comes from Jupyter: with parameters, failing, out of memory, out of time.
# SPDX-License-Identifier: Apache-2.0

load ../lib/newcomer.bash

setup() {
    setup_newcomer
    skip_unless "needs python3-nbclient, python3-nbformat and python3-ipykernel" \
        /usr/bin/python3 -c 'import nbclient, nbformat, ipykernel'
    export PATH=$T/bin:/usr/bin:/bin
}

teardown() {
    forge kill -f --now '*' >/dev/null 2>&1 || true
    teardown_forge
}

# notebook FILE SOURCE...: one code cell each; the first is tagged unless TAG is empty.
notebook() {
    local file=$1
    shift
    jq -n --arg tag "${TAG-parameters}" '{
        nbformat: 4, nbformat_minor: 4,
        metadata: {kernelspec: {name: "python3", display_name: "Python 3", language: "python"}},
        cells: [$ARGS.positional[] | {cell_type: "code", execution_count: null, outputs: [], source: ., metadata: {}}]}
        | if $tag != "" then .cells[0].metadata.tags = [$tag] else . end' --args "$@" >"$file"
}

# printed NUMBER: what the cell of that number printed, in the notebook that the last run left.
printed() {
    rm -rf "$T/got"
    forge outputs last --copy "$T/got" >/dev/null
    jq -r --argjson n "$1" '.cells[$n].outputs[]? | select(.output_type == "stream") | [.text] | flatten | join("")' \
        "$T/got/outputs/fit.ipynb"
}

@test "parameters may follow the notebook, as on the page" {
    notebook fit.ipynb 'alpha = 1' 'print("alpha is", alpha)'
    run forge run fit.ipynb -p alpha=0.5
    [ "$status" -eq 0 ]
    says "alpha is 0.5"
    [ "$(printed 2)" = "alpha is 0.5" ]
    run forge run fit.ipynb -p alpha=2 --memory 1G
    [ "$status" -eq 0 ]
    says "alpha is 2"
    [ "$(forge show --json last | jq .limits.memory_bytes)" -eq 1073741824 ]
    id=$(forge submit fit.ipynb -p alpha=3)
    forge wait -q "$id"
    [ "$(printed 2)" = "alpha is 3" ]
    run forge run fit.ipynb stray
    [ "$status" -eq 125 ]
    says "a notebook takes no arguments"
}

@test "the same notebook with the same results is the same file, also with parameters" {
    TAG='' notebook fit.ipynb 'alpha = 1' 'print("alpha is", alpha, beta)'
    # Version 4.5 has ids of cells.
    jq '.nbformat_minor = 5 | .cells |= [to_entries[] | .value + {id: "cell-\(.key)"}]' fit.ipynb >new.ipynb
    for file in fit new; do
        forge run -q --id "$file-1" "$file.ipynb" -p alpha=0.5 -p beta=2
        forge run -q --id "$file-2" "$file.ipynb" -p alpha=0.5 -p beta=2
        first=$(forge outputs --json "$file-1" | jq -r '.[0].sha256')
        second=$(forge outputs --json "$file-2" | jq -r '.[0].sha256')
        [[ "$first" == *[0-9a-f]* ]]
        [ "$first" = "$second" ]
    done
    # The two cells with parameters have ids of their own, as the format asks for.
    forge outputs new-1 --copy got
    [ "$(jq '[.cells[].id] | length == (unique | length)' got/outputs/new.ipynb)" = true ]
    /usr/bin/python3 -c 'import nbformat; nbformat.validate(nbformat.read("got/outputs/new.ipynb", 4))'
}

@test "a parameter that the notebook has not is an error that lists those it has" {
    notebook fit.ipynb 'alpha = 1
n: int = 3; who = "me"' 'print(alpha)'
    run forge run fit.ipynb -p alhpa=0.5
    [ "$status" -eq 2 ]
    says "the notebook has no parameter 'alhpa' (it has: alpha, n, who); did you mean 'alpha'?"
    says_not Traceback
    # Without a tagged cell the first one counts.
    TAG='' notebook fit.ipynb '%matplotlib inline
alpha = 1' 'print(alpha)'
    run forge run fit.ipynb -p beta=0.5
    [ "$status" -eq 2 ]
    says "it has: alpha)"
    run forge run fit.ipynb -p alpha=0.5
    [ "$status" -eq 0 ]
    says "0.5"
}

@test "what a cell prints is there while it runs, also in the notebook" {
    mkdir gate
    notebook fit.ipynb 'n = 1' 'import os, sys, time
print("begun", flush=True)
print("warned", file=sys.stderr, flush=True)
while not os.path.exists("gate/open"): time.sleep(0.02)
print("ended")'
    forge run -i gate fit.ipynb >said 2>warned &
    runner=$!
    started+=("$runner")
    patiently grep -q begun said
    patiently grep -q warned warned
    run ! grep -q ended said
    touch gate/open
    wait "$runner"
    grep -q ended said
}

@test "a cell that fails: its own traceback, and one line that says which" {
    notebook fit.ipynb 'n = 1' 'print("before")' 'def f(): return n / 0
f()' 'print("never reached")'
    run forge run fit.ipynb
    [ "$status" -eq 1 ]
    says "ZeroDivisionError"
    says "forge: cell 3 of 4 failed: ZeroDivisionError: division by zero"
    says_not run_notebook.py
    says_not nbclient
    says_not $'\e['
    says_not "never reached"
    # What forge itself needs in /tmp is none of the user's business.
    says_not "left in /tmp"
    [ "$(printed 1)" = before ]
    jq -e '.cells[2].outputs[0].ename == "ZeroDivisionError"' "$T/got/outputs/fit.ipynb"
    jq -e '.cells[3].outputs == []' "$T/got/outputs/fit.ipynb"
}

@test "out of memory: the notebook has what ran before" {
    notebook fit.ipynb 'n = 1' 'print("before")' 'x = bytearray(700 << 20); x[::4096] = b"1" * len(x[::4096])'
    run forge run --memory 300M fit.ipynb
    [ "$status" -eq 137 ]
    says "memory"
    [ "$(printed 1)" = before ]
}

@test "out of time: the notebook has what ran before, and what the cell had printed" {
    notebook fit.ipynb 'n = 1' 'print("before")' 'import time; print("begun", flush=True); time.sleep(600)'
    run forge run --timeout 15s fit.ipynb
    [ "$status" -eq 124 ]
    says_not Traceback
    [ "$(printed 1)" = before ]
    [ "$(printed 2)" = begun ]
}

@test "killed at once: the notebook has what ran before" {
    notebook fit.ipynb 'n = 1' 'print("before")' 'import time; print("begun", flush=True); time.sleep(600)'
    forge submit fit.ipynb
    patiently sh -c 'forge logs last 2>/dev/null | grep -q begun'
    forge kill --now last
    [ "$(printed 1)" = before ]
    [ "$(forge outputs --json last | jq length)" -eq 1 ]
}

@test "the notebook is an output whatever -o says, but for none" {
    notebook fit.ipynb 'n = 1' 'open("table.csv", "w").write("1"); open("other", "w").write("2"); print("done")'
    run forge run -o '*.csv' fit.ipynb
    [ "$status" -eq 0 ]
    says "1 file was not kept, e.g. other"
    [ "$(forge outputs --json last | jq -r '[.[].path] | sort | join(" ")')" = "outputs/fit.ipynb table.csv" ]
    [ "$(printed 1)" = "done" ]
    run forge run -o none fit.ipynb
    [ "$status" -eq 0 ]
    [ "$(forge outputs --json last | jq length)" -eq 0 ]
}

@test "no traceback of forge's own when the kernel dies or there is none" {
    notebook fit.ipynb 'n = 1' 'import os; os.kill(os.getpid(), 9)'
    run forge run fit.ipynb
    [ "$status" -eq 1 ]
    says "forge: the kernel died in cell 2 of 2"
    says_not Traceback
    jq '.metadata.kernelspec = {name: "nothing", display_name: "x", language: "nothing"}' fit.ipynb >other.ipynb
    run forge run other.ipynb
    [ "$status" -eq 1 ]
    says "forge: the notebook cannot be executed, before the first cell"
    says_not Traceback
}

@test "no traceback of forge's own for a file that is no notebook" {
    for text in '' '{broken' '[]' '{}' '{"cells": 3}' '{"nbformat": 99, "nbformat_minor": 4, "metadata": {}, "cells": []}' \
        '{"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": [{"cell_type": "code"}]}'; do
        printf '%s' "$text" >fit.ipynb
        run forge run fit.ipynb
        [ "$status" -eq 1 ]
        says "forge: $PWD/fit.ipynb is no notebook: "
        says_not Traceback
        [ "${#lines[@]}" -eq 2 ]
    done
}
