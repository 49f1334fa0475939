#!/usr/bin/env bats
# Repair and cleaning: what dead supervisors left, what time has made superfluous; and that no run
# can reach what forge writes down.
# SPDX-License-Identifier: Apache-2.0

load ../lib/store.bash
setup() { setup_store; }
teardown() {
    rm -rf "$work/scidex-analysis-kept-$$"
    teardown_store
}

# ---- repair

@test "a run whose supervisor was killed is lost after the next forge command" {
    start -o x
    a=$id
    workdir=$(of "$a" .workdir)
    murder "$a"
    run "$FORGE" ps -q --status lost
    [ "$output" = "$a" ]
    [ "$(of "$a" .reason)" = host_lost ]
    [ "$(of "$a" .exit_status)" -eq 137 ]
    [ -n "$(of "$a" .started_at)" ]
    [ ! -e "$workdir" ]
    run "$FORGE" wait "$a"
    [ "$status" -eq 137 ]
    run "$FORGE" kill "$a"
    [ "$output" = "$a: already finished, lost" ]
    [ "$("$FORGE" logs --events "$a" | jq -r 'select(.status == "lost") | .actor')" = repair ]
    [ "$("$FORGE" logs "$a")" = ready ]
    [ -z "$(ls "$FORGE_HOME/undelivered" 2>/dev/null)" ]
}

@test "a murdered supervisor leaves nobody who hashes its inputs" {
    truncate -s 200G big # takes minutes
    start -i big
    hasher=$(pgrep -P "$(of "$id" .supervisor.pid)" -x forge-hasher)
    murder "$id"
    patiently gone "$hasher"
    finished "$id"
    [ "$(field .status)" = lost ]
}

@test "forge wait that is already waiting hears of the murder" {
    start
    "$FORGE" wait "$id" 2>said 3>&- &
    pid=$!
    started+=("$pid")
    # It holds the supervisor by a descriptor by then.
    patiently sh -c "ls -l /proc/$pid/fd | grep -q pidfd"
    murder "$id"
    status=0
    wait "$pid" || status=$?
    [ "$status" -eq 137 ]
    grep -qi lost said
}

# is_waiting PID: for a lock.
is_waiting() { grep -Eq -- "-> FLOCK +ADVISORY +WRITE $1 " /proc/locks; }

@test "a kept workdir is not forgotten when its supervisor dies behind a repair's back" {
    start --keep
    a=$id
    workdir=$(of "$a" .workdir)
    # gc has looked at the slots, and has not yet asked the store who is alive.
    exec {lock}>>"$FORGE_HOME/undelivered.lock"
    flock "$lock"
    "$FORGE" gc >said 2>&1 {lock}>&- 3>&- &
    pid=$!
    started+=("$pid")
    patiently is_waiting "$pid"
    murder "$a"
    flock -u "$lock"
    exec {lock}>&-
    wait "$pid"
    "$FORGE" ps -q --status lost | grep -qx "$a"
    [ -d "$workdir" ]
    [ "$(of "$a" .workdir_kept)" = true ]
    age "$FORGE_HOME/runs/$a/record.json"
    run "$FORGE" gc
    [[ "$output" == *"remove workdir $workdir"* ]]
    [ ! -e "$workdir" ]
}

# write_and_wait OPTION... COMMAND: a run that executes the command, and then waits for the gate.
write_and_wait() {
    submit -i "$T/gate" "${@:1:$#-1}" -- sh -c "${*: -1}; echo ready; $(gated)"
    patiently grep -q ready "$FORGE_HOME/runs/$id/stdout"
}

@test "a lost run keeps what it had written, says where, and for as long as retention.workdirs" {
    write_and_wait 'mkdir sub; echo hours >sub/fit.json'
    workdir=$(of "$id" .workdir)
    murder "$id"
    run "$FORGE" gc --dry-run
    [[ "$output" == *"$id: would keep workdir $workdir"* ]]
    [[ "$output" != *"remove workdir"* ]]
    [ ! -e "$FORGE_HOME/runs/$id/kept.json" ]
    run "$FORGE" gc
    [[ "$output" == *"$id: keep workdir $workdir"* ]]
    [ "$(of "$id" .status)" = lost ]
    [ "$(of "$id" .workdir_kept)" = true ]
    [ "$(of "$id" .completion_notes)" = "Lost: the supervisor was killed; everything it ran was ended. Run it again. The workdir is kept: $workdir." ]
    [ "$(cat "$workdir/sub/fit.json")" = hours ]
    [ "$(stat -c '%u %a' "$workdir")" = "$(id -u) 700" ]
    [ "$(jq -r .path "$FORGE_HOME/runs/$id/kept.json")" = "$workdir" ]
    [ "$("$FORGE" gc)" = "nothing to repair" ]
    age "$FORGE_HOME/runs/$id/record.json"
    run "$FORGE" gc
    [[ "$output" == *"remove workdir $workdir"* ]]
    [ ! -e "$workdir" ]
    [ "$(of "$id" .workdir_kept)" = false ]
}

@test "a lost run with nothing that its user wants leaves nothing" {
    # OPTIONS, then a command; hidden files are results only where patterns may match them.
    for what in 'mkdir sub; touch .hidden; mkdir __pycache__; touch __pycache__/x.pyc; ln -s x link' '-o none; touch x'; do
        if [ "${what%%;*}" = "-o none" ]; then
            write_and_wait -o none "${what#*;}"
        else
            write_and_wait "$what"
        fi
        workdir=$(of "$id" .workdir)
        murder "$id"
        run "$FORGE" gc
        [[ "$output" == *"$id: remove workdir $workdir"* ]]
        [ ! -e "$workdir" ]
        [ "$(of "$id" '.workdir_kept // false')" = false ]
        [[ "$(of "$id" .completion_notes)" == *"ended and cleaned up. Run it again." ]]
    done
    write_and_wait -o .hidden 'touch .hidden'
    workdir=$(of "$id" .workdir)
    murder "$id"
    "$FORGE" gc
    [ -e "$workdir/.hidden" ]
    "$FORGE" rm -f "$id"
    [ ! -e "$workdir" ]
}

@test "a run that is lost while its outputs are collected shares no file with the objects" {
    # Hashing the large one takes longer than the rest of the test.
    submit --disk 63G -- sh -c 'echo small >a; truncate -s 62G b'
    workdir=$(of "$id" .workdir)
    linked() { [ "$(stat -c %h "$workdir/work/a")" -eq 2 ]; }
    patiently linked
    murder "$id"
    is_in "$id" lost # its threads may hold the slot a little longer
    [ "$(cat "$workdir/a")" = small ]
    [ "$(stat -c '%h %a' "$workdir/a")" = "1 644" ]
    echo changed >"$workdir/a"
    [ "$(cat "$(objects)")" = small ]
    "$FORGE" rm -f "$id"
    [ ! -e "$workdir" ]
}

# orphan RUN [JSON]: a slot that nobody holds, as if its supervisor had been killed just now; JSON
# is what the slot says of the record.
orphan() {
    patiently nothing_active
    printf '{"run_id": "%s", "pid": 1, "workdir": "/nonexistent", "store": "%s"%s}\n' "$1" \
        "${FORGE_STORE:-sqlite:$FORGE_HOME/forge.db}" "${2:+, \"record\": $2}" >"$FORGE_HOME/active/0"
}

@test "a kept workdir is not forgotten when the verdict was written before it was seen to" {
    forge_run --keep --id "kept-$$" -- touch x
    id=$(field .run_id)
    record=$FORGE_HOME/runs/$id/record.json
    workdir=$work/scidex-analysis-kept-$$
    patiently nothing_active
    jq 'del(.workdir_kept, .workdir_identity)' "$record" >short
    cat short >"$record"
    printf '{"run_id": "%s", "pid": 1, "workdir": "%s", "dev": %s, "ino": %s, "keep": true, "record": {}, "store": "%s"}\n' \
        "$id" "$workdir" "$(stat -c %d "$workdir")" "$(stat -c %i "$workdir")" "${FORGE_STORE:-sqlite:$FORGE_HOME/forge.db}" >"$FORGE_HOME/active/0"
    "$FORGE" gc
    [ "$(of "$id" .workdir_kept)" = true ]
    [ "$(of "$id" .status)" = succeeded ]
    age "$record"
    "$FORGE" gc
    [ ! -e "$workdir" ]
}

@test "a verdict is never changed by a repair" {
    submit -- sh -c 'echo hello; exit 3'
    a=$id
    finished "$a"
    before=$(of "$a" . | md5sum)
    # With the slot's last line, and with only its first, which a power cut may leave.
    for said in "$(of "$a" '.status = "running" | del(.reason, .exit_status)')" ''; do
        orphan "$a" "$(tr '\n' ' ' <<<"$said")"
        "$FORGE" gc >/dev/null
        [ "$(of "$a" . | md5sum)" = "$before" ]
        [ "$(field .status "$FORGE_HOME/runs/$a/record.json")" = failed ]
        [ "$("$FORGE" logs "$a")" = hello ]
        [ -s "$FORGE_HOME/runs/$a/events.jsonl" ]
    done
    [ -z "$("$FORGE" ps -q --status lost)" ]
}

@test "a record that the slot has forgotten is closed by what is on disk" {
    start
    a=$id
    murder "$a"
    slot=$(find "$FORGE_HOME/active" -type f -size +0)
    # Only its first line, which has no record in it, came to the disk.
    sed -i '2,$d' "$slot"
    [ "$(jq -r '.run_id + (.record | tostring)' "$slot")" = "${a}null" ]
    "$FORGE" gc >/dev/null
    [ "$(of "$a" .status)" = lost ]
    [ "$("$FORGE" logs "$a")" = ready ]
    # A real loss of power takes these with it, and nobody knows of them now.
    rm -rf "$work/scidex-analysis-$a"
    for dir in "${cgroup_dirs[@]}"; do
        [ ! -d "$dir/forge-$a" ] || find "$dir/forge-$a" -depth -type d -exec rmdir {} +
    done
}

@test "a pid that is somebody else's by now is not the supervisor" {
    start
    a=$id
    murder "$a"
    # The store alone knows of it: the slot did not reach the disk.
    find "$FORGE_HOME/active" -type f -exec truncate -s 0 {} +
    rm -rf "$(of "$a" .workdir)" 2>/dev/null || true
    run "$FORGE" ps -q --status lost
    [ "$output" = "$a" ]
    rm -rf "$work/scidex-analysis-$a"
    for dir in "${cgroup_dirs[@]}"; do
        # Only the slot knew of these; a real loss of power takes them with it.
        [ ! -d "$dir/forge-$a" ] || find "$dir/forge-$a" -depth -type d -exec rmdir {} +
    done
}

@test "a queued run whose supervisor was killed is lost too" {
    budget '    runs: 1'
    start
    submit -- true
    a=$id
    is_in "$a" queued
    murder "$a"
    [ "$(of "$a" .status)" = lost ]
    [ "$("$FORGE" logs --events "$a" | jq -r 'select(.status) | .status' | xargs)" = "queued lost" ]
}

@test "ten murdered at once are ten lost, by two repairs at once" {
    for i in $(seq 10); do
        start
        all[i]=$id
    done
    for id in "${all[@]}"; do pids+=("$(of "$id" .supervisor.pid)"); done
    kill -KILL "${pids[@]}"
    for pid in "${pids[@]}"; do patiently gone "$pid"; done
    "$FORGE" gc >one 3>&- &
    "$FORGE" gc >two 3>&- &
    wait
    [ "$("$FORGE" ps -qa --status lost | wc -l)" -eq 10 ]
    [ "$("$FORGE" gc)" = "nothing to repair" ]
    for id in "${all[@]}"; do
        [ "$("$FORGE" logs --events "$id" | jq -r 'select(.status == "lost") | .status' | wc -l)" -eq 1 ]
    done
}

@test "gc --dry-run says what would be done, and does nothing" {
    start
    a=$id
    murder "$a"
    before=$(hash_of "$FORGE_HOME/active" "$FORGE_HOME/runs" "$work/scidex-analysis-$a")
    run "$FORGE" gc --dry-run
    [ "$status" -eq 0 ]
    [[ "$output" == *"$a: would close record as lost"* ]]
    [[ "$output" == *"$a: would remove workdir"* ]]
    [ "$(hash_of "$FORGE_HOME/active" "$FORGE_HOME/runs" "$work/scidex-analysis-$a")" = "$before" ]
    run "$FORGE" gc
    [[ "$output" == *"$a: close record as lost"* ]]
    [ "$(of "$a" .status)" = lost ]
}

# ---- retention

# age PATH...: makes them look as old as the hills; ctime cannot be set, so rules use 1ms there.
age() { touch -h -d '2 years ago' "$@"; }

@test "logs go after retention.logs; the record says so and stays" {
    submit -- echo hello
    a=$id
    finished "$a"
    submit -- echo hello
    b=$id
    finished "$b"
    age "$FORGE_HOME/runs/$a/record.json"
    budget 'retention:' '  logs: 1h'
    run "$FORGE" gc --dry-run
    [[ "$output" == *"would remove logs of $a"* ]]
    [ "$("$FORGE" logs "$a")" = hello ]
    run "$FORGE" gc
    [[ "$output" == "remove logs of $a"* ]]
    run "$FORGE" logs "$a"
    [ "$status" -eq 1 ]
    [[ "$output" == *"removed by forge gc"* ]]
    [ "$(of "$a" .logs_removed)" = true ]
    [ "$(of "$a" .status)" = succeeded ]
    [ "$("$FORGE" logs "$b")" = hello ]
    [ "$("$FORGE" gc)" = "nothing to repair" ]
    grep -q "remove logs of.*$a" "$FORGE_HOME/gc.jsonl"
    [ "$(jq -s 'length > 0 and all(.time and .what and .name)' "$FORGE_HOME/gc.jsonl")" = true ]
}

@test "what gc notes is whole after a line that a power cut has torn" {
    submit -- echo hello
    finished "$id"
    printf '{"seq": 9, "time": "20' >>"$FORGE_HOME/runs/$id/events.jsonl"
    age "$FORGE_HOME/runs/$id/record.json"
    budget 'retention:' '  logs: 1h'
    "$FORGE" gc
    # In the file, and in the store.
    [ "$(jq -R 'fromjson? | select(.event == "logs_removed") | .actor' "$FORGE_HOME/runs/$id/events.jsonl")" = '"gc"' ]
    [ "$("$FORGE" logs --events "$id" | jq -r 'select(.event == "logs_removed") | .actor')" = gc ]
}

@test "retention.logs_size keeps the newest" {
    for i in 1 2 3; do
        submit -- head -c 4000 /dev/zero
        finished "$id"
        all[i]=$id
        touch -d "$((4 - i)) hours ago" "$FORGE_HOME/runs/$id/record.json"
    done
    budget 'retention:' '  logs_size: 9000'
    run "$FORGE" gc
    [[ "$output" == *"remove logs of ${all[1]}"* ]]
    [ "${#lines[@]}" -eq 1 ]
    [ -e "$FORGE_HOME/runs/${all[3]}/stdout" ]
    [ ! -e "$FORGE_HOME/runs/${all[1]}/stdout" ]
}

@test "kept workdirs go after retention.workdirs, and only if they are still ours" {
    forge_run --keep --id "kept-$$" -- touch x
    id=$(field .run_id)
    [ -d "$work/scidex-analysis-kept-$$" ]
    "$FORGE" gc
    [ -d "$work/scidex-analysis-kept-$$" ]
    age "$FORGE_HOME/runs/$id/record.json"
    run "$FORGE" gc
    [[ "$output" == *"remove workdir $work/scidex-analysis-kept-$$"* ]]
    [ ! -e "$work/scidex-analysis-kept-$$" ]
    [ "$(of "$id" .workdir_kept)" = false ]
    # Another one in its place is not ours.
    forge_run --keep --id "kept-$$" -- touch x
    id=$(field .run_id)
    age "$FORGE_HOME/runs/$id/record.json"
    mv "$work/scidex-analysis-kept-$$" "$T/aside"
    mkdir "$work/scidex-analysis-kept-$$"
    touch "$work/scidex-analysis-kept-$$/mine"
    "$FORGE" gc
    [ -e "$work/scidex-analysis-kept-$$/mine" ]
    rm -r "$work/scidex-analysis-kept-$$"
}

@test "objects that a record points to stay; others go after retention.objects" {
    forge_run -o x -- sh -c 'echo kept >x'
    id=$(field .run_id)
    stray=$FORGE_HOME/objects/ab/cd
    mkdir -p "${stray%/*}"
    echo stray >"$stray"
    "$FORGE" gc
    [ -e "$stray" ] # young
    budget 'retention:' '  objects: 1ms'
    would() { "$FORGE" gc --dry-run | grep -q 'would remove object abcd'; }
    patiently would
    [ -e "$stray" ]
    older() { "$FORGE" gc && [ ! -e "$stray" ]; }
    patiently older
    "$FORGE" outputs --copy got "$id"
    [ "$(cat got/x)" = kept ]
    grep -q abcd "$FORGE_HOME/gc.jsonl"
}

@test "an object stays while either the directory or the store points to it" {
    budget 'retention:' '  objects: 1ms'
    forge_run -o x -- sh -c 'echo one >x'
    a=$(field .run_id)
    forge_run -o x -- sh -c 'echo two >x'
    stray=$FORGE_HOME/objects/ab/cd
    mkdir -p "${stray%/*}"
    echo stray >"$stray"
    rm -r "$FORGE_HOME/runs/$a" # the store alone knows the first
    older() { "$FORGE" gc && [ ! -e "$stray" ]; }
    patiently older
    [ "$(objects | wc -l)" -eq 2 ]
}

@test "objects are left alone when the store cannot be asked" {
    budget 'retention:' '  objects: 1ms'
    forge_run -o x -- sh -c 'echo one >x'
    rm -r "$FORGE_HOME/runs/$(field .run_id)"
    run env FORGE_STORE="postgresql:///none?host=/nonexistent" "$FORGE" gc
    [[ "$output" == *"left alone"* ]]
    [ "$(objects | wc -l)" -eq 1 ]
}

@test "the object of a run that is just being collected is not swept" {
    budget 'retention:' '  objects: 1ms'
    # Published and not yet in any record, for as long as the post-process takes.
    submit -i gate -o x --post-process "$(gated); echo '{}'" -- sh -c 'echo one >x'
    patiently sh -c 'test -n "$(find "$FORGE_HOME/objects" -type f)"'
    "$FORGE" gc >said 3>&- &
    pid=$!
    started+=("$pid")
    open_gate
    finished "$id"
    wait "$pid"
    "$FORGE" outputs --copy got "$id"
    [ "$(cat got/x)" = one ]
}

@test "staging directories of dead post-processes go" {
    mkdir -p "$FORGE_HOME/staging"
    chmod 700 "$FORGE_HOME" "$FORGE_HOME/staging"
    forge_run -- true
    mkdir "$FORGE_HOME/staging/x.999999999"
    touch "$FORGE_HOME/staging/x.999999999/y"
    run "$FORGE" gc
    [[ "$output" == *"remove staging x.999999999"* ]]
    [ -z "$(ls "$FORGE_HOME/staging")" ]
}

@test "staging directories of living post-processes stay" {
    submit -i gate -o x --post-process "$(gated); cat x; echo '{}'" -- sh -c 'echo "{}" >x'
    patiently sh -c 'test -n "$(find "$FORGE_HOME/staging" -name x)"'
    dir=$(find "$FORGE_HOME/staging" -mindepth 1 -maxdepth 1)
    "$FORGE" gc >said 3>&- &
    pid=$!
    started+=("$pid")
    patiently grep -q gc "/proc/$pid/cmdline"
    pause 0.3
    [ -e "$dir/x" ]
    open_gate
    finished "$id"
    [ "$(field .post_process.records)" -eq 2 ]
    wait "$pid"
}

@test "gc with nothing to do says so, also before the first run" {
    [ "$("$FORGE" gc)" = "nothing to repair" ]
    forge_run -- true
    [ "$("$FORGE" gc)" = "nothing to repair" ]
}

# ---- what a run must never reach

@test "a run cannot name or write what forge records" {
    mkdir -p "$FORGE_HOME"
    chmod 700 "$FORGE_HOME"
    forge_run -- sh -c '
        ls -d "$0" 2>/dev/null && exit 11
        for f in "$0"/* "$0"/runs/* "$0"/forge.db; do test ! -e "$f" || exit 12; done
        env | grep -E "FORGE_(HOME|STORE)|^PG" && exit 13
        ls -l /proc/self/fd | grep -F "$0" && exit 14
        echo x 2>/dev/null >"$0/planted" && exit 15
        exit 0' "$FORGE_HOME"
    cat "$out"
    [ "$status" -eq 0 ]
    [ ! -e "$FORGE_HOME/planted" ]
}

@test "FORGE_HOME, the store and what holds them are refused as inputs" {
    forge_run -- true
    for path in "$FORGE_HOME" "$FORGE_HOME/runs" "$FORGE_HOME/objects" "$FORGE_HOME/runs/$(field .run_id)/record.json" "$T" /; do
        run "$FORGE" run -q -i "$path" -- true
        [ "$status" -eq 125 ] || { echo "$path"; false; }
    done
}

@test "a link among the inputs does not show FORGE_HOME either" {
    forge_run -- true
    mkdir in
    ln -s "$FORGE_HOME" in/home
    ln -s "$FORGE_HOME/runs" in/runs
    forge_run -i in -- sh -c 'ls in/home/ in/runs/ in/home/runs 2>/dev/null | grep -q . && exit 11; exit 0'
    [ "$status" -eq 0 ]
}

@test "a supervisor's descriptors are not the command's" {
    forge_run -i "$PROBE" -- "$PROBE" fds
    [ "$status" -eq 0 ]
}

@test "nor a courier's: not its locks, nor its pipes" {
    # Before it is told to go home it may have gone; then there is none to look at.
    start
    supervisor=$(of "$id" .supervisor.pid)
    opened() { find "/proc/$1/fd" -type l -printf '%l\n' 2>/dev/null; }
    opened "$supervisor" | grep -q "$FORGE_HOME/active/"
    opened "$supervisor" | grep -q '^pipe:'
    for i in 1 2 3 4 5; do
        courier=$(pgrep -P "$supervisor" -x forge-courier) && [ -n "$(opened "$courier")" ] && break
        # Each event wakes or starts one.
        start
        supervisor=$(of "$id" .supervisor.pid)
    done
    [ -n "$courier" ]
    [ "$(opened "$courier" | grep -cE "^pipe:|$FORGE_HOME/(active|runs|queue|spare)")" -eq 0 ]
}

@test "a record that a power cut took is written anew from the store" {
    forge_run -o x -- sh -c 'echo kept >x'
    id=$(field .run_id)
    : >"$FORGE_HOME/runs/$id/record.json"
    [ "$(of "$id" .status)" = succeeded ]
    run "$FORGE" gc
    [[ "$output" == *"restore the record of $id"* ]]
    [ "$(jq -r .status "$FORGE_HOME/runs/$id/record.json")" = succeeded ]
    [ "$("$FORGE" gc)" = "nothing to repair" ]
}

# forget RUN: takes what is not synced, as a power cut does: the slot, and what only that knows of.
forget() {
    local dir
    find "$FORGE_HOME/active" -type f -exec truncate -s 0 {} +
    rm -rf "$work/scidex-analysis-$1"
    for dir in "${cgroup_dirs[@]}"; do
        [ ! -d "$dir/forge-$1" ] || find "$dir/forge-$1" -depth -type d -exec rmdir {} +
    done
}

@test "a run that a power cut ended while the store was away is lost, and delivered later" {
    export FORGE_STORE=sqlite:$T/nowhere/forge.db
    submit -i gate -- sh -c "echo ready; $(gated)"
    patiently grep -q ready "$FORGE_HOME/runs/$id/stdout"
    murder "$id"
    forget "$id"
    : >"$FORGE_HOME/runs/$id/events.jsonl"
    run "$FORGE" gc
    [[ "$output" == *"close as lost $id"* ]]
    [ "$(jq -r .status "$FORGE_HOME/runs/$id/record.json")" = lost ]
    run "$FORGE" wait "$id"
    [ "$status" -eq 137 ]
    mkdir nowhere
    run "$FORGE" gc
    [[ "$output" == *"$id: delivered to the store"* ]]
    [ "$("$FORGE" gc)" = "nothing to repair" ]
    [ "$(ps_ids --status lost)" = "$id" ]
}

@test "a directory that is all a power cut left of a run is removed, if nobody knows of it" {
    forge_run -- true
    known=$(field .run_id)
    start
    for id in 00000000000000000000000001 00000000000000000000000002; do
        mkdir -m 700 "$FORGE_HOME/runs/$id"
        touch "$FORGE_HOME/runs/$id"/{events.jsonl,stdout,stderr}
    done
    echo something >"$FORGE_HOME/runs/$id/stdout"
    FORGE_STORE=sqlite:$T/nowhere/forge.db "$FORGE" gc
    [ -d "$FORGE_HOME/runs/00000000000000000000000001" ]
    run "$FORGE" gc
    [[ "$output" == *"remove what never began: 00000000000000000000000001 (0 B)"* ]]
    [[ "$output" == *"close as lost 00000000000000000000000002"* ]]
    [ "$("$FORGE" gc)" = "nothing to repair" ]
    [ "$(find "$FORGE_HOME/runs" -mindepth 1 -maxdepth 1 | wc -l)" -eq 3 ]
    [ -d "$FORGE_HOME/runs/$known" ]
}

@test "logs of which a power cut took the record are a lost run, and are kept" {
    "$FORGE" run -q -- true
    for id in 01aaaaaaaaaaaaaaaaaaaaaaa1 01aaaaaaaaaaaaaaaaaaaaaaa2 01aaaaaaaaaaaaaaaaaaaaaaa3; do
        mkdir -m 700 "$FORGE_HOME/runs/$id"
        : >"$FORGE_HOME/runs/$id/stdout"
        : >"$FORGE_HOME/runs/$id/stderr"
    done
    # With an empty record, without one, and without anything.
    cd "$FORGE_HOME/runs"
    echo said >01aaaaaaaaaaaaaaaaaaaaaaa1/stdout
    : >01aaaaaaaaaaaaaaaaaaaaaaa1/record.json
    printf '{"seq":0,"time":"2026-01-01T00:00:00.000Z","actor":"supervisor","event":"status","status":"preparing"}\n{"seq":1,"ti' >01aaaaaaaaaaaaaaaaaaaaaaa1/events.jsonl
    echo complained >01aaaaaaaaaaaaaaaaaaaaaaa2/stderr
    cd "$T"
    run "$FORGE" gc --dry-run
    [[ "$output" == *"would close as lost 01aaaaaaaaaaaaaaaaaaaaaaa1"* ]]
    [ ! -s "$FORGE_HOME/runs/01aaaaaaaaaaaaaaaaaaaaaaa1/record.json" ]
    run "$FORGE" gc
    [[ "$output" == *"close as lost 01aaaaaaaaaaaaaaaaaaaaaaa1"* ]]
    [[ "$output" == *"close as lost 01aaaaaaaaaaaaaaaaaaaaaaa2"* ]]
    [[ "$output" == *"remove what never began: 01aaaaaaaaaaaaaaaaaaaaaaa3"* ]]
    run "$FORGE" gc
    [ "$output" = "nothing to repair" ]
    [ "$("$FORGE" logs 01aaaaaaaaaaaaaaaaaaaaaaa1)" = said ]
    [ "$("$FORGE" logs --stderr 01aaaaaaaaaaaaaaaaaaaaaaa2)" = complained ]
    for id in 01aaaaaaaaaaaaaaaaaaaaaaa1 01aaaaaaaaaaaaaaaaaaaaaaa2; do
        "$FORGE" show --json "$id" >"$record"
        [ "$(field .status)" = lost ]
        [ "$(field .reason)" = host_lost ]
        [[ "$(field .completion_notes)" == *"before the record of this run was on the disk"* ]]
        "$FORGE" show "$id"
        "$FORGE" outputs "$id"
    done
    # The time of the id, not of the repair.
    [[ "$(field .created_at)" < 2025-01-01T ]]
    run "$FORGE" ps -a
    [ "$(grep -c lost <<<"$output")" -eq 2 ]
    run "$FORGE" rerun 01aaaaaaaaaaaaaaaaaaaaaaa1
    [ "$status" -eq 125 ]
    url=${FORGE_STORE:-sqlite:$FORGE_HOME/forge.db}
    for check in over agree chain logs; do
        "$BATS_TEST_DIRNAME/../tools/check-store.py" "$FORGE_HOME" "$url" "$check"
    done >bad
    cat bad
    [ ! -s bad ]
    "$FORGE" rm -f 01aaaaaaaaaaaaaaaaaaaaaaa1
    [ ! -e "$FORGE_HOME/runs/01aaaaaaaaaaaaaaaaaaaaaaa1" ]
}

@test "what a store has lost that was replaced by a backup, or by nothing, is stored again" {
    [ "${FORGE_TEST_STORE:-sqlite}" = sqlite ] || skip_unless "SQLite only" false
    "$FORGE" run -q --id early -- true
    /usr/bin/python3 -c 'import sqlite3, sys; a, b = map(sqlite3.connect, sys.argv[1:]); a.backup(b); b.close()' "$FORGE_HOME/forge.db" "$T/backup.db"
    "$FORGE" run -q --id late -o out -- sh -c 'echo kept >out'
    # Of another store: it stays there.
    FORGE_STORE=sqlite:$T/other.db "$FORGE" run -q --id other -- true
    rm "$FORGE_HOME"/forge.db*
    mv "$T/backup.db" "$FORGE_HOME/forge.db"
    [ "$("$FORGE" ps -a --json | jq -r .analysis_id | xargs)" = early ]
    run "$FORGE" gc
    [ "$status" -eq 0 ]
    [ "$(grep -c "store again" <<<"$output")" -eq 1 ]
    [ "$("$FORGE" ps -a --json | jq -r .analysis_id | xargs)" = "late early" ]
    [ "$("$FORGE" outputs --cat out late)" = kept ]
    [ "$("$FORGE" gc)" = "nothing to repair" ]
    rm "$FORGE_HOME"/forge.db*
    run "$FORGE" ps
    [[ "$output" == *"the store has no run, and there are directories of runs in $FORGE_HOME"* ]]
    [[ "$output" == *"forge gc"* ]]
    "$FORGE" gc
    [ "$("$FORGE" ps -a --json | jq -r .analysis_id | xargs)" = "late early" ]
    "$BATS_TEST_DIRNAME/../tools/check-store.py" "$FORGE_HOME" "sqlite:$FORGE_HOME/forge.db" chain >bad
    [ ! -s bad ]
}

@test "a store that was moved away without its log is not replaced by an empty one" {
    [ "${FORGE_TEST_STORE:-sqlite}" = sqlite ] || skip_unless "SQLite only" false
    "$FORGE" run -q --id early -- true
    # Its courier may still empty the log.
    is_closed() { ! grep -qsF "$FORGE_HOME/forge.db-shm" /proc/[0-9]*/maps; }
    wait_for is_closed
    echo log >>"$FORGE_HOME/forge.db-wal"
    cp "$FORGE_HOME/forge.db" "$FORGE_HOME/forge.db-wal" "$T"
    mv "$FORGE_HOME/forge.db" "$T/away.db"
    run "$FORGE" ps
    [ "$status" -ne 0 ]
    [[ "$output" == *"forge.db is gone, and its log "*"forge.db-wal is not"* ]]
    [[ "$output" == *"Put the file back"* ]]
    # Runs go on, and wait for it.
    "$FORGE" run -q --id late -- true
    [ ! -e "$FORGE_HOME/forge.db" ]
    : >"$FORGE_HOME/forge.db-wal"
    mv "$T/away.db" "$FORGE_HOME/forge.db"
    "$FORGE" gc
    [ "$("$FORGE" ps -a --json | jq -r .analysis_id | xargs)" = "late early" ]
}

@test "a supervisor that is killed while it removes the workdir leaves no half of it to go on from" {
    # As the files of the run are removed: it is over, and nobody knows yet.
    for moment in 1 30; do
        run strace -qq -o /dev/null -e trace=unlinkat -e "inject=unlinkat:signal=SIGKILL:when=$moment" \
            "$FORGE" run -q --id "cut$moment" -o out -- sh -c 'echo x >out; mkdir d; for i in $(seq 60); do echo $i >d/$i; done'
        [ "$status" -eq 137 ]
        "$FORGE" gc
        id=$("$FORGE" ps -a --json --analysis "cut$moment" | jq -r .run_id)
        "$FORGE" show --json "$id" >"$record"
        [ "$(field .status)" = lost ]
        [ "$(field .workdir_kept)" = null ]
        [ ! -e "$(field .workdir)" ]
    done
}

@test "forge rm and gc say that a workdir is not kept any more before they remove it" {
    for how in "rm -f last" gc; do
        configure 'retention: {workdirs: 7d}'
        "$FORGE" run -q --keep -o none -- sh -c 'mkdir d; for i in $(seq 60); do echo $i >d/$i; done'
        id=$("$FORGE" ps -q -n 1)
        kept=$("$FORGE" show --json "$id" | jq -r 'select(.workdir_kept) | .workdir')
        [ -e "$kept/d/60" ]
        configure 'retention: {workdirs: 1ms}'
        pause 1.1 # gc counts in seconds
        # shellcheck disable=SC2086 # words
        run strace -qq -o /dev/null -e trace=unlinkat -e inject=unlinkat:signal=SIGKILL:when=30 "$FORGE" $how
        [ "$status" -eq 137 ]
        [ -e "$kept" ]
        [ "$("$FORGE" show --json "$id" | jq .workdir_kept)" = false ]
        # shellcheck disable=SC2086
        "$FORGE" $how
        [ ! -e "$kept" ]
        "$FORGE" rm -f "$id" 2>/dev/null || [ "$how" != gc ]
    done
}

# other_store: a store of the same kind that is not the one of the runs.
other_store() {
    "$FORGE" run -q --id elsewhere --store "sqlite:$T/other.db" -- true
    other=sqlite:$T/other.db
}

@test "a run that was closed from its logs by way of another store is restored from its own" {
    other_store
    "$FORGE" run -q --id kept -o out -- sh -c 'echo words; echo x >out'
    id=$("$FORGE" ps -q -n 1)
    : >"$FORGE_HOME/runs/$id/record.json"
    run "$FORGE" gc --store "$other"
    [[ "$output" == *"close as lost $id"* ]]
    [ "$(jq -r .status "$FORGE_HOME/runs/$id/record.json")" = lost ]
    run "$FORGE" gc
    [[ "$output" == *"restore the record of $id"* ]]
    jq -e '.status == "succeeded" and .is_remains == null and (.outputs | length) == 1' "$FORGE_HOME/runs/$id/record.json"
    run "$FORGE" gc
    [[ "$output" == *"nothing to repair"* ]]
    "$FORGE" outputs --cat out "$id" | grep -qx x
}

@test "a run of which only logs are left is stored again when the store has lost it" {
    [ "${FORGE_TEST_STORE:-sqlite}" = sqlite ] || skip_unless "SQLite only" false
    "$FORGE" run -q --id first -- sh -c 'echo words >&2'
    id=$("$FORGE" ps -q -n 1)
    : >"$FORGE_HOME/runs/$id/record.json"
    rm "$FORGE_HOME/runs/$id/stdout" "$FORGE_HOME"/forge.db*
    "$FORGE" gc
    [ "$("$FORGE" show --json "$id" | jq -r .status)" = lost ]
    # What it wrote is there, in one of two logs.
    [ "$("$FORGE" logs "$id" 2>&1)" = words ]
    rm "$FORGE_HOME"/forge.db*
    "$FORGE" gc
    [ "$("$FORGE" ps -a --json | jq -r .status)" = lost ]
}

@test "a run whose key another one has by now is stored again without it" {
    [ "${FORGE_TEST_STORE:-sqlite}" = sqlite ] || skip_unless "SQLite only" false
    "$FORGE" run -q --id early --idempotency-key one -- true
    rm "$FORGE_HOME"/forge.db*
    "$FORGE" run -q --id late --idempotency-key one -- true
    "$FORGE" gc
    [ "$("$FORGE" ps -a --json | jq -r .analysis_id | xargs)" = "late early" ]
    run "$FORGE" gc
    [ "$status" -eq 0 ]
    [[ "$output" == *"nothing to repair"* ]]
    # The key is still that of the later one.
    run --separate-stderr "$FORGE" submit --json --id late --idempotency-key one -- true
    [ "$(jq -r .existing <<<"$output")" = true ]
    [ "$(jq -r .run_id <<<"$output")" = "$("$FORGE" ps -q --analysis late)" ]
}

@test "a kept workdir stays until the store has that it is not kept" {
    configure 'retention: {workdirs: 7d}'
    "$FORGE" run -q --keep -o none -- sh -c 'echo x >file'
    id=$("$FORGE" ps -q -n 1)
    kept=$("$FORGE" show --json "$id" | jq -r 'select(.workdir_kept) | .workdir')
    configure 'retention: {workdirs: 1ms}'
    pause 1.1 # gc counts in seconds
    run "$FORGE" gc --store "sqlite:$T/no/such/directory.db"
    [ "$status" -ne 0 ]
    [[ "$output" == *"its workdir stays"* ]]
    [ -e "$kept/file" ]
    "$FORGE" gc
    [ ! -e "$kept" ]
    [ "$("$FORGE" show --json "$id" | jq .workdir_kept)" = false ]
}
