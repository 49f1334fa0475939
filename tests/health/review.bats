#!/usr/bin/env bats
# What a hostile reader found in the checks of the host's health: each was wrong once.
# SPDX-License-Identifier: Apache-2.0

load ../lib/store.bash

setup() { setup_store; }
teardown() { teardown_store; }

checks() { budget 'health:' "$@"; }
guard() { mkdir -p "$T/site"; echo a >"$T/site/page"; budget 'guard:' "  paths: [$T/site]" '  mode: snapshot' '  unattributed: corrupted' "$@"; }
started() {
    submit -i "$T/gate" "$@" -- sh -c "$(gated)"
    is_in "$id" running
}
# guard_process RUN: the process that has the snapshot of this run.
guard_process() { pgrep -P "$(of "$1" .supervisor.pid)" -x forge-guard; }

@test "the process with the snapshot dies: the times of the files decide" {
    guard
    started
    echo b >>"$T/site/page"
    kill -KILL "$(guard_process "$id")"
    open_gate
    finished "$id"
    [ "$(field .status)" = corrupted ]
    [ "$(field .health.post.guard.mode)" = times ]
    [[ "$(field .completion_notes)" == *"$T/site/page (modified)"* ]]
}

@test "a signal for the whole group of forge, or two of them, do not keep a run from being judged" {
    guard
    setsid "$FORGE" run -q -i "$T/gate" -- sh -c "$(gated)" &
    own=$!
    some_run() { id=$("$FORGE" ps -rq) && [ -n "$id" ]; }
    patiently some_run
    is_in "$id" running
    echo b >>"$T/site/page"
    kill -TERM -- "-$own"
    kill -HUP -- "-$own" || true # it may have ended
    wait "$own" || true
    [ "$(of "$id" .status)" = corrupted ]
    [[ "$(of "$id" .completion_notes)" == *"Cancelled"* ]]
}

@test "a check that runs a command needs no room of the host's budget" {
    budget '    runs: 1' 'health:' "  tool: {kind: command, command: 'true', timeout: 20s}"
    forge_run -- true
    [ "$status" -eq 0 ]
    [ "$(of last '.health.post.checks[] | select(.name == "tool").ok')" = true ]
    start
    first=$id
    submit -- true
    is_in "$id" queued
    open_gate
    finished "$first" >/dev/null
    finished "$id"
    [ "$(field .status)" = succeeded ]
}

@test "a run that waits for health in the queue does not keep others from their share" {
    local rows=('    runs: 1' 'health:' "  mark: {kind: disk, path: $T/mark, min_free: 1, min_inodes: 1, if_failed: wait}")
    touch "$T/mark"
    budget "${rows[@]}"
    start
    first=$id
    submit -- true
    waits=$id
    is_in "$waits" queued
    rm "$T/mark"
    open_gate
    finished "$first" >/dev/null
    says_why() { "$FORGE" ps | grep -F 'waits for health: mark'; }
    patiently says_why
    budget '    runs: 1'
    forge_run -- true
    [ "$status" -eq 0 ]
    touch "$T/mark"
    finished "$waits"
    [ "$(field .status)" = succeeded ]
}

@test "a run with a key that waits for health is confirmed at once" {
    checks "  mark: {kind: disk, path: $T/mark, min_free: 1, min_inodes: 1, if_failed: wait}"
    submit --idempotency-key k -- true
    is_in "$id" queued
    touch "$T/mark"
    finished "$id"
    [ "$(field .status)" = succeeded ]
}

@test "a signal while guarded files are looked at before the run: cancelled, not refused" {
    mkdir "$T/site"
    (cd "$T/site" && seq 20000 | xargs touch)
    head -c 300M /dev/zero >"$T/site/large"
    budget 'health:' "  site: {kind: files, paths: [$T/site], hash: true}" 'guard: {mode: snapshot}'
    "$FORGE" run -q -- true &
    own=$!
    looks() { pgrep -P "$own" -x forge-guard; }
    patiently looks
    kill -TERM "$own"
    wait "$own" || status=$?
    [ "$status" -eq 130 ]
    [ "$(of last .status)" = cancelled ]
}

@test "every: what waited for a check of another run takes its result, however old that is by then" {
    checks "  slow: {kind: command, command: 'sleep 2', timeout: 20s, every: 1s}"
    for i in 1 2 3; do
        "$FORGE" run -q -- true >"out.$i" 2>&1 &
        pids[i]=$!
    done
    for i in 1 2 3; do
        wait "${pids[i]}"
    done
}

@test "every: two checks that differ only in a query or a password share no result" {
    [ -n "$(command -v python3)" ]
    cat >server.py <<'END'
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path.endswith('a') else 500)
        self.end_headers()
    def log_message(self, *args): pass
server = http.server.HTTPServer(('127.0.0.1', 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
END
    exec 7< <(exec python3 server.py)
    server=$!
    read -r port <&7
    checks "  s: {kind: http, url: 'http://127.0.0.1:$port/?x=a', every: 1h}"
    forge_run -- true
    [ "$status" -eq 0 ]
    checks "  s: {kind: http, url: 'http://127.0.0.1:$port/?x=b', every: 1h}"
    forge_run -- true
    kill "$server"
    exec 7<&-
    [ "$status" -eq 125 ]
    [ "$(of last .reason)" = health_pre ]
}

@test "clear can be repeated after it failed half-way, and a mark alone is cleared or goes with its run" {
    guard '  hold: true'
    started
    echo b >>"$T/site/page"
    open_gate
    finished "$id"
    # As if the store had been told, and then nothing more.
    mkdir keep
    cp "$FORGE_HOME/runs/$id/record.json" keep/
    "$FORGE" health clear "$id" --note one
    cp keep/record.json "$FORGE_HOME/runs/$id/record.json"
    touch "$FORGE_HOME/quarantine/$id"
    "$FORGE" health clear "$id" --note two
    [ "$(jq -r .quarantine "$FORGE_HOME/runs/$id/record.json")" = false ]
    [ "$(of "$id" .cleared.note)" = two ]
    [ ! -e "$FORGE_HOME/quarantine/$id" ]
    # A mark whose run is gone.
    touch "$FORGE_HOME/quarantine/01m7k6kmb1a43vjqc5v83p9v5k"
    "$FORGE" health clear 01m7k6kmb1a43vjqc5v83p9v5k --note gone
    [ -z "$(ls "$FORGE_HOME/quarantine")" ]
    touch "$FORGE_HOME/quarantine/$id"
    "$FORGE" rm -f "$id"
    [ -z "$(ls "$FORGE_HOME/quarantine")" ]
}

@test "a post-process does not read outputs in quarantine" {
    guard
    submit -i "$T/gate" -- sh -c "echo hi >x; $(gated)"
    is_in "$id" running
    echo b >>"$T/site/page"
    open_gate
    finished "$id"
    run "$FORGE" post-process "$id" -c 'cat x'
    [ "$status" -ne 0 ]
    [[ "$output" == *"in quarantine"* ]]
}

@test "history: rows from the future or without sense break nothing" {
    [ "${FORGE_TEST_STORE:-sqlite}" = sqlite ] || skip "SQLite only"
    forge_run -- true
    for days in 1 40 4000; do
        sqlite3 "$FORGE_HOME/forge.db" "INSERT INTO health_checks (name, time, phase, run_id, verdict, duration_usec)
            VALUES ('fut', strftime('%Y-%m-%dT%H:%M:%f', 'now', '+$days days') || 'Z', 'pre', '', 'fail', -10)"
    done
    run "$FORGE" health history fut
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"0 of 3 (0.0 %)"* ]]
    run "$FORGE" health history
    [ "$status" -eq 0 ]
}

@test "many checks and few descriptors: nothing is refused for that" {
    {
        echo 'health:'
        for i in $(seq 100); do
            echo "  c$i: {kind: disk, path: /, min_free: 1, min_inodes: 1, severity: warn, when: pre}"
        done
    } >rows
    mapfile -t rows <rows
    budget "${rows[@]}"
    (ulimit -n 60 && "$FORGE" run -q -- true)
}
