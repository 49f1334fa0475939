#!/usr/bin/env bats
# The contract of an executor: the same command ends with the same verdict wherever it runs. The suite is run once for
# each, FORGE_EXECUTOR_UNDER_TEST=local, docker, podman or slurm; every expected value is the same for all of them.
#
# What differs, and why:
#
#   what                      local              docker, podman
#   ------------------------  -----------------  ------------------------------------------------------------------
#   programs                  the host's         the image's
#   uid inside                1000, mapped       that of the slot (host.uid_base), as outside
#   variables                 forge's            HOSTNAME too, with podman TERM and container, and those of the image
#   /var/tmp                  is /tmp            the image's, read-only
#   usage.cpu_seconds         the run's          and some 30 ms of runc, which starts in the same cgroup
#   usage.memory_peak_bytes   the run's          at least 4 MiB, for the same reason
#   least --memory            1M                 6M with docker: its own minimum
#   --io-rate                 enforced           refused
#   --sockets                 enforced           not enforced, and not recorded as missing: a defect
#   isolation.level           full               container
#   image                     null               name and id
#
# On slurm a run is as on local, in a sandbox on a node; its record has the cluster, the job and the node.
#
# SPDX-License-Identifier: Apache-2.0

load ../lib/executor.bash
under_test=${FORGE_EXECUTOR_UNDER_TEST:-local}

setup_file() {
    case $under_test in
    local) ;;
    slurm) setup_cluster ;;
    *) setup_engines "$under_test" ;;
    esac
}
teardown_file() {
    engines_remove
    remove_cluster
}
setup() { setup_executor "$under_test"; }
teardown() { teardown_executor; }

is_container() { [ "$executor" = docker ] || [ "$executor" = podman ]; }
# between LOW VALUE HIGH: of numbers with fractions.
between() { awk -v l="$1" -v v="$2" -v h="$3" 'BEGIN { exit !(l <= v && v <= h) }'; }
digest_of() { sha256sum "$1" | cut -d ' ' -f 1; }
outputs() { field '[.outputs[].path] | join(" ")'; }
skipped() { field ".outputs_skipped[] | select(.path == \"$1\") | .why"; }
newest() { "$FORGE" ps -q -n 1; }
# The store hears of a run a moment after it begins.
is_known() { [ -n "$(newest)" ]; }
# The newest run's command has said "ready".
is_ready() {
    id=$(newest)
    says_ready
}

# ---- how a command ends

@test "a command that succeeds" {
    forge_run -- sh -c 'echo out; echo err >&2'
    verdict succeeded exit 0
    [ "$(cat "$out")" = out ]
    [ "$(cat "$(field .logs.stderr)")" = err ]
    [ "$(field .exit_code)" -eq 0 ]
    [ "$(field .exit_status)" -eq 0 ]
}

@test "a command that fails has its own exit status" {
    for code in 1 42 125 255; do
        forge_run -- sh -c "exit $code"
        verdict failed exit "$code"
        [ "$(field .exit_code)" -eq "$code" ]
    done
}

@test "a command that dies of a signal" {
    forge_run -- sh -c 'kill -SEGV $$'
    verdict failed signal 139
    [ "$(field .signal)" -eq 11 ]
    [ "$(field .exit_code)" = null ]
    forge_run -- sh -c 'kill -KILL $$'
    verdict failed signal 137
    [ "$(field .signal)" -eq 9 ]
}

@test "a command that is not there: 127" {
    forge_run -- no-such-program
    [ "$status" -eq 127 ]
    [ "$(field .status)" = failed ]
    [ "$(field .reason)" = exec ]
    [[ "$(field .completion_notes)" == *no-such-program* ]]
    [ "$(field .exit_code)" = null ]
}

@test "a command that is not executable: 126" {
    echo text >"$T/text"
    forge_run -i "$T/text" -- "$T/text"
    [ "$status" -eq 126 ]
    [ "$(field .status)" = failed ]
    [ "$(field .reason)" = exec ]
    [[ "$(field .completion_notes)" == *"$T/text"* ]]
}

@test "a script whose interpreter is not there is told from one that failed" {
    printf '#!/no/such/interpreter\n' >script
    chmod +x script
    forge_run -- ./script
    [ "$status" -eq 127 ]
    [ "$(field .reason)" = exec ]
}

@test "words of the command arrive as they are" {
    forge_run -- python3 -c 'import sys; print(sys.argv[1:])' '' ' ' "a'b" '$HOME' $'new\nline' 'ü' '*' -- --executor
    [ "$(cat "$out")" = "['', ' ', \"a'b\", '\$HOME', 'new\\nline', 'ü', '*', '--', '--executor']" ]
    # More than fits into a line that an engine prints.
    forge_run -- python3 -c 'import sys; print(len(sys.argv[1]))' "$(head -c 100000 /dev/zero | tr '\0' x)"
    [ "$(cat "$out")" = 100000 ]
}

# ---- limits

@test "memory: a command that needs more is killed" {
    forge_run --memory 64M -- python3 -c 'b = b"x" * (256 << 20)'
    verdict killed memory 137
    [[ "$(field .completion_notes)" == *"64.00 MiB of 64.00 MiB"*"--memory 128M"* ]]
    between 60000000 "$(field .usage.memory_peak_bytes)" 67108864
}

@test "memory: when a child is killed for it, so is the rest" {
    forge_run --memory 64M -- sh -c 'python3 -c "b = bytearray(256 << 20)"; echo survived; exit 0'
    verdict killed memory 137
    run ! grep -q survived "$out"
}

@test "memory: files in /tmp and /dev/shm count" {
    forge_run --memory 64M -- sh -c 'dd if=/dev/zero of=/dev/shm/a bs=1M count=200'
    verdict killed memory 137
}

@test "processes: one more than allowed cannot start, and is the reason of a failure" {
    forge_run --pids 20 -- python3 -c '
import os, sys, time
n = 0
try:
    while n < 60:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        n += 1
except BlockingIOError:
    print(n)
    sys.exit(3)'
    verdict failed pids 3
    [ "$(cat "$out")" = 19 ]
    [ "$(field .usage.pids_refused)" -ge 1 ]
    [ "$(field .usage.pids_peak)" -eq 20 ]
    [[ "$(field .completion_notes)" == *"limit of 20"*"--pids 40"* ]]
}

@test "processes: a run that goes on all the same succeeds, and says so" {
    forge_run --pids 20 -- python3 -c '
import os, time
try:
    for n in range(60):
        if os.fork() == 0:
            time.sleep(60)
except BlockingIOError:
    pass'
    verdict succeeded exit 0
    [ "$(field .usage.pids_refused)" -ge 1 ]
    [[ "$(field .completion_notes)" == *"limit on processes"* ]]
}

@test "wall time: the command is asked to end, and has its grace for it" {
    forge_run --timeout 500ms --grace 20s -- sh -c 'trap "echo asked; exit 7" TERM; echo ready; while :; do sleep 0.02; done'
    verdict killed wall_time 124
    grep -qx asked "$out"
    lasted 0.5 1.5
}

@test "wall time: a command that ignores it is killed after the grace, and not before" {
    forge_run --timeout 300ms --grace 400ms -- sh -c 'trap "" TERM INT HUP; while :; do sleep 0.02; done'
    verdict killed wall_time 124
    lasted 0.7 1.2
}

@test "wall time: stopped processes end too" {
    forge_run --timeout 300ms --grace 300ms -- sh -c 'kill -STOP $$'
    verdict killed wall_time 124
}

@test "wall time: making the container does not count" {
    forge_run --timeout 2s -- true
    verdict succeeded exit 0
    between 0 "$(field .usage.wall_seconds)" 1
}

@test "CPU time: that of all processes together" {
    forge_run --cpu-time 500ms --cpus 2 --grace 200ms -- sh -c 'while :; do :; done & while :; do :; done'
    verdict killed cpu_time 124
    between 0.5 "$(field .usage.cpu_seconds)" 1.1
}

@test "CPUs: a run gets no more than it may have" {
    forge_run --cpus 0.25 -- python3 -c '
import time
end = time.monotonic() + 1
while time.monotonic() < end:
    pass'
    verdict succeeded exit 0
    between 0.05 "$(field .usage.cpu_seconds)" 0.45
}

@test "disk: a workdir that grows too large" {
    forge_run --disk 20M --timeout 60s -- sh -c 'i=0; while :; do dd if=/dev/zero of=f$i bs=1M count=4; i=$((i+1)); sleep 0.05; done'
    verdict killed disk 137
    [ "$(field .usage.disk_peak_bytes)" -ge 20971520 ]
}

@test "disk: too many files" {
    forge_run --inodes 500 --timeout 60s -- python3 -c '
import time
n = 0
while True:
    open(f"f{n}", "w").close()
    n += 1
    if n % 100 == 0: time.sleep(0.02)'
    verdict killed disk 137
}

@test "output: a flood of either stream is cut at the limit, to the byte" {
    for fd in 1 2; do
        forge_run --output-limit 1M -- sh -c "yes flood >&$fd"
        verdict killed output 137
        name=$([ "$fd" -eq 1 ] && echo stdout || echo stderr)
        [ "$(stat -c %s "$(field ".logs.$name")")" -eq 1048576 ]
        [ "$(field ".usage.${name}_truncated")" = true ]
        [[ "$(field .completion_notes)" == *"$name"* ]]
    done
}

@test "open files: as many as allowed" {
    forge_run --open-files 64 -- python3 -c '
import os, resource
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
try:
    while True: last = os.dup(0)
except OSError as e:
    print(last, e.errno)'
    [ "$(cat "$out")" = $'64 64\n63 24' ]
}

# ---- cancelling

@test "forge kill: asked, gone, cancelled" {
    submit --grace 20s -- sh -c "trap 'echo asked; exit 9' TERM; echo ready; while :; do sleep 0.02; done"
    patiently says_ready
    run "$FORGE" kill "$id"
    [ "$status" -eq 0 ]
    [ "$output" = "$id: cancelled" ]
    finished "$id"
    [ "$status" -eq 130 ]
    [ "$(field .status)" = cancelled ]
    [ "$(field .reason)" = cancelled ]
    grep -qx asked "$(field .logs.stdout)"
}

@test "forge kill --now: of one that ignores everything" {
    submit --grace 60s -- sh -c "trap '' TERM INT HUP; echo ready; while :; do sleep 0.02; done"
    patiently says_ready
    begin=$(now_ms)
    "$FORGE" kill --now "$id"
    in_time "$begin" 20000
    finished "$id"
    [ "$status" -eq 130 ]
    [ "$(field .status)" = cancelled ]
}

@test "an interrupt at the terminal: 130, cancelled" {
    interruptible "$FORGE" run --json "${OPTS[@]}" --grace 20s -- \
        sh -c "trap 'echo asked; exit 9' TERM; echo ready; while :; do sleep 0.02; done" >"$record"
    patiently is_ready
    kill -INT "$pid"
    status=0
    wait "$pid" || status=$?
    [ "$status" -eq 130 ]
    [ "$(field .status)" = cancelled ]
    [ "$(field .reason)" = cancelled ]
    grep -qx asked "$(field .logs.stdout)"
}

@test "a second interrupt kills at once" {
    interruptible "$FORGE" run --json "${OPTS[@]}" --grace 60s -- \
        sh -c "trap '' TERM; echo ready; while :; do sleep 0.02; done" >"$record"
    patiently is_ready
    kill -INT "$pid"
    patiently grep -q '"cancelled"' "$FORGE_HOME/runs/$id/events.jsonl"
    begin=$(now_ms) status=0
    kill -INT "$pid"
    wait "$pid" || status=$?
    in_time "$begin" 20000
    [ "$status" -eq 130 ]
    [ "$(field .status)" = cancelled ]
}

@test "an interrupt before the command runs: cancelled, and nothing is left" {
    has_runs() { [ "$(find "$FORGE_HOME/runs" -name events.jsonl | wc -l)" -ge "$1" ]; }
    made=0
    for delay in 0 0.02 0.1; do
        interruptible "$FORGE" run --json "${OPTS[@]}" -- sleep 30 >"$record"
        made=$((made + 1))
        patiently has_runs "$made"
        pause "$delay"
        kill -INT "$pid"
        status=0
        wait "$pid" || status=$?
        [ "$status" -eq 130 ]
        [ "$(field .status)" = cancelled ]
    done
}

# ---- streams

@test "output is shown while the command runs, by forge run and by forge logs -f" {
    background "$FORGE" run "${OPTS[@]}" -i gate -- sh -c "echo first; echo second >&2; $(gated); echo last" >live 2>live.err
    patiently grep -qx first live
    patiently grep -qx second live.err
    patiently is_known
    id=$(newest)
    run_pid=$pid
    background "$FORGE" logs -f "$id" >followed 2>followed.err
    patiently grep -qx first followed
    patiently grep -qx second followed.err
    [ "$(of "$id" .status)" = running ]
    open_gate
    wait "$run_pid"
    wait "$pid"
    [ "$(cat live)" = $'first\nlast' ]
    [ "$(cat followed)" = $'first\nlast' ]
}

@test "8 MiB of each stream arrive byte for byte" {
    forge_run --output-limit 32M -- python3 -c '
import os, random, threading
def write(fd):
    data = random.Random(fd).randbytes(8 << 20)
    while data:
        data = data[os.write(fd, data[:100001]):]
threads = [threading.Thread(target=write, args=(fd,)) for fd in (1, 2)]
[t.start() for t in threads]
[t.join() for t in threads]'
    verdict succeeded exit 0
    for fd in 1 2; do
        name=$([ "$fd" -eq 1 ] && echo stdout || echo stderr)
        python3 -c 'import random, sys; sys.stdout.buffer.write(random.Random(int(sys.argv[1])).randbytes(8 << 20))' "$fd" >"want.$fd"
        cmp "want.$fd" "$(field ".logs.$name")"
        [ "$(field ".usage.${name}_bytes")" -eq 8388608 ]
        [ "$(field ".usage.${name}_truncated")" = false ]
    done
}

@test "the last words of a command that ends at once are not lost" {
    for n in 1 2 3 4 5; do
        forge_run -- sh -c "seq 20000; echo end-$n"
        [ "$(tail -n 1 "$out")" = "end-$n" ]
        [ "$(wc -l <"$out")" -eq 20001 ]
    done
}

@test "a command does not notice that its reader has gone" {
    run bash -c '"$FORGE" run "$@" --output-limit 8M -- sh -c "seq 300000; echo \$? >&2" 2>err | head -c 10 >/dev/null
        echo ${PIPESTATUS[0]}' bash "${OPTS[@]}"
    [ "$output" = 0 ]
    [ "$(head -n 1 err)" = 0 ]
}

@test "standard input is empty unless asked for; --stdin carries all of it" {
    run --separate-stderr sh -c 'echo words | "$FORGE" run "$@" wc -c' sh "${OPTS[@]}"
    [ "$(tr -d ' ' <<<"$output")" = 0 ]
    head -c 3000000 /dev/urandom >big
    "$FORGE" run "${OPTS[@]}" --stdin cat <big >copy 2>/dev/null
    cmp big copy
    # One that does not read it is not held up.
    "$FORGE" run "${OPTS[@]}" --stdin true <big 2>/dev/null
}

# ---- what it sees

@test "inputs are where they are, and read-only" {
    mkdir data
    echo one >data/a
    before=$(hash_of data)
    forge_run -i data -- sh -c '
        cat "$1/data/a" data/a
        echo x >"$1/data/a"; echo x >data/new; rm data/a; chmod 777 data/a; mv data/a b; touch "$1/new"; true' sh "$T"
    [ "$(cat "$out")" = $'one\none' ]
    [ "$(hash_of data)" = "$before" ]
    [ ! -e new ]
    [ "$(field '.inputs | length')" -eq 1 ]
    [[ "$(field '.inputs[0].sha256')" == sha256:* ]]
}

@test "an input by a relative path is found under it, a sibling too" {
    mkdir -p project/sub sibling
    echo near >project/sub/x
    echo far >sibling/y
    cd project
    forge_run -i sub/x -i ../sibling -- sh -c 'cat sub/x ../sibling/y'
    [ "$status" -eq 0 ]
    [ "$(cat "$out")" = $'near\nfar' ]
    [ "$(outputs)" = "" ]
}

@test "a script is an input by itself" {
    printf '#!/bin/sh\necho "I am ${0##*/}"; pwd\n' >script
    chmod +x script
    forge_run -- ./script
    [ "$(head -n 1 "$out")" = "I am script" ]
    [ "$(tail -n 1 "$out")" = "$(field .workdir)" ]
}

@test "an input that is a link shows what it points to, and not more" {
    mkdir real
    echo x >real/file
    echo secret >real/other
    ln -s real/file link
    forge_run -i link -- sh -c 'cat link; cat real/other; cat "$1/real/other"; true' sh "$T"
    [ "$(cat "$out")" = x ]
}

@test "nothing else of the host is there" {
    echo secret >"$T/secret"
    chmod 644 "$T/secret"
    forge_run -- sh -c 'cat "$1/secret"; ls "$1" "$2" "$3" /home/* /srv/* /run/docker.sock; true' \
        sh "$T" "$FORGE_HOME" "$(dirname "$FORGE")"
    [ ! -s "$out" ]
    forge_run -- sh -c 'ls /tmp'
    [ "$(cat "$out")" = "$(basename "$(field .workdir)")" ]
}

@test "no capabilities, no new privileges, not root, a filter of system calls" {
    forge_run -- cat /proc/self/status
    for set in CapInh CapPrm CapEff CapBnd CapAmb; do
        [ "$(awk -v s="$set:" '$1 == s { print $2 }' "$out")" = 0000000000000000 ]
    done
    [ "$(awk '$1 == "NoNewPrivs:" { print $2 }' "$out")" = 1 ]
    [ "$(awk '$1 == "Seccomp:" { print $2 }' "$out")" = 2 ]
    [ "$(awk '$1 == "Uid:" { print ($2 && $3 && $4 && $5) }' "$out")" = 1 ]
    [ "$(awk '$1 == "Gid:" { print ($2 && $3 && $4 && $5) }' "$out")" = 1 ]
    [ "$(awk '$1 == "Groups:" { print (NF <= 2 && $2 != "0") }' "$out")" = 1 ]
}

@test "on the host its processes are not root, and in no group of the host" {
    mark=77$$.$RANDOM
    submit -- sh -c "echo ready; sleep $mark & wait"
    patiently on_host "sleep $mark\$"
    for pid in $(on_host "^sleep $mark\$"); do
        [ "$(awk '/^Uid:/ { print $2 }' "/proc/$pid/status")" -ge 65536 ]
        [ "$(awk '/^Groups:/ { print ($2 == "" || $2 >= 65536) }' "/proc/$pid/status")" = 1 ]
    done
    "$FORGE" kill --now "$id"
}

@test "its only writable places are the workdir, /tmp and /dev/shm" {
    forge_run -- sh -c 'for d in / /usr /bin /etc /var /var/spool /run /home /root /opt /srv /dev /proc /sys /.forge; do
            (: >"$d/forge-was-here") 2>/dev/null && echo "$d"
        done
        for d in . /tmp /dev/shm; do : >"$d/forge-was-here" || echo "not $d"; done; rm forge-was-here'
    [ "$status" -eq 0 ]
    [ ! -s "$out" ]
}

@test "/tmp is its own, empty, and has half of the memory" {
    forge_run --memory 64M -- sh -c 'df -Pk /tmp | tail -n 1; dd if=/dev/zero of=/tmp/a bs=1M count=48 2>/dev/null || echo full; wc -c </tmp/a'
    [ "$(field .status)" = succeeded ]
    [ "$(awk 'NR == 1 { print $2 }' "$out")" -eq 32768 ]
    [ "$(sed -n 2p "$out")" = full ]
    [ "$(tail -n 1 "$out")" -eq 33554432 ]
    [ ! -e /tmp/a ]
    [[ "$(field .completion_notes)" == *"/tmp"* ]]
}

@test "its variables are those of forge and those given, and none of the caller's" {
    export OF_THE_HOST=1 SECRET_TOKEN=2 GIVEN=3 LD_PRELOAD=''
    forge_run --env GIVEN --env 'SET=a b=c' -- python3 -c '
import os
for name in sorted(os.environ): print(name, os.environ[name], sep="=")'
    for name in OF_THE_HOST SECRET_TOKEN LD_PRELOAD FORGE_CONFIG HOSTTYPE BATS_VERSION; do
        run ! grep -q "^$name=" "$out"
    done
    run ! grep -q "^FORGE_HOME=" "$out"
    work=$(field .workdir)
    for pair in GIVEN=3 'SET=a b=c' "HOME=$work" "PWD=$work" TMPDIR=/tmp USER=forge LOGNAME=forge SHELL=/bin/sh \
        FORGE_CPUS=1 "FORGE_WORKDIR=$work" "FORGE_RUN_ID=$(field .run_id)" OMP_NUM_THREADS=1 \
        "FORGE_MEMORY_BYTES=$(field .limits.memory_bytes)"; do
        grep -qxF -- "$pair" "$out"
    done
    # All that is neither forge's nor given.
    rest=$(grep -vE '^(GIVEN|SET|HOME|PWD|TMPDIR|USER|LOGNAME|SHELL|PATH|LANG|LANGUAGE|TZ|LC_[A-Z]+|FORGE_[A-Z_]+|[A-Z_]+_THREADS|GOMAXPROCS|MC_CORES)=' "$out" |
        cut -d = -f 1 | xargs)
    case $executor in
    local | slurm) [ -z "$rest" ] ;;
    docker) [ "$rest" = HOSTNAME ] ;;
    podman) [ "$rest" = "HOSTNAME TERM container" ] ;;
    esac
    work=/tmp
}

@test "no network but its own loopback; with --network host the host's" {
    cat >net.py <<'PY'
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
socket.create_connection(server.getsockname()).close()
print(*sorted(name for _, name in socket.if_nameindex()))
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5).close()
    print("reached")
except OSError:
    print("refused")
try:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("192.0.2.1", 9))
    print("route")
except OSError:
    print("no route")
PY
    background python3 -c '
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
open(sys.argv[1], "w").write(str(server.getsockname()[1]))
while True: server.accept()' "$T/port"
    patiently test -s "$T/port"
    forge_run -i net.py -- python3 net.py "$(<"$T/port")"
    [ "$status" -eq 0 ]
    [ "$(sed -n 1p "$out" | xargs -n 1 | grep -c '^lo$')" -eq 1 ]
    [ "$(sed -n 2p "$out")" = refused ]
    [ "$(sed -n 3p "$out")" = "no route" ]
    [ "$(field .network)" = none ]
    forge_run --network host -i net.py -- python3 net.py "$(<"$T/port")"
    [ "$status" -eq 0 ]
    [ "$(sed -n 2p "$out")" = reached ]
    [ "$(field .network)" = host ]
}

@test "a run that failed and looked for a network is told that there is none" {
    forge_run -- python3 -c '
import socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("192.0.2.1", 9))'
    [ "$status" -eq 1 ]
    [ "$(field .reason)" = exit ]
    [[ "$(field .completion_notes)" == *network* ]]
}

@test "it sees no process but its own, and cannot touch the one that started it" {
    forge_run -- sh -c 'for p in /proc/[0-9]*; do echo "${p#/proc/}"; done | sort -n | head -n 1; kill -9 1; kill -STOP 1; cat /proc/1/environ /proc/1/mem; ls /proc/1/fd; echo still here'
    [ "$status" -eq 0 ]
    [ "$(head -n 1 "$out")" = 1 ]
    [ "$(tail -n 1 "$out")" = "still here" ]
    [ "$(wc -l <"$out")" -eq 2 ]
}

@test "two runs at once do not see each other" {
    start --id first
    other=$id
    forge_run --id second -- sh -c 'ls -A /tmp; ls -A /dev/shm; ls /proc | grep -c "^[0-9]"; ls "$1"; true' sh "/tmp/scidex-analysis-first"
    [ "$(head -n 1 "$out")" = scidex-analysis-second ]
    [ "$(sed -n 2p "$out")" -le 6 ]
    [ "$(wc -l <"$out")" -eq 2 ]
    open_gate
    finished "$other"
    [ "$(field .status)" = succeeded ]
}

# ---- what it leaves

@test "a process that the command leaves in the background is gone with it" {
    mark=88$$.$RANDOM
    forge_run -- sh -c "(setsid sleep $mark >/dev/null 2>&1 &); sleep $mark & echo started"
    verdict succeeded exit 0
    lasted 0 20
    not_on_host "$mark"
}

@test "a process that holds the output open does not hold up the verdict" {
    mark=89$$.$RANDOM
    forge_run --timeout 60s -- python3 -c '
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    for n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)
    time.sleep(float(sys.argv[1]))
print("done")' "$mark"
    verdict succeeded exit 0
    not_on_host "$mark"
}

@test "what it used over time is there when it has ended" {
    forge_run --memory 128M -- python3 -c 'import time
x = bytearray(48 << 20)
time.sleep(2)'
    verdict succeeded exit 0
    id=$(field .run_id)
    points() { "$FORGE" show --chart --json "$id" | jq -r "$1"; }
    [ "$(points '.samples | length >= 3')" = true ]
    [ "$(points '[.samples[][0]] | . == (sort | unique)')" = true ]
    [ "$(points '[.samples[][1]] | max > 50331648')" = true ]
    [ "$(points "[.samples[][1]] | max <= $(field .usage.memory_peak_bytes)")" = true ]
    [ "$(points '[.samples[][2]] | . == sort and first != null')" = true ]
    [ "$(points '[.samples[][3]] | min >= 1 and max < 10')" = true ]
}

@test "outputs are collected with their digests" {
    forge_run -- sh -c 'mkdir -p r/s; echo one >r/a; dd if=/dev/zero of=r/s/b bs=1M count=3; : >empty; chmod 0 r/a; chmod 500 r'
    verdict succeeded exit 0
    [ "$(outputs)" = "empty r/a r/s/b" ]
    "$FORGE" outputs --copy got "$(field .run_id)"
    echo one >want
    cmp want got/r/a
    for path in r/a r/s/b empty; do
        [ "$(field ".outputs[] | select(.path == \"$path\") | .sha256")" = "sha256:$(digest_of "got/$path")" ]
        [ -O "got/$path" ]
    done
    forge_run -o 'x*' -- sh -c 'echo 1 >x1; echo 2 >y'
    [ "$(outputs)" = x1 ]
    forge_run -o missing -- true
    [ "$status" -eq 1 ]
    [ "$(field .status)" = failed ]
    [ "$(field .reason)" = missing_output ]
}

@test "what a killed run left is collected, as partial" {
    forge_run --timeout 300ms --grace 200ms -- sh -c 'echo half >f; sleep 60'
    verdict killed wall_time 124
    [ "$(outputs)" = f ]
}

@test "a hostile tree is collected without following anything, and removed whole" {
    before=$(digest_of /etc/passwd)
    forge_run -- python3 -c '
import os, socket
os.symlink("/etc/passwd", "passwd")
os.symlink("/etc", "dirlink")
os.symlink("missing", "dangling")
os.symlink(".", "self")
os.mkfifo("fifo")
socket.socket(socket.AF_UNIX).bind("socket")
os.mkdir("d")
open("d/file", "w").write("x")
os.link("d/file", "d/hard")
for name in ["new\nline", "-rf", " ", "*", "\x1b[31m", "q\"uote", "x" * 255]:
    open("d/" + name, "w").write(name)
open(b"d/latin\xe4", "w").write("l")
os.makedirs("/".join(["deep"] + ["e"] * 200))
open("/".join(["deep"] + ["e"] * 200 + ["f"]), "w").write("bottom")
os.chmod("deep", 0)'
    verdict succeeded exit 0
    for name in passwd dirlink dangling self; do
        [ "$(skipped "$name")" = "a symbolic link" ]
    done
    [ "$(skipped fifo)" = "a fifo" ]
    [ "$(skipped socket)" = "a socket" ]
    [ "$(field '.outputs | length')" -eq 11 ]
    [ "$(field '[.outputs[].path] | map(select(. == "d/new\nline")) | length')" -eq 1 ]
    run ! grep -rqs root: "$FORGE_HOME/objects"
    "$FORGE" outputs --copy got "$(field .run_id)"
    [ "$(cat $'got/d/latin\xe4')" = l ]
    [ "$(digest_of /etc/passwd)" = "$before" ]
    [ ! -e "$(field .workdir)" ]
}

@test "--keep: the workdir stays, and is the caller's" {
    forge_run --keep -- sh -c 'echo x >f; mkdir d; echo y >d/g'
    [ "$status" -eq 0 ]
    dir=$(field .workdir)
    [ "$(cat "$dir/f" "$dir/d/g")" = $'x\ny' ]
    [ -O "$dir/f" ]
    [ -O "$dir/d/g" ]
}

# ---- what is recorded

@test "usage is filled in" {
    forge_run -- python3 -c '
import os, time
b = b"x" * (50 << 20)
open("f", "wb").write(b[:3 << 20])
end = time.process_time() + 0.3
while time.process_time() < end: pass
for _ in range(4): os.fork()
time.sleep(0.2)'
    verdict succeeded exit 0
    between 50000000 "$(field .usage.memory_peak_bytes)" 150000000
    between 0.3 "$(field .usage.cpu_seconds)" 2
    between 0.5 "$(field .usage.wall_seconds)" 20
    [ "$(field .usage.pids_peak)" -eq 16 ]
    [ "$(field .usage.pids_refused)" -eq 0 ]
    [ "$(field .usage.disk_peak_bytes)" -ge 3145728 ]
    [ "$(field .usage.inodes_peak)" -eq 1 ]
    [ "$(field '[.usage[] | select(. == null)] | length')" -eq 0 ]
}

@test "the record says where it ran, in what, and how well it was isolated" {
    forge_run -- true
    [ "$(field .executor)" = "$executor" ]
    [ "$(field .asked.executor)" = "$executor" ]
    [ "$(field '.isolation.missing | length')" -eq 0 ]
    if is_container; then
        [ "$(field .isolation.level)" = container ]
        [ "$(field .image.name)" = py ]
        id=$(engine "$executor" image inspect --format '{{.Id}}' py)
        [ "$(field .image.id)" = "sha256:${id#sha256:}" ]
        [[ "$(field .isolation.mechanisms.engine)" == [DP]o[cd][km][ea][rn]\ [0-9]* ]]
    else
        [ "$(field .isolation.level)" = full ]
        [ "$(field .image)" = null ]
    fi
    if [ "$executor" = slurm ]; then
        [ "$(field .cluster.name)" = Slurm ]
        [[ "$(field .cluster.job)" =~ ^[0-9]+$ ]]
        [[ "$(field .cluster.node)" == "$(slurm_node "")"[123] ]]
    else
        [ "$(field .cluster)" = null ]
    fi
    [ "$(of "$(field .run_id)" .executor)" = "$executor" ]
}

@test "ps and top show the memory of a run while it runs" {
    submit -i gate --memory 256M -- python3 -c '
import os, sys, time
b = b"x" * (100 << 20)
print("ready", flush=True)
while not os.path.exists(sys.argv[1]): time.sleep(0.02)' "$T/gate/open"
    patiently says_ready
    # The store hears a moment later that it runs.
    ps_shows() { "$FORGE" ps | grep -qE "^$id .*running .* 1[0-9]{2}(\.[0-9]+)? MiB"; }
    top_shows() { "$FORGE" top --once | grep -qE "^${id:0:13} .* 1[0-9]{2}(\.[0-9]+)? MiB"; }
    patiently ps_shows
    patiently top_shows
    open_gate
    finished "$id"
    [ "$(field .status)" = succeeded ]
}

# ---- together

@test "many at once all end with their own verdict" {
    n=100
    for i in $(seq "$n"); do
        "$FORGE" submit "${OPTS[@]}" --id "n$i" -- sh -c "echo out-$i; echo $i >f; exit $i" >"id-$i" 3>&- &
    done
    wait
    for i in $(seq "$n"); do
        finished "$(cat "id-$i")"
        [ "$status" -eq "$i" ]
        [ "$(field .status)" = failed ]
        [ "$(field .analysis_id)" = "n$i" ]
        [ "$(cat "$(field .logs.stdout)")" = "out-$i" ]
        [ "$(outputs)" = f ]
    done
}

@test "post-process: its lines are kept with the verdict" {
    forge_run -o 'r/*' --post-process 'for f in r/*; do printf "{\"file\": \"%s\", \"text\": \"%s\"}\n" "$f" "$(cat "$f")"; done' \
        -- sh -c 'mkdir r; echo one >r/a; echo two >r/b'
    [ "$status" -eq 0 ]
    [ "$(field .post_process.status)" = succeeded ]
    [ "$(field .post_process.records)" -eq 2 ]
    [ "$("$FORGE" post-process --records "$(field .run_id)" | jq -r '"\(.file)=\(.text)"' | xargs)" = "r/a=one r/b=two" ]
}

@test "rerun: the same again, on the same executor" {
    echo data >in
    forge_run -i in -- sh -c 'cat in; echo $FORGE_MEMORY_BYTES; exit 4'
    first=$(field .run_id)
    OPTS=()
    status=0
    "$FORGE" rerun --json --memory 128M "$first" >"$record" 2>"$err" </dev/null || status=$?
    [ "$status" -eq 4 ]
    [ "$(field .executor)" = "$executor" ]
    [ "$(cat "$(field .logs.stdout)")" = $'data\n134217728' ]
    [ "$(field .run_id)" != "$first" ]
}
