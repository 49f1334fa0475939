#!/usr/bin/env bats
# Older kernels: nosys makes system calls answer ENOSYS. Either forge has another way and
# promises the same, or it refuses and says what is missing.

setup() {
    : "${FORGE:?set FORGE to the program under test}"
    : "${NOSYS:?set NOSYS to the shim}"
    export FORGE_HOME=$BATS_TEST_TMPDIR/home FORGE_CONFIG=$BATS_TEST_TMPDIR/forge.yaml
    mkdir -m 700 "$FORGE_HOME"
    printf 'version: 1\n' >"$FORGE_CONFIG"
    cd "$BATS_TEST_TMPDIR"
}

# Runs forge with --json without the named calls up to "--"; the record is $record.
record_without() {
    local calls=()
    while [ "$1" != -- ]; do
        calls+=("$1")
        shift
    done
    shift
    run "$NOSYS" "${calls[@]}" -- sh -c '"$FORGE" run --json "$@" 2>"$0"' stderr "$@"
    record=$output
}

field() { jq -r "$1" <<<"$record"; }

@test "the shim works: openat2 is not there" {
    command -v python3 >/dev/null || skip "no python3 to make the call with"
    call='import ctypes, os
c = ctypes.CDLL(None, use_errno=True)
how = (ctypes.c_uint64 * 3)()
print(c.syscall(437, -100, b"/", how, 24) >= 0, ctypes.get_errno())'
    run /usr/bin/python3 -c "$call"
    [ "$output" = "True 0" ]
    run "$NOSYS" openat2 -- /usr/bin/python3 -c "$call"
    [ "$output" = "False 38" ]
}

@test "the shim refuses a call that does not exist" {
    run "$NOSYS" no_such_call -- true
    [ "$status" -eq 99 ]
}

@test "without openat2 a run succeeds, fully isolated" {
    mkdir in
    echo data >in/file
    record_without openat2 -- -i in -- cat in/file
    [ "$status" -eq 0 ]
    [ "$(field .status)" = succeeded ]
    [ "$(field .isolation.level)" = full ]
    [ "$(cat "$(field .logs.stdout)")" = data ]
}

@test "without openat2 a link in an input still leads nowhere" {
    mkdir in
    ln -s /etc/shadow in/link
    ln -s ../../../../../../etc/shadow in/dots
    record_without openat2 -- -i in -- cat in/link in/dots
    [ "$(field .status)" = failed ]
    [ ! -s "$(field .logs.stdout)" ]
}

@test "without clone3 a run succeeds, fully isolated" {
    record_without clone3 -- sh -c 'echo $$'
    [ "$status" -eq 0 ]
    [ "$(field .isolation.level)" = full ]
}

@test "where a filter refuses to change namespaces, a run gets its network by the call that makes it" {
    for call in setns=EPERM setns unshare=EPERM:40000000; do
        record_without "$call" -- sh -c 'cat /proc/net/dev; readlink /proc/self/ns/net'
        [ "$status" -eq 0 ]
        [ "$(field .isolation.level)" = full ]
        [ "$(grep -c : "$(field .logs.stdout)")" -eq 2 ]
        stdout=$(field .logs.stdout)
        run grep -F "$(readlink /proc/self/ns/net)" "$stdout"
        [ "$status" -eq 1 ]
    done
}

@test "without clone3 the memory limit holds" {
    record_without clone3 -- --memory 48M -- tail /dev/zero
    [ "$status" -eq 137 ]
    [ "$(field .reason)" = memory ]
}

@test "without clone3 the process limit holds" {
    record_without clone3 -- --pids 10 -- sh -c \
        'i=0; while [ $i -lt 40 ]; do sleep 5 & i=$((i + 1)); done; exit 3'
    [ "$(field .reason)" = pids ]
    [ "$(field .usage.pids_peak)" -le 10 ]
}

@test "without clone3 the CPU time limit holds and nothing is left running" {
    record_without clone3 -- --cpu-time 300ms --grace 100ms -- sh -c \
        'sleep 61.5 & while :; do :; done'
    [ "$status" -eq 124 ]
    [ "$(field .reason)" = cpu_time ]
    run pgrep -f 'sleep 61\.5'
    [ "$status" -eq 1 ]
}

# succeeded_or_names WORD: what the last run has done; a refusal says what is missing.
succeeded_or_names() {
    [ "$status" -ne 0 ] || return 0
    [ "$status" -eq 125 ]
    grep -q "$1" <<<"$record$(cat stderr)"
}

@test "without pidfd_open a run succeeds or is refused by name" {
    record_without pidfd_open -- true
    succeeded_or_names pidfd
}

@test "without close_range no descriptor is handed in" {
    record_without close_range -- ls /proc/self/fd
    succeeded_or_names close_range
    [ "$status" -eq 125 ] || [ "$(grep -cx '[0-3]' "$(field .logs.stdout)")" -eq "$(wc -l <"$(field .logs.stdout)")" ]
}

@test "without the new mount calls the run is refused by name" {
    for call in open_tree mount_setattr move_mount; do
        record_without "$call" -- true
        [ "$status" -eq 125 ]
        grep -Eq "open_tree|mount_setattr|move_mount|mount" <<<"$record$(cat stderr)"
    done
}

@test "without Landlock the run is refused and Landlock is named" {
    record_without landlock_create_ruleset -- true
    [ "$status" -eq 125 ]
    grep -qi landlock <<<"$record$(cat stderr)"
}

@test "without Landlock, by leave of the configuration, it runs and the record says so" {
    printf 'sandbox:\n  allow_missing: [landlock]\n' >"$FORGE_CONFIG"
    record_without landlock_create_ruleset -- true
    [ "$status" -eq 0 ]
    [ "$(field '.isolation.missing | sort | join(" ")')" = "landlock" ]
    [ "$(field .isolation.level)" = partial ]
    [ "$(field .isolation.mechanisms.landlock)" = none ]
}

@test "without Landlock init can still not be read" {
    printf 'sandbox:\n  allow_missing: [landlock]\n' >"$FORGE_CONFIG"
    # Landlock alone would forbid it too; this is what is there without.
    record_without landlock_create_ruleset -- sh -c \
        'cat /proc/1/environ || cat /proc/1/maps || ls /proc/1/fd/ || readlink /proc/1/root || echo safe'
    [ "$(field .isolation.mechanisms.landlock)" = none ]
    [ "$(cat "$(field .logs.stdout)")" = safe ]
}

@test "with Landlock there, that leave changes nothing" {
    printf 'sandbox:\n  allow_missing: [landlock]\n' >"$FORGE_CONFIG"
    record_without ptrace -- true
    [ "$(field .isolation.level)" = full ]
}

@test "a refused run leaves no workdir, no cgroup and nothing active" {
    printf 'workdir: %s/work-{run_id}\n' "$BATS_TEST_TMPDIR" >"$FORGE_CONFIG"
    record_without landlock_create_ruleset -- true
    [ "$status" -eq 125 ]
    [ -z "$(ls -d "$BATS_TEST_TMPDIR"/work-* 2>/dev/null)" ]
    [ -z "$(find "$FORGE_HOME/active" -type f -size +0)" ]
    for id in "$FORGE_HOME"/runs/*; do
        [ -e "$id" ] || continue
        id=${id##*/}
        [ -z "$(find /sys/fs/cgroup -name "forge-$id")" ]
    done
}

# stepped OPTION...: a run under a clock that jumps by hours at every look. The record is $record.
stepped() {
    run sh -c 'LD_PRELOAD=$0 "$FORGE" run --json "$@"' "$STEP_CLOCK" "$@"
    record=$output
}

@test "[35] the shim works: forge reads a clock that jumps" {
    : "${STEP_CLOCK:?set STEP_CLOCK to the library}"
    # What is printed of the time of day is an hour or two off; nothing else may be.
    stepped true
    [ "$status" -eq 0 ]
    off=$(($(date +%s) - $(date -d "$(field .created_at)" +%s)))
    [ "${off#-}" -gt 3000 ]
}

@test "[35] a step of the clock neither ends a run nor makes it longer" {
    : "${STEP_CLOCK:?set STEP_CLOCK to the library}"
    stepped --timeout 5s -- sleep 0.3
    [ "$status" -eq 0 ]
    awk -v t="$(field .usage.wall_seconds)" 'BEGIN { exit !(t >= 0.3 && t < 2) }'
    stepped --timeout 300ms --grace 100ms -- sh -c 'trap "" TERM; while :; do sleep 60; done'
    [ "$status" -eq 124 ]
    [ "$(field .reason)" = wall_time ]
    awk -v t="$(field .usage.wall_seconds)" 'BEGIN { exit !(t >= 0.3 && t < 1) }'
}

@test "while the kernel hangs in the start, a signal ends forge at once" {
    "$NOSYS" seccomp=HANG:1 -- "$FORGE" run --json -- true >record 2>err 3>&- &
    pid=$!
    wait_for has_hung
    start=$SECONDS
    kill -TERM "$pid"
    status=0
    wait "$pid" || status=$?
    [ "$status" -eq 130 ]
    [ "$((SECONDS - start))" -le 8 ]
    [ "$(jq -r .status record)" = cancelled ]
}

# The run has a slot, and some process waits for an answer of the listener that never comes.
has_hung() { grep -lqs seccomp_do_user_notification /proc/[0-9]*/wchan; }
wait_for() {
    local deadline=$((SECONDS + 5))
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        read -rt 0.02 <> <(:) || true
    done
}

@test "a start that hangs in the kernel is given up after 30 s" {
    start=$SECONDS
    run "$NOSYS" seccomp=HANG:1 -- sh -c '"$FORGE" run --json -- true 2>err >record'
    [ "$status" -eq 125 ]
    [ "$((SECONDS - start))" -ge 29 ]
    [ "$((SECONDS - start))" -le 45 ]
    [ "$(jq -r .reason record)" = sandbox ]
    [[ "$(jq -r .completion_notes record)" == *"could not be built in 30 s"* ]]
}

@test "where seccomp(2) is refused the filter is set by prctl, and nobody counts: no datagrams" {
    record_without seccomp=EPERM -- -- python3 -c '
import socket
socket.create_server(("127.0.0.1", 0))
try:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
except OSError as e:
    print(e.errno)'
    [ "$status" -eq 0 ]
    [ "$(field .isolation.level)" = full ]
    [ "$(cat "$(field .logs.stdout)")" = 93 ]
}

@test "a host whose memory for filters stays used up is named with its sysctl" {
    start=$SECONDS
    record_without seccomp=ENOMEM -- -- true
    [ "$status" -eq 125 ]
    # It was waited for first, for 2 s.
    [ "$((SECONDS - start))" -ge 2 ]
    [[ "$(field .completion_notes)" == *"net.core.bpf_jit_limit"* ]]
}
