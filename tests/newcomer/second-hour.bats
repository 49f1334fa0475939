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

@test "diff says which runs it compares, and writes limits as they are written elsewhere" {
    forge run -q --id one --memory 2G --timeout 2h -- sh -c 'exit 0'
    run forge run -q --id two --memory 64M --timeout 90s --cpus 0.5 --pids 20 -- sh -c 'exit 3'
    one=$(forge show --json one | jq -r .run_id) two=$(forge show --json two | jq -r .run_id)
    run forge diff one two
    [ "$status" -eq 1 ]
    [ "${lines[0]}" = "--- one ($one): succeeded" ]
    [ "${lines[1]}" = "+++ two ($two): failed" ]
    says "limit     memory  2.00 GiB -> 64.00 MiB"
    says "limit     timeout  2 h -> 1 min 30 s"
    says "limit     cpus  1 -> 0.5"
    run forge diff --json one two
    [ "$(jq -r '.[] | select(.name == "memory_bytes") | .a, .b' <<<"$output" | xargs)" = "2147483648 67108864" ]
    # Equal runs have no lines at all.
    run forge diff one one
    [ "$status" -eq 0 ]
    [ -z "$output" ]
}

@test "submit --explain-limits prints what run prints, and submits nothing" {
    printf '# forge: timeout=90s\nprint(1)\n' >fit.py
    run forge submit --explain-limits --memory 64M fit.py
    [ "$status" -eq 0 ]
    grep -Eq "^memory +64.00 MiB +command line" <<<"$output"
    grep -Eq "^timeout +1 min 30 s +script +fit.py" <<<"$output"
    submitted=$output
    run forge run --explain-limits --memory 64M fit.py
    [ "$output" = "$submitted" ]
    [ "$(forge submit --explain-limits --json fit.py | jq -r '.[] | select(.limit == "timeout") | .from')" = script ]
    [ -z "$(forge ps -qa)" ]
}
