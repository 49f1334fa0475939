#!/usr/bin/env bats
# A state directory on a disk that is full, fills up or becomes read-only, and a store that is away,
# silent or frozen: runs are still ended on time, the user is told, nothing waits for ever,
# and what was confirmed is in the store when it is back. Needs root, for the mounts.
# SPDX-License-Identifier: Apache-2.0

. "${BATS_TEST_DIRNAME:-$(dirname "$0")}/../lib/postgres.bash"
. "${BATS_TEST_DIRNAME:-$(dirname "$0")}/../lib/time.bash"

setup() {
    : "${FORGE:?set FORGE to the program under test}"
    bats_require_minimum_version 1.5.0
    [ "$(id -u)" -eq 0 ] || skip "only root can mount"
    dir=$(mktemp -d)
    chmod 755 "$dir"
    mkdir "$dir/disk" "$dir/work"
    export FORGE_HOME=$dir/disk/home FORGE_CONFIG=$dir/forge.yaml HOME=$dir
    printf '%s\n' "version: 1" "workdir: $dir/work/{run_id}" >"$FORGE_CONFIG"
    cd "$dir"
    pid='' server=''
}

teardown() {
    [ -n "${dir:-}" ] || return 0
    [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    [ -z "${FORGE_PG_DIR:-}" ] || { thaw; pg_remove; }
    cd /
    if mountpoint -q "$dir/disk"; then
        umount "$dir/disk" || umount -l "$dir/disk"
    fi
    rm -rf "$dir"
}

# The state on a disk of 16 MiB of its own, without blocks that only root can have.
small_disk() {
    truncate -s 16M image
    mkfs.ext4 -q -m 0 image
    mount -o loop image disk || skip "no loop device here"
    mkdir -m 700 "$FORGE_HOME"
}

plain_disk() { mkdir -m 700 "$FORGE_HOME"; }

# As after a restart.
mount_again() {
    umount disk
    e2fsck -fy image >/dev/null 2>&1 || [ $? -le 2 ]
    mount -o loop image disk
}

fill() { head -c 30M /dev/zero >disk/filler 2>/dev/null || true; }

pause() { read -rt "$1" <> <(:) || true; }

# wait_for COMMAND...: until it succeeds; fails after 20 seconds.
wait_for() {
    local deadline=$((SECONDS + 20))
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        pause 0.02
    done
}

# timed LEAST MOST COMMAND...: $output, $stderr, $status; within these milliseconds, and the machine's slack.
timed() {
    local least=$1 most=$2 began took
    began=$(now_ms)
    shift 2
    run --separate-stderr timeout 60 "$@"
    took=$(($(now_ms) - began))
    echo "$* -> $status in $took ms: $output | $stderr"
    [ "$took" -ge "$least" ]
    in_time $(($(now_ms) - took)) "$most"
}

# lasted_at_most SECONDS RECORD: its wall time, with the machine's slack.
lasted_at_most() {
    [ "$(jq --argjson most "$1" '.usage.wall_seconds < $most' "$2")" != true ] || return 0
    [ "$(jq --argjson most "$1" --argjson slack "$(slack_ms)" '.usage.wall_seconds < $most + $slack / 1000' "$2")" = true ]
}

# status_of RUN: what the store says.
status_of() { "$FORGE" ps --json -a | jq -r "select(.run_id == \"$1\") | .status"; }
newest() { "$FORGE" ps --json -n 1 | jq -r .run_id; }
is_running() { [ -n "$(find "$FORGE_HOME/active" -type f -size +0)" ] && grep -q '"started"' "$FORGE_HOME"/runs/*/events.jsonl; }

# Nothing is left, and what succeeded has its outputs.
sound() {
    "$FORGE" gc
    run "$FORGE" gc
    echo "$output"
    [ "$output" = "nothing to repair" ]
    [ -z "$(ls work)" ]
    [ -z "$(find "$FORGE_HOME/active" -type f -size +0)" ]
    [ -z "$(ls "$FORGE_HOME/undelivered" 2>/dev/null)" ]
    [ "$("$FORGE" ps -r --json)" = "" ]
    local url=${FORGE_STORE:-sqlite:$FORGE_HOME/forge.db} check
    for check in over chain; do
        run "$BATS_TEST_DIRNAME/check-store.py" "$FORGE_HOME" "$url" "$check"
        echo "$check: $output"
        [ "$status" -eq 0 ]
        [ -z "$output" ]
    done
    "$FORGE" ps --json -a | jq -r 'select(.status == "succeeded") | .run_id' | while read -r one; do
        "$FORGE" show --json "$one" | jq -r '.outputs[] | "\(.sha256[7:])  \(.stored_as)"'
    done >sums
    [ ! -s sums ] || (cd "$FORGE_HOME" && sha256sum -c --quiet - <"$dir/sums")
}

# ---- a full disk ----

# kept FILE: the newest run's workdir is kept, and this is in it. Then the run is removed with it.
kept() {
    local workdir
    workdir=$("$FORGE" show --json "$(newest)" | jq -r 'select(.workdir_kept) | .workdir')
    [ "$(stat -c %s "$workdir/$1")" -eq 31457280 ]
    "$FORGE" rm -f "$(newest)"
}

@test "outputs for which there is no room make a failure, and what was made is in the workdir" {
    small_disk
    timed 0 5000 "$FORGE" run -o big -- sh -c 'head -c 30M /dev/urandom >big'
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"big could not be collected: No space left on device"* ]]
    [ "$("$FORGE" show --json "$(newest)" | jq -r '.status, .reason' | xargs)" = "failed missing_output" ]
    [ -z "$(find "$FORGE_HOME/objects" -type f)" ]
    kept big
    timed 0 2000 "$FORGE" run -q -o small -- sh -c 'echo hi >small'
    [ "$status" -eq 0 ]
    sound
}

@test "one of two outputs does not fit: it did not succeed" {
    small_disk
    timed 0 5000 "$FORGE" run -o 'o/**' -- sh -c 'mkdir o; echo hi >o/a; head -c 30M /dev/urandom >o/b'
    [ "$status" -eq 1 ]
    [ "$(status_of "$(newest)")" = failed ]
    kept o/b
    sound
}

@test "a pipeline whose disk fills up while it publishes goes on when there is room" {
    small_disk
    cat >pipeline.yaml <<'Y'
name: full
steps:
  a: {run: echo a >o, outputs: [o]}
  b: {inputs: {o: a/o}, run: 'cat $o >o; head -c 12M /dev/urandom >big', outputs: [o, big]}
  c: {inputs: {o: b/o}, run: 'cat $o >o', outputs: [o]}
Y
    head -c 9M /dev/zero >disk/filler
    run timeout 60 "$FORGE" pipeline run
    [ "$status" -eq 1 ]
    [[ "$output" == *"No space left on device"* ]]
    [[ "$output" == *"1 ran, 0 up to date, 1 failed, 1 not run"* ]]
    # Full to the last block: nothing is begun, and nothing that is done is lost.
    fill
    run timeout 60 "$FORGE" pipeline run
    [ "$status" -ne 0 ]
    rm -f disk/filler
    sed -i 's/12M/1M/' pipeline.yaml
    run timeout 60 "$FORGE" pipeline run
    [ "$status" -eq 0 ]
    [[ "$output" == *"2 ran, 1 up to date"* ]]
}

@test "a log that fills the disk does not stop the run's clock" {
    small_disk
    timed 900 3000 "$FORGE" run --timeout 1s -- sh -c 'head -c 30M /dev/zero; sleep 60'
    # The verdict may find no room either: then that is said.
    [ "$status" -eq 124 ] || [ "$status" -eq 123 ]
    [[ "$stderr" == *"No space left on device"* ]]
    rm "$FORGE_HOME"/runs/*/stdout
    sound
    [[ "$(status_of "$(newest)")" =~ ^(killed|lost)$ ]]
}

@test "on a full disk nothing is begun, and what there is can be read" {
    small_disk
    "$FORGE" run -q -- true
    fill
    timed 0 5000 "$FORGE" run -- true
    [ "$status" -eq 125 ]
    [[ "$stderr" == *"No space left on device"* ]]
    timed 0 5000 "$FORGE" submit -- true
    [ "$status" -eq 125 ]
    timed 0 5000 "$FORGE" ps
    [ "$status" -eq 0 ]
    [[ "$output" == *succeeded* ]]
    rm disk/filler
    timed 0 2000 "$FORGE" run -q -- true
    [ "$status" -eq 0 ]
    sound
}

@test "the disk fills up during a run: it is ended on time, and nothing is claimed" {
    small_disk
    timed 900 3000 sh -c '"$0" run --timeout 1s -- sleep 60 & pid=$!
        until grep -q "\"started\"" "$1"/runs/*/events.jsonl 2>/dev/null; do :; done
        head -c 30M /dev/zero >disk/filler 2>/dev/null
        wait $pid' "$FORGE" "$FORGE_HOME"
    [ "$status" -eq 123 ]
    [[ "$stderr" == *"its verdict cannot be kept"*"No space left on device"* ]]
    rm disk/filler
    sound
    [ "$(status_of "$(newest)")" = lost ]
}

@test "... of a detached one too; who waits for it is not kept busy" {
    small_disk
    id=$("$FORGE" submit --timeout 1s -- sleep 60)
    wait_for is_running
    fill
    timed 2900 4000 "$FORGE" wait --timeout 3s "$id"
    [ "$status" -eq 124 ]
    # Told, and not a thousand times.
    [ "$(wc -l <<<"$stderr")" -le 3 ]
    rm disk/filler
    timed 0 5000 "$FORGE" wait "$id"
    [ "$status" -eq 137 ]
    sound
}

@test "SQLite cannot grow, and the record is kept beside it" {
    small_disk
    export FORGE_HOME=$dir/home FORGE_STORE=sqlite:$dir/disk/forge.db
    mkdir -m 700 "$FORGE_HOME"
    "$FORGE" run -q -- true
    fill
    timed 0 15000 "$FORGE" run -o out -- sh -c 'echo hi >out'
    [ "$status" -eq 0 ]
    [[ "$stderr" == *"warning: store sqlite:"*"The record is kept in"* ]]
    [ -n "$(ls "$FORGE_HOME/undelivered")" ]
    rm disk/filler
    "$FORGE" ps >/dev/null
    [ "$(status_of "$(newest)")" = succeeded ]
    [ "$("$FORGE" ps --json -a | wc -l)" -eq 2 ]
    sound
}

# ---- read-only ----

@test "in a read-only FORGE_HOME nothing is begun, and what there is can be read" {
    small_disk
    "$FORGE" run -q -- true
    wait_for mount -o remount,ro disk # a courier may be about to end
    for command in run submit; do
        timed 0 5000 "$FORGE" "$command" -- true
        [ "$status" -eq 125 ]
        [[ "$stderr" == *"Read-only file system"* ]]
    done
    for command in ps "show $(newest)" "logs $(newest)"; do
        # shellcheck disable=SC2086 # words
        timed 0 5000 "$FORGE" $command
        [ "$status" -eq 0 ]
    done
    timed 0 5000 "$FORGE" gc
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"Read-only file system"* ]]
    mount -o remount,rw disk
    sound
}

# An error of the disk: ext4 stops, with files open.
@test "FORGE_HOME becomes read-only during a run: it is ended on time, and the user is told" {
    small_disk
    "$FORGE" run -q -- true
    timed 900 5000 sh -c '"$0" run --timeout 1s -- sleep 60 & pid=$!
        until grep -q "\"started\"" "$1"/runs/*/events.jsonl 2>/dev/null &&
            [ "$(ls "$1/runs" | wc -l)" -eq 2 ]; do :; done
        mount -o remount,abort disk
        wait $pid' "$FORGE" "$FORGE_HOME"
    [ "$status" -eq 123 ]
    [[ "$stderr" == *"its verdict cannot be kept"* ]]
    mount_again
    sound
}

@test "... what was submitted before is known afterwards, and over" {
    small_disk
    id=$("$FORGE" submit --timeout 1s -o out -- sh -c 'echo hi >out; sleep 60')
    wait_for is_running
    mount -o remount,abort disk
    timed 900 15000 "$FORGE" wait --timeout 2s "$id"
    [ "$status" -eq 124 ]
    mount_again
    sound
    [ "$(status_of "$id")" = lost ]
}

# ---- a store that is away ----

# black_hole SOCKET|PORT-FILE: listens and never answers.
black_hole() {
    python3 -c 'import socket, sys, time
if sys.argv[1].endswith("5432"):
    s = socket.socket(socket.AF_UNIX)
    s.bind(sys.argv[1])
else:
    s = socket.create_server(("127.0.0.1", 0))
    open(sys.argv[1], "w").write(str(s.getsockname()[1]))
s.listen(100)
time.sleep(120)' "$1" 3>&- 4>&- &
    server=$!
    wait_for test -e "$1"
    wait_for test -S "$1" -o -s "$1"
}

# away URL MOST: what a user sees of a store that is not there.
away() {
    export FORGE_STORE=$1
    timed 900 "$2" "$FORGE" run --timeout 1s -o out -- sh -c 'echo hi >out; sleep 60'
    [ "$status" -eq 124 ]
    [[ "$stderr" == *"warning: store postgresql:"*"The record is kept in"* ]]
    [ "$(jq -r .status "$FORGE_HOME"/runs/*/record.json)" = killed ]
    timed 0 "$2" "$FORGE" submit -- true
    [ "$status" -eq 0 ]
    [ -n "$output" ]
    [[ "$stderr" == *"The record is kept in"* ]]
    # What the store would have to decide is not done.
    timed 0 "$2" "$FORGE" submit --idempotency-key once -- true
    [ "$status" -eq 125 ]
    timed 0 "$2" "$FORGE" ps
    [ "$status" -eq 1 ]
    timed 0 "$2" "$FORGE" gc
    [ "$status" -eq 0 ] || return
    [[ "$output" == *"objects are left alone"* ]]
}

@test "nothing listens: the run goes on, its record waits for the store" {
    plain_disk
    away "postgresql://forge@/forge?host=$dir" 5000
}

@test "something listens on a socket and never answers" {
    plain_disk
    black_hole "$dir/.s.PGSQL.5432"
    away "postgresql://forge@/forge?host=$dir" 14000
}

@test "... on a port" {
    plain_disk
    black_hole "$dir/port"
    away "postgresql://forge@127.0.0.1:$(<"$dir/port")/forge" 14000
}

freeze() { for pid in $(pg_pids); do kill -STOP "$pid"; done; pid=''; }
thaw() { for pid in $(pg_pids); do kill -CONT "$pid" 2>/dev/null || true; done; pid=''; }

# delivered: everything that went on without the store is in it after one command.
delivered() {
    timed 0 5000 "$FORGE" ps
    [ "$status" -eq 0 ]
    [ -z "$(ls "$FORGE_HOME/undelivered")" ]
    for one in "$FORGE_HOME"/runs/*; do
        [ "$(status_of "$(basename "$one")")" = "$(jq -r .status "$one/record.json")" ]
    done
    sound
}

@test "the server stops during a run: ended on time, delivered when it is back" {
    plain_disk
    pg_make 3>&- 4>&- || skip "no PostgreSQL here"
    export FORGE_STORE=$FORGE_TEST_PG
    id=$("$FORGE" submit --timeout 1s -- sleep 60)
    wait_for is_running
    pg_stop
    wait_for grep -q '"wall_time"' "$FORGE_HOME/runs/$id/record.json"
    lasted_at_most 1.5 "$FORGE_HOME/runs/$id/record.json"
    timed 0 5000 "$FORGE" run -o out -- sh -c 'echo hi >out'
    [ "$status" -eq 0 ]
    [[ "$stderr" == *"The record is kept in"* ]]
    wait_for test -e "$FORGE_HOME/undelivered/$id"
    pg_start 3>&- 4>&-
    delivered
    [ "$(status_of "$id")" = killed ]
}

@test "the server freezes during a run: ended on time, delivered when it goes on" {
    plain_disk
    pg_make 3>&- 4>&- || skip "no PostgreSQL here"
    export FORGE_STORE=$FORGE_TEST_PG
    id=$("$FORGE" submit --timeout 1s -- sleep 60)
    wait_for is_running
    freeze
    wait_for grep -q '"wall_time"' "$FORGE_HOME/runs/$id/record.json"
    lasted_at_most 1.5 "$FORGE_HOME/runs/$id/record.json"
    wait_for test -e "$FORGE_HOME/undelivered/$id"
    timed 0 14000 "$FORGE" run -- true
    [ "$status" -eq 0 ]
    thaw
    delivered
    [ "$(status_of "$id")" = killed ]
}

# ---- clocks ----

@test "the time of day jumps during runs: durations and orders are sane" {
    : "${STEP_CLOCK:?set STEP_CLOCK to the library}"
    plain_disk
    for i in 1 2 3; do
        timed 300 3000 env LD_PRELOAD="$STEP_CLOCK" "$FORGE" run -q -o out -- sh -c 'echo hi >out; sleep 0.3'
        [ "$status" -eq 0 ]
    done
    timed 900 2000 env LD_PRELOAD="$STEP_CLOCK" "$FORGE" run -q --timeout 1s -- sleep 60
    [ "$status" -eq 124 ]
    for record in "$FORGE_HOME"/runs/*/record.json; do
        [ "$(jq '.usage.wall_seconds > 0.25' "$record")" = true ]
        lasted_at_most 2 "$record"
        [ "$(jq -s 'map(.seq) == [range(length)]' "${record%record.json}events.jsonl")" = true ]
    done
    # A queue in which everybody's clock is another: all get their turn.
    printf '%s\n' "host:" "  budget:" "    runs: 1" >>"$FORGE_CONFIG"
    for i in 1 2 3 4 5 6; do
        LD_PRELOAD=$STEP_CLOCK "$FORGE" submit -- sleep 0.1
    done
    for id in "$FORGE_HOME"/runs/*; do
        timed 0 9000 "$FORGE" wait "$(basename "$id")"
        [ "$status" -eq 0 ] || [ "$status" -eq 124 ]
    done
    # gc under a clock that is hours ahead: nothing that a record points to is old.
    timed 0 5000 env LD_PRELOAD="$STEP_CLOCK" "$FORGE" gc
    [ "$status" -eq 0 ]
    sound
}
