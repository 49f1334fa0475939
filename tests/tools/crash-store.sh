#!/bin/bash
# crash-store.sh FORGE [N]: kills supervisors, couriers, `forge submit` and `forge gc` with SIGKILL at
# random moments, N (600) times in all, then a supervisor at each of the system calls that change
# something, then a PostgreSQL server 20 times; and checks that every run that somebody was told
# of has one verdict, that success has its outputs, and that nothing is left. TAP.
# SPDX-License-Identifier: Apache-2.0
here=$(dirname "$(realpath "$0")")
# In cgroups of our own everything that is left is ours.
if [ -z "${CRASH_INSIDE:-}" ] && [ "$(id -u)" -eq 0 ]; then
    CRASH_INSIDE=1 exec "$here/delegate.sh" "$here/$(basename "$0")" "$@"
fi
. "$here/tap.sh"
. "$here/../lib/cgroups.bash"
. "$here/../lib/postgres.bash"

forge=$(realpath "$1")
kills=${2:-600}
server_kills=20
dir=$(mktemp -d)
leave() {
    local job
    for job in $(jobs -p); do
        kill "$job" 2>/dev/null
    done
    pg_remove
    [ -n "${CRASH_KEEP:-}" ] || rm -rf "$dir"
}
trap leave EXIT
# A variable of every process that comes of these runs: the supervisor has it from us, the
# command by --env.
export CRASH_MARK=$dir
mkdir -m 700 "$dir/work"
# unmarked COMMAND...: something that is to stay.
unmarked() {
    local rc=0
    unset CRASH_MARK
    "$@" || rc=$?
    export CRASH_MARK=$dir
    return "$rc"
}

# Sleeps without a process.
exec {nothing}<> <(:)
pause() { read -rt "$1" -u "$nothing" || true; }
# pause_up_to MSEC: any time up to that.
pause_up_to() {
    local usec=$((RANDOM * 32768 + RANDOM))
    printf -v usec '%06d' $((usec % ($1 * 1000)))
    pause "0.$usec"
}
# within SECONDS COMMAND...: until it succeeds.
within() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        pause 0.05
    done
}

# new_home NAME: an empty state directory where gc has something to do.
new_home() {
    home=$dir/$1
    mkdir -m 700 "$home"
    export FORGE_HOME=$home FORGE_CONFIG=$dir/forge.yaml
    told=$dir/$1.told counts=$dir/$1.counts
    : >"$told"
    : >"$counts"
    printf '%s\n' "workdir: $dir/work/{run_id}" "retention:" "  logs: 1s" "  workdirs: 1s" \
        "  objects: 1s" >"$dir/forge.yaml"
}

# Equal files, a file that takes a while to hash, and one of its own.
payload='mkdir outputs; echo same >outputs/a; echo same >outputs/b; echo $0 >outputs/key
head -c 3M /dev/urandom >outputs/big; echo done'

# submit KEY [OPTION...]: prints the run's id.
submit() {
    local key=$1
    shift
    timeout 30 "$forge" submit --env CRASH_MARK="$dir" --idempotency-key "$key" \
        -o outputs/a -o outputs/b -o outputs/big -o outputs/key "$@" -- sh -c "$payload" "$key" 2>>"$dir/said"
}

# confirm KEY [OPTION...]: submits until somebody says that it is recorded. Sets $id.
confirm() {
    local deadline=$((SECONDS + 40))
    while [ "$SECONDS" -lt "$deadline" ]; do
        if id=$(submit "$@") && [ -n "$id" ]; then
            echo "$1 $id" >>"$told"
            return 0
        fi
        pause 0.01
    done
    echo "not confirmed: $1" >>"$counts"
    return 1
}

# kill_ours PID KIND: SIGKILL, if it is there and of these runs.
kill_ours() {
    grep -qzx "CRASH_MARK=$dir" "/proc/$1/environ" 2>/dev/null && kill -KILL "$1" 2>/dev/null &&
        echo "$2" >>"$counts"
}

# The supervisor of run $id. Sets $supervisor.
find_supervisor() {
    supervisor=$(grep -hsom 1 "\"run_id\":\"$id\".*" "$home"/active/* | grep -om 1 '"pid":[0-9]*')
    supervisor=${supervisor#*:}
    [ -n "$supervisor" ]
}

children() { cat "/proc/$1/task/$1/children" 2>/dev/null; }

# hurt_KIND NUMBER: one kill of this kind; it may come too late.
hurt_supervisor() {
    local keep=()
    (($1 % 8)) || keep=(--keep)
    confirm "supervisor-$1" "${keep[@]}" && find_supervisor || return
    pause_up_to 60
    kill_ours "$supervisor" supervisor
}

hurt_courier() {
    local child
    confirm "courier-$1" && find_supervisor || return
    pause_up_to 40
    for child in $(children "$supervisor"); do
        [ "$(cat "/proc/$child/comm" 2>/dev/null)" != forge-courier ] || kill_ours "$child" courier
    done
}

# The one in front, or the one that it has just forked.
hurt_submit() {
    local pid child
    submit "submit-$1" >/dev/null &
    pid=$!
    pause_up_to 12
    # $pid is a shell with timeout(1) below.
    for child in $(children "$pid"); do pid=$child; done
    for child in $(children "$pid"); do pid=$child; done
    if (($1 % 3 == 0)); then
        for child in $(children "$pid"); do pid=$child; done
    fi
    kill_ours "$pid" submit
    wait
    confirm "submit-$1"
}

hurt_gc() {
    "$forge" gc >/dev/null 2>&1 &
    pause_up_to 12
    kill_ours $! gc
    wait $! 2>/dev/null
    (($1 % 8)) || "$forge" gc >/dev/null 2>>"$dir/said"
}

# many KIND N: until N of them were in time, or for 60 seconds.
many() {
    local deadline=$((SECONDS + 60)) i
    RANDOM=$((CRASH_SEED + ${#1} * 7))
    for ((i = 0; SECONDS < deadline && $(grep -cx "$1" "$counts") < $2; i++)); do
        "hurt_$1" "$i"
    done
}

told_ids() { cut -d' ' -f2 "$told" | sort -u; }

# Until every run that somebody was told of has ended.
wait_for_all() {
    local one deadline=$((SECONDS + 60))
    for one in $(told_ids); do
        timeout $((deadline - SECONDS > 1 ? deadline - SECONDS : 1)) "$forge" wait "$one" >/dev/null 2>&1
        [ $? -ne 124 ] || [ "$SECONDS" -lt "$deadline" ] || return 1
    done
}

# Ours apart from us and the shells that look.
processes() {
    local proc pid
    for proc in /proc/[0-9]*; do
        pid=${proc#/proc/}
        [ "$pid" = $$ ] || [ "$pid" = "$BASHPID" ] && continue
        [ "$(cat "$proc/comm" 2>/dev/null)" != crash-store.sh ] || continue
        grep -qzx "CRASH_MARK=$dir" "$proc/environ" 2>/dev/null &&
            echo "$pid $(tr '\0' ' ' <"$proc/cmdline")"
    done
}
no_process() { [ -z "$(processes)" ]; }

# Groups of runs below our own, in every hierarchy that forge uses.
groups() {
    own_cgroups | while read -r own; do
        find "$own" -mindepth 1 -type d -name 'forge-*' ! -name forge-supervisors
    done | if [ -d /sys/fs/cgroup/memory ]; then cat; else
        grep -F "$(ls "$home/runs")"
    fi
}

check() { "$here/check-store.py" "$home" "$url" "$1" "$told" 2>&1 | head -n 20; }

# gc removes what is older than a second, until no workdir is left.
emptied() { timeout 60 "$forge" gc && [ -z "$(ls "$dir/work")" ]; }

# The whole of what must hold, whoever was killed.
check_all() {
    ok "$1: every run ends" wait_for_all
    ok "... and its processes with it" within 10 no_process
    pause 2.1 # what is older than a second is to go
    ok "... gc repairs" timeout 60 "$forge" gc
    # The workdir of a run that it has just closed as lost, and an object whose other names it has just
    # removed, are young again; so are those that the next gc finds.
    pause 1.1
    ok "... and removes the rest when that is old" within 20 emptied
    is "... and then finds nothing to repair" "$("$forge" gc 2>&1)" "nothing to repair"
    is "... every run that was confirmed is in the store" "$(check told)" ""
    is "... nothing is still going on" "$(check over)" ""
    is "... record and store agree" "$(check agree)" ""
    is "... events are a way through the states, with one end" "$(check chain)" ""
    is "... outputs are all there and right" "$(check outputs)" ""
    is "... each key has one run, started once at most" "$(check once)" ""
    is "... logs are there, or said to be removed" "$(check logs)" ""
    is "... no process is left" "$(processes)" ""
    is "... no cgroup" "$(groups)" ""
    is "... no workdir" "$(ls "$dir/work")" ""
    is "... no mount" "$(cut -d' ' -f5 /proc/self/mountinfo | grep -F "$dir")" ""
    is "... no active run, share, ticket, staging directory or marker" \
        "$(find "$home/active" -type f -size +0
            find "$home"/{queue,staging,undelivered} -mindepth 1 2>/dev/null)" ""
    is "... no file that was not finished" "$(find "$home" -name '.*' -mindepth 1)" ""
    note "$("$here/check-store.py" "$home" "$url" verdicts)"
}

note "seed ${CRASH_SEED:=$RANDOM}"

new_home sqlite
url=sqlite:$home/forge.db
# The shell's word on each killed child is of no use.
many supervisor $((kills * 4 / 10)) 2>/dev/null &
many submit $((kills * 2 / 10)) 2>/dev/null &
many gc $((kills * 2 / 10)) 2>/dev/null &
many courier $((kills * 2 / 10)) 2>/dev/null &
wait
note "killed: $(sort "$counts" | uniq -c | xargs), in $SECONDS s"
done_kills=$(grep -cvx 'not confirmed.*' "$counts")
ok "at least $((kills * 9 / 10)) kills came in time" test "$done_kills" -ge $((kills * 9 / 10))
is "every submission was confirmed in the end" "$(grep 'not confirmed' "$counts")" ""
check_all "SQLite, after $done_kills kills"

# Two at once take turns; what one has removed the other does not.
for i in 1 2 3 4 5 6; do confirm "two-$i" --keep; done
wait_for_all
pause 2.1
"$forge" gc >"$dir/gc1" 2>&1 &
"$forge" gc >"$dir/gc2" 2>&1 && wait $!
is "two gc at once both end well" $? 0
is "... remove something, and nothing twice" \
    "$(grep -h '^remove' "$dir/gc1" "$dir/gc2" | sort | uniq -c | awk '{ n++; if ($1 > 1) print } END { print (n > 0) }')" 1

# Each key twice.
for i in {1..50}; do confirm "fifty-$((i % 25))" & done
wait
is "50 submits at once, two a key, are 25 runs" \
    "$(grep -c '^fifty-' "$told") $(grep '^fifty-' "$told" | sort -u | wc -l)" "50 25"
check_all "after 50 submits and two gc at once"

# ---- at every step ----

# step CALL N: kills the supervisor of `forge run` at the Nth of these system calls. Fails when there
# are not so many.
step() {
    local options=(--idempotency-key "step-$1-$2")
    case $(($2 % 3)) in
    0) options+=(--keep) ;;
    1) options+=(--post-process 'echo {}') ;;
    esac
    ! timeout 20 strace -qq -o /dev/null -e "inject=$1:signal=SIGKILL:when=$2" "$forge" run -q \
        --env CRASH_MARK="$dir" -o outputs/a -o outputs/b -o outputs/big -o outputs/key "${options[@]}" \
        -- sh -c "${payload/3M/90K}" "$1-$2"
}

if strace -e inject=write:signal=SIGKILL:when=9 true 2>/dev/null; then
    new_home steps
    url=sqlite:$home/forge.db
    steps=0
    # openat: every third, to have it over with.
    for call in write:1 mkdirat,linkat,unlinkat,rmdir:1 renameat:1 ftruncate,fdatasync,fsync:1 flock:1 \
        sendto:1 clone3,clone:1 openat:3; do
        for ((i = 1; i < 200; i += ${call#*:})); do
            step "${call%:*}" "$i" 2>/dev/null || break
            steps=$((steps + 1))
        done
    done
    ok "there are more than 80 steps to kill a supervisor at ($steps)" test "$steps" -gt 80
    check_all "after a kill at each of them"
else
    skip "a kill at every step" "no strace, or it may not trace"
fi

# With nobody after them to find out: gc sees to what the dead hold in the queue.
new_home queue
url=sqlite:$home/forge.db
printf '%s\n' "host:" "  budget:" "    runs: 1" >>"$dir/forge.yaml"
for i in 1 2 3; do
    "$forge" submit --env CRASH_MARK="$dir" --idempotency-key "queue-$i" -- sleep 60 >"$dir/id"
    echo "queue-$i $(cat "$dir/id")" >>"$told"
done
ok "two of three runs wait" within 5 sh -c '[ "$(ls "$1/queue" | cut -c1 | xargs)" = "s w w" ]' - "$home"
for id in $(told_ids); do
    find_supervisor && kill_ours "$supervisor" queue
done
check_all "after a share and two tickets lost their owners"

# ---- the server ----

if ! unmarked pg_make >"$dir/pg" 2>&1; then
    skip "a PostgreSQL server that is killed" "$(tail -n 1 "$dir/pg")"
    done_testing
    exit
fi
new_home postgres
url=$FORGE_TEST_PG
export FORGE_STORE=$url
killed=0 SECONDS=0
# over RUN STATUS
over() { [ "$(jq -r .status "$home/runs/$1/record.json")" = "$2" ]; }
for ((i = 0; i < server_kills && SECONDS < 100; i++)); do
    confirm "first-$i"
    id=$("$forge" submit --env CRASH_MARK="$dir" --timeout 300ms --idempotency-key "limited-$i" -- sleep 60 2>>"$dir/said")
    [ -z "$id" ] || echo "limited-$i $id" >>"$told"
    limited=$id
    submit "second-$i" >/dev/null &
    pause_up_to 200
    pg_kill && killed=$((killed + 1))
    # The store hears of this one only when it is over.
    id=$("$forge" submit --env CRASH_MARK="$dir" -- true 2>>"$dir/said")
    echo "- $id" >>"$told"
    within 8 over "$id" succeeded || echo "late: $id" >>"$counts"
    # Nobody answers the supervisor, and the run's time is up all the same.
    [ -z "$limited" ] || within 5 over "$limited" killed || echo "late: $limited" >>"$counts"
    unmarked pg_start || break
    wait
    # Whatever became of the second, its key stands for one run.
    confirm "second-$i"
done
note "in $SECONDS s"
is "the server was killed $server_kills times" "$killed" "$server_kills"
is "no run outlived its time meanwhile, no submission was lost" "$(cat "$counts")" ""
is "... to 300 ms each" "$(check late)" ""
ok "the next command delivers what the store has missed" "$forge" ps -n 1
is "... all of it" "$(check told; check agree; ls "$home/undelivered" 2>/dev/null)" ""
check_all "PostgreSQL, after $killed kills"
done_testing
