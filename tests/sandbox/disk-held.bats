#!/usr/bin/env bats
# The disk limit counts what a run holds wherever it holds it, what it takes without writing, and
# nothing that others wrote.
# SPDX-License-Identifier: Apache-2.0

load ../lib/forge.bash
setup() {
    setup_forge
    OPTS=(--disk 50M --timeout 60s)
}
teardown() { teardown_forge; }

# over PROBE ARG...: ended for its disk, before it had what it wanted.
over() {
    probe "$@"
    verdict killed disk 137
}

@test "the disk limit: mapped files with names full of line ends" { over fill-lines 200; }

@test "the disk limit: programs that run" { over fill-programs 200; }

# is_unmapped PID: it runs the probe, of which nothing is mapped.
is_unmapped() { [ "$(readlink "/proc/$1/exe")" = "$PROBE" ] && ! grep -qF "$PROBE" "/proc/$1/maps"; }

@test "the disk limit: programs that run and have unmapped themselves" {
    background "$PROBE" hold-unmapped
    wait_for is_unmapped "$pid"
    over fill-unmapped 200
}

@test "the disk limit: also where the first look was at a sandbox that was not ready" {
    skip_unless "strace cannot trace here" strace -qq -o /dev/null true
    for attack in fill-deleted fill-unmapped; do
        status=0
        ASAN_OPTIONS=detect_leaks=0:${ASAN_OPTIONS:-} strace -f -qq -o "$T/trace" -e trace=pivot_root \
            -e inject=pivot_root:delay_enter=300ms "$FORGE" run --json "${OPTS[@]}" -- "$PROBE" "$attack" 200 >"$record" ||
            status=$?
        grep pivot_root "$T/trace"
        echo "$attack: $(field .completion_notes)"
        verdict killed disk 137
    done
}

@test "the disk limit: files in a socket with many locks" { over fill-locked 200; }

@test "the disk limit: deleted directories, open or somebody's place" {
    OPTS=(--disk 10M --timeout 60s)
    probe fill-dirs 40
    [[ "$answer" == "skip: "* ]] || verdict killed disk 137
    probe fill-dirs 40 cwd
    [[ "$answer" == "skip: "* ]] || verdict killed disk 137
}

@test "the disk limit: the workdir's own directory" {
    OPTS=(--disk 10M --timeout 60s)
    probe fill-workdir 40
    [[ "$answer" == "skip: "* ]] || verdict killed disk 137
}

@test "the disk limit: files that only a Landlock rule keeps" { holds fill-rules 100; }

@test "the disk limit: blocks cannot be taken without writing, as nothing would count them" {
    holds allocate 500
    [ "$(field .usage.disk_peak_bytes)" -lt 10000000 ]
}

@test "what others write is not charged to a run that keeps a deleted input mapped" {
    # On the workdir's own file system, so that the loss is seen there.
    dir=$(mktemp -d "$work/forge-input-XXXXXX")
    echo content >"$dir/input"
    chmod 755 "$dir"
    chmod 644 "$dir/input"
    background "$FORGE" run --json "${OPTS[@]}" -i "$dir" -i "$PROBE" -- \
        "$PROBE" map-only 4 "$dir/input" >"$T/run.json"
    local run=${started[-1]}
    wait_for has_said mapped
    rm "$dir/input"
    head -c 200000000 /dev/zero >"$dir/neighbour"
    wait "$run" || true
    rm -rf "$dir"
    [ "$(field .status "$T/run.json")" = succeeded ]
}

# has_said WORD: a run of this test, in its log.
has_said() { cat "$FORGE_HOME"/runs/*/stdout | grep -q "$1"; }

@test "what others write is not charged to a run with descriptors in a socket" {
    dir=$(mktemp -d "$work/forge-input-XXXXXX")
    background "$FORGE" run --json "${OPTS[@]}" -- python3 -c '
import os, socket, time
a, b = socket.socketpair()
socket.send_fds(a, [b"x"], [os.open("f", os.O_RDWR | os.O_CREAT)])
print("sent", flush=True)
time.sleep(4)' >"$T/run.json"
    local run=${started[-1]}
    wait_for has_said sent
    head -c 200000000 /dev/zero >"$dir/neighbour"
    wait "$run" || true
    rm -rf "$dir"
    [ "$(field .status "$T/run.json")" = succeeded ]
}

@test "the core limit cannot be changed, and asking for it does no harm" {
    forge_run -- sh -c 'ulimit -c 0 && ulimit -c; ulimit -c unlimited; grep "core file" /proc/self/limits'
    [ "$status" -eq 0 ]
    grep -qE 'core file size +1 +1 ' "$out"
}
