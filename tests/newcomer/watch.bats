#!/usr/bin/env bats
# Watching: a queued run's log, ^C, a closed terminal, an empty environment.
# SPDX-License-Identifier: Apache-2.0

load ../lib/newcomer.bash
setup() { setup_newcomer; }
teardown() {
    forge kill -f --now '*' >/dev/null 2>&1 || true
    teardown_forge
}

@test "logs -f of a queued run says so, and goes on when it starts" {
    echo 'host: {budget: {cpus: 1, memory: 4G}}' >forge.yaml
    mkdir gate
    first=$(forge submit -i gate -- sh -c 'until [ -e gate/open ]; do sleep 0.02; done')
    second=$(forge submit -- echo arrived)
    patiently sh -c "forge ps -q --status queued | grep -q $second"
    forge logs -f "$second" >said 2>&1 &
    reader=$!
    started+=("$reader")
    patiently grep -q "is queued" said
    touch gate/open
    wait "$reader"
    grep -q arrived said
    forge wait -q "$first"
}

@test "forge run says why it is queued" {
    echo 'host: {budget: {cpus: 1, memory: 4G}}' >forge.yaml
    mkdir gate
    forge submit -i gate -- sh -c 'until [ -e gate/open ]; do sleep 0.02; done' >/dev/null
    forge run echo 'done' >said 2>&1 &
    runner=$!
    started+=("$runner")
    patiently grep -q "queued: waits for 1 CPU: 1 of 1 in use" said
    touch gate/open
    wait "$runner"
}

# A run in the background that ignores SIGTERM.
stubborn() {
    forge run --grace 60s -- sh -c 'trap "" TERM; echo ready; while :; do sleep 0.1; done' >said 2>&1 &
    runner=$!
    started+=("$runner")
    patiently grep -q ready said
}

@test "the first ^C asks and says how to insist, the second kills" {
    # Job control, or SIGINT would be ignored in the background.
    set -m
    stubborn
    set +m
    kill -INT "$runner"
    patiently grep -q "stopping; again to kill now" said
    kill -0 "$runner"
    kill -INT "$runner"
    status=0
    wait "$runner" || status=$?
    [ "$status" -eq 130 ]
    grep -q Cancelled said
}

@test "a submitted run outlives its terminal" {
    script -qec 'forge submit --id stays -- sleep 300' /dev/null
    [ "$(forge ps -q --analysis stays -r | wc -l)" -eq 1 ]
    forge kill --now stays
}

@test "a run whose terminal closes is ended, and recorded" {
    mkfifo keys
    script -qec 'forge run --id ends -- sleep 300' /dev/null <keys >/dev/null 2>&1 &
    terminal=$!
    started+=("$terminal")
    exec {keys}>keys
    patiently sh -c '[ "$(forge ps --json --analysis ends | jq -r .status)" = running ]'
    kill -9 "$terminal"
    exec {keys}>&-
    patiently sh -c '[ "$(forge ps --json --analysis ends | jq -r .status)" = cancelled ]'
}

@test "env -i: without HOME and PATH it still runs" {
    run env -i "FORGE_HOME=$FORGE_HOME" "$FORGE" run -- sh -c 'echo "$HOME"'
    [ "$status" -eq 0 ]
    says /tmp/scidex-analysis-
    run env -i "$FORGE" run -- true
    says_not "(null)"
}
