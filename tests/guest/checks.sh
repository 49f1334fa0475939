# checks.sh: what the guests check of a cgroup manager, to be sourced after tap.sh. Each check
# takes the words that start forge in the right place (a function or command), runs $FORGE
# behind them as $who in $home, and leaves the record in $home/record.
# shellcheck shell=sh disable=SC2154 # who and home are the caller's
# SPDX-License-Identifier: Apache-2.0

# record START... -- OPTION...: runs forge with --json; the exit status is left in $status.
record() {
    start=
    while [ "$1" != -- ]; do
        start="$start $1"
        shift
    done
    shift
    # shellcheck disable=SC2086 # words
    $start "$FORGE" run --json "$@" >"$home/record" 2>"$home/stderr"
    status=$?
    return 0
}

# field FILTER: of the last record; what went wrong where there is none.
field() { jq -r "$1" "$home/record" 2>/dev/null || head -c 300 "$home/stderr"; }

verdict_is() {
    is "$who: $1" "$status $(field '.status + " " + .reason')" "$2" || {
        note "$(field .completion_notes)"
        note "$(head -c 500 "$home/stderr")"
    }
}

refuses_without_landlock() {
    record "$@" -- true
    is "$who: without leave to miss Landlock the run is refused" "$status" 125
    ok "$who: ... by name" grep -qi landlock "$home/record" "$home/stderr"
}

# succeeds START MANAGER
succeeds() {
    record "$1" -- sh -c 'head -c 20M /dev/zero | tail -c 1 >/dev/null; echo out; cat /proc/self/cgroup'
    verdict_is "a run succeeds" "0 succeeded exit"
    is "$who: the record names the manager" "$(field .isolation.mechanisms.cgroup)" "$2"
    is "$who: memory, processes, CPU and wall time are sane" "$(field '.usage |
        .memory_peak_bytes > 100000 and .memory_peak_bytes < 500000000 and
        .pids_peak >= 2 and .pids_peak <= 10 and
        .cpu_seconds >= 0 and .cpu_seconds < 10 and
        .wall_seconds > 0 and .wall_seconds < 20')" true || note "$(field .usage)"
    is "$who: the command sees no cgroup but its own" "$(tail -1 "$(field .logs.stdout)")" "0::/"
}

limits_memory() {
    record "$@" -- --memory 48M -- tail /dev/zero
    verdict_is "a memory hog is killed" "137 killed memory"
    is "$who: its peak is the limit" \
        "$(field '.usage.memory_peak_bytes | . > 40000000 and . <= 48 * 1048576')" true
    # Best effort: one of a few is named.
    for _ in 1 2 3 4; do
        case $(field .completion_notes) in *largest*) break ;; esac
        record "$@" -- --memory 48M -- tail /dev/zero
    done
    is "$who: the verdict names the largest" \
        "$(field '.completion_notes | test("\\(largest: tail [34][0-9]\\.[0-9]+ MiB\\)")')" true ||
        note "$(field .completion_notes)"
}

limits_memory_of_all() {
    record "$@" -- --memory 48M -- sh -c 'sleep 77 & (tail /dev/zero; sleep 77) & wait'
    verdict_is "all die when one is over the memory limit" "137 killed memory"
    ok "$who: ... at once" test "$(field '.usage.wall_seconds | floor')" -lt 20
}

limits_pids() {
    # The shell gives up at the first fork that fails.
    record "$@" -- --pids 12 -- sh -c 'i=0; while [ $i -lt 40 ]; do sleep 5 & i=$((i + 1)); done; exit 3'
    is "$who: a fork bomb fails for its limit" "$(field '.status + " " + .reason')" "failed pids"
    is "$who: ... having had what it may" "$(field .usage.pids_peak)" 12
}

limits_cpus() {
    record "$@" -- --cpus 0.25 --timeout 2s --grace 100ms -- sh -c 'while :; do :; done'
    verdict_is "a busy loop ends by wall time" "124 killed wall_time"
    is "$who: a quarter of a CPU is what it got" \
        "$(field '.usage.cpu_seconds | . > 0.2 and . < 0.9')" true || note "$(field .usage.cpu_seconds)"
}

limits_cpu_time() {
    record "$@" -- --cpu-time 300ms --grace 100ms -- sh -c '(while :; do :; done) & while :; do :; done'
    verdict_is "CPU time of the whole tree is limited" "124 killed cpu_time"
    ok "$who: ... without waiting long" test "$(field '.usage.wall_seconds | floor')" -lt 6
}

limits_wall_time() {
    record "$@" -- --timeout 500ms --grace 200ms -- sleep 77
    verdict_is "wall time is limited" "124 killed wall_time"
    ok "$who: ... to the point" test "$(field '.usage.wall_seconds * 10 | floor')" -lt 20
}

# start_in_background START...: a sleeper; its supervisor is $pid.
start_in_background() {
    # shellcheck disable=SC2034 # the starters look at it
    (exec_in="exec" && "$@" "$FORGE" run --json -- sleep 77) >"$home/record" 2>"$home/stderr" &
    pid=$!
    tries=0
    until [ -n "$(sleepers)" ] || [ $tries -ge 50 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
}

sleepers() { grep -lx sleep /proc/[0-9]*/comm 2>/dev/null; }

cancels() {
    start_in_background "$@"
    kill -TERM "$pid"
    wait "$pid"
    status=$?
    verdict_is "SIGTERM cancels" "130 cancelled cancelled"
    is "$who: ... and nothing runs on" "$(sleepers)" ""
}
