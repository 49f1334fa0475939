#!/usr/bin/env bats
# Limits: each is met by an attack, and the verdict names it with numbers.
# SPDX-License-Identifier: Apache-2.0

load ../lib/forge.bash
setup() {
    setup_forge
    OPTS=(--memory 64M --timeout 10s --grace 300ms)
}
teardown() { teardown_forge; }

# between LOW VALUE HIGH: of numbers with fractions.
between() { awk -v l="$1" -v v="$2" -v h="$3" 'BEGIN { exit !(l <= v && v <= h) }'; }

@test "[30] a fork bomb meets the limit, and the run may go on" {
    OPTS+=(--pids 20)
    holds fork-bomb 500
    [[ "$answer" == *"EAGAIN after 19 processes"* ]]
    [ "$(field .status)" = succeeded ]
    [ "$(field .usage.pids_peak)" -eq 20 ]
    [ "$(field .usage.pids_refused)" -ge 1 ]
}

@test "[30] a run that fails after meeting the process limit failed because of it" {
    OPTS+=(--pids 20)
    probe fork-bomb 500 3
    verdict failed pids 3
    [[ "$(field .completion_notes)" == *"limit of 20"*"--pids 40"* ]]
}

@test "[30] vforks and threads count as processes" {
    OPTS+=(--pids 20)
    holds vfork-bomb 500
    holds thread-bomb 500
    [ "$(field .usage.pids_peak)" -le 20 ]
}

@test "[30] a wild bomb is gone within a second of its time limit" {
    OPTS=(--pids 200 --timeout 1s --grace 100ms)
    start=$(now_ms)
    probe wild-bomb 20
    in_time "$start" 2500
    verdict killed wall_time 124
}

@test "memory that runs out in a group around a run does not end the run" {
    dir=$(printf '%s\n' "${cgroup_dirs[@]}" | grep -m1 /memory/ || true)
    skip_unless "no cgroup v1 with memory" test -w "$dir/cgroup.procs"
    mkdir "$dir/around" gate
    echo 512M >"$dir/around/memory.limit_in_bytes"
    # shellcheck disable=SC2016 # expanded inside
    inside='echo $$ >"$1/around/cgroup.procs"; shift; exec "$@"'
    bash -c "$inside" - "$dir" "$FORGE" run -i "$T/gate" --memory 32M -- \
        sh -c "echo ready; until [ -e '$T/gate/open' ]; do sleep 0.05; done" >"$out" 2>"$err" 3>&- &
    pid=$!
    wait_for grep -q ready "$out"
    run bash -c "$inside" - "$dir" python3 -c 'b = b"x" * (2 << 30)'
    [ "$status" -eq 137 ]
    touch gate/open
    wait "$pid" || { cat "$err"; false; }
    wait_for rmdir "$dir/around" # the dead may take a moment
}

@test "[31] one process over the memory limit: killed, with peak and advice" {
    probe mem-one 256
    verdict killed memory 137
    [[ "$(field .completion_notes)" == *"64.00 MiB of 64.00 MiB"*"--memory 128M"* ]]
    between 60000000 "$(field .usage.memory_peak_bytes)" 67108864
}

# named_as PATTERN COMMAND...: runs it until the verdict names somebody, who must be that one.
# Best effort by design: the kernel does not wait for whoever wants to know.
named_as() {
    local pattern=$1 notes
    shift
    for _ in 1 2 3 4 5; do
        forge_run -i "$PROBE" -- "$@"
        verdict killed memory 137
        notes=$(field .completion_notes)
        if [[ "$notes" == *largest* ]]; then
            LC_ALL=C grep -qE "\(largest: $pattern [3-6][0-9]\.[0-9]{2} MiB\)\. Retry with --memory 128M\.$" <<<"$notes"
            return
        fi
    done
    return 1
}

@test "[31] the verdict names the largest process" {
    named_as analysis sh -c 'sleep 9 & "$1" mem-named 20 small & "$1" mem-named 256 analysis; wait' sh "$PROBE"
}

@test "[31] a name that a process gives itself cannot say anything else" {
    named_as '\?\?31m\?\?\?\?\?\.\?\?x' "$PROBE" mem-named 256
}

@test "[31] many small processes over the limit together: all killed" {
    OPTS+=(--pids 100)
    probe mem-many 256 4
    verdict killed memory 137
    [ -z "$answer" ] # nobody was left to say so
}

@test "[31] files in /dev/shm, memfds, System V segments and pipes are memory" {
    for attack in "mem-tmpfs 256 /dev/shm" "mem-memfd 256" "mem-sysv 256"; do
        # shellcheck disable=SC2086 # words on purpose
        probe $attack
        verdict killed memory 137
    done
    OPTS+=(--open-files 20000)
    probe mem-pipes 256
    verdict killed memory 137
}

@test "[31] /tmp has a size of its own, and is memory" {
    holds mem-tmpfs 256 /tmp
    [[ "$answer" == *"ENOSPC after 32 MiB"* ]]
    between 33554432 "$(field .usage.memory_peak_bytes)" 67108864
}

@test "[33] memory that is reserved and not used is nobody's concern" {
    holds mem-lazy 64
    [ "$(field .status)" = succeeded ]
}

@test "[34] threads share the CPUs of the limit" {
    OPTS=(--cpus 0.5 --timeout 10s)
    holds cpu-threads 1 4
    between 0.3 "$(field .usage.cpu_seconds)" 0.75
}

@test "[34] CPU time counts all threads" {
    OPTS+=(--cpu-time 500ms --cpus 2)
    probe cpu-threads 5 4
    verdict killed cpu_time 124
    between 0.5 "$(field .usage.cpu_seconds)" 0.9
}

@test "[34] CPU time counts children that are gone" {
    OPTS+=(--cpu-time 500ms)
    probe cpu-children 5
    verdict killed cpu_time 124
    between 0.5 "$(field .usage.cpu_seconds)" 0.9
}

@test "[35] a run that sleeps for ever ends on time" {
    OPTS=(--timeout 700ms)
    probe sleep 30
    verdict killed wall_time 124
    lasted 0.7 0.9
    [[ "$(field .completion_notes)" == *"of 700 ms"* ]]
}

@test "[35] the wall time is kept to 20 ms, and never cut short" {
    OPTS=(--timeout 300ms)
    # On a busy machine a run may wait for a CPU as long as it likes; a timer that is late by itself always is.
    in_time=0
    for _ in {1..40}; do
        probe sleep 30
        verdict killed wall_time 124
        lasted 0.3 0.5
        if between 0.3 "$(field .usage.wall_seconds)" 0.32; then
            in_time=$((in_time + 1))
        fi
        [ "$in_time" -lt 3 ] || break
    done
    [ "$in_time" -eq 3 ]
}

@test "[36] a run that ignores all signals is killed after its grace, and not before" {
    OPTS=(--timeout 300ms --grace 400ms)
    probe stubborn 30
    verdict killed wall_time 124
    lasted 0.7 0.9
}

@test "[36] a run that ends when asked is not kept waiting" {
    OPTS=(--timeout 300ms --grace 8s)
    probe polite 30
    verdict killed wall_time 124
    [[ "$answer" == "held: ended when asked" ]]
    lasted 0.3 0.9
}

@test "[36] a stopped run and one waiting in vfork are killed" {
    OPTS=(--timeout 300ms --grace 200ms)
    for attack in stopped vfork-wait; do
        probe "$attack"
        verdict killed wall_time 124
        lasted 0.3 0.9
    done
}

@test "[37] a flood of either stream is cut at the limit, to the byte" {
    OPTS+=(--output-limit 1M)
    for fd in 1 2; do
        forge_run -- "$PROBE" flood $fd
        verdict killed output 137
        name=$([ $fd -eq 1 ] && echo stdout || echo stderr)
        [ "$(stat -c %s "$(field ".logs.$name")")" -eq 1048576 ]
        [ "$(field ".usage.${name}_truncated")" = true ]
        [[ "$(field .completion_notes)" == *"$name"* ]]
    done
}

@test "[37] exactly the limit is not too much, one byte more is" {
    OPTS+=(--output-limit 1M)
    forge_run -- "$PROBE" flood 1 1048576
    [ "$(field .status)" = succeeded ]
    [ "$(field .usage.stdout_truncated)" = false ]
    [ "$(field .usage.stdout_bytes)" -eq 1048576 ]
    forge_run -- "$PROBE" flood 1 1048577
    verdict killed output 137
    [ "$(stat -c %s "$out")" -eq 1048576 ]
}

@test "[37] the limit cuts a live stream at the same byte" {
    run --separate-stderr sh -c '"$FORGE" run --output-limit 64K "$1" flood 1 >"$2"' sh "$PROBE" "$T/live"
    [ "$status" -eq 137 ]
    [ "$(stat -c %s "$T/live")" -eq 65536 ]
}

@test "[37] NULs, escapes and bytes that are no text reach the log as they are" {
    forge_run -- printf '\0\377\376\033[31m\r'
    [ "$(od -An -tx1 "$out" | tr -d ' \n')" = 00fffe1b5b33316d0d ]
    field .run_id
}

# The log has grown to at least 100 MB.
has_flood() { [ "$(stat -c %s "$FORGE_HOME"/runs/*/stdout 2>/dev/null || echo 0)" -gt 100000000 ]; }

@test "[37] forge stays small while a run floods it" {
    case $(ldd "$FORGE") in *asan*) skip_unless "sanitizers take memory of their own" false ;; esac
    background "$FORGE" run -q --timeout 20s --output-limit 2G "$PROBE" flood 1
    wait_for has_flood
    size=$(awk '/^VmHWM/ { print $2 }' "/proc/$pid/status")
    echo "$size KiB"
    [ "$size" -lt 6144 ]
    kill -TERM "$pid"
    wait "$pid" || true
}

@test "[38] resource limits are set, hard, and cannot be raised" {
    OPTS+=(--open-files 200 --disk 32M)
    holds open-files 4096
    [[ "$answer" == *"EMFILE after 200"* ]]
    holds rlimits 200
    holds core
}

@test "the disk limit: one file, many files, deleted files, closed directories" {
    OPTS+=(--disk 16M)
    holds fill-one 64
    for attack in fill-many fill-deleted fill-hidden; do
        probe "$attack" 64
        # A limit on the size of one file may be met first.
        [[ "$answer" == "held: EFBIG after 16 MiB"* ]] || verdict killed disk 137
        [[ "$answer" != broke* ]]
    done
}

@test "the disk limit: deleted files that are only mapped" {
    OPTS+=(--disk 16M)
    probe fill-mapped 64
    verdict killed disk 137
}

@test "the disk limit: deleted files inside a socket" {
    OPTS+=(--disk 16M)
    probe fill-sent 64
    [[ "$answer" == held:* ]] || verdict killed disk 137
}

@test "the disk limit says how much, and how to get more" {
    OPTS+=(--disk 16M)
    probe fill-many 64
    [[ "$(field .completion_notes)" == *"MiB of 16.00 MiB"*"--disk 32M"* ]]
    between 16777216 "$(field .usage.disk_peak_bytes)" 33554432
}

@test "the limit on files holds" {
    OPTS+=(--inodes 500)
    probe fill-inodes 100000
    verdict killed disk 137
    [[ "$(field .completion_notes)" == *"of 500"*"--inodes 1000"* ]]
}

@test "a file of holes is as large as what is in it, and no longer than the limit" {
    OPTS+=(--disk 16M)
    probe sparse 1
    [[ "$answer" == *EFBIG* ]]
    OPTS=(--disk 2T -o none)
    holds sparse 1024
    [ "$(field .status)" = succeeded ]
    between 0 "$(field .usage.disk_peak_bytes)" 1048576
}

@test "a tree too deep to measure is over the limit; a deep one is not" {
    probe deep 20000
    verdict killed disk 137
    holds deep 200
}

# Of the file system that workdirs are on.
has_disk() { [ "$(stat -c %Hd "$work")" -ne 0 ]; }

@test "[39] the I/O rate holds past the page cache, reading and writing" {
    skip_unless "workdirs are on no disk that can be limited" has_disk
    OPTS+=(--io-rate 4M)
    holds io-rate 8 4
    [ "$(field .limits.io_bytes_per_second)" -eq 4194304 ]
    [ "$(field .isolation.level)" = full ]
    # 8 MiB twice, at 4 MiB a second; and it is the limit that takes the time.
    lasted 3 6
    OPTS=(--timeout 10s)
    probe io-rate 8 4
    [[ "$answer" == broke* ]]
    lasted 0 1.5
}

@test "[39] a run that waits for its disk ends on time all the same" {
    skip_unless "workdirs are on no disk that can be limited" has_disk
    OPTS=(--io-rate 1M --timeout 1s --grace 100ms --memory 256M)
    probe io-stuck 64
    verdict killed wall_time 124
    lasted 1.0 3
    holds io-stuck 64 leave
    lasted 0.2 2
}

# The supervisor of the run in the background has started its command.
has_started() { grep -q '"started"' "$FORGE_HOME"/runs/*/events.jsonl 2>/dev/null; }

# A probe of ours sleeps where no signal reaches it.
waits_for_disk() { named forge-probe | sed 's/comm$/status/' | xargs -r grep -qs '^State:.D'; }

@test "[39] gc ends a run that waits for its disk and has no supervisor" {
    skip_unless "workdirs are on no disk that can be limited" has_disk
    background "$FORGE" run -q --io-rate 1M --memory 256M "$PROBE" io-stuck 64
    wait_for has_started
    wait_for waits_for_disk
    kill -KILL "$pid"
    wait "$pid" || true
    start=$(now_ms)
    run -0 "$FORGE" gc
    in_time "$start" 3000
}

@test "[39] an I/O rate that cannot be enforced is refused, with file system and advice" {
    skip_unless "there is no tmpfs on /dev/shm" test "$(stat -fc %T /dev/shm)" = tmpfs
    work=/dev/shm
    configure
    OPTS=(--io-rate 4M)
    forge_run -- true
    [ "$status" -eq 125 ]
    [ "$(field .status)" = rejected ]
    [[ "$(field .completion_notes)" == *"/dev/shm/"*" is on tmpfs"*"without --io-rate"*allow_missing* ]]
    [ "$(field '.isolation.missing[0]')" = io ]
    run -0 "$FORGE" run --dry-run "${OPTS[@]}" true
    [[ "$output" == *"is on tmpfs"* ]]
}

@test "[39] what may be missing is, and the record says so" {
    skip_unless "there is no tmpfs on /dev/shm" test "$(stat -fc %T /dev/shm)" = tmpfs
    work=/dev/shm
    configure "sandbox: {allow_missing: [io]}"
    OPTS=(--io-rate 4M)
    forge_run -- true
    [ "$status" -eq 0 ]
    [ "$(field '.isolation.missing[0]')" = io ]
    [ "$(field .isolation.level)" = partial ]
}

# with_partition COMMAND...: in a mount namespace with ext4 on a partition of a loop device
# ($loop) at $T/disk. The kernel is told of the partition: it need not know any table.
with_partition() {
    local rc=0
    truncate -s 64M "$T/image"
    mkdir "$T/disk"
    loop=$(losetup -f -P --show "$T/image")
    addpart "$loop" 1 2048 129024 && mkfs.ext4 -q "${loop}p1" &&
        unshare -m sh -c 'mount "$1" "$2" && shift 2 && "$@"' sh "${loop}p1" "$T/disk" "$@" || rc=$?
    losetup -d "$loop"
    return "$rc"
}

@test "[39] the I/O rate is kept by the whole disk of a partition, here a loop device" {
    skip_unless "only root can do this" is_root
    for tool in losetup addpart mkfs.ext4; do
        skip_unless "$tool is not installed" command -v "$tool"
    done
    configure "workdir: $T/disk/{id}"
    with_partition sh -c '"$FORGE" run --json --io-rate 4M "$1" io-rate 8 4 >"$2"
        "$FORGE" run --dry-run --io-rate 4M true >"$3"' sh "$PROBE" "$record" "$T/plan"
    answer=$(cat "$(field .logs.stdout)")
    echo "$answer $(field .completion_notes)"
    [[ "$answer" == held* ]]
    [ "$(field .cgroup.io_max.disk "$T/plan")" = "$(basename "$loop")" ]
    [ "$(field .cgroup.io_max.device "$T/plan")" = "$(cat "/sys/block/$(basename "$loop")/dev")" ]
}

@test "[40] limits of one run are not those of the next" {
    OPTS=(--memory 32M --pids 5)
    holds fork-bomb 100
    OPTS=(--memory 128M --pids 50)
    probe mem-one 64
    [[ "$answer" == "broke: 64 MiB"* ]] # it may
    holds fork-bomb 100
    [[ "$answer" == *"after 49"* ]]
}

@test "CPUs, nproc and thread variables follow --cpus" {
    OPTS=(--cpus 1)
    holds cpus 1
    forge_run -- nproc
    [ "$(cat "$out")" -eq 1 ]
    OPTS=(--cpus 1.5)
    n=$(nproc)
    forge_run -- sh -c 'nproc; echo $OMP_NUM_THREADS'
    [ "$(head -n 1 "$out")" -eq $((n < 2 ? n : 2)) ]
    [ "$(tail -n 1 "$out")" -eq $((n < 2 ? n : 2)) ]
}

@test "the run cannot see or touch its control groups" {
    holds cgroup
    breaks cgroup
}
