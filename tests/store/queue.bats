#!/usr/bin/env bats
# Admission: what fits runs, what does not waits its turn, what never can is refused.
# SPDX-License-Identifier: Apache-2.0

load ../lib/store.bash
setup() { setup_store; }
teardown() { teardown_store; }

# Names of tickets and shares are how one sees who waits from outside.
waiting() { find "$FORGE_HOME/queue" -name 'w-*' | wc -l; }
shares() { find "$FORGE_HOME/queue" -name 's-*' | wc -l; }
waits() { [ "$(waiting)" -eq "$1" ]; }

# line N OPTION...: one more that waits, as the Nth; appends to $T/order when it runs.
line() {
    local n=$1
    shift
    submit --id "line$n-$$" "$@" -- sh -c "echo line$n"
    is_in "$id" queued
    patiently waits "$n"
    ids[n]=$id
}

# In which order the runs of line() were started.
order() {
    local n
    for n in "${!ids[@]}"; do
        finished "${ids[n]}" >/dev/null
        [ "$(field .status)" = succeeded ] || echo "line$n is $(field .status)"
        "$FORGE" logs --events "${ids[n]}" | jq -r --arg n "$n" 'select(.status == "preparing") | .time + " " + $n'
    done | sort | cut -d' ' -f2 | xargs
}

@test "with host.budget.runs: 1 the second waits until the first is over" {
    budget '    runs: 1'
    start
    first=$id
    submit -- echo second
    is_in "$id" queued
    [ "$(of "$id" .started_at)" = null ]
    run "$FORGE" ps -q --status queued
    [ "$output" = "$id" ]
    open_gate
    finished "$id"
    [ "$(field .status)" = succeeded ]
    finished "$first"
    [ "$(shares)$(waiting)" = 00 ]
    "$FORGE" logs --events "$id" >events
    [ "$(jq -r 'select(.status) | .status' events | xargs)" = "queued preparing running collecting succeeded" ]
    # never both at once
    [[ ! "$(of "$id" .started_at)" < "$(of "$first" .ended_at)" ]]
}

@test "forge run waits too, and says so" {
    budget '    runs: 1'
    start
    "$FORGE" run -- echo hello >out 2>said 3>&- &
    pid=$!
    started+=("$pid")
    patiently waits 1
    grep -q 'queued: waits: 1 of 1 runs at once' said
    open_gate
    wait "$pid"
    [ "$(cat out)" = hello ]
}

@test "memory and CPUs count, not only runs" {
    configure 'host:' '  budget:' '    memory: 300M' '    cpus: 3'
    start --memory 200M
    first=$id
    submit --memory 100M -i gate -- sh -c "$(gated)"
    small=$id
    is_in "$small" running
    submit --memory 100M -- true
    is_in "$id" queued
    open_gate
    finished "$id"
    [ "$status" -eq 0 ]
    rm gate/open
    start --memory 10M --cpus 2
    submit --memory 10M --cpus 2 -- true
    is_in "$id" queued
}

@test "higher priority goes first, then age" {
    budget '    runs: 1'
    start
    line 1
    line 2 --priority -5
    line 3 --priority 10
    line 4
    line 5 --priority 10
    open_gate
    [ "$(order)" = "3 5 1 4 2" ]
}

@test "a big run at the head of the line is not overtaken by small ones" {
    configure 'host:' '  budget:' '    memory: 300M' '    cpus: 64'
    start --memory 100M
    line 1 --memory 300M
    line 2 --memory 10M # would fit now
    open_gate
    [ "$(order)" = "1 2" ]
}

@test "what can never fit is rejected at once: admission, 125" {
    configure 'host:' '  budget:' '    memory: 300M' '    cpus: 2'
    forge_run --memory 301M -- true
    [ "$status" -eq 125 ]
    [ "$(field .status)" = rejected ]
    [ "$(field .reason)" = admission ]
    [[ "$(field .completion_notes)" == *"301.00 MiB"*"300.00 MiB"* ]]
    forge_run --memory 100M --cpus 3 -- true
    [ "$(field .reason)" = admission ]
    # A detached one is refused before anybody has turned away from it.
    run "$FORGE" submit --memory 301M -- true
    [ "$status" -eq 125 ]
    [[ "$output" == *"301.00 MiB"*"300.00 MiB"* ]]
    [ "$("$FORGE" ps -q --status rejected | wc -l)" -eq 2 ]
    forge_run --memory 300M --cpus 2 -- true
    [ "$status" -eq 0 ]
}

@test "a dead holder's share is free, without any help" {
    budget '    runs: 1'
    start
    first=$id
    line 1
    murder "$first"
    # Nobody asks anything of forge: the waiter is woken by the kernel.
    patiently grep -q line1 "$FORGE_HOME/runs/${ids[1]}/stdout"
    [ "$(order)" = 1 ]
    [ "$(of "$first" .status)" = lost ]
}

@test "a dead waiter does not hold up those behind it" {
    budget '    runs: 1'
    start
    line 1
    line 2
    murder "${ids[1]}"
    open_gate
    finished "${ids[2]}"
    [ "$(field .status)" = succeeded ]
    [ "$(of "${ids[1]}" .status)" = lost ]
}

@test "killing the one in front wakes the one behind" {
    budget '    runs: 1'
    start
    first=$id
    line 1
    line 2
    "$FORGE" kill "${ids[1]}"
    [ "$(of "${ids[1]}" .status)" = cancelled ]
    [ "$(of "${ids[2]}" .status)" = queued ]
    "$FORGE" kill "$first"
    finished "${ids[2]}"
    [ "$(field .status)" = succeeded ]
}

@test "queue.max_wait cancels what has waited too long" {
    budget '    runs: 1' 'queue:' '  max_wait: 200ms'
    start
    submit -- true
    finished "$id"
    [ "$status" -eq 125 ]
    [ "$(field .status)" = cancelled ]
    [ "$(field .reason)" = admission ]
    [[ "$(field .completion_notes)" == *queue.max_wait* ]]
    [ "$(waiting)" -eq 0 ]
}

@test "Ctrl-C while queued cancels" {
    budget '    runs: 1'
    start
    background "$FORGE" run --json -- true >"$record" 2>"$err"
    patiently waits 1
    status=0
    kill -TERM "$pid"
    wait "$pid" || status=$?
    [ "$status" -eq 130 ]
    [ "$(field .status)" = cancelled ]
    [ "$(waiting)" -eq 0 ]
}

# What the first in line has made while it waits.
is_ready() { [ -d "$work/scidex-analysis-$1" ] && [ -n "$(cgroups_of "$1")" ]; }
cgroups_of() { find /sys/fs/cgroup -maxdepth 4 -type d -name "forge-$1" 2>/dev/null; }

# Of two CPUs one is for the commands, the other for one run that gets ready.
few_cpus() { configure 'host:' '  budget:' '    cpus: 2' '    memory: 64G' "$@"; }

@test "the first in line gets ready while it waits, and is queued until it has its share" {
    few_cpus '    runs: 1'
    start
    first=$id
    submit --keep -- touch ran
    a=$id
    submit -- true
    b=$id
    patiently is_ready "$a"
    # Only the first; and nothing of it runs.
    run is_ready "$b"
    [ "$status" -ne 0 ]
    [ "$(of "$a" .status)" = queued ]
    [ ! -e "$work/scidex-analysis-$a/work/ran" ]
    [ "$("$FORGE" logs --events "$a" | jq -r 'select(.status) | .status' | xargs)" = queued ]
    open_gate
    finished "$a" >/dev/null
    [ "$(field .status)" = succeeded ]
    [ -e "$work/scidex-analysis-$a/ran" ]
    rm -r "$work/scidex-analysis-$a"
}

@test "of eight CPUs four get ready at once, and start in their order" {
    configure 'host:' '  budget:' '    cpus: 8' '    memory: 64G' '    runs: 1'
    start
    for i in 1 2 3 4 5; do
        submit -- true
        ids[i]=$id
        patiently waits "$i"
    done
    for i in 1 2 3 4; do
        patiently is_ready "${ids[i]}"
        [ "$(of "${ids[i]}" .status)" = queued ]
    done
    run is_ready "${ids[5]}"
    [ "$status" -ne 0 ]
    # When the first one goes, the next gets ready.
    "$FORGE" kill "${ids[1]}"
    patiently is_ready "${ids[5]}"
    open_gate
    unset 'ids[1]'
    [ "$(order)" = "2 3 4 5" ]
}

@test "its init holds nothing of what its supervisor has locked" {
    budget '    runs: 1'
    start
    submit -- true
    a=$id
    patiently is_ready "$a"
    supervisor=$(of "$a" .supervisor.pid)
    opened() { find "/proc/$1/fd" -type l -printf '%l\n'; }
    opened "$supervisor" | grep -qF "$FORGE_HOME/active/"
    # Until it waits it still has what it was born with.
    has_let_go() {
        init=$(pgrep -P "$supervisor" -x forge-init) || return 1
        has=$(opened "$init")
        [ -n "$has" ] || return 1
        if grep -F "$FORGE_HOME/" <<<"$has"; then
            return 1
        fi
    }
    patiently has_let_go
}

@test "a run that has waited keeps no inotify instance while it runs" {
    budget '    runs: 1'
    start
    submit -i "$T/gate" -- sh -c "until [ -e $T/gate/end ]; do sleep 0.02; done"
    a=$id
    supervisor=$(of "$a" .supervisor.pid)
    watches() { find "/proc/$supervisor/fd" -lname 'anon_inode:inotify'; }
    is_watching() { [ -n "$(watches)" ]; }
    patiently is_watching
    open_gate
    is_in "$a" running
    no_watch() { ! is_watching; }
    patiently no_watch
    touch "$T/gate/end"
    finished "$a" >/dev/null
    [ "$(field .status)" = succeeded ]
}

@test "what is ready and cancelled, or murdered, leaves nothing" {
    budget '    runs: 1'
    start
    first=$id
    submit -- touch ran
    a=$id
    patiently is_ready "$a"
    "$FORGE" kill "$a"
    [ "$(of "$a" .status)" = cancelled ]
    [ "$(of "$a" .reason)" = cancelled ]
    submit -- touch ran
    b=$id
    patiently is_ready "$b"
    murder "$b"
    [ "$(of "$b" .status)" = lost ]
    for id in "$a" "$b"; do
        [ ! -e "$work/scidex-analysis-$id" ]
        [ -z "$(cgroups_of "$id")" ]
    done
    "$FORGE" gc
    [ "$(waiting)" -eq 0 ]
    [ "$(of "$first" .status)" = running ]
}

@test "who is behind hears at once that the one in front has its share, however slowly that starts" {
    budget '    runs: 2'
    start
    start
    # Its init has the ticket open too, until the command is executed.
    ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 strace -fqq -o /dev/null -e inject=execve:delay_enter=10s "$FORGE" run -q -- true 3>&- &
    slow=$!
    started+=("$slow")
    in_line() { find "$FORGE_HOME/queue" -name 'w-*' -printf '%f\n' | sort; }
    is_in_line() { [ "$(in_line | wc -l)" -eq 1 ]; }
    patiently is_in_line
    submit -- true
    a=$id
    first=$(in_line | head -n 1)
    patiently is_ready "${first##*-}"
    open_gate
    finished "$a" >/dev/null
    [ "$(field .status)" = succeeded ]
    # The one in front still starts: nobody has waited for that.
    [ "$(of "${first##*-}" .ended_at)" = null ]
    wait "$slow"
}

@test "a share is given back when the memory is, /dev/shm included" {
    local large='head -c 200M /dev/zero >/dev/shm/large'
    # Checks are processes, too.
    budget 'health: {disk: {kind: disk, when: demand}, memory: {kind: memory, when: demand}}'
    ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 strace -qqo trace -e trace=renameat,wait4 \
        "$FORGE" run -q --memory 1G -- sh -c "$large"
    # Its init is the first to be waited for.
    [ "$(grep -oE '^wait4|^renameat.*"s-.*share' trace | cut -c1-5 | head -n 2 | xargs)" = "wait4 renam" ]
}

@test "its time counts from when it starts, not from when it is ready" {
    budget '    runs: 1'
    start
    submit --timeout 2s -- true
    a=$id
    patiently is_ready "$a"
    # Longer than its timeout; a run that is known to take that time is the clock.
    (unset FORGE_STORE; FORGE_HOME=$T/clock "$FORGE" run -q -- sleep 2.2)
    open_gate
    finished "$a" >/dev/null
    [ "$(field .status)" = succeeded ]
    [ "$(field '.usage.wall_seconds < 2')" = true ]
}

@test "what cannot be begun when its turn comes is told so" {
    budget '    runs: 1'
    start
    mkdir -m 777 "$T/open"
    chmod -t "$T/open"
    budget '    runs: 1' "workdir: $T/open/{id}"
    submit --id "taken-$$" -- true
    a=$id
    finished "$a" >/dev/null
    [ "$(field .status)" = rejected ]
    [[ "$(field .completion_notes)" == *"others could replace workdirs"* ]]
    [ "$(waiting)" -eq 0 ]
}

@test "twelve at once through two places: never more than two, all served" {
    budget '    runs: 2'
    for i in $(seq 12); do
        submit -- sh -c 'sleep 0.05'
        all[i]=$id
    done
    for id in "${all[@]}"; do
        finished "$id" >/dev/null
        [ "$(field .status)" = succeeded ]
        printf '%s 1\n%s -1\n' "$(field .started_at)" "$(field .ended_at)"
    done >moments
    # an end and a start in the same millisecond: the end was first
    [ "$(sort -k1,1 -k2,2n moments | awk '{ n += $2; if (n > most) most = n } END { print most }')" -le 2 ]
    [ "$(shares)$(waiting)" = 00 ]
}

@test "--priority must be a number that means something" {
    for bad in x 1.5 1001 -1001 ''; do
        run "$FORGE" submit --priority "$bad" -- true
        [ "$status" -eq 125 ]
        [[ "$output" == *--priority* ]]
    done
}

@test "a run whose turn to free its filter does not come ends all the same" {
    forge_run -- true
    exec 8>"$FORGE_HOME/ending.lock"
    flock 8
    begin=$(now_ms)
    forge_run -- true 8>&-
    [ "$status" -eq 0 ]
    [ "$(field .status)" = succeeded ]
    # It has waited for three seconds, which are not the command's.
    [ $(($(now_ms) - begin)) -ge 3000 ]
    awk -v w="$(field .usage.wall_seconds)" 'BEGIN { exit !(w < 3) }'
    exec 8>&-
}
