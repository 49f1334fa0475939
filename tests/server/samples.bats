#!/usr/bin/env bats
# What a run used over time: the points are true, few and safe, and forge show --chart draws them.
# SPDX-License-Identifier: Apache-2.0
load ../lib/store.bash

setup() { setup_store; }
teardown() { teardown_store; }

sampling() { budget "sampling: {interval: $1}"; }
file_of() { echo "$FORGE_HOME/runs/$1/samples"; }
# points RUN [JQ]: what forge show --chart --json prints.
points() { "$FORGE" show --chart --json "$1" | jq -r "${2:-.samples | length}"; }
has_points() { [ "$(points "$1")" -ge "$2" ]; }

@test "a run of seconds has points that say what it used" {
    forge_run -- python3 -c 'import time
x = bytearray(64 << 20)
end = time.monotonic() + 1.5
while time.monotonic() < end: pass
time.sleep(1.5)'
    [ "$status" -eq 0 ]
    id=$(field .run_id)
    run points "$id"
    [ "$output" -ge 5 ]
    [ "$output" -le 30 ]
    [ "$(points "$id" '.columns | join(" ")')" = "seconds memory_bytes cpu_seconds pids disk_bytes" ]
    # The first one comes soon, and the last one before the end.
    [ "$(points "$id" '.samples[0][0] >= 0.1 and .samples[0][0] < 1.5')" = true ]
    [ "$(points "$id" ".samples[-1][0] <= $(field .usage.wall_seconds)")" = true ]
    # Time and CPU time go forward only, and nothing is above its exact peak.
    [ "$(points "$id" '[.samples[][0]] | . == (sort | unique)')" = true ]
    [ "$(points "$id" '[.samples[][2]] | . == sort')" = true ]
    [ "$(points "$id" '[.samples[][2]] | last > 0.3')" = true ]
    [ "$(points "$id" "[.samples[][2]] | last <= $(field .usage.cpu_seconds)")" = true ]
    [ "$(points "$id" '[.samples[][1]] | max > 67108864')" = true ]
    if [ "$(field .usage.memory_peak_bytes)" != null ]; then
        [ "$(points "$id" "[.samples[][1]] | max <= $(field .usage.memory_peak_bytes)")" = true ]
    fi
    [ "$(points "$id" '[.samples[][3]] | min >= 1')" = true ]
}

@test "a run of a moment has none, and no file" {
    sampling 2s
    forge_run -- true
    [ "$status" -eq 0 ]
    id=$(field .run_id)
    # On a busy machine a moment may be long.
    if awk -v w="$(field .usage.wall_seconds)" 'BEGIN { exit !(w < 0.1) }'; then
        [ ! -e "$(file_of "$id")" ]
        [ "$(points "$id")" -eq 0 ]
        run "$FORGE" show --chart "$id"
        [ "$status" -eq 0 ]
        [[ "$output" == *"has no samples: it was too short, or sampling.interval was off"* ]]
    fi
}

@test "off is off" {
    sampling off
    forge_run -- sleep 1
    [ "$status" -eq 0 ]
    [ ! -e "$(file_of "$(field .run_id)")" ]
    run "$FORGE" show --chart last
    [[ "$output" == *"has no samples"*"sampling.interval was off"* ]]
}

@test "a shorter interval makes more points, and all wrong ones are refused" {
    sampling 100ms
    forge_run -- sleep 2
    [ "$(points last)" -ge 8 ]
    [ "$(points last)" -le 22 ]
    for wrong in 50ms 2h soon '[]' -1s; do
        sampling "$wrong"
        run "$FORGE" config check "$FORGE_CONFIG"
        echo "$wrong: $output"
        [ "$status" -eq 1 ]
        [[ "$output" == *"forge.yaml:6:"* ]]
        [[ "$output" == *sampling.interval* ]]
    done
    sampling 99ms
    run "$FORGE" config check "$FORGE_CONFIG"
    [[ "$output" == *"must be from 100ms to 1h, or off"* ]]
}

@test "the chart: 80 columns in a pipe, the limit marked, ASCII where there is no UTF-8" {
    forge_run --memory 128M -- python3 -c 'import time
x = bytearray(80 << 20)
time.sleep(2)'
    [ "$status" -eq 0 ]
    LC_ALL=C run "$FORGE" show --chart last
    echo "$output"
    [[ "$output" == *"memory  at most "*", limit 128.00 MiB (---)"* ]]
    [[ "$output" == *"CPU  at most "*", limit 1.00"* ]]
    [[ "$output" == *"processes  at most "*", limit 100 (above this chart)"* ]]
    [ "$(grep -c '128.00 MiB |-----' <<<"$output")" -eq 1 ]
    grep -q '#####' <<<"$output"
    [ "$(grep -c '[^ -~]' <<<"$output")" -eq 0 ]
    [ "$(awk '{ if (length($0) > max) max = length($0) } END { print max }' <<<"$output")" -eq 80 ]
    LC_ALL=C.UTF-8 run "$FORGE" show --chart last
    echo "$output"
    [[ "$output" == *"128.00 MiB │╌╌╌╌"* ]]
    grep -q '⣿⣿⣿' <<<"$output"
    # mawk counts bytes.
    [ "$(/usr/bin/env python3 -c 'import sys; print(max(len(line) for line in sys.argv[1].split("\n")))' "$output")" -eq 80 ]
}

@test "the chart is as wide as the terminal" {
    forge_run -- sleep 1
    LC_ALL=C run script -qec "stty cols 61; '$FORGE' show --chart last" /dev/null
    echo "$output"
    [ "$(tr -d '\r' <<<"$output" | sed 's/\x1b\[[0-9;]*m//g' | awk '{ if (length($0) > max) max = length($0) } END { print max }')" -eq 61 ]
}

@test "what a killed supervisor left is readable, and a torn line is none" {
    sampling 100ms
    start
    patiently has_points "$id" 3
    kill -KILL "$(of "$id" .supervisor.pid)"
    before=$(points "$id")
    printf '[99.5,123,4.' >>"$(file_of "$id")"
    [ "$(points "$id")" -eq "$before" ]
    is_in "$id" lost
    [ "$(points "$id")" -eq "$before" ]
    run "$FORGE" show --chart "$id"
    [ "$status" -eq 0 ]
    [[ "$output" == *"memory  at most"* ]]
}

@test "a stopped supervisor catches nothing up" {
    sampling 100ms
    start
    patiently has_points "$id" 3
    supervisor=$(of "$id" .supervisor.pid)
    kill -STOP "$supervisor"
    # The run goes on meanwhile: this is the time that nobody looks at.
    pause 1.5
    kill -CONT "$supervisor"
    n=$(points "$id")
    patiently has_points "$id" $((n + 3))
    open_gate
    finished "$id"
    [ "$(points "$id" '[.samples[][0]] | [.[1:], .[:-1]] | transpose | map(.[0] - .[1]) | max >= 1.4')" = true ]
    [ "$(points "$id" '[.samples[][0]] | [.[1:], .[:-1]] | transpose | map(.[0] - .[1]) | min >= 0.09')" = true ]
}

@test "a run whose points cannot be written goes on, and an event says so" {
    budget 'sampling: {interval: 100ms}'
    sed -i 's/cpus: 64/runs: 1/' "$FORGE_CONFIG"
    start
    first=$id
    submit -- sleep 1
    is_in "$id" queued
    # It has its directory, and no point yet.
    patiently test -d "$FORGE_HOME/runs/$id"
    mkdir "$(file_of "$id")"
    open_gate
    finished "$first"
    finished "$id"
    [ "$(field .status)" = succeeded ]
    [ "$("$FORGE" logs --events "$id" | grep -c '"samples_failed"')" -eq 1 ]
    rmdir "$(file_of "$id")"
}

@test "the points are counted and removed with the logs, and with the run" {
    sampling 100ms
    forge_run --id kept -- sleep 1
    forge_run --id gone -- sleep 1
    gone=$(field .run_id)
    [ -s "$(file_of "$gone")" ]
    "$FORGE" rm -f gone
    [ ! -e "$FORGE_HOME/runs/$gone" ]
    kept=$(of kept .run_id)
    size=$(stat -c %s "$(file_of "$kept")")
    budget 'retention: {logs: 1ms}'
    run "$FORGE" gc --dry-run
    echo "$output"
    [[ "$output" == *"would remove logs of $kept ($size B)"* ]]
    "$FORGE" gc
    [ ! -e "$(file_of "$kept")" ]
    run "$FORGE" show --chart kept
    [ "$status" -eq 0 ]
    [[ "$output" == *"has no samples: forge gc removed them with its logs"* ]]
}

@test "the points of another FORGE_HOME are read there, and no link is followed" {
    [ "${FORGE_TEST_STORE:-sqlite}" = postgres ] || export FORGE_STORE=sqlite:$T/store.db
    sampling 100ms
    # Its owner shares it with a group.
    "$FORGE" ps >/dev/null
    chmod 750 "$FORGE_HOME"
    forge_run -- sleep 1
    id=$(field .run_id)
    n=$(points "$id")
    file=$(file_of "$id")
    [ "$(stat -c %a "$file")" = 640 ]
    theirs=$FORGE_HOME
    FORGE_HOME=$T/other
    [ "$(points "$id")" -eq "$n" ]
    run "$FORGE" show --chart "$id"
    [[ "$output" == *"memory  at most"* ]]
    mv "$file" "$T/away"
    [ "$(points "$id")" -eq 0 ]
    ln -s "$T/away" "$file"
    run "$FORGE" show --chart "$id"
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"the samples of run $id"* ]]
    # Nor in our own.
    FORGE_HOME=$theirs
    run "$FORGE" show --chart "$id"
    [ "$status" -eq 1 ]
    [[ "$output" == *"a link"* ]]
}

@test "a run that is stopped has a point of that moment" {
    sampling 1h
    forge_run --timeout 2s -- sleep 60
    [ "$(field .reason)" = wall_time ]
    [ "$(points last '.samples[-1][0] >= 2')" = true ]
}

# The figure of METRICS.md (a thousandth) is smaller than what a busy machine adds to one of two measurements; a supervisor that
# looks again and again instead of waiting takes far more than a hundredth.
@test "taking points is no work that a CPU would notice" {
    # cpu_of PID: nanoseconds so far.
    cpu_of() { awk '{ print $1 }' "/proc/$1/schedstat"; }
    taken() {
        sampling "$1"
        start
        patiently test "$(of "$id" .status)" = running
        supervisor=$(of "$id" .supervisor.pid)
        pause 1
        before=$(cpu_of "$supervisor")
        pause 5
        echo $((($(cpu_of "$supervisor") - before) / 5000))
        "$FORGE" kill --now "$id" >/dev/null
        is_in "$id" cancelled
    }
    # Microseconds a second, three times each: the least is that with the least disturbance.
    off='' dense=''
    for _ in 1 2 3; do
        off+="$(taken off)"$'\n'
        dense+="$(taken 100ms)"$'\n'
    done
    echo "off: $off dense: $dense"
    [ "$(sort -n <<<"$dense" | sed '/^$/d' | head -n 1)" -lt $(($(sort -n <<<"$off" | sed '/^$/d' | head -n 1) + 10000)) ]
}

@test "a run of which a power cut left nothing but points leaves nothing" {
    start
    patiently has_points "$id" 1
    kill -9 "$(of "$id" .supervisor.pid)"
    # What the disk has of files that no process has waited for.
    for file in record.json events.jsonl stdout stderr; do
        : >"$FORGE_HOME/runs/$id/$file"
    done
    "$FORGE" gc >/dev/null
    [ ! -e "$FORGE_HOME/runs/$id/samples" ]
}
