#!/usr/bin/env bats
# Memory that no cgroup is charged for: the host loses at most the limit and 100 MiB. Each attack
# takes hundreds of MiB where nothing stops it.
# SPDX-License-Identifier: Apache-2.0

load ../lib/forge.bash
setup() {
    setup_forge
    OPTS=(--memory 64M --timeout 30s --grace 300ms)
}
teardown() { teardown_forge; }

most=164 # MiB: --memory 64M and 100

# attack NAME ARG...: while the host's kernel memory is watched. $grown is its growth in MiB. What
# others on the machine do can only add to it, so one of three tries must be within the bound.
attack() {
    local watcher
    for _ in 1 2 3; do
        rm -f "$T/grown"
        background "$BATS_TEST_DIRNAME/../tools/kernel-memory.py" "$T/grown"
        watcher=${started[-1]}
        wait_for test -s "$T/grown"
        probe "$@"
        kill "$watcher"
        wait "$watcher" 2>/dev/null || true
        grown=$(cat "$T/grown")
        echo "kernel memory grew by $grown MiB"
        [ "$grown" -gt "$most" ] || return 0
    done
    return 1
}

# ended_for_it: by the watch over kernel memory, and the verdict says so with a number.
ended_for_it() {
    verdict killed memory 137
    [[ "$(field .completion_notes)" == *"of the host's kernel memory"* ]]
}

@test "time stamps of datagrams, asked for in ancillary data" {
    attack udp-stamps 600 1
}

@test "time stamps of streams" {
    attack tcp-stamps 600 1
}

@test "datagrams that are never finished" {
    attack udp-cork 600 1
    [ "$(field .usage.sockets_refused)" -ge 1 ]
    [[ "$(field .completion_notes)" == *"refused at the limit of 512"*"--sockets 1024"* ]]
}

@test "queues of many streams" {
    attack tcp-many 600 1
    [ "$(field .usage.sockets_refused)" -ge 1 ]
}

@test "queues of connections that nobody accepts, made by one socket over and over" {
    attack tcp-unaccepted 600 2
    attack tcp-unaccepted 600 2 burst
    # On a busy host the watch may end it before it has as many sockets as it may.
    [ "$(field .usage.sockets_refused)" -ge 1 ] || ended_for_it
}

@test "queues of streams over several paths: there are none" {
    attack tcp-many 600 1 mptcp
    [[ "$answer" == "held: "* ]]
}

@test "answers of netlink that nobody reads" {
    attack netlink-errors 600 1
    [ "$(field .usage.sockets_refused)" -ge 1 ]
}

# As many as the sockets allow: that may be within the bound, or end the run.
@test "pages pinned by single bytes in queues" {
    attack tcp-pin 1000 1
    [ "$(field .status)" != killed ] || ended_for_it
}

@test "... with more sockets than there should be: the watch alone ends it" {
    OPTS+=(--sockets 100000 --open-files 4096)
    attack tcp-pin 2000 5
    ended_for_it
}

@test "locks of files, POSIX's and those of open files" {
    attack file-locks 400 5
    ended_for_it
    attack file-locks 400 5 ofd
    ended_for_it
}

@test "whoever pauses while it is tried is known by what it holds" {
    attack tcp-pin 1000 1 burst
    attack file-locks 400 5 burst
    ended_for_it
}

@test "policies for pages of shared memory cannot be set" {
    attack mem-policies 400 5
    [[ "$answer" == "held: mbind: EPERM"* ]]
}

@test "two at once are both ended, a busy neighbour is not" {
    OPTS+=(--cpus 0.4) # all three at the same time, on two CPUs
    background "$FORGE" run --json --memory 256M --timeout 60s --cpus 0.4 -- sh -c '
        i=0
        while [ $i -lt 100000 ]; do
            head -c 4000000 /dev/zero >file; cat file file >copy; rm -f file copy; i=$((i + 1))
            [ -e /usr/lib/os-release ] && cat /usr/lib/os-release /usr/bin/env >/dev/null
        done' >"$T/neighbour.json"
    local neighbour=${started[-1]} one
    background "$FORGE" run --json "${OPTS[@]}" -i "$PROBE" -- "$PROBE" file-locks 400 5 >"$T/one.json"
    one=${started[-1]}
    most=$((2 * most)) # one each
    attack file-locks 400 5 ofd
    ended_for_it
    wait "$one" || true
    [ "$(field .status "$T/one.json")" = killed ]
    [ "$(field .reason "$T/one.json")" = memory ]
    kill -TERM "$neighbour" || true
    wait "$neighbour" || true
    echo "the neighbour: $(field .completion_notes "$T/neighbour.json")"
    # It ran to its end, or until we ended it.
    [ "$(field .reason "$T/neighbour.json")" != memory ]
}

@test "an attack from outside of forge is not blamed on a run" {
    background "$FORGE" run --json --memory 64M --timeout 60s -- sh -c '
        i=0; while [ $i -lt 1500 ]; do cat /usr/lib/os-release /usr/bin/env >file; i=$((i + 1)); done' >"$T/run.json"
    local victim=${started[-1]}
    run env -u FORGE_RUN_ID "$PROBE" udp-cork 300 1
    wait "$victim"
    [ "$(field .status "$T/run.json")" = succeeded ]
}

@test "the number of sockets is a limit like any other" {
    forge_run --sockets 40 -- python3 -c '
import errno, socket
held = []
try:
    for i in range(100):
        held.append(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
except OSError as e:
    print(errno.errorcode[e.errno], len(held))
held.clear()
s = socket.create_server(("127.0.0.1", 0))
c = socket.create_connection(s.getsockname())
print("again")
pairs = [socket.socketpair() for i in range(100)]
socket.create_connection(s.getsockname())
print("pairs do not count")'
    [ "$status" -eq 0 ]
    mapfile -t lines <"$out"
    [[ "${lines[0]}" == "EMFILE "[34]* ]]
    [ "${lines[1]}" = again ]
    [ "${lines[2]}" = "pairs do not count" ]
    [ "$(field .limits.sockets)" -eq 40 ]
    [ "$(field .usage.sockets_refused)" -eq 1 ]
}

@test "programs that list interfaces and talk over loopback work" {
    forge_run -- python3 -c '
import socket
print([n for _, n in socket.if_nameindex()])
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(("127.0.0.1", 0))
u.sendto(b"x", u.getsockname()); print(u.recv(1))
s = socket.create_server(("127.0.0.1", 0))
c = socket.create_connection(s.getsockname())
c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
p, _ = s.accept(); c.sendall(b"y" * 100000); print(len(p.recv(100)))'
    [ "$status" -eq 0 ]
    [ "$(cat "$out")" = "$(printf "['lo']\nb'x'\n100")" ]
}

@test "no BPF program can be made" {
    holds make-bpf
    [[ "$answer" == *"prctl EINVAL"* ]]
    [[ "$answer" == *"seccomp ENOSYS"* ]]
    breaks make-bpf
}

@test "with the host's network no BPF program can be made either" {
    OPTS+=(--network host)
    holds make-bpf
}

@test "protocols that the kernel would load modules for do not exist" {
    holds protocols
    OPTS+=(--network host)
    holds protocols
}

@test "socket options that keep memory or load modules do not exist" {
    holds socket-options
}
