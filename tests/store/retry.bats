#!/usr/bin/env bats
# Retries: which runs are tried again, with what, how often; and that an attempt is neither lost nor started twice.
# SPDX-License-Identifier: Apache-2.0

load ../lib/store.bash
setup() { setup_store; }
teardown() { teardown_store; }

# One process that needs this much memory.
needs() { printf 'head -c %s /dev/zero | tail | wc -c' "$1"; }
# chain RUN: the ids from this run to its last attempt.
chain() {
    local at=$1
    while [ -n "$at" ] && [ "$at" != null ]; do
        echo "$at"
        at=$(of "$at" .retried_by)
    done
}
no_file_waits() { [ -z "$(ls -A "$FORGE_HOME/retries" 2>/dev/null)" ]; }
# settled: repair has nothing to do any more, and no run is open.
settled() { "$FORGE" gc >/dev/null && nothing_active && no_file_waits; }
check_chains() { "$BATS_TEST_DIRNAME/../tools/check-retries.py" "$FORGE_HOME"; }
# murder without the look at the store, which is a forge command and repairs.
murder_silently() {
    local pid
    pid=$(cat "$FORGE_HOME"/active/* | jq -r 'select(.run_id == "'"$1"'") | .pid')
    kill -KILL "$pid"
    patiently gone "$pid"
}
# sql STATEMENT: of the store, one value.
sql() {
    if [ "${FORGE_TEST_STORE:-sqlite}" = postgres ]; then
        pg_sql "$1" "$database"
    else
        sqlite3 "$FORGE_HOME/forge.db" "$1"
    fi
}

# ---- rules

@test "memory doubles until the run fits; each attempt is a run of its own" {
    forge_run --memory 32M --id fit --retry memory=5 -- sh -c "$(needs 90M)"
    [ "$status" -eq 0 ]
    [ "$(field .status)" = succeeded ]
    [ "$(field .attempt)" -eq 3 ]
    [ "$(field .limits.memory_bytes)" -eq $((128 << 20)) ]
    [ "$(field .retry.memory.used)" -eq 2 ]
    grep -qF 'killed: memory; retrying with --memory 64M (attempt 2 of 6)' "$err"
    grep -qF 'killed: memory; retrying with --memory 128M (attempt 3 of 6)' "$err"
    third=$(field .run_id) second=$(field .parent_run)
    first=$(of "$second" .parent_run)
    [ "$(of "$first" .parent_run)" = null ]
    [ "$(of "$first" .attempt)" -eq 1 ]
    [ "$(of "$second" .attempt)" -eq 2 ]
    [ "$(chain "$first" | xargs)" = "$first $second $third" ]
    [ "$(of "$first" .retried_with.memory_bytes)" -eq $((64 << 20)) ]
    [ "$(of "$first" '[.limits.memory_bytes, .status, .reason] | join(" ")')" = "$((32 << 20)) killed memory" ]
    [[ "$(of "$first" .completion_notes)" == *"Retried as run $second with --memory 64M."* ]]
    # All of them are listed, with the same label and logs of their own; the label means the last one.
    [ "$("$FORGE" ps -q --analysis fit | xargs)" = "$third $second $first" ]
    [ "$(of fit .run_id)" = "$third" ]
    [ "$(cat "$FORGE_HOME/runs/$third/stdout")" -eq $((90 << 20)) ]
    [ ! -s "$FORGE_HOME/runs/$first/stdout" ]
    [ "$(of "$first" .asked.limits.memory)" -eq $((32 << 20)) ]
    [ "$(of "$third" .asked.limits.memory)" -eq $((128 << 20)) ]
    [ "$("$FORGE" ps --json --analysis fit | jq -sr '[.[] | "\(.attempt) \(.parent_run)"] | join(", ")')" = "3 $second, 2 $first, 1 null" ]
    [ "$(sql "SELECT parent_run FROM runs WHERE attempt = 3")" = "$second" ]
    [ "$(sql "SELECT count(*) FROM runs WHERE attempt = 1 AND parent_run IS NULL")" -eq 1 ]
    "$FORGE" ps | grep -F "succeeded (attempt 3)"
    run "$FORGE" show "$second"
    [[ "$output" == *"attempt   2, after $first, retried by $third"* ]]
    check_chains
}

@test "nothing is retried by default, and a success never is" {
    forge_run --memory 32M -- sh -c "$(needs 90M)"
    [ "$(field .status)" = killed ]
    [ "$(field .retried_by)" = null ]
    forge_run --retry exit=3 -- true
    [ "$(field .attempt)" -eq 1 ]
    [ "$(field .retried_by)" = null ]
    [ "$("$FORGE" ps -qa | wc -l)" -eq 2 ]
    no_file_waits
}

@test "the limit is raised to the max of its rule and no further" {
    forge_run --memory 40M --retry memory=5,factor=1.5,max=70M -- sh -c "$(needs 200M)"
    [ "$status" -eq 137 ]
    [ "$(field .attempt)" -eq 3 ]
    [ "$(field .limits.memory_bytes)" -eq $((70 << 20)) ]
    [ "$(of "$(field .parent_run)" .limits.memory_bytes)" -eq $((60 << 20)) ]
    [[ "$(field .completion_notes)" == *"Not retried: memory cannot be raised above 70.00 MiB, the max of its rule."* ]]
    check_chains || [ "$("$FORGE" ps -q --status killed | wc -l)" -eq 3 ]
}

@test "the limit is raised to what the host allows, and a run that could not be admitted is not tried" {
    configure 'host:' '  max:' '    memory: 50M'
    forge_run --memory 40M --retry memory=5 -- sh -c "$(needs 200M)"
    [ "$(field .attempt)" -eq 2 ]
    [ "$(field .limits.memory_bytes)" -eq $((50 << 20)) ]
    [[ "$(field .completion_notes)" == *"Not retried: memory cannot be raised above 50.00 MiB, the most that this host allows."* ]]
    configure 'host:' '  budget:' '    memory: 60M'
    forge_run --memory 60M --retry memory=5 -- sh -c "$(needs 200M)"
    [ "$(field .attempt)" -eq 1 ]
    [ "$(field .reason)" = memory ]
    [[ "$(field .completion_notes)" == *"Not retried: memory cannot be raised above 60.00 MiB, the most that this host allows."* ]]
}

@test "a rule is used up, and each reason has its own" {
    configure 'retry:' '  exit: {times: 2}' '  signal: {times: 1}'
    forge_run -- sh -c 'exit 7'
    [ "$status" -eq 7 ]
    [ "$(field .attempt)" -eq 3 ]
    [[ "$(field .completion_notes)" == *"Not retried: exit had its 2 retries."* ]]
    forge_run -- sh -c 'kill -SEGV $$'
    [ "$status" -eq 139 ]
    [ "$(field .attempt)" -eq 2 ]
    [[ "$(field .completion_notes)" == *"Not retried: signal had its 1 retry."* ]]
    # The command line replaces a rule, or all.
    forge_run --retry exit=1 -- sh -c 'exit 7'
    [ "$(field .attempt)" -eq 2 ]
    forge_run --retry none -- sh -c 'exit 7'
    [ "$(field .attempt)" -eq 1 ]
    [ "$(field .retry)" = null ]
    forge_run --retry none --retry signal=1 -- sh -c 'exit 7'
    [ "$(field .attempt)" -eq 1 ]
    check_chains
}

@test "time, disk, files and processes have their limits raised" {
    forge_run --timeout 300ms --retry wall_time=1,factor=3 -- sleep 60
    [ "$status" -eq 124 ]
    [ "$(field .limits.wall_seconds)" = 0.9 ]
    [ "$(field .attempt)" -eq 2 ]
    forge_run --disk 1M --retry disk=9 -- sh -c 'head -c 3M /dev/zero >x && sleep 2'
    [ "$(field .limits.disk_bytes)" -eq $((4 << 20)) ]
    [ "$(field .status)" = succeeded ]
    forge_run --inodes 20 --retry disk=1 -- sh -c 'for i in $(seq 30); do : >f$i; done; sleep 5'
    [ "$(field .limits.inodes)" -eq 40 ]
    [ "$(field .attempt)" -eq 2 ]
    [ "$(field .limits.disk_bytes)" = "$(of "$(field .parent_run)" .limits.disk_bytes)" ]
    forge_run --output-limit 1K --retry output=2 -- head -c 3K /dev/zero
    [ "$(field .limits.output_bytes)" -eq 4096 ]
    [ "$(field .status)" = succeeded ]
    check_chains
}

@test "rules that cannot be are refused at their place" {
    refused() {
        run "$FORGE" run --retry "$1" -- true
        echo "$output"
        [ "$status" -eq 125 ]
        [[ "$output" == *"--retry: $2"* ]]
    }
    refused cancelled=1 "another attempt does not cure 'cancelled' (have: host_lost, memory, wall_time, cpu_time, disk, output, pids, exit, signal)"
    refused exec=1 "another attempt does not cure 'exec'"
    refused memry=1 "unknown reason 'memry'"
    refused memory "'memory' does not say how often (write memory=2)"
    refused memory=many "memory: 'many' is not a whole number"
    refused memory=101 "memory: '101' is more than 100"
    refused memory=1,factor=0.5 "memory: factor: '0.5' is not a number from 1 to 100"
    refused memory=1,max=unlimited "memory: max: 'unlimited' is not possible here"
    refused memory=1,min=3 "memory: 'min' is neither factor=F nor max=V"
    refused host_lost=1,factor=2 "host_lost: factor: no limit belongs to host_lost"
    configure 'retry:' '  input: {times: 1}'
    run "$FORGE" run -- true
    [ "$status" -eq 125 ]
    [[ "$output" == *"forge.yaml:3:3: retry: another attempt does not cure 'input' (have: "* ]]
    configure 'retry: {memory: {factor: 2}}'
    run "$FORGE" run -- true
    [[ "$output" == *"forge.yaml:2:17: retry.memory: does not say how often (times)"* ]]
    configure 'retry: {memory: {times: 2, max: soon}}'
    run "$FORGE" run -- true
    [[ "$output" == *"forge.yaml:2:33: retry.memory.max: 'soon' is not a size"* ]]
    configure 'retry: {memory: {times: 2, factor: 2, max: 64G}, host_lost: {times: 2}}'
    run "$FORGE" config show
    [[ "$output" == *"retry: host_lost=2, memory=2,factor=2,max=64G"* ]]
    [ -z "$("$FORGE" ps -qa)" ]
}

@test "a run with our standard input is not tried again, and says why" {
    status=0
    "$FORGE" run --json --stdin --retry exit=3 -- sh -c 'cat; exit 4' <<<hello >"$record" || status=$?
    [ "$status" -eq 4 ]
    [ "$(field .attempt)" -eq 1 ]
    [[ "$(field .completion_notes)" == *"Not retried: its standard input cannot be given again."* ]]
    no_file_waits
}

@test "an attempt that cannot be made ends the chain with the verdict before it" {
    echo 'exit 3' >a.sh
    mkdir data
    # The input goes away while the first attempt runs.
    background "$FORGE" run --json --retry exit=3 -i data -i gate -- sh -c "echo ready; $(gated); exit 3" >"$record" 2>"$err"
    patiently sh -c "grep -q ready $FORGE_HOME/runs/*/stdout"
    rmdir data
    open_gate
    status=0
    wait "$pid" || status=$?
    cat "$err"
    [ "$status" -eq 3 ]
    [ "$(field .attempt)" -eq 1 ]
    id=$(field .run_id)
    [ "$(of "$id" .retried_by)" = null ]
    [[ "$(of "$id" .completion_notes)" == *"Not retried: "*data* ]]
    [ "$("$FORGE" logs --events "$id" | jq -r 'select(.event == "not_retried") | .actor')" = repair ]
    no_file_waits
    run "$FORGE" wait "$id"
    [ "$status" -eq 3 ]
}

@test "the store hears that an attempt is not made, also when a crash came before that" {
    forge_run --retry exit=1 -- sh -c 'exit 3'
    last=$(field .run_id) first=$(field .parent_run)
    "$FORGE" rm -f "$last"
    start --retry exit=1
    # As a process left it that had changed the record and nothing else.
    jq --arg id "$first" '.run_id = $id' "$FORGE_HOME/retries/$id" >"$FORGE_HOME/retries/$first"
    jq 'del(.retried_by) | .not_retried = "it was cancelled"' "$FORGE_HOME/runs/$first/record.json" >changed
    cat changed >"$FORGE_HOME/runs/$first/record.json"
    [ "$(sql "SELECT record FROM runs WHERE run_id = '$first'" | jq -r .retried_by)" = "$last" ]
    "$FORGE" ps >/dev/null
    [ "$(sql "SELECT record FROM runs WHERE run_id = '$first'" | jq -r '"\(.retried_by) \(.not_retried)"')" = "null it was cancelled" ]
    [ ! -e "$FORGE_HOME/retries/$first" ]
}

# ---- detached chains

@test "wait on the first id waits for the last attempt and has its status; so do logs -f and outputs" {
    submit --memory 32M --retry memory=3 -- sh -c "$(needs 90M) >size; echo said; cat size"
    first=$id
    run --separate-stderr "$FORGE" logs -f "$first"
    [ "$status" -eq 0 ]
    [ "$output" = "said
$((90 << 20))" ]
    [[ "$stderr" == *"attempt 3 is run "* ]]
    finished "$first"
    [ "$status" -eq 0 ]
    [ "$(field .attempt)" -eq 3 ]
    [ "$(field .run_id)" = "$(chain "$first" | tail -n 1)" ]
    run --separate-stderr "$FORGE" outputs --copy here "$first"
    [ "$status" -eq 0 ]
    [ "$(cat here/size)" -eq $((90 << 20)) ]
    [[ "$stderr" == *"run $first was retried; this is $(field .run_id)"* ]]
    check_chains
}

@test "kill of the first id ends the attempt that runs, and the chain" {
    submit --id slow --timeout 200ms --retry wall_time=1,factor=100 -i gate -- sh -c "$(gated)"
    first=$id
    patiently sh -c "$FORGE show --json $first | jq -e .retried_by"
    second=$(of "$first" .retried_by)
    is_in "$second" running
    run "$FORGE" kill "$first"
    [ "$status" -eq 0 ]
    [ "$output" = "slow ($second): cancelled" ]
    patiently nothing_active
    no_file_waits
    [ "$(of "$second" .retried_by)" = null ]
    run "$FORGE" wait "$first"
    [ "$status" -eq 130 ]
    run "$FORGE" kill "$first"
    [ "$output" = "slow ($second): already finished, cancelled" ]
    [ "$("$FORGE" ps -qa | wc -l)" -eq 2 ]
}

@test "an interrupt never leads to a retry, also when the supervisor is killed after it" {
    # What is started in the background ignores it otherwise.
    background env --default-signal=INT "$FORGE" run -q --retry signal=5 --retry exit=5 --retry host_lost=5 -i gate -- sh -c "echo ready; $(gated)"
    patiently sh -c "grep -q ready $FORGE_HOME/runs/*/stdout"
    kill -INT "$pid"
    status=0
    wait "$pid" || status=$?
    [ "$status" -eq 130 ]
    # forge kill has asked it to end; it takes its time, and its supervisor dies.
    submit --grace 1m --retry host_lost=5 -i gate -- sh -c "trap '' TERM; echo ready; $(gated)"
    is_in "$id" running
    patiently sh -c "grep -q ready $FORGE_HOME/runs/$id/stdout"
    background "$FORGE" kill "$id"
    patiently sh -c "grep -q cancelled $FORGE_HOME/runs/$id/events.jsonl"
    murder "$id"
    wait "$pid"
    [ "$(of "$id" .status)" = lost ]
    [ "$(of "$id" .retried_by)" = null ]
    settled
    [ "$("$FORGE" ps -qa | wc -l)" -eq 2 ]
}

@test "the key belongs to the first attempt, and stands for the last" {
    submit --idempotency-key k --retry exit=2 -- sh -c 'exit 5'
    first=$id
    finished "$first"
    [ "$status" -eq 5 ]
    last=$(field .run_id)
    [ "$(field .idempotency_key)" = null ]
    submit --idempotency-key k --retry exit=2 -- sh -c 'exit 5'
    [ "$id" = "$last" ]
    [ "$(of "$first" .idempotency_key)" = k ]
    [ "$("$FORGE" ps -qa | wc -l)" -eq 3 ]
}

@test "a post-process is part of its run, and an attempt is not" {
    forge_run --memory 32M --retry memory=3 --post-process 'echo "{}"' -- sh -c "$(needs 50M) >x"
    [ "$(field .attempt)" -eq 2 ]
    last=$(field .run_id) first=$(field .parent_run)
    post=$(field .post_process.run_id)
    [ "$(of "$post" .parent_run)" = "$last" ]
    [ "$("$FORGE" ps -q | xargs)" = "$last $first" ]
    [ "$(sql "SELECT part_of FROM runs WHERE parent_run = '$last'")" = "$last" ]
    # rm of one attempt leaves the others, and takes only its own post-process.
    "$FORGE" rm -f "$first"
    [ "$("$FORGE" ps -qa | sort | xargs)" = "$(printf '%s\n' "$last" "$post" | sort | xargs)" ]
    [ "$(of "$last" .parent_run)" = "$first" ]
    run "$FORGE" show "$last"
    [ "$status" -eq 0 ]
    run "$FORGE" wait "$last"
    [ "$status" -eq 0 ]
}

@test "rm of a later attempt leaves the first, and nobody waits for what is gone" {
    forge_run --retry exit=1 -- sh -c 'exit 3'
    last=$(field .run_id) first=$(field .parent_run)
    "$FORGE" rm -f "$last"
    run timeout 20 "$FORGE" wait "$first"
    [ "$status" -eq 3 ]
    run timeout 20 "$FORGE" kill "$first"
    [ "$output" = "$first: already finished, failed" ]
    run "$FORGE" outputs "$first"
    [ "$status" -eq 0 ]
    settled
}

# ---- crashes

@test "a run whose supervisor was killed is tried again by the next command, once" {
    printf '%s\n' 'retry: {host_lost: {times: 1}}' >>"$FORGE_CONFIG"
    mkdir here
    export COLOUR=red
    submit --id lost --env COLOUR --env SHAPE=round --memory 77M --keep -i gate -- sh -c "echo \$COLOUR; $(gated)"
    first=$id
    is_in "$first" running
    murder_silently "$first"
    # Several at once, elsewhere: one of them starts it.
    for _ in 1 2 3 4; do background env -C here COLOUR=blue "$FORGE" ps -q; done
    wait "${started[@]}"
    started=()
    [ "$(of "$first" '[.status, .reason] | join(" ")')" = "lost host_lost" ]
    second=$(of "$first" .retried_by)
    is_in "$second" running
    [ "$(of "$second" .attempt)" -eq 2 ]
    [ "$(of "$second" .limits.memory_bytes)" -eq $((77 << 20)) ]
    [ "$(of "$second" '.asked.env | join(" ")')" = "COLOUR SHAPE=round" ]
    patiently sh -c "grep -qx red $FORGE_HOME/runs/$second/stdout"
    [ "$(of "$second" .asked.cwd)" = "$T" ]
    [ "$(of lost .run_id)" = "$second" ]
    [ "$(of "$first" .workdir)" != "$(of "$second" .workdir)" ]
    # The rule is used up, whatever the configuration says by now.
    budget 'retry: {host_lost: {times: 5}}'
    murder "$second"
    [ "$(of "$second" .status)" = lost ]
    [[ "$(of "$second" .completion_notes)" == *"Not retried: host_lost had its 1 retry."* ]]
    settled
    [ "$("$FORGE" ps -qa | wc -l)" -eq 2 ]
    check_chains
}

@test "wait that is already waiting sees the murder through to the last attempt" {
    start --retry host_lost=1
    first=$id
    background "$FORGE" wait --json "$first" >said
    patiently sh -c "ls -l /proc/$pid/fd | grep -q pidfd"
    murder "$first"
    patiently sh -c "jq -e .retried_by $FORGE_HOME/runs/$first/record.json"
    open_gate
    status=0
    wait "$pid" || status=$?
    [ "$status" -eq 0 ]
    [ "$(jq -r .parent_run said)" = "$first" ]
    check_chains
}

@test "a run of which a power cut left only the row in the store is tried again" {
    start --retry host_lost=1 --id cut
    first=$id
    cp "$FORGE_HOME/retries/$first" saved
    open_gate
    finished "$first"
    rm gate/open
    patiently nothing_active
    # As it was when the power went; neither its directory nor its slot had reached the disk.
    mv saved "$FORGE_HOME/retries/$first"
    rm -rf "$FORGE_HOME/runs/$first"
    sql "UPDATE runs SET status = 'running', record = replace(record, '\"status\":\"succeeded\"', '\"status\":\"running\"')" >/dev/null
    "$FORGE" ps >/dev/null
    [ "$(of "$first" .status)" = lost ]
    second=$(of "$first" .retried_by)
    is_in "$second" running
    [ "$(of "$second" '[.parent_run, .attempt, .retry.host_lost.used] | join(" ")')" = "$first 2 1" ]
    open_gate
    finished "$first"
    [ "$(field .run_id)" = "$second" ]
    settled
}

@test "a file of a run that never began is of no use, and goes" {
    start --retry host_lost=1
    cp "$FORGE_HOME/retries/$id" saved
    other=$(tr 0-8 1-9 <<<"$id")
    mv saved "$FORGE_HOME/retries/$other"
    "$FORGE" ps >/dev/null
    [ "$(ls "$FORGE_HOME/retries")" = "$id" ]
}

# held RUN: a run whose supervisor is dead, and whose next attempt another process is about to start.
held() {
    murder_silently "$1"
    exec {lock}<"$FORGE_HOME/retries/$1"
    flock "$lock"
}

@test "an attempt that another process is about to start is waited for and not started here" {
    start --retry host_lost=1
    first=$id
    held "$first"
    "$FORGE" gc >/dev/null {lock}<&-
    "$FORGE" ps >/dev/null {lock}<&-
    [ "$(of "$first" .status)" = lost ]
    second=$(of "$first" .retried_by)
    [ ! -e "$FORGE_HOME/runs/$second" ]
    run "$FORGE" wait --timeout 300ms "$first" {lock}<&-
    [ "$status" -eq 124 ]
    [[ "$output" == *"is still being retried"* ]]
    # That process died.
    exec {lock}<&-
    open_gate
    finished "$first"
    [ "$status" -eq 0 ]
    [ "$(field .run_id)" = "$second" ]
    check_chains
}

@test "kill of a run whose next attempt is about to start ends the chain" {
    start --retry host_lost=3
    first=$id
    held "$first"
    background "$FORGE" kill "$first" {lock}<&-
    patiently sh -c "jq -e .retried_by $FORGE_HOME/runs/$first/record.json"
    exec {lock}<&-
    wait "$pid"
    settled
    run "$FORGE" wait "$first"
    [[ "$status" =~ ^(130|137)$ ]]
    last=$(chain "$first" | tail -n 1)
    [[ "$(of "$last" '"\(.status) \(.not_retried)"')" =~ ^("lost it was cancelled"|"cancelled null")$ ]]
    [ "$(of "$last" .retried_by)" = null ]
}

@test "a value that looks like a secret is in no file, and such a run is not tried again by others" {
    start --retry host_lost=3 --retry exit=1 --env API_TOKEN=geheim42
    first=$id
    run ! grep -rqa geheim42 "$FORGE_HOME"
    murder "$first"
    [ "$(of "$first" .status)" = lost ]
    [[ "$(of "$first" .completion_notes)" == *"Not retried: the value of API_TOKEN was not kept."* ]]
    settled
    # Its own supervisor has it.
    forge_run --retry exit=1 --env API_TOKEN=geheim42 -- sh -c '[ ${#API_TOKEN} -eq 8 ] && exit 9'
    [ "$status" -eq 9 ]
    [ "$(field .attempt)" -eq 2 ]
    run ! grep -rqa geheim42 "$FORGE_HOME"
}

@test "an attempt that another user wrote down is not started with our rights" {
    start --retry host_lost=1
    first=$id
    skip_unless "only root can do this" is_root
    chown 12345 "$FORGE_HOME/retries/$first"
    murder "$first"
    [ "$(of "$first" .status)" = lost ]
    [ "$(of "$first" .retried_by)" = null ]
    [ "$("$FORGE" ps -qa | wc -l)" -eq 1 ]
    rm "$FORGE_HOME/retries/$first"
}

# dies_at N CALLS COMMAND...: the command, killed before its Nth such call; its children too with $follow.
dies_at() {
    local n=$1 calls=$2
    shift 2
    # A shell of its own says, to no one, that it was killed.
    (strace ${follow:+-f} -o /dev/null -e trace="$calls" -e inject="$calls":signal=KILL:when="$n" "$@"; exit $?) \
        >/dev/null 2>&1 </dev/null 3>&-
}
calls="renameat unlinkat mkdirat fdatasync,fsync ftruncate flock write sendto,sendmsg"

@test "a supervisor that dies before any of its steps neither loses an attempt nor has one started twice" {
    FORGE=${FORGE_PLAIN:-$FORGE}
    kills=0
    for call in $calls; do
        for ((n = 1; n < 60; n++)); do
            rc=0
            dies_at "$n" "$call" "$FORGE" run -q --retry exit=1 --retry host_lost=2 -- sh -c 'exit 3' || rc=$?
            [ "$rc" -ne 3 ] || break
            kills=$((kills + 1))
            patiently settled
        done
        [ "$n" -lt 60 ]
    done
    check_chains
    echo "$kills kills"
    [ "$kills" -ge 25 ]
}

@test "a repair that dies before any of its steps, and the attempt it starts, neither" {
    FORGE=${FORGE_PLAIN:-$FORGE} follow=1
    for call in $calls; do
        for n in 1 2 3 4 5 6 7 8; do
            start --retry exit=1 --retry host_lost=3
            murder_silently "$id"
            open_gate
            dies_at "$n" "$call" "$FORGE" gc || true
            patiently settled
            rm gate/open
        done
    done
    check_chains
}

@test "kills at any moment, of those that repair starts too, neither lose an attempt nor start one twice" {
    FORGE=${FORGE_PLAIN:-$FORGE}
    echo "seed ${RETRY_SEED:=$RANDOM}"
    RANDOM=$RETRY_SEED
    for ((i = 0; i < 12; i++)); do
        background "$FORGE" run -q --retry exit=2 --retry host_lost=3 -- sh -c 'exit 3'
        for ((k = 0; k < 5; k++)); do
            printf -v moment '0.0%02d' $((RANDOM % 60))
            pause "$moment"
            kill -KILL "$pid" 2>/dev/null || true
            for victim in $(cat "$FORGE_HOME"/active/* 2>/dev/null | jq -r '.pid // empty' 2>/dev/null); do
                kill -KILL "$victim" 2>/dev/null || true
            done
            background "$FORGE" ps -q >/dev/null
        done
        wait "${started[@]}" 2>/dev/null || true
        started=()
    done
    patiently settled
    check_chains
}
