#!/usr/bin/env bats
# forge executor, and runtimes that are images.
# SPDX-License-Identifier: Apache-2.0

load ../lib/executor.bash

setup_file() { setup_engines docker; }
teardown_file() { engines_remove; }
setup() { setup_executor docker; }
teardown() { teardown_executor; }

# row PROMISE: its state in the report.
row() { jq -r --arg p "$1" '.checks[] | select(.promise == $p) | .state' report; }

@test "list names every executor, what answers there, and what does not" {
    budget "  away: {kind: container, socket: $T/none.sock, image: py}"
    "$FORGE" executor list --json >"$T/executors"
    [ "$(jq -r '.[] | select(.name == "docker") | .reachable' "$T/executors")" = true ]
    [[ "$(jq -r '.[] | select(.name == "docker") | .what' "$T/executors")" == Docker* ]]
    [[ "$(jq -r '.[] | select(.name == "docker") | .cannot' "$T/executors")" == *"I/O rate"* ]]
    [ "$(jq -r '.[] | select(.name == "away") | .reachable' "$T/executors")" = false ]
    [[ "$(jq -r '.[] | select(.name == "away") | .what' "$T/executors")" == *none.sock* ]]
    [ "$(jq -r '.[] | select(.name == "local") | .reachable' "$T/executors")" = true ]
}

@test "check attacks a container: what it promises holds, and what it does not promise is named" {
    "$FORGE" executor check docker --json >report
    [ "$(jq -r .level report)" = container ]
    for promise in "hidden files" "read-only inputs" network user privileges "system calls" "foreign ABIs" \
        sockets memory CPUs "process count" "CPU time" "wall time" disk output "nothing stays"; do
        echo "$promise: $(row "$promise")"
        [ "$(row "$promise")" = pass ]
    done
    [ "$(row devices)" = cannot ]
}

@test "check of an executor that cannot be reached fails and says why" {
    budget "  away: {kind: container, socket: $T/none.sock, image: py}"
    run "$FORGE" executor check away
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *none.sock* ]]
}

@test "a runtime that is an image is checked, runs there, and its image is in the record" {
    budget 'runtimes:' '  box: {kind: image, image: tiny, commands: [sh, ls]}' '  bad: {kind: image, image: nosuch}'
    run "$FORGE" runtime check box
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"box: healthy"* ]]
    OPTS=()
    forge_run -r box -- ls /bin/busybox
    [ "$status" -eq 0 ]
    [ "$(field .executor)" = docker ]
    [ "$(field .image.id)" = "$(engine docker image inspect -f '{{.Id}}' tiny)" ]
    run "$FORGE" runtime check bad
    [ "$status" -ne 0 ]
    [[ "$output" == *nosuch* ]]
    forge_run -r box --executor local -- true
    [ "$status" -eq 125 ]
    OPTS=(--executor docker)
}
