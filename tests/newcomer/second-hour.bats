#!/usr/bin/env bats
# What new users met after the first hour: labels, broken files, several runs at once, typing errors.
# SPDX-License-Identifier: Apache-2.0

load ../lib/newcomer.bash
setup() { setup_newcomer; }
teardown() {
    forge kill -f --now '*' >/dev/null 2>&1 || true
    teardown_forge
}

@test "kill and wait name a run by its label and its id" {
    id=$(forge submit --id fit -- sleep 300)
    run forge wait --timeout 1ms fit
    [ "$status" -eq 124 ]
    says "forge: run fit ($id) is still"
    run forge kill --now fit
    [ "$status" -eq 0 ]
    [ "$output" = "fit ($id): cancelled" ]
    run forge kill fit
    [ "$output" = "fit ($id): already finished, cancelled" ]
    run forge wait fit
    [ "$status" -eq 130 ]
    says "forge: fit ($id): Cancelled"
    # The record has both already; a run without a label has its id.
    [ "$(forge wait --json fit | jq -r .analysis_id,.run_id | xargs)" = "fit $id" ]
    id=$(forge submit -- true)
    run forge wait "$id"
    [ "$status" -eq 0 ]
    says "(run $id)"
    run forge kill "$id"
    [ "$output" = "$id: already finished, succeeded" ]
}
