#!/usr/bin/env bats
# Containers: what a hostile review found. Each of these was wrong once.
# SPDX-License-Identifier: Apache-2.0

load ../lib/executor.bash

setup_file() { setup_engines docker; }
teardown_file() { engines_remove; }
setup() { setup_executor docker; }
teardown() { teardown_executor; }

slot() { grep -l "\"run_id\":\"$1\"" "$FORGE_HOME"/active/*; }
supervisor() { jq -rs 'map(select(.pid)) | last | .pid' "$(slot "$1")"; }
# orphan RUN: its supervisor is killed, and dead.
orphan() {
    local pid
    pid=$(supervisor "$1")
    kill -9 "$pid"
    patiently gone "$pid"
}
is_running() { [ "$(engine docker inspect -f '{{.State.Status}}' "forge-$1")" = running ]; }
has_control() { [ -n "$(ls -A "$FORGE_HOME/containers" 2>/dev/null)" ]; }
has_slot() { grep -qs start_usec "$FORGE_HOME"/active/*; }

@test "another supervisor attaches to a run that started long ago" {
    start
    orphan "$id"
    # As if it had been started a minute earlier.
    began=$(jq -rs 'map(select(.start_usec)) | last | .start_usec' "$(slot "$id")")
    echo "{\"start_usec\": $((began - 60000000))}" >>"$(slot "$id")"
    "$FORGE" ps >/dev/null
    open_gate
    "$FORGE" wait "$id"
    [ "$(of "$id" .status)" = succeeded ]
}

@test "a paused container is not taken for one that is gone" {
    start
    orphan "$id"
    engine docker pause "forge-$id"
    "$FORGE" ps >/dev/null
    engine docker unpause "forge-$id"
    open_gate
    "$FORGE" wait "$id"
    [ "$(of "$id" .status)" = succeeded ]
}

@test "a run is attached to where it is, whatever the configuration says by now" {
    start
    orphan "$id"
    configure 'host:' '  budget:' '    cpus: 64' 'executors:' \
        "  docker: {kind: container, socket: $T/elsewhere.sock, image: py}"
    "$FORGE" ps >/dev/null
    open_gate
    "$FORGE" wait "$id"
    [ "$(of "$id" .status)" = succeeded ]
}

@test "a resumed run is judged by the guard of its begin, whatever the configuration says by now" {
    mkdir "$T/site"
    echo a >"$T/site/page"
    echo a >"$T/lone"
    # The guard is gone by the end.
    budget 'guard:' "  paths: [$T/site, $T/lone]" '  unattributed: corrupted'
    start
    orphan "$id"
    echo b >>"$T/site/page"
    rm "$T/lone"
    budget
    "$FORGE" ps >/dev/null
    open_gate
    "$FORGE" wait "$id" || true
    [ "$(of "$id" .status)" = corrupted ]
    [ "$(of "$id" .health.post.guard.mode)" = times ]
    [ "$(of "$id" ".health.post.guard.files[] | select(.path == \"$T/site/page\").what")" = modified ]
    [ "$(of "$id" ".health.post.guard.files[] | select(.path == \"$T/lone\").what")" = deleted ]
    [[ "$(of "$id" .completion_notes)" == *"since it began, and by whom is not known"* ]]
    [[ "$(of "$id" .completion_notes)" == *"the supervisor that watched has died"* ]]
    "$FORGE" health clear "$id" --note test
    # It only warns by the end.
    rm "$T/gate/open"
    budget 'guard:' "  paths: [$T/site]" '  unattributed: corrupted'
    start
    orphan "$id"
    echo b >>"$T/site/page"
    budget 'guard:' "  paths: [$T/site]" '  unattributed: warn'
    "$FORGE" ps >/dev/null
    open_gate
    "$FORGE" wait "$id" || true
    [ "$(of "$id" .status)" = corrupted ]
    "$FORGE" health clear "$id" --note test
    # It was not there at the begin.
    rm "$T/gate/open"
    budget
    start
    orphan "$id"
    budget 'guard:' "  paths: [$T/site]" '  unattributed: corrupted'
    echo b >>"$T/site/page"
    "$FORGE" ps >/dev/null
    open_gate
    "$FORGE" wait "$id"
    [ "$(of "$id" .status)" = succeeded ]
    [ "$(of "$id" .health.post.guard)" = null ]
}

@test "a resumed run whose tables are no longer checked says so" {
    . "$BATS_TEST_DIRNAME/../lib/postgres.bash"
    pg_make
    pg_sql 'CREATE TABLE samples (x int)'
    budget 'health:' "  p: {kind: postgres, url: \"$FORGE_TEST_PG\", count: [samples]}"
    start
    orphan "$id"
    pg_remove
    budget
    "$FORGE" ps >/dev/null
    open_gate
    "$FORGE" wait "$id"
    [[ "$(of "$id" .completion_notes)" == *"Health: p is not configured any more; whether its tables changed is not known."* ]]
}

@test "a run with standard input is not resumed with half of it" {
    mkfifo in
    exec {keep}<>in
    "$FORGE" run -q --stdin "${OPTS[@]}" -- sh -c 'cat >data; wc -c <data' <in {keep}>&- 3>&- &
    started+=("$!")
    echo one >&"$keep"
    patiently has_slot
    id=$(jq -rs 'map(select(.run_id)) | last | .run_id' "$FORGE_HOME"/active/*)
    patiently is_running "$id"
    orphan "$id"
    exec {keep}>&-
    "$FORGE" wait "$id" || true
    [ "$(of "$id" .status)" = lost ]
}

@test "what it printed while no supervisor was there is in its log, also when it ended then" {
    submit -i "$T/gate" -- sh -c "echo first; $(gated); echo last"
    patiently says_first
    orphan "$id"
    open_gate
    # It has ended when nothing of it is left but forge-shim, which waits.
    patiently eval '[ "$(engine docker top "forge-$id" -eo pid | wc -l)" -eq 2 ]'
    "$FORGE" wait "$id"
    [ "$("$FORGE" logs "$id" | xargs)" = "first last" ]
    [ "$(of "$id" .usage.memory_peak_bytes)" != null ]
}
says_first() { grep -q first "$(of "$id" .logs.stdout)"; }

@test "an input that is replaced by a link after it was resolved is refused" {
    mkdir given secret
    echo ok >given/f
    echo hidden >secret/f
    # The directory of the control socket is made after the inputs were resolved.
    # Leaks cannot be looked for under a tracer.
    background env ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" strace -f -qq -o strace.out -e trace=mkdirat -e inject=mkdirat:delay_exit=1500000 \
        "$FORGE" run --json "${OPTS[@]}" -i given -- cat given/f >"$record" 2>said
    patiently has_control
    mv given away
    ln -s secret given
    status=0
    wait "$pid" || status=$?
    [ "$status" -eq 125 ]
    run grep -r hidden "$FORGE_HOME/runs"
    [ "$status" -ne 0 ]
}

@test "an input in a system directory is what the run sees, and a system directory is refused" {
    dir=$(mktemp -d /usr/local/share/forge-test-XXXXXX)
    chmod 755 "$dir"
    echo mine >"$dir/f"
    forge_run -i "$dir" -- cat "$dir/f"
    rm -r "$dir"
    [ "$status" -eq 0 ]
    [ "$(cat "$out")" = mine ]
    forge_run -i /usr -- true
    [ "$status" -eq 125 ]
    [[ "$(field .completion_notes)" == *"/usr would hide"* ]]
}

@test "limits of a process are those of a sandbox" {
    forge_run --disk 50M -- sh -c 'ulimit -f; ulimit -c; cat /proc/self/oom_score_adj'
    # In blocks of 512 bytes.
    [ "$(sed -n 1p "$out")" -eq 102400 ]
    [ "$(sed -n 3p "$out")" -eq 500 ]
}

@test "Landlock is in the record of a run that was killed, too" {
    forge_run --timeout 1s --grace 0.1s -- sleep 60
    [ "$(field .reason)" = wall_time ]
    forge_run -- true
    want=$("$FORGE" show --json last | jq -r .isolation.mechanisms.landlock)
    [ "$(jq -r .isolation.mechanisms.landlock "$record")" = "$want" ]
    [ "$("$FORGE" show --json "$("$FORGE" ps -qa -n 2 | tail -n 1)" | jq -r .isolation.mechanisms.landlock)" = "$want" ]
}
