#!/usr/bin/env bats
# Detached runs from outside: submit, ps, show, logs, wait, kill, and how a run is named.
# SPDX-License-Identifier: Apache-2.0

load ../lib/store.bash
setup() { setup_store; }
teardown() { teardown_store; }

# ---- submit

@test "submit prints the id and returns while the run goes on" {
    submit -i gate -- sh -c "$(gated)"
    [ "$(of "$id" .ended_at)" = null ]
    [[ "$(of "$id" .status)" =~ ^(preparing|running)$ ]]
    open_gate
    finished "$id"
    [ "$status" -eq 0 ]
    [ "$(field .status)" = succeeded ]
    [ "$(field .run_id)" = "$id" ]
}

@test "submit --json says the id" {
    run --separate-stderr "$FORGE" submit --json -- true
    [ "$status" -eq 0 ]
    id=$(jq -r .run_id <<<"$output")
    [ "$(jq -r .existing <<<"$output")" = false ]
    finished "$id"
}

@test "a run survives the shell and the terminal that submitted it" {
    # A session of its own whose leader ends at once, and with it what it had as a terminal.
    script -qec "$FORGE submit -i $T/gate -- sh -c '$(gated)'" "$T/typescript" </dev/null >/dev/null
    id=$(tr -d '\r' <"$T/typescript" | grep -oxE '[0-9a-z]{26}')
    pid=$(of "$id" .supervisor.pid)
    is_in "$id" running
    [ "$(ps -o sid= -p "$pid" | tr -d ' ')" = "$pid" ]
    [ "$(ps -o tty= -p "$pid" | tr -d ' ')" = '?' ]
    kill -HUP "$pid"
    open_gate
    finished "$id"
    [ "$(field .status)" = succeeded ]
}

@test "the supervisor keeps nothing of the caller's open" {
    exec {mine}<>"$T/mine"
    start
    exec {mine}>&-
    pid=$(of "$id" .supervisor.pid)
    run ! grep -q "$T/mine" <(readlink /proc/"$pid"/fd/*)
    [ "$(readlink "/proc/$pid/fd/0" "/proc/$pid/fd/1" "/proc/$pid/fd/2" | sort -u)" = /dev/null ]
}

@test "the supervisor of a detached run has at most 4 MiB" {
    FORGE=${FORGE_PLAIN:-$FORGE}
    skip_unless "sanitizers take memory of their own" sh -c '! ldd "$1" | grep -q libasan' sh "$FORGE"
    seq 100000 >data
    start -i data
    pid=$(of "$id" .supervisor.pid)
    grep -E 'VmRSS|VmHWM' "/proc/$pid/status"
    [ "$(awk '/^VmHWM/ { print $2 }' "/proc/$pid/status")" -le 4096 ]
    [ "$(awk '/^VmRSS/ { print $2 }' "/proc/$pid/status")" -le 4096 ]
}

@test "what cannot be run is refused by submit, and leaves no run" {
    run "$FORGE" submit -i no-such-file -- true
    [ "$status" -eq 125 ]
    [[ "$output" == *no-such-file* ]]
    run "$FORGE" submit --memory 1X -- true
    [ "$status" -eq 125 ]
    run "$FORGE" submit
    [ "$status" -eq 2 ]
    [ -z "$(ps_ids)" ]
}

@test "a submitted run that cannot begin after all is rejected, and says why" {
    mkdir -m 777 "$T/open"
    chmod -t "$T/open"
    budget "workdir: $T/open/{id}"
    submit --id "taken-$$" -- true
    finished "$id"
    [ "$status" -eq 125 ]
    [ "$(field .status)" = rejected ]
    [[ "$(field .completion_notes)" == *"others could replace workdirs"* ]]
}

@test "twenty submitted at once all end with their own verdict" {
    for i in $(seq 20); do
        "$FORGE" submit --id "n$i" -- sh -c "exit $i" >"id-$i" 3>&- &
    done
    wait
    for i in $(seq 20); do
        finished "$(cat "id-$i")"
        [ "$status" -eq "$i" ]
        [ "$(field .analysis_id)" = "n$i" ]
    done
    [ "$("$FORGE" ps -qa | sort -u | wc -l)" -eq 20 ]
}

# ---- ps

# Five runs that differ.
five() {
    local n=0 spec
    for spec in "exit 0" "exit 3" "exit 0" "sleep 60" "exit 0"; do
        n=$((n + 1))
        submit --id "a$((n % 2))" --timeout 300ms -- sh -c "$spec"
        finished "$id"
        ids[n]=$id
    done
}

@test "ps lists runs, the newest first; -q only ids; -r only what is not over" {
    five
    [ "$(ps_ids)" = "${ids[5]} ${ids[4]} ${ids[3]} ${ids[2]} ${ids[1]}" ]
    [ "$(ps_ids --reverse)" = "${ids[1]} ${ids[2]} ${ids[3]} ${ids[4]} ${ids[5]}" ]
    [ -z "$(ps_ids -r)" ]
    start
    [ "$(ps_ids -r)" = "$id" ]
    run "$FORGE" ps
    [ "$status" -eq 0 ]
    [[ "${lines[0]}" == RUN*NAME*STATUS*TIME*MEMORY*CREATED*COMMAND* ]]
    [[ "${lines[1]}" == "$id"*running* ]]
    [[ "${lines[2]}" == "${ids[5]}"*a1*succeeded* ]]
    [ "${#lines[@]}" -eq 7 ]
}

@test "ps filters by status, reason, analysis, user, time" {
    five
    [ "$(ps_ids --status failed)" = "${ids[2]}" ]
    [ "$(ps_ids --status killed)" = "${ids[4]}" ]
    [ "$(ps_ids --reason wall_time)" = "${ids[4]}" ]
    [ "$(ps_ids --analysis a0)" = "${ids[4]} ${ids[2]}" ]
    [ "$(ps_ids --analysis a1 --status succeeded)" = "${ids[5]} ${ids[3]} ${ids[1]}" ]
    [ "$(ps_ids --user "$(of "$id" .user)" | wc -w)" -eq 5 ]
    [ -z "$(ps_ids --user nobody-of-this-name)" ]
    [ -z "$(ps_ids --runtime none)" ]
    [ "$(ps_ids --since 1h | wc -w)" -eq 5 ]
    [ "$(ps_ids --since 2000-01-31 | wc -w)" -eq 5 ]
    [ -z "$(ps_ids --since 2999-01-01)" ]
    [ -z "$(ps_ids --until 1h)" ]
    # A time of the user's has seconds; the next run is of a later one.
    printf -v before '%(%s)T'
    patiently eval '[ "$(date +%s)" -gt "$before" ]'
    bound=$(date -u +%FT%T)
    submit -- true
    finished "$id"
    for text in "$bound" "${bound}Z" "${bound/T/ }" "$bound.000Z"; do
        [ "$(ps_ids --since "$text")" = "$id" ]
        [ "$(ps_ids --until "$text" | wc -w)" -eq 5 ]
    done
}

@test "ps sorts by what was used" {
    five
    longest=${ids[4]}
    [ "$("$FORGE" ps -q --sort wall -n 1)" = "$longest" ]
    [ "$(ps_ids --sort ended)" = "${ids[5]} ${ids[4]} ${ids[3]} ${ids[2]} ${ids[1]}" ]
    "$FORGE" ps -a --json --sort memory | jq -s -e '[.[].memory_peak_bytes] | . == (sort | reverse)'
    "$FORGE" ps -a --json --sort wall --reverse | jq -s -e '[.[].wall_seconds] | . == sort'
}

@test "ps comes in pages" {
    five
    run --separate-stderr "$FORGE" ps -n 2
    [ "${#lines[@]}" -eq 3 ]
    [[ "$stderr" == *"--after ${ids[4]}"* ]]
    [ "$("$FORGE" ps -q -n 2 | xargs)" = "${ids[5]} ${ids[4]}" ]
    [ "$("$FORGE" ps -q -n 2 --after "${ids[4]}" | xargs)" = "${ids[3]} ${ids[2]}" ]
    [ "$("$FORGE" ps -q -n 2 --after "${ids[2]}" | xargs)" = "${ids[1]}" ]
    [ -z "$("$FORGE" ps -q --after "${ids[1]}")" ]
    [ "$("$FORGE" ps -q -n 2 --reverse --after "${ids[1]}" | xargs)" = "${ids[2]} ${ids[3]}" ]
    # A page of another order would leave runs out.
    run "$FORGE" ps --sort wall --after "${ids[2]}"
    [ "$status" -eq 1 ]
    [[ "$output" == *--after* ]]
}

@test "ps --json is a line a run, with the fields of the record" {
    five
    "$FORGE" ps -a --json >list
    [ "$(wc -l <list)" -eq 5 ]
    head -n 1 list >"$record"
    for key in run_id analysis_id status reason executor host user created_at started_at ended_at \
        completion_notes; do
        [ "$(field ".$key")" = "$(of "${ids[5]}" ".$key")" ] || { echo "$key"; false; }
    done
    [ "$(field .memory_peak_bytes)" = "$(of "${ids[5]}" .usage.memory_peak_bytes)" ]
}

@test "ps says what it does not understand" {
    for bad in "--status dancing" "--sort colour" "--since yesterday" "--limit many" word; do
        # shellcheck disable=SC2086
        run "$FORGE" ps $bad
        [ "$status" -ne 0 ]
        [[ "$output" == *"${bad##* }"* ]]
    done
}

# ---- show

@test "show has the verdict first, then a table of used against allowed" {
    submit -o 'res/*' -- sh -c 'mkdir res; echo 1 >res/a; echo 2 >left'
    finished "$id"
    run "$FORGE" show "$id"
    [ "$status" -eq 0 ]
    [ "${lines[0]}" = "$(field .completion_notes)" ]
    [[ "$output" == *"run       $id"* ]]
    [[ "$output" == *BUDGET*USED*ALLOWED* ]]
    for row in memory 'wall time' processes disk stdout; do
        grep -qE "^$row .*%" <<<"$output"
    done
    [[ "$output" == *"res/a"*"$(sha256sum <<<1 | cut -d' ' -f1)"* ]]
    [[ "$output" == *"1 file in the workdir"* ]]
}

@test "show of a run that is not over says so" {
    start
    run "$FORGE" show "$id"
    [ "${lines[0]}" = "Running." ]
}

@test "show --json has the fields of forge run --json" {
    forge_run -- sh -c 'echo x; exit 3'
    "$FORGE" show --json "$(field .run_id)" >shown
    # The same record, word by word.
    jq -S . "$record" >a
    jq -S . shown >b
    diff a b
    submit -- sh -c 'echo x; exit 3'
    finished "$id"
    "$FORGE" show --json "$id" >shown
    diff <(jq -r '[paths | map(tostring) | join(".")] | sort[]' a) \
        <(jq -r '[paths | map(tostring) | join(".")] | sort[]' shown)
}

@test "show does not pass on what a run put into its names" {
    submit -o 'out*' -- sh -c 'touch "$(printf "out\033[31m\r\nx")"'
    finished "$id"
    run "$FORGE" show "$id"
    [ "$status" -eq 0 ]
    run ! grep -q "$(printf '\033')" <<<"$output"
}

# ---- logs

@test "logs shows both streams, each on its own" {
    submit -- sh -c 'echo one; echo two >&2; echo three'
    finished "$id"
    run --separate-stderr "$FORGE" logs "$id"
    [ "$output" = $'one\nthree' ]
    [ "$stderr" = two ]
    run --separate-stderr "$FORGE" logs --stdout "$id"
    [ "$output$stderr" = $'one\nthree' ]
    run --separate-stderr "$FORGE" logs --stderr "$id"
    [ "$output" = two ]
}

@test "logs -n begins with the last lines" {
    submit -- sh -c 'seq 30000; printf end'
    finished "$id"
    [ "$("$FORGE" logs -n 3 "$id" | xargs)" = "29999 30000 end" ]
    [ "$("$FORGE" logs -n 1 "$id")" = end ]
    [ "$("$FORGE" logs -n 100000 "$id" | wc -l)" -eq 30000 ]
    [ "$("$FORGE" logs "$id" | head -n 2 | xargs)" = "1 2" ]
}

@test "logs -f follows to the end" {
    submit -i gate -- sh -c "echo first; $(gated); seq 50000; echo last"
    "$FORGE" logs -f "$id" >followed 2>&1 3>&- &
    pid=$!
    started+=("$pid")
    patiently grep -qx first followed
    open_gate
    wait "$pid"
    [ "$(wc -l <followed)" -eq 50002 ]
    [ "$(tail -n 1 followed)" = last ]
    # What is over ends at once.
    run "$FORGE" logs -f -n 1 "$id"
    [ "$output" = last ]
}

@test "logs -f of a queued run waits for it" {
    budget '    runs: 1'
    start
    first=$id
    submit -- echo hello
    is_in "$id" queued
    "$FORGE" logs -f "$id" >followed 2>said 3>&- &
    pid=$!
    started+=("$pid")
    # It has seen that by then, also when it is slow.
    patiently grep -q "run $id is queued" said
    open_gate
    wait "$pid"
    [ "$(cat followed)" = hello ]
    finished "$first"
}

@test "logs --events tells what forge did, in order" {
    submit -- true
    finished "$id"
    "$FORGE" logs --events "$id" >events
    [ "$(jq -r 'select(.status) | .status' events | xargs)" = "preparing running collecting succeeded" ]
    jq -s -e '[.[].seq] | . == [range(length)]' events
    jq -s -e 'all(.time and .actor and .event)' events
}

# ---- wait

@test "wait exits as forge run would have" {
    for code in 0 1 42; do
        submit -- sh -c "exit $code"
        run "$FORGE" wait "$id"
        [ "$status" -eq "$code" ]
    done
    submit --timeout 100ms -- sleep 60
    run "$FORGE" wait "$id"
    [ "$status" -eq 124 ]
    [[ "$output" == *"Killed: ran"* ]]
    submit -- no-such-command
    run -127 "$FORGE" wait "$id"
    [ "$status" -eq 127 ]
    submit -- sh -c 'kill -SEGV $$'
    run "$FORGE" wait -q "$id"
    [ "$status" -eq 139 ]
    [ -z "$output" ]
}

@test "wait --timeout gives up with 124, and the run goes on" {
    start
    run "$FORGE" wait --timeout 50ms "$id"
    [ "$status" -eq 124 ]
    [[ "$output" == *"still running"* ]]
    [ "$(of "$id" .status)" = running ]
    open_gate
    run "$FORGE" wait --timeout 1m "$id"
    [ "$status" -eq 0 ]
}

@test "wait does not return before the verdict is safe" {
    skip_unless "SQLite only" test "${FORGE_TEST_STORE:-sqlite}" = sqlite
    start
    mkfifo go
    # Somebody else writes: the store can be read, and takes no verdict.
    python3 -c 'import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("held", flush=True)
open("go").read()' "$FORGE_HOME/forge.db" >holder 3>&- &
    started+=($!)
    patiently grep -q held holder
    open_gate
    patiently grep -q '"status": "succeeded"' "$FORGE_HOME/runs/$id/record.json"
    run "$FORGE" wait --timeout 100ms "$id"
    [ "$status" -eq 124 ]
    [ "$output" = "forge: run $id is still being recorded" ]
    : >go
    finished "$id"
    [ "$status" -eq 0 ]
}

@test "wait takes several runs and exits with what is not 0" {
    submit -- sh -c 'exit 5'
    a=$id
    submit -- true
    b=$id
    run "$FORGE" wait "$a" "$b"
    [ "$status" -eq 5 ]
    [[ "$output" == *"$a"*"$b"* ]]
}

# ---- kill

@test "kill ends the whole tree before it returns, and says what it was" {
    mark=98$$
    submit --grace 10s -- sh -c "trap '' HUP; (setsid sleep $mark.1 &); sleep $mark.2 & echo ready; wait"
    patiently pgrep -f "[s]leep $mark.2"
    run "$FORGE" kill "$id"
    [ "$status" -eq 0 ]
    [ "$output" = "$id: cancelled" ]
    run ! pgrep -f "[s]leep $mark"
    [ "$(of "$id" .status)" = cancelled ]
    [ "$(of "$id" .reason)" = cancelled ]
    [ "$(of "$id" .exit_status)" -eq 130 ]
}

@test "kill asks first; --now does not wait" {
    submit --grace 60s -i gate -- sh -c "trap 'echo asked; exit 9' TERM; echo ready; while :; do sleep 0.02; done"
    patiently grep -q ready "$(of "$id" .logs.stdout)"
    "$FORGE" kill "$id"
    grep -q asked "$(of "$id" .logs.stdout)"
    submit --grace 60s -- "$PROBE" stubborn 60
    patiently grep -q ready "$(of "$id" .logs.stdout)"
    begin=$(now_ms)
    "$FORGE" kill --now "$id"
    in_time "$begin" 30000
    [ "$(of "$id" .status)" = cancelled ]
}

@test "kill is idempotent: what is over is already finished" {
    submit -- sh -c 'exit 3'
    finished "$id"
    for _ in 1 2; do
        run "$FORGE" kill "$id"
        [ "$status" -eq 0 ]
        [ "$output" = "$id: already finished, failed" ]
    done
    [ "$(of "$id" .status)" = failed ]
    [ "$(of "$id" .exit_status)" -eq 3 ]
}

@test "five who kill the same run all succeed" {
    start
    pids=()
    for i in 1 2 3 4 5; do
        "$FORGE" kill "$id" >"said-$i" 3>&- &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid"; done
    run ! grep -vE 'cancelled$' said-1 said-2 said-3 said-4 said-5
    [ "$(of "$id" .status)" = cancelled ]
}

@test "kill takes several runs, and a queued one" {
    budget '    runs: 1'
    start
    a=$id
    submit -- true
    b=$id
    is_in "$b" queued
    run "$FORGE" kill "$b"
    [ "$output" = "$b: cancelled" ]
    [ "$(of "$b" .exit_status)" -eq 130 ]
    [ "$(of "$b" .started_at)" = null ]
    submit -- true
    b=$id
    run "$FORGE" kill "$a" "$b"
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -eq 2 ]
    [ "$(of "$a" .status)" = cancelled ]
}

# ---- naming runs

@test "the beginning of an id is enough while it is the only one" {
    submit -- true
    a=$id
    finished "$a"
    [ "$(of "${a:0:1}" .run_id)" = "$a" ]
    submit -- true
    b=$id
    finished "$b"
    # Ids of one moment begin alike and end differently.
    for ((n = 1; n < 26; n++)); do
        if [ "${a:0:n}" = "${b:0:n}" ]; then
            run "$FORGE" show "${a:0:n}"
            [ "$status" -eq 1 ]
            [[ "$output" == *"several runs begin with '${a:0:n}'"* ]]
        else
            [ "$(of "${a:0:n}" .run_id)" = "$a" ]
        fi
    done
}

@test "an id that is not there, or is none, is said so" {
    submit -- true
    finished "$id"
    for cmd in show logs wait kill outputs; do
        run "$FORGE" "$cmd" zzzz
        [ "$status" -eq 1 ]
        [[ "$output" == *"no run 'zzzz'"* ]]
        for bad in ../runs / 'a b' "" "'; DROP TABLE runs; --" %; do
            run "$FORGE" "$cmd" "$bad"
            [ "$status" -eq 1 ]
            [[ "$output" == *"names no run"* ]]
        done
        run "$FORGE" "$cmd"
        [ "$status" -eq 2 ]
    done
    [ "$(ps_ids)" = "$id" ]
}

# ---- idempotency

@test "a key that was refused for the host's health runs when the host is healthy" {
    mark() { budget 'health:' "  mark: {kind: disk, path: $T/mark, min_free: 1, min_inodes: 1, when: pre}"; }
    mark
    run "$FORGE" run -q --idempotency-key k -- true
    [ "$status" -eq 125 ]
    refused=$("$FORGE" ps -qa)
    [ "$(of "$refused" .reason)" = health_pre ]
    # Still not: another refusal, and another run.
    submit --idempotency-key k -- true
    [ "$id" != "$refused" ]
    finished "$id"
    [ "$(field .reason)" = health_pre ]
    touch "$T/mark"
    submit --idempotency-key k -- true
    ran=$id
    finished "$ran"
    [ "$(field .status)" = succeeded ]
    # From now on it is that run, also on a host that is sick again.
    rm "$T/mark"
    submit --idempotency-key k -- true
    [ "$id" = "$ran" ]
    [ "$(of "$refused" .idempotency_key)" = k ]
    [ "$("$FORGE" ps -qa | wc -l)" -eq 3 ]
}

@test "the same --idempotency-key gives the same run" {
    submit --idempotency-key k1 -- true
    a=$id
    run --separate-stderr "$FORGE" submit --json --idempotency-key k1 -- true
    [ "$status" -eq 0 ]
    [ "$(jq -r .run_id <<<"$output")" = "$a" ]
    [ "$(jq -r .existing <<<"$output")" = true ]
    finished "$a"
    # also when it is over, and with other limits
    submit --idempotency-key k1 --timeout 77s -- true
    [ "$id" = "$a" ]
    submit --idempotency-key k2 -- true
    [ "$id" != "$a" ]
    finished "$id"
    [ "$("$FORGE" ps -qa | wc -l)" -eq 2 ]
}

@test "ten who submit with one key at once get one run" {
    pids=()
    for i in $(seq 10); do
        "$FORGE" submit --idempotency-key key -- sh -c 'echo once' >"id-$i" 3>&- &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid"; done
    [ "$(cat id-* | sort -u | wc -l)" -eq 1 ]
    [ "$(cat id-* | wc -l)" -eq 10 ]
    id=$(cat id-1)
    finished "$id"
    [ "$(ps_ids)" = "$id" ]
    [ "$(find "$FORGE_HOME/runs" -mindepth 1 -maxdepth 1 | wc -l)" -eq 1 ]
    [ "$("$FORGE" logs "$id")" = once ]
}

@test "a key is printable ASCII, whatever that means in SQL" {
    for key in "it's" '";DROP_TABLE_runs' '%_' "$(printf 'x%.0s' {1..200})"; do
        submit --idempotency-key "$key" -- true
        a=$id
        submit --idempotency-key "$key" -- true
        [ "$id" = "$a" ]
        finished "$a"
    done
    for key in "" "two words" "naïve" "$(printf 'x%.0s' {1..300})" $'a\nb'; do
        run "$FORGE" submit --idempotency-key "$key" -- true
        [ "$status" -eq 125 ]
        [[ "$output" == *--idempotency-key* ]]
    done
    [ "$("$FORGE" ps -qa | wc -l)" -eq 4 ]
}

# ---- one store, several places

# elsewhere COMMAND...: with another FORGE_HOME and the same store, as a colleague has it.
elsewhere() { FORGE_HOME=$T/home2 "$@"; }

@test "runs of another FORGE_HOME are seen, waited for, and not killed by mistake" {
    export FORGE_STORE=${FORGE_STORE:-sqlite:$T/shared.db}
    start
    [ "$(elsewhere "$FORGE" ps -q)" = "$id" ]
    [ "$(elsewhere "$FORGE" show --json "$id" | jq -r .status)" = running ]
    run elsewhere "$FORGE" kill "$id"
    [ "$status" -eq 1 ]
    [[ "$output" == *"not of this FORGE_HOME"* ]]
    [ "$(of "$id" .status)" = running ]
    # Waiting must not burn a processor meanwhile.
    run elsewhere bash -c 'TIMEFORMAT="%U %S"; time "$FORGE" wait --timeout 700ms "$0"' "$id"
    [[ "$output" == *"still running"* ]]
    [ "$(tail -n 1 <<<"$output" | awk '{ print ($1 + $2) < 0.5 }')" -eq 1 ]
    open_gate
    run elsewhere "$FORGE" wait "$id"
    [ "$status" -eq 0 ]
}

@test "a database that is not UTF-8 is refused when it is opened" {
    skip_unless "PostgreSQL only" test "${FORGE_TEST_STORE:-sqlite}" = postgres
    pg_sql "CREATE DATABASE latin_$database ENCODING LATIN1 LOCALE 'C' TEMPLATE template0" postgres
    run env FORGE_STORE="$(pg_url "latin_$database")" "$FORGE" ps
    pg_sql "DROP DATABASE latin_$database WITH (FORCE)" postgres
    [ "$status" -eq 1 ]
    [[ "$output" == *"encoding is LATIN1"*"must be UTF8"*createdb* ]]
}

@test "a verdict that another FORGE_HOME keeps for later is not taken for lost" {
    skip_unless "SQLite only" test "${FORGE_TEST_STORE:-sqlite}" = sqlite
    export FORGE_STORE=sqlite:$T/shared/forge.db
    mkdir shared
    start
    # The courier has gone home by the time the store goes away.
    patiently sh -c '! pgrep -r RSD -P "$0" -x forge-courier' "$(of "$id" .supervisor.pid)"
    mv shared away
    open_gate
    patiently nothing_active
    [ -e "$FORGE_HOME/undelivered/$id" ]
    mv away shared
    # A path that the store gives is not looked at: the other one is left to tell it.
    [ "$(elsewhere "$FORGE" show --json "$id" | jq -r .status)" = running ]
    [ "$(of "$id" .status)" = succeeded ]
    [ "$(elsewhere "$FORGE" show --json "$id" | jq -r .status)" = succeeded ]
}

@test "a run of another machine with the same name is not taken for lost" {
    skip_unless "only root can do this" is_root
    export FORGE_STORE=${FORGE_STORE:-sqlite:$T/shared.db}
    start
    echo 00000000-0000-0000-0000-000000000000 >boot
    echo 00000000000000000000000000000000 >machine
    cat >there <<'EOS'
mount --bind boot /proc/sys/kernel/random/boot_id && mount --bind machine /etc/machine-id || exit
"$FORGE" ps >/dev/null
EOS
    [ -s /etc/machine-id ] || skip_unless "no /etc/machine-id" false
    elsewhere unshare --mount sh there
    [ "$(of "$id" .status)" = running ]
    open_gate
    finished "$id"
    [ "$(field .status)" = succeeded ]
    grep -q 'not told\|cannot become' "$err" && return 1
    [ ! -e "$FORGE_HOME/undelivered/$id" ]
}

@test "kill from another pid namespace hits nobody else" {
    skip_unless "only root can do this" is_root
    # Both namespaces have small numbers, so the supervisor's is somebody's in the other.
    cat >there <<'EOS'
"$FORGE" submit -i "$1/gate" -- sh -c "until [ -e $1/gate/open ]; do sleep 0.02; done" >"$1/id"
until [ -e "$1/gate/open" ]; do sleep 0.05; done
"$FORGE" wait "$(cat "$1/id")"
EOS
    cat >here <<'EOS'
for i in $(seq 60); do sleep 1000 & done
"$FORGE" kill "$1"
sleep 0.2
pgrep -c sleep
EOS
    background unshare --pid --fork --mount-proc sh there "$T"
    patiently test -s id
    id=$(<id)
    is_in "$id" running
    run unshare --pid --fork --mount-proc --kill-child sh here "$id"
    echo "$output"
    [[ "$output" == *"not of this FORGE_HOME"* ]]
    [ "$(tail -n 1 <<<"$output")" -eq 60 ]
    [ "$(of "$id" .status)" = running ]
    open_gate
    wait "$pid"
}

@test "a store that hangs costs no run its limits, however long its command is" {
    mkdir s
    background python3 -c 'import socket, time
s = socket.socket(socket.AF_UNIX)
s.bind("s/.s.PGSQL.5432")
s.listen(8)
time.sleep(60)'
    patiently test -S s/.s.PGSQL.5432
    word=$(head -c 100000 /dev/zero | tr '\0' a)
    FORGE_STORE="postgresql:///x?host=$PWD/s" forge_run --timeout 500ms --grace 100ms -- sh -c 'sleep 30' \
        "$word" "$word" "$word" "$word" "$word" "$word"
    [ "$(field .reason)" = wall_time ]
    lasted 0.5 0.6
    grep -q 'kept in' "$err"
    kill "$pid"
}
