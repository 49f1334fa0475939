#!/usr/bin/env bats
# What a review of the sandbox broke once: each must hold for good.
# SPDX-License-Identifier: Apache-2.0

load ../lib/forge.bash
setup() {
    setup_forge
    OPTS=(--memory 64M --timeout 10s --grace 300ms)
}
teardown() {
    rm -rf "$work/scidex-analysis-kept-$$"
    teardown_forge
}

is_ready() { grep -qs ready "$FORGE_HOME"/runs/*/stdout; }
# has_ended PID: gone, or waiting for its parent to ask.
has_ended() { [ ! -e "/proc/$1" ] || grep -qs '^State:.Z' "/proc/$1/status"; }
# The record of the only run, where forge did not print it.
find_record() { record=$(echo "$FORGE_HOME"/runs/*/record.json); }

# start_run OPTION... -- COMMAND...: in the background; its command says "ready".
start_run() {
    background "$FORGE" run --json "$@" >"$record" 2>"$err"
    wait_for is_ready
}

# end_run: waits for $pid, not for ever; $status is what it ended with.
end_run() {
    wait_for has_ended "$pid" || { echo "still there: $(grep State: "/proc/$pid/status")"; return 1; }
    status=0
    wait "$pid" || status=$?
}

# payload PID: the process that init of the supervisor PID started.
payload() {
    local child
    for child in $(pgrep -P "$1"); do
        case $(cat "/proc/$child/comm") in
        forge-courier | forge-hasher) ;;
        *) pgrep -P "$child" | head -n 1 ;;
        esac
    done
}

@test "setuid and setgid files cannot be made" {
    holds suid
    breaks suid
}

@test "a command that asks to be traced ends with its own exit code" {
    OPTS=(--timeout 3s)
    probe traceme 7
    [ "$answer" = "held: still there" ]
    [ "$status" -eq 7 ]
    [ "$(field .exit_code)" -eq 7 ]
    [ "$(field .reason)" = exit ]
}

@test "a run has at most 64 inotify instances, and the host still has its own" {
    breaks inotify 0
    holds inotify 64
    background "$FORGE" run -q --timeout 10s -- "$PROBE" inotify 64 10
    wait_for grep -qs '^held' "$FORGE_HOME"/runs/*/stdout
    breaks inotify 0
    kill -TERM "$pid"
    wait "$pid" || true
}

@test "output in packets is cut at the limit, to the byte" {
    status=0
    "$FORGE" run --output-limit 1K --timeout 4s -- "$PROBE" packet >live 2>"$err" </dev/null || status=$?
    find_record
    verdict killed output 137
    [ "$(stat -c %s "$(field .logs.stdout)")" -eq 1024 ]
    [ "$(stat -c %s live)" -eq 1024 ]
}

# fills NAME LIMIT CEILING, all MiB: killed for the disk before four times the limit.
fills() {
    OPTS=(--memory 256M --timeout 20s --disk "$2M")
    probe "$1" "$3"
    verdict killed disk 137
    [ -z "$answer" ]
    most=$(grep -a '^at ' "$out" | tail -n 1 | cut -d' ' -f2)
    echo "$most MiB were written"
    [ "$most" -lt $((4 * $2)) ]
}

@test "the disk limit: deleted files of a process whose first thread has ended" {
    fills fill-leader 16 80
}

@test "the disk limit: deleted files of a thread with descriptors of its own" {
    fills fill-unshared 16 80
}

@test "the disk limit: deleted files behind a crowd of small ones" {
    fills fill-crowd 16 80
}

@test "the disk limit: a directory that moves away from the scanner" {
    fills fill-dodge 64 300
}

# flood_pipe: a live run whose two streams go into one pipe that is read for 4 KiB only.
flood_pipe() {
    mkfifo pipe
    background sh -c 'exec 5<pipe; head -c 4096 <&5 >/dev/null; : >stopped; exec sleep 60'
    start=$(now_ms)
    background "$FORGE" run --timeout 1s --grace 500ms -- sh -c 'yes & yes >&2 & wait' >pipe 2>&1
}

# flood_terminal: the same on a terminal that nobody reads; the file "pid" has forge's pid.
flood_terminal() {
    start=$(now_ms)
    background python3 -c 'import os, pty, signal, sys
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
open("pid", "w").write(str(pid))
# Whoever ends us ends forge.
signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGKILL))
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
sys.exit(code if code >= 0 else 1)' "$FORGE" run --timeout 1s --grace 500ms -- sh -c 'yes & yes >&2 & wait'
}

has_record() { compgen -G "$FORGE_HOME/runs/*/record.json"; }

# was_in_time: the run ended on time, with its verdict, and left nothing.
was_in_time() {
    wait_for has_record
    in_time "$start" 4000
    find_record
    [ "$(field .status)" = killed ]
    [ "$(field .reason)" = wall_time ]
    [ ! -e "$(field .workdir)" ]
}

@test "a reader who stops reading cannot stop the time limit" {
    flood_pipe
    was_in_time
    [ -e stopped ]
}

@test "a reader who stops reading cannot keep forge from ending" {
    flood_pipe
    end_run
    in_time "$start" 4000
    [ "$status" -eq 124 ]
}

@test "a terminal that nobody reads cannot stop the time limit" {
    flood_terminal
    was_in_time
}

@test "a terminal that nobody reads cannot keep forge from ending" {
    flood_terminal
    end_run
    in_time "$start" 4000
    [ "$status" -eq 124 ]
}

@test "a stopped supervisor does not give its run more time" {
    start_run --timeout 1s --grace 500ms -- "$PROBE" stubborn 60
    inside=$(payload "$pid")
    [ -n "$inside" ]
    kill -STOP "$pid"
    start=$(now_ms)
    wait_for has_ended "$inside" || wait_for has_ended "$inside"
    # Timeout, grace and three seconds.
    in_time "$start" 4500
    kill -CONT "$pid"
    end_run
    verdict killed wall_time 124
}

@test "the terminal's stop key does not stop the supervisor" {
    # With a group of its own, whose parent could wake it up: else nothing would be stopped.
    background python3 -c 'import os, signal, sys
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    os.execv(sys.argv[1], sys.argv[1:])
open("pid", "w").write(str(pid))
signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGKILL))
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
sys.exit(code if code >= 0 else 1)' "$FORGE" run --json --timeout 1s --grace 100ms -- "$PROBE" stubborn 60 >"$record"
    wait_for is_ready
    wait_for test -s pid
    kill -TSTP "$(<pid)"
    end_run
    verdict killed wall_time 124
}

@test "a hangup that was ignored stays ignored" {
    background sh -c 'trap "" HUP; exec "$@"' sh "$FORGE" run --json \
        -- sh -c 'echo ready; sleep 1; echo done' >"$record" 2>"$err"
    wait_for is_ready
    kill -HUP "$pid"
    end_run
    [ "$status" -eq 0 ]
    [ "$(field .status)" = succeeded ]
    grep -q "done" "$(field .logs.stdout)"
}

@test "the caller's limit on file sizes does not kill the supervisor" {
    status=0
    (ulimit -f 8 && exec "$FORGE" run --json --timeout 5s -- "$PROBE" flood 1 100000) \
        >"$record" 2>"$err" </dev/null || status=$?
    cat "$record" "$err"
    echo "status $status"
    [ "$status" -ne 153 ]
    [ "$(field .status)" != null ]
}

# is_refused COMMAND...: forge says why it does nothing.
is_refused() {
    run "$@"
    echo "$output"
    [ "$status" -eq 125 ]
}

@test "a state directory whose parts are links is refused, and what is behind them is left alone" {
    mkdir -p -m 700 victim home/runs home/active
    echo '{"run_id": "x"}' >victim/0
    before=$(hash_of victim)
    for part in runs active; do
        rmdir "home/$part"
        ln -s "$T/victim" "home/$part"
        is_refused "$FORGE" run -q true
        run "$FORGE" gc
        echo "$output"
        [ "$status" -ne 0 ]
        [ "$(hash_of victim)" = "$before" ]
        rm "home/$part"
        mkdir -m 700 "home/$part"
    done
    "$FORGE" run -q true
}

@test "a state directory that others can write is refused" {
    mkdir -p -m 700 home
    chmod 777 home
    is_refused "$FORGE" run -q true
    [ -z "$(ls home)" ]
    chmod 700 home
}

@test "a state directory of somebody else is refused" {
    skip_unless "only root can do this" is_root
    mkdir -p -m 700 home/active
    echo '{"run_id": "x"}' >home/active/0
    chown -R 12345 home
    before=$(hash_of home)
    is_refused "$FORGE" run -q true
    run "$FORGE" gc
    [ "$status" -ne 0 ]
    [ "$(hash_of home)" = "$before" ]
    rm home/active/0
}

@test "gc touches nothing but slots in active" {
    "$FORGE" run -q true
    echo '{"run_id": "x"}' >home/active/notes
    echo '{"run_id": "x"}' >home/active/0.old
    before=$(hash_of home/active)
    "$FORGE" gc
    "$FORGE" run -q true
    [ "$(hash_of home/active/notes home/active/0.old)" = "$(grep -F -e notes -e 0.old <<<"$before")" ]
    rm home/active/notes home/active/0.old
}

@test "a configuration that somebody else left in the directory is refused" {
    skip_unless "only root can do this" is_root
    unset FORGE_CONFIG
    "$FORGE" run -q true
    chown 12345 forge.yaml
    is_refused "$FORGE" run -q true
    [[ "$output" == *"belongs to user 12345"* ]]
    # Nor does an ordinary user take it, who may not be able to reach the program by its path.
    exec 9<"$FORGE"
    run setpriv --reuid 12346 --regid 12346 --clear-groups env HOME=/ /proc/self/fd/9 run --dry-run true
    exec 9<&-
    echo "$output"
    [ "$status" -ne 0 ]
    [[ "$output" == *"belongs to user 12345"* ]]
}

@test "runs of two state directories have two users" {
    skip_unless "only root can do this" is_root
    start_run --timeout 10s -- "$PROBE" stubborn 60
    first=$(stat -c %u "/proc/$(payload "$pid")")
    export FORGE_HOME=$T/other record=$T/other.json
    holds host-uid
    [ "$answer" != "held: we are uid $first outside" ]
    export FORGE_HOME=$T/home
    kill -TERM "$pid"
    kill -TERM "$pid"
    wait "$pid" || true
}

@test "the state directory cannot be given to a run, however it is spelled" {
    "$FORGE" run -q true
    ln -s "$T" link
    for FORGE_HOME in "$T/home" "$T/home/" "$T/home//" "$T/link/home" "$T/link/home/"; do
        for input in "$T/home" "$T/home/" "$T/home/runs" "$T/link/home/active" "$T"; do
            is_refused "$FORGE" run -q -i "$input" -- true
            [[ "$output" == *"own records"* ]]
        done
    done
    FORGE_HOME=$T/home
}

@test "a run with over a megabyte of arguments is cleaned up after its supervisor was killed" {
    args=()
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do args+=("$(head -c 100000 /dev/zero | tr '\0' x)"); done
    start_run --id "kept-$$" -- "$PROBE" stubborn 60 "${args[@]}"
    inside=$(payload "$pid")
    [ -d "$work/scidex-analysis-kept-$$" ]
    kill -KILL "$pid"
    wait "$pid" || true
    started=()
    wait_for has_ended "$inside"
    "$FORGE" gc
    [ ! -e "$work/scidex-analysis-kept-$$" ]
}

# with_environment COMMAND...: over 4 MiB of it, for which the stack must be large.
with_environment() {
    python3 -c 'import os, resource, sys
hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
resource.setrlimit(resource.RLIMIT_STACK, (hard if hard >= 0 and hard < 1 << 28 else 1 << 28, hard))
for i in range(45):
    os.environ["LARGE_%d" % i] = "x" * 100000
os.execvp(sys.argv[1], sys.argv[1:])' "$@"
}

@test "init does not show forge's command line when the environment is large" {
    skip_unless "the system allows no large environment" with_environment true
    with_environment "$FORGE" run --json --id "secret-id-$$" -- \
        "$PROBE" cmdline "secret-id-$$" --json LARGE_ >"$record" 2>"$err"
    cat "$(field .logs.stdout)"
    grep -q '^held' "$(field .logs.stdout)"
}

@test "huge pages are refused" {
    holds hugepages
    breaks hugepages
}

@test "datagrams that nobody reads are limited" {
    OPTS=(--memory 64M --timeout 10s --open-files 1000)
    breaks sockets 40
    probe sockets 40
    # Where they count as the run's memory, the run ends.
    [[ "$answer" == held:* ]] || verdict killed memory 137
}

# CPU time of a process so far, in ticks.
ticks_of() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }

@test "the supervisor has little to do however many descriptors a run holds" {
    start_run --disk 16M --pids 50 --open-files 1000 --timeout 20s -- "$PROBE" descriptors 20 500 10
    before=$(ticks_of "$pid")
    pause 3
    used=$(($(ticks_of "$pid") - before))
    echo "$used ticks of $((3 * $(getconf CLK_TCK)))"
    [ $((used * 4)) -lt $((3 * $(getconf CLK_TCK))) ]
    kill -TERM "$pid"
    wait "$pid" || true
}

@test "what others write to the file system is not charged to a run that is hard to look through" {
    start_run --disk 16M --pids 50 --open-files 1000 --timeout 20s -- "$PROBE" descriptors 20 500 10
    head -c 100M /dev/zero >"$work/other"
    sync "$work/other"
    pause 3 # several looks at the disk
    kill -0 "$pid"
    rm "$work/other"
    kill -TERM "$pid"
    wait "$pid" || true
    [ "$(field .status)" = cancelled ]
}

@test "however few descriptors forge has, nothing is left behind" {
    # A place of their own: what is refused early leaves no record to look for workdirs by.
    mkdir -m 700 "$T/few"
    configure "workdir: $T/few/{id}"
    for n in $(seq 5 60); do
        (ulimit -n "$n" && exec "$FORGE" run -q true) >/dev/null 2>&1 || true
    done
    "$FORGE" gc >/dev/null
    [ -z "$(ls "$T/few")" ]
}
