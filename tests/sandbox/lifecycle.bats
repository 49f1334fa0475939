#!/usr/bin/env bats
# From start to end: exec failures, signals, streams, the workdir, the record.
# SPDX-License-Identifier: Apache-2.0

load ../lib/forge.bash
setup() { setup_forge; }
teardown() {
    rm -rf "$work/scidex-analysis-kept-$$"
    teardown_forge
}

# The run has started and said so. Its directory has a name only now.
is_ready() { grep -qs ready "$FORGE_HOME"/runs/*/stdout; }
is_cancelled() { grep -qs cancelled "$FORGE_HOME"/runs/*/events.jsonl; }

# start_run OPTION...: a run that prints "ready" and ignores signals, in the background.
start_run() {
    background "$FORGE" run --json --grace 20s "$@" -- "$PROBE" stubborn 60 >"$record" 2>"$err"
    wait_for is_ready
}

@test "[15] a hostile tree is removed whole, and nothing outside is touched" {
    mkdir victim
    echo data >victim/file
    chmod 777 victim
    chmod 666 victim/file
    before=$(hash_of victim)
    OPTS=(--disk 2T -i victim -o none)
    configure 'host:' '  allow_unlimited: true'
    holds hostile "$T/victim" "$T/victim/file" / /etc /tmp
    [ ! -e "$(field .workdir)" ]
    [ "$(hash_of victim)" = "$before" ]
    grep -q workdir_removed "$(field .logs.events)"
}

@test "[15] a workdir that was made inaccessible is removed" {
    forge_run -- sh -c 'mkdir -p a/b; : >a/b/c; chmod 0 a/b a .'
    [ ! -e "$(field .workdir)" ]
    [ "$(field .cleanup_error)" = null ]
}

@test "[15] a tree of 20,000 levels is removed whole" {
    probe deep 20000
    [ ! -e "$(field .workdir)" ]
    [ "$(field .cleanup_error)" = null ]
}

@test "[15] thousands of files are removed whole, and counted" {
    forge_run -- sh -c 'i=0; while [ $i -lt 2000 ]; do : >f$i; i=$((i + 1)); done'
    [ ! -e "$(field .workdir)" ]
    grep workdir_removed "$(field .logs.events)" | grep -q '2000 files'
}

@test "[42] a command that is not there: 127, and the sentence names it" {
    forge_run -- no-such-command
    [ "$status" -eq 127 ]
    [ "$(field .status)" = failed ]
    [ "$(field .reason)" = exec ]
    [[ "$(field .completion_notes)" == *no-such-command* ]]
    forge_run -- /no/such/command
    [ "$status" -eq 127 ]
}

@test "[42] a command that is not executable: 126" {
    echo hello >plain
    forge_run -i plain -- "$T/plain"
    [ "$status" -eq 126 ]
    [ "$(field .reason)" = exec ]
    forge_run -- /usr
    [ "$status" -eq 126 ]
    printf '\177ELFgarbage' >broken
    chmod +x broken
    forge_run -- ./broken
    [ "$status" -eq 126 ]
}

@test "[42] a script whose interpreter is not there is told from one that failed" {
    printf '#!/no/such/interpreter\n' >script
    chmod +x script
    forge_run -- ./script
    [ "$status" -eq 127 ]
    [ "$(field .reason)" = exec ]
    [[ "$(field .completion_notes)" == *interpreter* ]]
    forge_run -- sh -c 'exit 127'
    [ "$status" -eq 127 ]
    [ "$(field .reason)" = exit ]
    [ "$(field .exit_code)" -eq 127 ]
    forge_run -- sh -c 'exit 126'
    [ "$(field .reason)" = exit ]
}

@test "[42] long arguments reach the command" {
    big=$(head -c 100000 /dev/zero | tr '\0' x)
    forge_run -- echo "$big"
    [ "$status" -eq 0 ]
    [ "$(stat -c %s "$out")" -eq 100001 ]
}

@test "[42] too many arguments fail as exec, not as the sandbox" {
    big=$(head -c 100000 /dev/zero | tr '\0' x)
    echo 'env:' >>"$FORGE_CONFIG"
    echo '  set:' >>"$FORGE_CONFIG"
    for i in 1 2 3 4 5 6 7 8 9; do
        echo "    BIG$i: $big" >>"$FORGE_CONFIG"
    done
    words=()
    for i in {1..16}; do
        words+=("$big")
    done
    # The kernel takes a quarter of the stack's limit: the words alone fit, with the variables they do not.
    ulimit -Ss 8192
    forge_run -- echo "${words[@]}" >/dev/null
    [ "$status" -eq 126 ]
    [ "$(field .reason)" = exec ]
    [[ "$(field .completion_notes)" == *"Argument list too long"* ]]
}

@test "[42] exit codes and signals of the command are forge's own" {
    forge_run -- sh -c 'exit 42'
    [ "$status" -eq 42 ]
    [ "$(field .status)" = failed ]
    [ "$(field .exit_code)" -eq 42 ]
    forge_run -- sh -c 'kill -SEGV $$'
    [ "$status" -eq 139 ]
    [ "$(field .reason)" = signal ]
    [ "$(field .signal)" -eq 11 ]
    forge_run -- sh -c 'kill -KILL $$'
    [ "$status" -eq 137 ]
    [ "$(field .reason)" = signal ]
}

@test "[44] SIGTERM and SIGINT cancel: asked first, recorded, exit 130" {
    for signal in TERM INT HUP; do
        rm -rf "$FORGE_HOME/runs"
        mkdir -p -m 700 "$FORGE_HOME/runs"
        # Not in the background of a shell, which would ignore SIGINT.
        background python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$FORGE" run --json --grace 20s -- "$PROBE" polite 60 >"$record"
        wait_for is_ready
        status=0
        kill "-$signal" "$pid"
        wait "$pid" || status=$?
        [ "$status" -eq 130 ]
        [ "$(field .status)" = cancelled ]
        [ "$(field .reason)" = cancelled ]
        grep -q 'ended when asked' "$(field .logs.stdout)"
    done
}

@test "[44] a second signal kills at once" {
    start_run
    start=$(now_ms) status=0
    kill -TERM "$pid"
    wait_for is_cancelled
    kill -TERM "$pid"
    wait "$pid" || status=$?
    in_time "$start" 3000
    [ "$status" -eq 130 ]
    [ "$(field .status)" = cancelled ]
    no_process_named stubborn
}

# Types ^C at a terminal of its own when a line comes on standard input; its child passes it on to forge, as many programs do.
at_a_terminal() {
    python3 -c 'import os, pty, signal, subprocess, sys
pid, fd = pty.fork()
if pid == 0:
    forge = subprocess.Popen(sys.argv[2:], stdout=open(sys.argv[1], "wb"))
    signal.signal(signal.SIGINT, lambda *_: forge.send_signal(signal.SIGINT))
    sys.exit(forge.wait())
sys.stdin.readline()
os.write(fd, b"\x03")
while True:
    try:
        if not os.read(fd, 4096):
            break
    except OSError:
        break
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))' "$@"
}

@test "^C of a terminal that the caller passes on is one request: the command keeps its grace period" {
    echo "trap 'echo asked; sleep 1; echo done; exit 3' TERM; echo ready; while :; do sleep 0.02; done" >asks
    chmod 755 . asks
    # On a busy machine the second signal may come too late: then once more.
    for attempt in 1 2 3; do
        rm -rf "$FORGE_HOME/runs"
        mkfifo "$T/press$attempt"
        at_a_terminal "$record" "$FORGE" run --json --grace 60s -i asks -- sh asks <"$T/press$attempt" &
        pid=$!
        exec 7>"$T/press$attempt"
        wait_for is_ready
        echo >&7
        status=0
        wait "$pid" || status=$?
        exec 7>&-
        if grep -qx "done" "$(field .logs.stdout)"; then
            break
        fi
    done
    [ "$status" -eq 130 ]
    cat "$(field .logs.stdout)" "$(field .logs.events)"
    grep -qx "done" "$(field .logs.stdout)"
}

@test "a second signal of another process kills at once" {
    start_run
    start=$(now_ms) status=0
    kill -TERM "$pid"
    wait_for is_cancelled
    sh -c 'kill -TERM "$1"' sh "$pid"
    wait "$pid" || status=$?
    in_time "$start" 3000
    [ "$status" -eq 130 ]
    no_process_named stubborn
}

@test "a command that runs already keeps its grace period, although the supervisor has not seen it start" {
    skip_unless "strace cannot trace here" strace -qq -o /dev/null true
    # The first look at descriptors is late: the start and the signal are both there then.
    ASAN_OPTIONS=detect_leaks=0:${ASAN_OPTIONS:-} background strace -qq -o "$T/trace" -e trace=ppoll \
        -e inject=ppoll:delay_enter=3000000:when=1 "$FORGE" run --json --id "late-$$" --grace 60s -- \
        sh -c 'trap "echo asked; exit 3" TERM; : >ready; while :; do sleep 0.02; done' >"$record" 2>"$err"
    is_there() { [ -n "$(find "$work/scidex-analysis-late-$$" -name ready 2>/dev/null)" ]; }
    wait_for is_there
    kill -TERM "$(pgrep -P "$pid")"
    status=0
    wait "$pid" || status=$?
    [ "$status" -eq 130 ]
    jq -r .event "$(field .logs.events)" | tee "$T/events"
    [ "$(grep -xE 'started|cancelled' "$T/events" | head -1)" = started ]
    [ "$(cat "$(field .logs.stdout)")" = asked ]
}

@test "--until-closed: the run is cancelled when the reader of its record is gone" {
    mkfifo "$T/record"
    echo "trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.02; done" >asks
    chmod 755 . asks
    # shellcheck disable=SC2016 # for the inner shell; opening a fifo waits for its other end
    background sh -c 'exec "$FORGE" run --json --until-closed --grace 60s -i asks -- sh asks >"$1"' sh "$T/record"
    exec 7<"$T/record"
    wait_for is_ready
    exec 7<&-
    status=0
    wait "$pid" || status=$?
    # The record cannot be printed.
    [ "$status" -eq 123 ]
    "$FORGE" show --json last >"$T/shown"
    head -c 2000 "$(jq -r .logs.events "$T/shown")"
    [ "$(jq -r .status "$T/shown")" = cancelled ]
    grep -q asked "$(jq -r .logs.stdout "$T/shown")"
}

@test "--until-closed: a reader that stays gets the record, however long it is" {
    "$FORGE" run --json --until-closed -- sh -c 'for i in $(seq 400); do echo 1 >file-with-a-long-name-$i; done' | jq . >"$T/whole"
    [ "$(jq '.outputs | length' "$T/whole")" -eq 400 ]
    [ "$(jq -r .status "$T/whole")" = succeeded ]
}

@test "--until-closed: a reader that reads something is there" {
    # Another program writes into the same pipe, and so does forge when the run waits.
    (
        (sleep 0.3; echo hi) &
        "$FORGE" run --json --until-closed -- sleep 1
        wait
    ) | grep -v '^hi$' | jq -s '.[0]' >"$T/whole"
    [ "$(jq -r .status "$T/whole")" = succeeded ]
}

@test "--until-closed: two runs of one pipe are both cancelled with its reader" {
    mkfifo "$T/both"
    # shellcheck disable=SC2016 # for the inner shell
    background sh -c 'exec >"$1"; "$FORGE" run --json --until-closed --grace 1s -- sleep 60 & "$FORGE" run --json --until-closed --grace 1s -- sleep 60; wait' sh "$T/both"
    exec 7<"$T/both"
    both_run() { [ "$("$FORGE" ps --json --status running | wc -l)" -eq 2 ]; }
    wait_for both_run
    exec 7<&-
    wait "$pid" || true
    [ "$("$FORGE" ps --json --status cancelled | wc -l)" -eq 2 ]
}

@test "--until-closed: needs --json, and a pipe with a reader" {
    run "$FORGE" run --until-closed -- true
    [ "$status" -eq 125 ]
    [[ "$output" == *"--until-closed goes with --json only"* ]]
    "$FORGE" run --json --until-closed -- true >"$T/file" 2>"$T/said" || status=$?
    grep -q "standard output is no pipe" "$T/said"
    [ ! -s "$T/file" ]
}

@test "[41] when the supervisor is killed everything dies, and the next command cleans up" {
    start_run --id "kept-$$"
    kill -KILL "$pid"
    wait "$pid" || true
    started=()
    wait_for sh -c '! pgrep -f "[s]tubborn 60"'
    run "$FORGE" gc
    [ "$status" -eq 0 ]
    [ ! -e "$work/scidex-analysis-kept-$$" ]
    [ "$(field .status "$(echo "$FORGE_HOME"/runs/*/record.json)")" = lost ]
}

@test "standard input is empty unless asked for" {
    run --separate-stderr sh -c 'echo words | "$FORGE" run "$1" stdin' sh "$PROBE"
    [[ "$output" == "held: end of file" ]]
    run --separate-stderr sh -c 'echo words | "$FORGE" run --stdin cat'
    [ "$output" = words ]
}

@test "--stdin carries large input whole, and its end" {
    head -c 3000000 /dev/urandom >big
    run --separate-stderr sh -c '"$FORGE" run --stdin cat <big | cmp - big'
    [ "$status" -eq 0 ]
    run --separate-stderr sh -c '"$FORGE" run --stdin true <big'
    [ "$status" -eq 0 ]
    run --separate-stderr sh -c '"$FORGE" run --stdin wc -c </dev/null'
    [ "$output" = 0 ]
}

@test "closed standard streams of the caller do no harm" {
    "$FORGE" run -q true <&-
    "$FORGE" run true >&-
    "$FORGE" run true 2>&-
    "$FORGE" run -q "$PROBE" fds <&- >&- 2>&-
}

@test "a reader that goes away does not stop the run" {
    run bash -c '"$FORGE" run --output-limit 8M "$1" flood 1 4000000 2>/dev/null | head -c 10 >/dev/null
        echo ${PIPESTATUS[0]}' bash "$PROBE"
    [ "$output" = 0 ]
}

@test "output is shown live and in order" {
    run --separate-stderr "$FORGE" run sh -c 'echo out; echo err >&2'
    [ "$output" = out ]
    [ "${stderr_lines[0]}" = err ]
    [[ "${stderr_lines[1]}" == "forge: Succeeded"* ]]
    run --separate-stderr "$FORGE" run -q sh -c 'echo out; echo err >&2'
    [ -z "$output$stderr" ]
}

@test "the workdir is 0700, and is gone afterwards" {
    forge_run -- stat -c '%a %n' .
    [ "$(cat "$out")" = "700 ." ]
    [ ! -e "$(field .workdir)" ]
}

@test "--keep keeps the workdir, and it belongs to the caller" {
    forge_run --keep --id "kept-$$" -- sh -c 'mkdir a; echo x >a/b; ln -s /etc/passwd link; chmod 0 a'
    [ "$status" -eq 0 ]
    w=$work/scidex-analysis-kept-$$
    [ "$(field .workdir)" = "$w" ]
    [ "$(stat -c %u "$w" "$w/a" "$w/link" | sort -u)" = "$(id -u)" ]
    [ "$(stat -c %U /etc/passwd)" = "$([ "$mode" = nested ] && stat -c %U /etc/passwd || echo root)" ]
    chmod 700 "$w/a"
    [ "$(cat "$w/a/b")" = x ]
    [ "$(stat -c %u "$w/a/b")" = "$(id -u)" ]
}

@test "a workdir that exists is left as it is, and another one used" {
    mkdir -m 700 "$work/scidex-analysis-kept-$$"
    touch "$work/scidex-analysis-kept-$$/mine"
    run "$FORGE" run --id "kept-$$" -- true
    [ "$status" -eq 0 ]
    [ "$(ls "$work/scidex-analysis-kept-$$")" = mine ]
    rm -r "$work/scidex-analysis-kept-$$"
    mkdir "$T/victim"
    ln -s "$T/victim" "$work/scidex-analysis-kept-$$"
    run "$FORGE" run --id "kept-$$" -- touch planted
    [ "$status" -eq 0 ]
    [ -z "$(ls "$T/victim")" ]
}

@test "--dry-run prints the plan and makes nothing" {
    rm -rf "$FORGE_HOME"
    before=$(ls -a "$T")
    run "$FORGE" run --dry-run --id "dry-$$" -i "$PROBE" -- true
    [ "$status" -eq 0 ]
    [ "$(field '.mounts | length > 10' /dev/stdin <<<"$output")" = true ]
    [ "$(ls -a "$T")" = "$before" ]
    [ ! -e "$work/scidex-analysis-dry-$$" ]
}

@test "an input by a relative path is found under it" {
    mkdir -p data/deep
    echo 1 >data/deep/x.csv
    echo 'print(open("data/deep/x.csv").read())' >fit.py
    run --separate-stderr "$FORGE" run -i data -- cat data/deep/x.csv
    [ "$output" = 1 ]
    run --separate-stderr "$FORGE" run -i data fit.py
    [ "$output" = 1 ]
    run --separate-stderr "$FORGE" run -i ./data/../data/deep/x.csv cat "$T/data/deep/x.csv"
    [ "$output" = 1 ]
}

@test "the record has every field of its contract" {
    OPTS=(--memory 64M --pids 7 --timeout 9s --id "rec-$$" -i "$PROBE")
    forge_run -- sh -c 'echo out; echo err >&2'
    for key in run_id analysis_id status reason completion_notes command executor host user \
        created_at started_at ended_at limits usage isolation inputs logs workdir forge_version; do
        [ "$(field ".$key")" != null ] || { echo "no $key"; false; }
    done
    [ "$(field .analysis_id)" = "rec-$$" ]
    [ "$(field .limits.memory_bytes)" -eq 67108864 ]
    [ "$(field .limits.pids)" -eq 7 ]
    [ "$(field .limits.wall_seconds)" = 9 ] || [ "$(field .limits.wall_seconds)" = 9.0 ]
    [ "$(field .usage.stdout_bytes)" -eq 4 ]
    [ "$(field .usage.stderr_bytes)" -eq 4 ]
    [ "$(cat "$(field .logs.stderr)")" = err ]
    [ "$(field .exit_code)" -eq 0 ]
    [ "$(field .signal)" = null ]
    [ "$(field '.isolation.missing | length')" -eq 0 ]
    cmp "$record" "$(dirname "$out")/record.json" ||
        [ "$(field .run_id)" = "$(field .run_id "$(dirname "$out")/record.json")" ]
    [ "$(stat -c %a "$(dirname "$out")" "$out" | tr '\n' ' ')" = "700 600 " ]
}

@test "runs at the same time do not share anything" {
    pids=()
    for i in 1 2 3 4 5 6; do
        "$FORGE" run -q --pids 10 -- sh -c "echo $i >mine; sleep 0.2; [ \"\$(cat mine)\" = $i ]" 3>&- &
        pids+=($!)
    done
    for p in "${pids[@]}"; do wait "$p"; done
    [ "$(ls "$FORGE_HOME/runs" | wc -l)" -ge 6 ]
}

@test "a record that cannot be printed: 123, whatever the status, and where it is" {
    skip_unless "no /dev/full here" test -c /dev/full
    for code in 0 7; do
        rm -rf "$FORGE_HOME"
        run --separate-stderr sh -c '"$FORGE" run --json sh -c "exit $1" >/dev/full' sh $code
        echo "$stderr"
        [ "$status" -eq 123 ]
        [ "${#stderr_lines[@]}" -eq 2 ]
        [[ "${stderr_lines[0]}" == "forge: the run is over, but its record cannot be printed: No space left"* ]]
        record=${stderr_lines[1]#*is in }
        [ "$(field .exit_code)" -eq $code ]
    done
    # The reader is gone before the run begins.
    run --separate-stderr bash -c 'exec {gone}> >(:); wait $!; "$FORGE" run --json true >&"$gone"'
    [ "$status" -eq 123 ]
    [[ "$stderr" == *"cannot be printed: Broken pipe"* ]]
}

@test "a state directory that cannot be used is said once" {
    mkdir -m 777 "$T/open"
    for home in "$T/open" "$FORGE_CONFIG" relative; do
        run env FORGE_HOME="$home" "$FORGE" run true
        echo "$output"
        [ "$status" -eq 125 ]
        [ "$(grep -c '^forge: ' <<<"$output")" -eq 1 ]
        run env FORGE_HOME="$home" "$FORGE" gc
        [ "$status" -eq 1 ]
        [ "$(grep -c '^forge: ' <<<"$output")" -eq 1 ]
    done
}

@test "a configured root that is not there stops the run, and is named" {
    mkdir data
    configure 'read_only: [data]'
    forge_run -- ls -d "$T/data"
    [ "$status" -eq 0 ]
    configure 'read_only: [data, docs]'
    run "$FORGE" run -- true
    echo "$output"
    [ "$status" -eq 125 ]
    [[ "${lines[0]}" == "forge: read_only: $T/docs: No such file or directory" ]]
    [[ "${lines[1]}" == *"$FORGE_CONFIG" ]]
}
