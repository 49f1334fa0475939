#!/usr/bin/env bats
# forge metrics: true, bounded, cheap; and what is made of it: rules that fire in a real Prometheus, a dashboard.
# SPDX-License-Identifier: Apache-2.0
load ../lib/store.bash

setup() {
    setup_store
    page=$T/page
    rules=$BATS_TEST_DIRNAME/../../contrib/prometheus
}
teardown() { teardown_store; }

# metrics OPTION...: $page is what it prints.
metrics() { "$FORGE" metrics "$@" >"$page" 2>"$err"; }

# value NAME{LABELS}: of this sample; nothing: there is none.
value() { name=$1 awk '{ name = ENVIRON["name"] } substr($0, 1, length(name) + 1) == name " " { print $NF }' "$page"; }

# has NAME{LABELS} VALUE
has() {
    local found
    found=$(value "$1")
    [ "$found" = "$2" ] || { echo "$1 is '$found', not $2"; return 1; }
}

# sql STATEMENT: in the store of this test.
sql() {
    if [ "${FORGE_TEST_STORE:-sqlite}" = postgres ]; then
        pg_sql "$1" "$database"
    else
        /usr/bin/env python3 -c 'import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=30)
for row in db.execute(sys.argv[2]): print(*row, sep="|")
db.commit()' "$FORGE_HOME/forge.db" "$1"
    fi
}

# complete: the page is whole, by the rules of OpenMetrics that every reader relies on.
complete() {
    /usr/bin/env python3 - "$page" <<'PY'
import re, sys
lines = open(sys.argv[1], encoding="utf-8").read().split("\n")
assert lines[-2:] == ["# EOF", ""], lines[-3:]
ends = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"], "summary": ["_count", "_sum"],
        "gauge": [""], "info": ["_info"]}
family, kinds, seen, buckets = None, {}, set(), {}
for line in lines[:-2]:
    word = line.split(" ")
    if line.startswith("#"):
        assert word[1] in ("HELP", "TYPE", "UNIT"), line
        if word[1] == "HELP":
            assert word[2] not in kinds, "twice: " + line
            family = word[2]
        assert word[2] == family, line
        if word[1] == "TYPE":
            kinds[family] = word[3]
        if word[1] == "UNIT":
            assert family.endswith("_" + word[3]), line
        continue
    name, labels, value = re.fullmatch(r'([a-z0-9_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\n"])*",?)*)\})? (\S+)', line).groups()
    assert name[:len(family)] == family and name[len(family):] in ends[kinds[family]], line
    assert (name, labels) not in seen, "twice: " + line
    seen.add((name, labels))
    assert float(value) >= 0, line
    if name.endswith("_bucket"):
        rest, le = re.fullmatch(r'(.*?),?le="([^"]*)"', labels).groups()
        at = buckets.setdefault((family, rest), [])
        assert not at or (float(le) > at[-1][0] and float(value) >= at[-1][1]), "not cumulative: " + line
        at.append((float(le), float(value)))
    if kinds[family] == "histogram" and name.endswith("_count"):
        assert buckets[(family, labels or "")][-1] == (float("inf"), float(value)), line
assert len(kinds) >= 12
PY
}

@test "the page is OpenMetrics, and in the other format what promtool takes without a remark" {
    forge_run -- true
    metrics
    complete
    run promtool check metrics < <("$FORGE" metrics --format prometheus)
    echo "$output"
    [ "$status" -eq 0 ]
    [ -z "$output" ]
    # node_exporter's textfile collector reads neither of these.
    [ "$("$FORGE" metrics --format prometheus | grep -cE '^# (EOF|UNIT)|^# TYPE .* info$')" -eq 0 ]
    # Else they say the same.
    diff <(grep -v '^#' "$page" | grep -v latency_seconds) \
        <("$FORGE" metrics --format prometheus | grep -v '^#' | grep -v latency_seconds)
    run "$FORGE" metrics --format xml
    [ "$status" -eq 1 ]
    run "$FORGE" metrics word
    [ "$status" -eq 2 ]
}

@test "ended runs are counted by how they ended, and stay counted when they are removed" {
    forge_run -- true
    forge_run -- false
    forge_run -- sh -c 'exit 3'
    forge_run --memory 32M -- python3 -c 'x = bytearray(256 << 20)'
    metrics
    has 'forge_runs_ended_total{status="succeeded",reason="exit",runtime="",executor="local"}' 1
    has 'forge_runs_ended_total{status="failed",reason="exit",runtime="",executor="local"}' 2
    has 'forge_runs_ended_total{status="killed",reason="memory",runtime="",executor="local"}' 1
    has 'forge_run_duration_seconds_count{status="failed"}' 2
    has 'forge_run_duration_seconds_count{status="corrupted"}' 0
    has forge_run_wait_seconds_count 4
    has 'forge_run_wait_seconds_bucket{le="+Inf"}' 4
    # Half of a limit and more: only the one that was killed.
    [ "$(value forge_run_memory_used_ratio_count)" -eq 4 ]
    [ "$(value 'forge_run_memory_used_ratio_bucket{le="0.75"}')" -eq 3 ]
    grep '^forge_runs_ended_total\|^forge_run_' "$page" >before
    for id in $("$FORGE" ps -qa); do
        "$FORGE" rm -f "$id"
    done
    [ "$(sql 'SELECT count(*) FROM runs')" -eq 0 ]
    "$FORGE" gc
    metrics
    grep '^forge_runs_ended_total\|^forge_run_' "$page" | diff before -
}

@test "open runs, the budget and the queue" {
    budget
    sed -i 's/cpus: 64/cpus: 1/' "$FORGE_CONFIG"
    start --cpus 1 --memory 256M
    first=$id
    submit --cpus 1 -- true
    is_in "$id" queued
    metrics
    complete
    has 'forge_runs_open{status="running"}' 1
    has 'forge_runs_open{status="queued"}' 1
    has forge_budget_cpus 1
    has forge_budget_cpus_used 1
    has forge_budget_memory_bytes $((64 << 30))
    has forge_budget_memory_used_bytes $((256 << 20))
    has forge_budget_runs_used 1
    has forge_queue_length 1
    awk '/^forge_queue_oldest_wait_seconds / { exit !($2 > 0 && $2 < 600) }' "$page"
    has forge_leaked_slots 0
    open_gate
    finished "$first"
    finished "$id"
    metrics
    has 'forge_runs_open{status="running"}' 0
    has forge_queue_length 0
    has forge_queue_oldest_wait_seconds 0
    has forge_budget_memory_used_bytes 0
}

@test "what a killed supervisor left is seen, and metrics do not remove it" {
    start
    kill -KILL "$(of "$id" .supervisor.pid)"
    left() { metrics && has forge_leaked_slots 1 && has forge_leaked_workdirs 1; }
    # of() above is a command that repairs: it must not come after the kill.
    patiently left
    [ "$(value forge_leaked_cgroups)" -ge 1 ]
    left
    "$FORGE" gc >/dev/null
    metrics
    has forge_leaked_slots 0
    has forge_leaked_workdirs 0
    has forge_leaked_cgroups 0
    is_in "$id" lost
    metrics
    has 'forge_runs_ended_total{status="lost",reason="host_lost",runtime="",executor="local"}' 1
}

@test "a run far beyond its limit is overdue" {
    start --timeout 1h
    metrics
    has forge_runs_overdue 0
    sql "UPDATE runs SET started_at = '2026-01-01T00:00:00.000Z' WHERE run_id = '$id'"
    metrics
    has forge_runs_overdue 1
    awk -F'[} ]' '/^forge_runs_open_oldest_seconds\{status="running"/ { exit !($NF > 3600) }' "$page"
}

@test "a store that is away is a metric, and the host's are still there" {
    forge_run -- true
    run -0 "$FORGE" metrics --store postgresql://nobody@127.0.0.1:1/none
    "$FORGE" metrics --store postgresql://nobody@127.0.0.1:1/none >"$page" 2>"$err"
    grep -q 'warning: open the store' "$err"
    complete
    has forge_store_up 0
    has 'forge_scrape_errors{part="store"}' 1
    has 'forge_scrape_errors{part="host"}' 0
    has forge_leaked_slots 0
    [ -n "$(value forge_budget_cpus)" ]
    [ -z "$(value forge_runs_overdue)" ]
    metrics
    has forge_store_up 1
    has 'forge_scrape_errors{part="store"}' 0
}

@test "a part of FORGE_HOME that cannot be read is a metric, too" {
    forge_run -- true
    mkdir -p "$FORGE_HOME/quarantine"
    touch "$FORGE_HOME/quarantine/$(field .run_id)"
    metrics
    has forge_quarantined_runs 1
    rm -r "$FORGE_HOME/quarantine"
    echo >"$FORGE_HOME/quarantine"
    metrics
    complete
    has 'forge_scrape_errors{part="host"}' 1
    [ -z "$(value forge_quarantined_runs)" ]
    has forge_leaked_slots 0
    rm "$FORGE_HOME/quarantine"
}

@test "labels: at most so many values, the first ones stay, and each is escaped" {
    forge_run -- true
    metrics
    local rows='' i
    for i in {100..159}; do
        rows+="${rows:+, }('run', 'failed', 'exit', 'r$i', 'local', 0, '2026-01-01T00:00:00.$i', 1, 0)"
    done
    sql "INSERT INTO run_totals VALUES $rows, ('run', 'failed', 'exit', 'quote\" back\\ line
end', 'local', 0, '2025-01-01', 7, 0)"
    metrics
    complete
    has 'forge_runs_ended_total{status="failed",reason="exit",runtime="quote\" back\\ line\nend",executor="local"}' 7
    # The one above and r100 to r128 came first; then the run without a runtime.
    has 'forge_runs_ended_total{status="failed",reason="exit",runtime="r128",executor="local"}' 1
    has 'forge_runs_ended_total{status="failed",reason="exit",runtime="r129",executor="local"}' ''
    has 'forge_runs_ended_total{status="failed",reason="exit",runtime="other",executor="local"}' 31
    has 'forge_runs_ended_total{status="succeeded",reason="exit",runtime="other",executor="local"}' 1
    run promtool check metrics < <("$FORGE" metrics --format prometheus)
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "health checks and probes are counted, and stay counted when results are dropped" {
    configure 'health:' '  down: {kind: tcp, address: "127.0.0.1:1", severity: warn, timeout: 1s}'
    "$FORGE" health check >/dev/null || true
    "$FORGE" health check >/dev/null || true
    metrics
    has 'forge_health_checks_total{check="down",result="fail"}' 2
    has 'forge_health_checks_total{check="disk",result="pass"}' 2
    has 'forge_health_check_duration_seconds_count{check="down"}' 2
    sql "UPDATE health_checks SET time = '2025-01-01T00:00:00.000Z' || substr(time, 20)"
    "$FORGE" gc >/dev/null
    [ "$(sql "SELECT count(*) FROM health_checks WHERE phase <> 'runtime'")" -eq 0 ]
    metrics
    has 'forge_health_checks_total{check="down",result="fail"}' 2
}

@test "200 runs at once are counted once each" {
    for i in {1..200}; do
        "$FORGE" run -q --cpus 0.1 --memory 16M -- true </dev/null >/dev/null 2>&1 3>&- &
        [ $((i % 20)) -ne 0 ] || wait
    done
    wait
    n=$("$FORGE" ps -qa --status succeeded | wc -l)
    [ "$n" -ge 190 ]
    metrics
    has 'forge_runs_ended_total{status="succeeded",reason="exit",runtime="",executor="local"}' "$n"
    # With the housekeeping of 200 couriers, and again after that of this one.
    metrics
    has 'forge_runs_ended_total{status="succeeded",reason="exit",runtime="",executor="local"}' "$n"
    [ "$(sql "SELECT (SELECT count(*) FROM run_deltas WHERE kind = 'run') + (SELECT COALESCE(sum(n), 0) FROM run_totals WHERE kind = 'run')")" -eq \
        "$("$FORGE" ps -qa | wc -l)" ]
}

@test "a page takes no longer with 1,000,000 runs" {
    forge_run -- true
    sql "INSERT INTO analyses VALUES ('many', 't')"
    local make="WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000)"
    sql "$make INSERT INTO runs (run_id, analysis_id, status, reason, runtime, executor, created_at, wall_usec, record)
        SELECT 'x' || i, 'many', 'succeeded', 'exit', 'r' || (i % 60), 'local', '2026-01-01', i, '{}' FROM n"
    metrics
    for i in {1..50}; do
        metrics
        value forge_store_latency_seconds
    done >latencies
    # The second slowest of 50.
    [ "$(sort -g latencies | tail -n 2 | head -n 1 | awk '{ print int($1 * 1000) }')" -lt 100 ]
}

@test "the rules: promtool takes them, and each fires when it should" {
    run promtool check rules "$rules/forge.rules.yml"
    echo "$output"
    [ "$status" -eq 0 ]
    run promtool check config "$rules/prometheus.yml"
    echo "$output"
    [ "$status" -eq 0 ]
    run promtool test rules "$BATS_TEST_DIRNAME/forge.rules.test.yml"
    echo "$output"
    [ "$status" -eq 0 ]
    # There is a test for each.
    grep -o 'alert: .*' "$rules/forge.rules.yml" | cut -d' ' -f2 | sort >alerts
    grep -B2 exp_alerts: "$BATS_TEST_DIRNAME/forge.rules.test.yml" | grep -o 'alertname: .*' | cut -d' ' -f2 | sort -u | diff alerts -
}

@test "every metric in the dashboard and the rules exists, and the dashboard is one" {
    forge_run -- true
    "$FORGE" health check >/dev/null || true
    metrics
    check=$BATS_TEST_DIRNAME/check-contrib.py
    dashboard=$BATS_TEST_DIRNAME/../../contrib/grafana/forge.json
    run "$check" "$page" "$dashboard" "$rules/forge.rules.yml"
    echo "$output"
    [ "$status" -eq 0 ]
    # And the check finds what is wrong.
    sed 's/forge_store_up/forge_store_upp/' "$rules/forge.rules.yml" >wrong.yml
    run "$check" "$page" "$dashboard" wrong.yml
    [ "$status" -eq 1 ]
    [[ "$output" == *"forge metrics has no forge_store_upp"* ]]
    jq '.panels[2].gridPos.x = 0 | .panels[3].targets[0].expr = "sum(forge_queue_length{user=\"x\"})" | .panels[4].id = 1' \
        "$dashboard" >wrong.json
    run "$check" "$page" wrong.json "$rules/forge.rules.yml"
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"covers"* ]]
    [[ "$output" == *"without different ids"* ]]
}

# ask PATH: of this test's Prometheus.
ask() { curl -sf --max-time 10 "http://127.0.0.1:$prometheus/api/v1/$1"; }
is_scraped() { [ "$(ask 'query?query=forge_store_up' | jq -r '.data.result[0].value[1]')" = "$1" ]; }
is_firing() { ask alerts | jq -e --arg name "$1" '.data.alerts[] | select(.labels.alertname == $name and .state == "firing")'; }
is_quiet() { ask alerts | jq -e --arg name "$1" '[.data.alerts[] | select(.labels.alertname == $name)] | length == 0'; }

all_quiet() { [ "$(ask alerts | jq '.data.alerts | length')" -eq 0 ]; }

@test "a real Prometheus scrapes it, and an alert fires and ends" {
    forge_run -- true
    forge_run -- false
    # What is served is of the store that this file names.
    printf '#!/bin/sh\nexec "%s" metrics $(cat %s/options)\n' "$FORGE" "$T" >page-command
    chmod 755 page-command
    : >options
    background "$BATS_TEST_DIRNAME/serve-metrics.py" "$T/port" "$T/page-command"
    patiently test -s "$T/port"
    # Times of a test: every second, and no alert waits longer.
    sed -E 's/\b(for|interval): [0-9]+m/\1: 1s/' "$rules/forge.rules.yml" >forge.rules.yml
    sed -E "s/127.0.0.1:8765/127.0.0.1:$(<"$T/port")/; s/30s/1s/" "$rules/prometheus.yml" >prometheus.yml
    promtool check config prometheus.yml
    prometheus=$(/usr/bin/env python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    background prometheus --config.file=prometheus.yml --storage.tsdb.path="$T/tsdb" --log.level=warn \
        --web.listen-address="127.0.0.1:$prometheus" >prometheus.log 2>&1
    patiently is_scraped 1 || { cat prometheus.log; ask targets; return 1; }
    # What it has is what is on the page.
    [ "$(ask 'query?query=sum(forge_runs_ended_total)' | jq -r '.data.result[0].value[1]')" = 2 ]
    [ "$(ask 'query?query=forge_run_duration_seconds_bucket%7Bstatus=%22failed%22,le=%22%2BInf%22%7D' | jq -r '.data.result[0].value[1]')" = 1 ]
    [ "$(ask 'metadata?metric=forge_store_latency_seconds' | jq -r '.data.forge_store_latency_seconds[0].unit')" = seconds ]
    # Before the first scrape there are no metrics, which is an alert.
    patiently all_quiet || { ask alerts; return 1; }
    echo '--store postgresql://nobody@127.0.0.1:1/none' >options
    patiently is_firing ForgeStoreAway
    patiently is_scraped 0
    : >options
    patiently is_quiet ForgeStoreAway
    # And something that was really left.
    start
    kill -KILL "$(of "$id" .supervisor.pid)"
    patiently is_firing ForgeLeaked
    "$FORGE" gc >/dev/null
    patiently is_quiet ForgeLeaked
}
