#!/usr/bin/env bats
# Supervisors of containers that are killed: the run goes on, and another supervisor brings it to its end.
# SPDX-License-Identifier: Apache-2.0

load ../lib/executor.bash

setup_file() { setup_engines docker podman; }
teardown_file() { engines_remove; }
setup() { setup_executor docker; }
teardown() { teardown_executor; }

# 25 here; more by hand: FORGE_CRASHES=200.
kills() {
    run "${BATS_TEST_DIRNAME}/../tools/crash-container.py" "$FORGE" "$1" "${FORGE_CRASHES:-25}"
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "Docker: supervisors killed at random moments lose nothing and start nothing twice" {
    kills docker
}

@test "Podman: supervisors killed at random moments lose nothing and start nothing twice" {
    kills podman
}

@test "a run whose supervisor was killed can be followed, and ended by forge kill" {
    id=$("$FORGE" submit --executor docker -- sh -c 'echo one; sleep 300')
    wait_for has_status "$id" running
    kill -9 "$(jq -rs 'map(select(.pid)) | last | .pid' "$FORGE_HOME"/active/*)"
    "$FORGE" kill "$id"
    [ "$(of "$id" .status)" = cancelled ]
    [ "$("$FORGE" logs "$id")" = one ]
    [ -z "$(containers docker)" ]
}

@test "its limits hold after its supervisor was killed: wall time by the next one, or by forge-shim" {
    id=$("$FORGE" submit --executor docker --timeout 2s --grace 100ms -- sleep 300)
    wait_for has_status "$id" running
    kill -9 "$(jq -rs 'map(select(.pid)) | last | .pid' "$FORGE_HOME"/active/*)"
    "$FORGE" ps >/dev/null
    "$FORGE" wait "$id" || true
    [ "$(of "$id" .reason)" = wall_time ]
    # No forge command comes before the last moment: forge-shim ends everything by itself.
    id=$("$FORGE" submit --executor docker --timeout 1s --grace 100ms -- sleep 31237)
    wait_for has_status "$id" running
    kill -9 "$(jq -rs 'map(select(.pid)) | last | .pid' "$FORGE_HOME"/active/*)"
    wait_for not_on_host '^sleep 31237'
    "$FORGE" wait "$id" || true
    [ "$(of "$id" .reason)" = wall_time ]
    [ -z "$(containers docker)" ]
}

@test "the next supervisor goes on behind the points of the one that was killed" {
    # points_of JQ: of this run's file; no command of forge, which would start the next supervisor.
    points_of() { jq -rs "$1" "$FORGE_HOME/runs/$id/samples"; }
    has_points() { [ "$(points_of length)" -ge "$1" ]; }
    id=$("$FORGE" submit --executor docker -- sleep 300)
    wait_for has_status "$id" running
    wait_for has_points 3
    kill -9 "$(jq -rs 'map(select(.pid)) | last | .pid' "$FORGE_HOME"/active/*)"
    before=$(points_of length)
    "$FORGE" ps >/dev/null
    wait_for has_points $((before + 3))
    [ "$(points_of '[.[][0]] | . == (sort | unique)')" = true ]
    "$FORGE" kill --now "$id"
    [ "$("$FORGE" show --chart --json "$id" | jq '.samples | length')" -ge $((before + 3)) ]
    [ -z "$(containers docker)" ]
}
