#!/usr/bin/env bats
# Finding runs again: by label, by beginning, the last one; watching a sweep and ending part of it.
# SPDX-License-Identifier: Apache-2.0

load ../lib/newcomer.bash
setup() { setup_newcomer; }
teardown() {
    forge kill -f --now '*' >/dev/null 2>&1 || true
    teardown_forge
}

# plain TEXT: without colours and carriage returns.
plain() { printf '%s\n' "$1" | sed 's/\x1b\[[0-9;]*m//g' | tr -d '\r'; }

@test "the same --id twice, also at the same time: the newest is meant" {
    a=$(forge submit --id fit -- sleep 300)
    b=$(forge submit --id fit -- sleep 300)
    [ "$(forge show --json fit | jq -r .run_id)" = "$b" ]
    forge kill --now fit
    [ "$(forge show --json "$b" | jq -r .status)" = cancelled ]
    [ "$(forge show --json "$a" | jq -r .status)" != cancelled ]
    forge kill --now "$a"
}

@test "last, an id, its beginning and a label name a run to every command" {
    forge run -q --id one -- sh -c 'echo said; echo 1 >x'
    id=$(forge ps -q)
    for word in last one "$id" "${id:0:12}"; do
        [ "$(forge show --json "$word" | jq -r .run_id)" = "$id" ]
        [ "$(forge logs "$word")" = said ]
        [ "$(forge outputs --json "$word" | jq -r '.[0].path')" = x ]
        run forge wait "$word"
        [ "$status" -eq 0 ]
        run forge kill "$word"
        says "already finished"
    done
}

@test "last is the last I asked for, not a probe or a post-process" {
    forge run -q --id mine --post-process 'echo "{}"' -- sh -c 'echo 1 >x'
    [ "$(forge show --json last | jq -r .analysis_id)" = mine ]
    [ "$(forge ps -q | wc -l)" -eq 1 ]
    [ "$(forge ps -qa | wc -l)" -eq 2 ]
    # A runtime is probed before its first run; the probe is the older of the two.
    python3 -m venv --without-pip venv
    forge run -q --id probed -r ./venv python3 -c 1
    [ "$(forge ps --json | jq -rs '[.[].analysis_id] | join(" ")')" = "probed mine" ]
    [ "$(forge ps -qa | wc -l)" -eq 4 ]
    forge runtime check ./venv
    [ "$(forge show --json last | jq -r .analysis_id)" = probed ]
}

@test "without a run, last says so" {
    run forge show last
    [ "$status" -eq 1 ]
    says "has no run yet"
}

@test "several at once" {
    forge run -q --id one -- echo first
    forge run -q --id two -- sh -c 'echo second; exit 3' || true
    run --separate-stderr forge logs one two
    [ "$(xargs <<<"$output")" = "first second" ]
    [[ "$stderr" == *"==> "* ]]
    run forge show one two
    says Succeeded
    says "exit code 3"
    run forge wait one two
    [ "$status" -eq 3 ]
    # One that is meant twice is shown once.
    [ "$(forge show --json one last two | jq -s length)" -eq 2 ]
    forge run -q --id three -- sh -c 'echo 3 >x'
    forge run -q --id four -- sh -c 'echo 4 >y'
    run forge outputs three four
    [ "$status" -eq 0 ]
    grep -Eq '(^| )x +2 B' <<<"$output"
    grep -Eq '(^| )y +2 B' <<<"$output"
    a=$(forge submit --id five -- sleep 300)
    b=$(forge submit --id six -- sleep 300)
    run forge kill --now five six
    says "five ($a): cancelled"
    says "six ($b): cancelled"
}

@test "a sweep of 20: watched, some killed by pattern with a count and a question" {
    for i in $(seq 20); do forge submit --memory 32M --cpus 0.1 --id "sweep-$i" -- sleep 300 >/dev/null; done
    [ "$(forge ps -rq | wc -l)" -eq 20 ]
    [ "$(forge ps -rqa --analysis 'sweep-1*' | wc -l)" -eq 11 ]
    [ "$(forge ps -rqa --analysis 'sweep-?' | wc -l)" -eq 9 ]
    [ -z "$(forge ps -rqa --analysis 'sweep_*')" ]
    run script -qec "forge kill --now 'sweep-1*'" /dev/null <<<n
    says "End 11 runs? [y/N]"
    [ "$(forge ps -rq | wc -l)" -eq 20 ]
    run script -qec "forge kill --now 'sweep-1*'" /dev/null <<<y
    [ "$(forge ps -rq | wc -l)" -eq 9 ]
    # In a script nobody is asked.
    run forge kill --now 'sweep-*' </dev/null
    [ "$status" -eq 0 ]
    [ -z "$(forge ps -rq)" ]
    run forge kill 'sweep-*'
    [ "$status" -eq 1 ]
    says "no open run of yours is named like 'sweep-*'"
}

@test "ps has a line of at most 100 columns a run, on a terminal of that width" {
    forge run -q --id a-name -- sh -c 'echo "$0"' "$(printf 'long %.0s' {1..60})"
    forge submit --id going -- sleep 300 >/dev/null
    # Its memory is known as soon as it has a cgroup.
    wait_for sh -c '"$FORGE" ps -r | grep -q "[KM]iB"'
    run script -qec 'stty cols 100; forge ps' /dev/null
    [ "${#lines[@]}" -eq 3 ]
    for line in "${lines[@]}"; do
        line=$(plain "$line")
        [ "${#line}" -le 100 ]
    done
    says "sleep 300"
    # Elapsed and memory of what runs; a clock, no date, for today.
    plain "$output" | grep -Eq "going .*(preparing|running).* s .*[KM]iB .*[0-9]{2}:[0-9]{2}:[0-9]{2}"
    # ... in the local time.
    created=$(forge ps --json --analysis a-name | jq -r .created_at)
    run env TZ=XXX+5 script -qec 'stty cols 100; forge ps' /dev/null
    says "$(TZ=XXX+5 date -d "$created" +%T)"
    # What is shown of an id is enough to name the run.
    short=$(grep going <<<"$output" | cut -d' ' -f1)
    [ "${#short}" -lt 26 ]
    [ "$(forge show --json "$short" | jq -r .analysis_id)" = going ]
    # In a pipe nothing is cut.
    forge ps | grep -q "$(printf 'long %.0s' {1..60})"
    [[ "$(forge ps --json | head -1 | jq -r .created_at)" == *Z ]]
}

@test "a queued run says why it waits" {
    echo 'host: {budget: {cpus: 2, memory: 4G}}' >forge.yaml
    forge submit --cpus 2 --memory 64M -- sleep 300 >/dev/null
    forge submit --cpus 1 --memory 64M --id waits -- sleep 300 >/dev/null
    patiently sh -c 'forge ps --status queued -q | grep -q .'
    run forge ps
    says "waits for 1 CPU: 2 of 2 in use"
}

@test "ps --output: which run made this file" {
    forge run -q --id maker -- sh -c 'echo content >anything'
    forge run -q --id other -- sh -c 'echo else >anything'
    echo content >found
    [ "$(forge ps --json --output found | jq -r .analysis_id)" = maker ]
    [ "$(forge ps --json --output "$(sha256sum <found | cut -d' ' -f1)" | jq -r .analysis_id)" = maker ]
    [ "$(forge ps --json --output "sha256:$(sha256sum <found | cut -d' ' -f1)" | jq -r .analysis_id)" = maker ]
    echo unknown >found
    [ -z "$(forge ps -q --output found)" ]
    run forge ps --output nothing-there
    [ "$status" -eq 1 ]
    says "nothing-there"
}

@test "kill works beside a forge.yaml with a mistake in it" {
    id=$(forge submit --id runaway -- sleep 300)
    echo 'x: 1' >forge.yaml
    run forge kill --now runaway
    [ "$status" -eq 0 ]
    says "warning: ./forge.yaml:1:1: unknown key 'x'"
    says "runaway ($id): cancelled"
    rm forge.yaml
}
