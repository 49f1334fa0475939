#!/usr/bin/env bats
# Temporary outputs: dropped after their last reader, known by their digests, made again when they are needed.
# SPDX-License-Identifier: Apache-2.0

load ../lib/pipeline.bash
setup() { setup_pipeline; }
teardown() { teardown_pipeline; }

chain() {
    cat >pipeline.yaml <<'Y'
name: chain
params: {n: 1}
steps:
  big:
    run: head -c 100000 /dev/zero | tr '\0' x >big; echo kept >small
    outputs: [{path: big, temp: true}, small]
  size: {inputs: {big: big/big}, run: 'wc -c <$big >o', outputs: [o]}
  first: {inputs: {big: big/big}, run: 'head -c $n $big >o', outputs: [o]}
  also: {inputs: {small: big/small}, run: 'cat $small >o', outputs: [o]}
Y
}

big_object() {
    local digest
    digest=$(head -c 100000 /dev/zero | tr '\0' x | sha256sum | cut -c 1-64)
    echo "$FORGE_HOME/objects/${digest:0:2}/${digest:2}"
}

@test "a temporary output is gone after its last reader, and nothing runs again for it" {
    chain
    pipeline_run
    [ "$(count "done")" -eq 4 ]
    [ "$(jq -r 'select(.event == "dropped") | .task' run.json)" = big ]
    [ ! -e "$(big_object)" ]
    pipeline_run
    [ "$(ran)" = "" ]
    [ "$(count cached)" -eq 4 ]
    [ "$(forge show --json chain.big | jq -r '.outputs_removed[0].path')" = big ]
    [ "$(forge show --json chain.big | jq -r '.outputs[0].path')" = small ]
}

@test "... and is made again for a step that needs it, and dropped again" {
    chain
    pipeline_run
    pipeline_run -p n=3
    [ "$(ran)" = "big first" ]
    [ "$(why big)" = "its temporary output big is needed by first" ]
    [ "$(output_of first o)" = xxx ]
    [ ! -e "$(big_object)" ]
    # One that needs the other file does not.
    sed -i 's/cat $small/cat -n $small/' pipeline.yaml
    pipeline_run -p n=3
    [ "$(ran)" = also ]
}

@test "it stays as long as a reader has not succeeded" {
    chain
    sed -i 's/head -c $n $big >o/exit $n/' pipeline.yaml
    pipeline_run || true
    [ -e "$(big_object)" ]
    pipeline_run -p n=0 || true
    sed -i 's/exit $n/head -c $n $big >o/' pipeline.yaml
    pipeline_run
    [ "$(ran)" = first ]
    [ ! -e "$(big_object)" ]
}

@test "an object that another run has as well stays" {
    chain
    forge run -q -- sh -c "head -c 100000 /dev/zero | tr '\\0' x >mine"
    pipeline_run
    [ -e "$(big_object)" ]
    run forge verify
    [ "$status" -eq 0 ]
}

@test "outputs that a user removed are computed again" {
    chain
    pipeline_run
    forge rm -f --outputs-only chain.also >/dev/null
    pipeline_run
    [ "$(ran)" = also ]
    [ "$(why also)" = "output files were removed" ]
}
