# store.bash: what the suites in tests/store share, on top of forge.bash. Each test has a
# FORGE_HOME and a store of its own: SQLite in that FORGE_HOME or, with FORGE_TEST_STORE=postgres,
# a database of the server of with-postgres.sh.
# shellcheck shell=bash disable=SC2034,SC2119,SC2120,SC2154 # the tests' variables and ours
# SPDX-License-Identifier: Apache-2.0
load ../lib/forge.bash
load ../lib/postgres.bash

allowed_skips+=("SQLite only" "PostgreSQL only")

setup_store() {
    unset FORGE_STORE
    setup_forge
    # The trial run of setup_forge is not ours.
    rm -rf "$FORGE_HOME"
    if [ "${FORGE_TEST_STORE:-sqlite}" = postgres ]; then
        : "${FORGE_PG_DIR:?run this under tests/tools/with-postgres.sh}"
        database=bats_$$_${RANDOM}_$BATS_TEST_NUMBER
        pg_sql "CREATE DATABASE $database" postgres
        FORGE_STORE=$(pg_url "$database")
        export FORGE_STORE
    fi
    mkdir gate
    budget
}

# budget [LINE...]: room for many runs at once on a small host, unless the lines say otherwise.
budget() { configure 'host:' '  budget:' '    cpus: 64' '    memory: 64G' "$@"; }

teardown_store() {
    local id rc=0
    touch "$T/gate/open"
    for id in $("$FORGE" ps -rqa 2>/dev/null); do
        "$FORGE" kill --now "$id" >/dev/null
    done
    patiently nothing_active || echo "runs are still active"
    teardown_forge || rc=$?
    [ -z "${database:-}" ] || pg_sql "DROP DATABASE $database WITH (FORCE)" postgres
    return "$rc"
}

# What ends a run a test has started: a loop that looks for a file, inside.
gated() { printf 'until [ -e %s/gate/open ]; do sleep 0.02; done' "$T"; }
open_gate() { touch "$T/gate/open"; }

# submit OPTION... -- COMMAND...: $id is the run.
submit() {
    id=$("$FORGE" submit "${OPTS[@]}" "$@" 2>"$err" </dev/null) || { status=$?; cat "$err"; return "$status"; }
    [[ "$id" =~ ^[0-9a-z]{26}$ ]]
}

# start OPTION...: submits a run that prints "ready" and then waits for the gate.
start() {
    submit -i "$T/gate" "$@" -- sh -c "echo ready; $(gated)"
    is_in "$id" running
}

# of RUN PATH: one value of its record.
of() { "$FORGE" show --json "$1" | jq -r "$2"; }

# wait_for, for a machine that has much else to do.
patiently() {
    local deadline=$((SECONDS + 30))
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$deadline" ] || { echo "never: $*"; return 1; }
        pause 0.02
    done
}

has_status() { [ "$(of "$1" .status)" = "$2" ]; }
# is_in RUN STATUS: sooner or later.
is_in() { patiently has_status "$1" "$2"; }
nothing_active() { [ -z "$(find "$FORGE_HOME/active" -type f -size +0 2>/dev/null)" ]; }
gone() { [ ! -e "/proc/$1" ] || grep -q '^State:.[ZX]' "/proc/$1/status"; }

# finished RUN: waits; $status as forge wait. $record is its record.
finished() {
    status=0
    "$FORGE" wait --json "$1" >"$record" 2>"$err" || status=$?
    echo "$1 -> $status $(field .status) $(field .reason): $(field .completion_notes)"
}

# murder RUN: SIGKILL to its supervisor, and nothing else.
murder() {
    local pid
    pid=$(of "$1" .supervisor.pid)
    kill -KILL "$pid"
    patiently gone "$pid"
}

# Objects there are, one a line.
objects() { find "$FORGE_HOME/objects" -type f 2>/dev/null; }
ps_ids() { "$FORGE" ps -qa "$@" | xargs; }

# says TEXT: in what the last `run` printed. Shows all of it otherwise.
says() {
    [[ "$output" == *"$1"* ]] || {
        printf 'not said: %s\n---\n%s\n' "$1" "$output"
        return 1
    }
}

says_not() {
    [[ "$output" != *"$1"* ]] || {
        printf 'said: %s\n---\n%s\n' "$1" "$output"
        return 1
    }
}
