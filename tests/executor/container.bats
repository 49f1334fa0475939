#!/usr/bin/env bats
# Containers: what a user can get wrong, and what can go wrong while a run is in one. A run that cannot be is refused
# with the reason and what to do; one whose engine fails still gets a verdict, in time, and nothing stays behind.
# SPDX-License-Identifier: Apache-2.0

load ../lib/executor.bash

setup_file() { setup_engines docker podman; }
teardown_file() { engines_remove; }
setup() {
    setup_executor docker
    engine_name=
}
teardown() {
    local name
    # A test that failed may have left its engine dead.
    for name in ${engine_name:+"$engine_name"}; do
        engine_answers "$name" || engine_start "$name"
    done
    "$FORGE" gc >/dev/null 2>&1 || true
    teardown_executor
}

engine_answers() { curl -sf -m 5 --unix-socket "$(engine_socket "$1")" http://engine/v1.41/_ping >/dev/null; }

# use NAME: the executor of what follows.
use() { executor=$1 OPTS=(--executor "$1"); }

# declares LINE...: executors: with these declarations, and nothing else.
declares() { configure 'executors:' "${@/#/  }"; }

# refused TEXT...: the last run never started, and its sentence has all of that.
refused() {
    local text
    [ "$status" -eq 125 ]
    [ "$(field .status)" = rejected ]
    [ "$(field .started_at)" = null ]
    for text; do
        [[ "$(field .completion_notes)" == *"$text"* ]]
    done
}

no_containers() { [ -z "$(containers "$1")" ]; }
is_over() { [ "$(of "$1" .ended_at)" != null ]; }

# copy_forge DIR PROGRAM...: forge, and what else is named, where every user can reach it.
copy_forge() {
    local dir=$1 name found
    shift
    mkdir -p "$dir"
    cp "$FORGE" "$dir/forge"
    for name; do
        for found in "$(dirname "$FORGE")/$name" "$(dirname "$FORGE")/../executor/container/$name"; do
            [ ! -e "$found" ] || cp "$found" "$dir/$name"
        done
    done
    chmod 755 "$dir" "$dir"/*
}

# ---- what is refused

@test "an executor that there is not: a near miss is named" {
    run "$FORGE" run --executor dockr -- true
    [ "$status" -eq 125 ]
    [[ "$output" == *"unknown executor 'dockr'"*"local"*"did you mean 'docker'?"* ]]
    run "$FORGE" run --executor '' -- true
    [ "$status" -eq 125 ]
    [ -z "$(ps_ids)" ]
}

@test "executors: in the configuration of a project is refused" {
    mkdir project
    printf 'version: 1\nexecutors:\n  docker: {kind: container, socket: /tmp/evil.sock, image: x}\n' >project/forge.yaml
    cd project
    run "$FORGE" run -- true
    [ "$status" -ne 0 ]
    [[ "$output" == *"./forge.yaml:"*"executors"*"/etc/forge/forge.yaml"* ]]
}

@test "declarations that mean nothing are refused with their place" {
    for bad in 'docker: {kind: vessel}' 'docker: {socket: 1}' 'docker: {kind: container, sock: /x}' 'local: {kind: container}' 'x: {image: tiny}'; do
        declares "$bad"
        run "$FORGE" run -- true
        [ "$status" -eq 125 ]
        [[ "$output" == *"forge.yaml:3"* ]]
    done
}

@test "an engine that is not running: no socket, or nobody behind it" {
    declares "docker: {kind: container, socket: $T/none.sock, image: tiny}"
    forge_run -- true
    refused "$T/none.sock" "No such file or directory" "Is it running?"
    python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' dead.sock
    declares "docker: {kind: container, socket: $T/dead.sock, image: tiny}"
    forge_run -- true
    refused "$T/dead.sock" "Connection refused" "Is it running?"
    declares "docker: {kind: container, socket: $T/forge.yaml, image: tiny}"
    forge_run -- true
    refused "$T/forge.yaml"
}

@test "a socket of something else is not taken for an engine" {
    cat >other.py <<'PY'
import socket, sys
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
while True:
    peer = server.accept()[0]
    peer.recv(4096)
    peer.sendall(b"HTTP/1.0 200 OK\r\nServer: nginx\r\n\r\n<html>\0\xff")
    peer.close()
PY
    background python3 other.py "$T/other.sock"
    patiently test -S other.sock
    declares "docker: {kind: container, socket: $T/other.sock, image: tiny}"
    forge_run -- true
    refused "$T/other.sock is not the socket of Docker or Podman"
}

@test "a socket that the user may not use" {
    dir=$(mktemp -d)
    chmod 755 "$dir"
    copy_forge "$dir/bin" forge-shim
    mkdir -m 700 "$dir/home" "$dir/work"
    configure "workdir: $dir/work/{run_id}" 'executors:' \
        "  docker: {kind: container, socket: $FORGE_ENGINES/docker.sock, image: tiny}" \
        "  podman: {kind: container, socket: $FORGE_ENGINES/podman.sock, image: tiny}"
    cp "$FORGE_CONFIG" "$dir/forge.yaml"
    chown -R 12345 "$dir/home" "$dir/work" "$dir/forge.yaml"
    cd "$dir"
    for name in docker podman; do
        run setpriv --reuid 12345 --regid 12345 --clear-groups env FORGE_HOME="$dir/home" FORGE_CONFIG="$dir/forge.yaml" \
            HOME="$dir/home" "$dir/bin/forge" run --executor "$name" -- true
        [ "$status" -eq 125 ]
        [[ "$output" == *"$name.sock"*"Permission denied"* ]]
        [[ "$output" == *"Your user may not use it"* ]]
    done
    [ -z "$(find "$dir/work" -mindepth 1)" ]
    cd "$T"
    rm -rf "$dir"
}

@test "an image that the engine does not have is named, and how to get it" {
    for name in docker podman; do
        use "$name"
        declares "$name: {kind: container, socket: $(engine_socket "$name"), image: registry.example/a/b:1}"
        forge_run -- true
        refused "does not have the image registry.example/a/b:1" "$name pull registry.example/a/b:1"
    done
}

@test "no image, and names that no image can have" {
    declares "docker: {kind: container, socket: $(engine_socket docker)}"
    forge_run -- true
    refused "no image is named" "executors.docker.image"
    for image in '../../containers/json' 'a b' 'x?force=1' 'tiny#' 'a%2fb' '' ; do
        declares "docker: {kind: container, socket: $(engine_socket docker), image: '$image'}"
        status=0
        "$FORGE" run --json "${OPTS[@]}" -- true >"$record" 2>"$err" || status=$?
        [ "$status" -eq 125 ]
    done
}

@test "what is not UTF-8 is refused: a word, a variable, an input" {
    for name in docker podman; do
        use "$name"
        forge_run -- echo $'\xff\xfe'
        refused UTF-8
        forge_run --env X=$'\xff' -- true
        refused UTF-8
        : >$'bad\xff'
        forge_run -i $'bad\xff' -- true
        [ "$status" -eq 125 ]
    done
}

@test "forge-shim is not installed" {
    copy_forge "$T/alone"
    FORGE=$T/alone/forge
    forge_run -- true
    refused "forge-shim is not installed"
}

@test "a container that the engine cannot start is reported at once" {
    use podman
    begin=$(now_ms)
    # No runtime can start in that.
    forge_run --memory 1M -- true
    in_time "$begin" 5000
    refused Podman
    use docker
    forge_run --memory 4M -- true
    refused Docker "Minimum memory limit"
}

@test "an I/O rate that nothing enforces is refused, not ignored" {
    for name in docker podman; do
        use "$name"
        forge_run --io-rate 5M -- true
        refused "does not enforce here: io"
    done
}

# ---- inputs

@test "paths with spaces, colons, quotes and equal signs are inputs like any other" {
    odd=("a b" "e:f" "g:ro" "q'uote" 'do$lar' 'ba\slash' "ü" "-n" "x=y")
    for name in podman docker; do
        use "$name"
        [ "$name" = podman ] || odd+=("c,d" 'q"uote' "h=i,readonly=false" $'new\nline')
        more=()
        for path in "${odd[@]}"; do
            mkdir -p "in/$path"
            printf '%s\n' "$path" >"in/$path/file"
            more+=(-i "in/$path")
        done
        forge_run "${more[@]}" -- sh -c 'cat in/*/file; for d in in/*; do (: >"$d/x") 2>/dev/null && echo "wrote $d"; done; true'
        [ "$(sort "$out")" = "$(printf '%s\n' "${odd[@]}" | sort)" ]
        [ "$(find in -name x | wc -l)" -eq 0 ]
    done
}

# Podman makes a line of CSV of a mount, and reads that.
@test "the name of an input does not make another mount of it" {
    mkdir -p secret
    echo secret >secret/file
    for name in docker podman; do
        use "$name"
        for odd in "x,source=$T/secret" "y,rw=true" "z,bind-propagation=rshared" $'new\nline'; do
            mkdir -p -m 777 "in/$odd"
            echo mine >"in/$odd/file"
            forge_run -i "in/$odd" -- sh -c 'find "$1" -name file -exec cat {} +; cd "$1/in/"*; : >new; true' sh "$T"
            [ "$name" = docker ] || refused "Podman cannot mount a path with a comma"
            run ! grep -qs secret "$out"
            [ ! -e "in/$odd/new" ]
        done
    done
}

@test "an input below /tmp, and one that is a mount of its own" {
    for name in docker podman; do
        use "$name"
        dir=$(mktemp -d /tmp/forge-input-XXXXXX)
        chmod 755 "$dir"
        echo below >"$dir/f"
        forge_run -i "$dir" -- sh -c 'cat "$1/f"; ls -A /tmp' sh "$dir"
        [ "$(head -n 1 "$out")" = below ]
        [ "$(grep -c "^${dir##*/}\$" "$out")" -eq 1 ]
        mount -t tmpfs -o mode=755 none "$dir"
        echo mounted >"$dir/f"
        forge_run -i "$dir" -- sh -c 'cat "$1/f"; : >"$1/new"' sh "$dir"
        [ "$(head -n 1 "$out")" = mounted ]
        [ ! -e "$dir/new" ]
        umount "$dir"
        rm -r "$dir"
    done
}

@test "a mount inside an input is not writable either" {
    mkdir -p in/sub
    mount -t tmpfs -o mode=777 none in/sub
    echo x >in/sub/f
    for name in docker podman; do
        use "$name"
        forge_run -i in -- sh -c ': >in/sub/new; rm -f in/sub/f; true'
        [ -e in/sub/f ]
        [ ! -e in/sub/new ]
    done
    umount in/sub
}

@test "a system directory as an input does not hide the image's own" {
    for name in docker podman; do
        use "$name"
        forge_run -i /usr/share/misc -i /etc/hostname -- sh -c 'ls -l /bin/sh'
        [ "$status" -eq 0 ]
        [[ "$(cat "$out")" == *busybox* ]]
    done
}

@test "what an image asks for does not weaken the run: volumes, user, entry point, health check" {
    for name in docker podman; do
        use "$name"
        more=()
        [ "$name" = podman ] || more=(--change 'HEALTHCHECK --interval=100ms CMD touch /opt/healthy')
        engine "$name" import --change 'VOLUME /opt' --change 'USER root' --change 'ENTRYPOINT ["/bin/false"]' "${more[@]}" \
            "$FORGE_ENGINES/tiny.tar" odd >/dev/null 2>&1
        declares "$name: {kind: container, socket: $(engine_socket "$name"), image: odd}"
        forge_run --memory 64M --disk 5M -- sh -c 'id -u; sleep 1; ls -A /opt; dd if=/dev/zero of=/opt/big bs=1M count=100 2>/dev/null && echo written; true'
        [ "$(field .status)" = succeeded ]
        [ "$(head -n 1 "$out")" -ge 65536 ]
        # A tmpfs lies over the volume, and Landlock refuses to write there.
        [ "$(wc -l <"$out")" -eq 1 ]
        [ -z "$(engine "$name" volume ls -q)" ]
        engine "$name" rmi odd >/dev/null
    done
}

@test "the control directory of another run is not to be had" {
    start
    forge_run -- sh -c 'ls "$1"; cat /.forge/stdout </dev/null & sleep 0.2; kill $! 2>/dev/null; ls /.forge' sh "$FORGE_HOME/containers"
    run ! grep -q "$id" "$out"
    open_gate
    finished "$id"
    [ "$(field .status)" = succeeded ]
}

# ---- guarded files

# site_guard LINE...: $T/site is guarded.
site_guard() {
    mkdir -p "$T/site"
    echo a >"$T/site/page"
    chmod -R a+rwX "$T/site"
    budget 'guard:' "  paths: [$T/site]" "$@"
}
# open_hole: it is in the workdir of the run, too, writable, as hole.
open_hole() {
    "$BATS_TEST_DIRNAME/../tools/hole.py" "$(engine "$executor" inspect -f '{{.State.Pid}}' "forge-$id")" "$T/site" \
        "$(of "$id" .workdir)/hole"
}
# with_hole SCRIPT: a run that does that when it has the hole.
with_hole() {
    submit -- sh -c "mkdir hole; echo ready; until [ -e hole/page ]; do sleep 0.02; done; $1"
    patiently says_ready
    open_hole
    finished "$id"
    field '.health.post.guard | tojson'
}
guard_count() { field ".health.post.guard.$1"; }

@test "guarded files are watched: what a container changes is the run's, what others change is not" {
    for name in docker podman; do
        use "$name"
        site_guard
        with_hole 'echo b >>hole/page'
        [ "$(field .status)" = corrupted ]
        [ "$(guard_count mode)" = watch ]
        [ "$(guard_count by_run)" -eq 1 ]
        [ "$(field '.health.post.guard.files[0] | .path + " " + .what + " " + .by')" = "$T/site/page modified run" ]
        "$FORGE" health clear "$id" --note test
        # By processes that are gone, some of whose parents are gone as well.
        with_hole 'for i in 1 2 3 4 5 6 7 8 9 10; do touch hole/child-$i; (touch hole/grandchild-$i &); done
            until [ "$(ls hole | grep -c child)" -eq 20 ]; do sleep 0.02; done'
        [ "$(field .status)" = corrupted ]
        [ "$(guard_count by_run)" -eq 20 ]
        [ "$(guard_count by_others)" -eq 0 ]
        [ "$(guard_count unattributed)" -eq 0 ]
        "$FORGE" health clear "$id" --note test
        rm -r "$T/site"
        # From outside.
        site_guard
        rm -f "$T/gate/open"
        start
        echo b >>"$T/site/page"
        open_gate
        finished "$id"
        [ "$(field .status)" = succeeded ]
        [ "$(guard_count mode)" = watch ]
        [ "$(guard_count by_run)" -eq 0 ]
        [ "$(guard_count by_others)" -eq 1 ]
    done
}

# In one of several thousand cases a parent ends while the watcher goes from a process to its ancestors.
@test "9,000 changes by processes whose parents are just ending are all the run's" {
    site_guard
    cat >fork.py <<'END'
import os, time
os.mkdir("hole")
print("ready", flush=True)
while not os.path.exists("hole/page"):
    time.sleep(0.02)
for i in range(3000):
    if os.fork() == 0:
        if os.fork() == 0:
            if os.fork() == 0:
                for k in range(3):
                    os.close(os.open(f"hole/{i}-{k}", os.O_CREAT | os.O_WRONLY))
            os._exit(0)
        os._exit(0)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
while len(os.listdir("hole")) < 9001:
    time.sleep(0.02)
END
    submit --pids 4000 -i fork.py -- python3 fork.py
    patiently says_ready
    open_hole
    finished "$id"
    field '.health.post.guard | del(.files) | tojson'
    rm -r "$T/site"
    [ "$(field .status)" = corrupted ]
    [ "$(guard_count by_run)" -eq 9000 ]
    [ "$(guard_count by_others)" -eq 0 ]
    [ "$(guard_count unattributed)" -eq 0 ]
}

@test "two runs in containers are told apart" {
    site_guard
    start
    other=$id
    with_hole 'echo b >>hole/page'
    [ "$(field .status)" = corrupted ]
    [ "$(guard_count by_run)" -eq 1 ]
    bad=$id
    open_gate
    finished "$other"
    [ "$(field .status)" = succeeded ]
    [ "$(guard_count by_others)" -eq 1 ]
    [ "$(field '.health.post.guard.files[0].process')" = "run $bad" ]
}

@test "guarded files that are compared: a change by a container, or by others, is nobody's" {
    site_guard '  mode: snapshot' '  unattributed: corrupted'
    with_hole 'echo b >>hole/page'
    [ "$(field .status)" = corrupted ]
    [ "$(guard_count mode)" = snapshot ]
    [ "$(guard_count unattributed)" -eq 1 ]
    "$FORGE" health clear "$id" --note test
    site_guard '  mode: snapshot' '  unattributed: warn'
    start
    echo b >>"$T/site/page"
    open_gate
    finished "$id"
    [ "$(field .status)" = succeeded ]
    [[ "$(field .completion_notes)" == *"Health: 1 guarded file was changed while it ran, and by whom is not known, e.g. $T/site/page (modified)"* ]]
}

# ---- what goes wrong on the way

@test "a container that is removed by hand ends the run with a verdict" {
    for name in docker podman; do
        use "$name"
        begin=$(now_ms)
        start
        engine "$name" rm -f "forge-$id" >/dev/null
        patiently is_over "$id"
        in_time "$begin" 20000
        finished "$id"
        [ "$status" -ne 0 ]
        [[ "$(field .status)" =~ ^(failed|killed|lost)$ ]]
        [ -n "$(field .completion_notes)" ]
        patiently no_containers "$name"
    done
}

@test "a container that is killed by hand ends the run with a verdict" {
    for name in docker podman; do
        use "$name"
        start
        engine "$name" kill "forge-$id" >/dev/null
        patiently is_over "$id"
        finished "$id"
        [ "$status" -ne 0 ]
        patiently no_containers "$name"
    done
}

# Frozen processes do not die of SIGKILL.
@test "a container that is paused by hand meets its time limit" {
    start --timeout 1s --grace 200ms
    engine docker pause "forge-$id" >/dev/null
    patiently is_over "$id"
    finished "$id"
    [ "$status" -eq 124 ]
    [ "$(field .reason)" = wall_time ]
    patiently no_containers docker
}

# over_without NAME: a run in whose midst its engine dies, up to its verdict, which is its own.
over_without() {
    start
    engine_crash "$1"
    open_gate
    patiently is_over "$id"
    rm gate/open
    [ "$(of "$id" .status)" = succeeded ]
    [ "$(cat "$(of "$id" .logs.stdout)")" = ready ]
}

@test "an engine that dies during a run and comes back: the run is not disturbed" {
    for engine_name in docker podman; do
        use "$engine_name"
        over_without "$engine_name"
        # While its supervisor tries to remove the container.
        engine_start "$engine_name"
        finished "$id"
        [ "$status" -eq 0 ]
        patiently no_containers "$engine_name"
        patiently nothing_active
    done
}

# Its supervisor tries for 10 s to remove the container.
@test "an engine that dies during a run and stays away: gc does the rest when it is back" {
    engine_name=podman
    use podman
    over_without podman
    patiently gone "$(of "$id" .supervisor.pid)"
    finished "$id"
    [ "$status" -eq 0 ]
    [[ "$(field .cleanup_error)" == *podman.sock* ]]
    engine_start podman
    run "$FORGE" gc
    [ "$status" -eq 0 ]
    [[ "$output" == *"remove container forge-$id"* ]]
    no_containers podman
    nothing_active
}

@test "limits hold while the engine is dead" {
    for engine_name in docker podman; do
        use "$engine_name"
        submit -i gate --memory 64M -- sh -c "echo ready; $(gated); python3 -c 'b = bytearray(256 << 20)'"
        patiently says_ready
        engine_crash "$engine_name"
        open_gate
        patiently is_over "$id"
        rm gate/open
        engine_start "$engine_name"
        finished "$id"
        [ "$status" -eq 137 ]
        [ "$(field .reason)" = memory ]
    done
}

@test "an engine that dies before the container is made: refused, nothing left" {
    engine_name=docker
    engine_crash docker
    forge_run -- true
    refused docker.sock
    engine_start docker
    forge_run -- true
    [ "$status" -eq 0 ]
}

@test "a supervisor that is killed: its run does not stay open, and nothing stays behind" {
    for name in docker podman; do
        use "$name"
        mark=97$$.$RANDOM
        submit -i gate -- sh -c "echo ready; sleep $mark & $(gated)"
        patiently says_ready
        murder "$id"
        open_gate
        "$FORGE" gc
        # Whoever watches it now, it is over or on its way there.
        patiently is_over "$id"
        rm gate/open
        echo "$name: $(of "$id" .status) $(of "$id" .reason)"
        patiently no_containers "$name"
        patiently not_on_host "sleep $mark\$"
        patiently nothing_active
        [ ! -e "$(of "$id" .workdir)" ]
    done
}

# Of Podman: a dockerd that comes back takes 10 s to stop what it finds.
@test "a supervisor that is killed while its engine is dead: its run is closed when that is back" {
    engine_name=podman
    use podman
    start
    engine_crash podman
    murder "$id"
    # Says what it cannot do, and does not take long for it.
    begin=$(now_ms)
    run "$FORGE" gc
    in_time "$begin" 20000
    [[ "$output" == *podman.sock* ]]
    engine_start podman
    open_gate
    "$FORGE" gc
    patiently is_over "$id"
    patiently no_containers podman
    patiently nothing_active
}

@test "ten killed at once are ten closed" {
    use docker
    ids=()
    for _ in $(seq 10); do
        submit -i gate -- sh -c "echo ready; $(gated)"
        ids+=("$id")
    done
    for id in "${ids[@]}"; do
        patiently says_ready
    done
    for id in "${ids[@]}"; do
        kill -KILL "$(of "$id" .supervisor.pid)"
    done
    open_gate
    "$FORGE" gc
    for id in "${ids[@]}"; do
        patiently is_over "$id"
    done
    patiently no_containers docker
    patiently nothing_active
}

# ---- rootless Podman

# Its containers have cgroups of their own only where systemd delegates some to the user.
@test "rootless Podman: what it does not enforce is named, and the command does not run" {
    skip_unless "an ordinary user needs newuidmap for that" command -v newuidmap
    skip_unless "a user has cgroups of its own here" test -d /sys/fs/cgroup/memory
    rootless_start 12345
    copy_forge "$rootless/bin" forge-shim
    configure "workdir: $rootless/work/{run_id}" 'executors:' \
        "  podman: {kind: container, socket: $rootless/podman.sock, image: tiny}"
    cp "$FORGE_CONFIG" "$rootless/forge.yaml"
    rootless_run() {
        status=0
        as_rootless env FORGE_HOME="$rootless/forge" FORGE_CONFIG="$rootless/forge.yaml" "$rootless/bin/forge" \
            run --json --executor podman "$@" >"$record" 2>"$err" </dev/null || status=$?
        echo "$* -> $status $(field .status) $(field .reason): $(field .completion_notes)"
    }
    rootless_run -- sh -c 'echo ran'
    refused "Podman" "does not enforce here: memory, cpus, pids" "no cgroups of their own"
    [ ! -s "$(field .logs.stdout)" ]
    # Allowed, it runs as the user itself, under the limits that need no cgroup, and the record says what was missing.
    echo 'sandbox: {allow_missing: [memory, cpus, pids, cpu_time]}' >>"$rootless/forge.yaml"
    rootless_run --timeout 1s --grace 200ms -- sh -c 'id -u; echo x >f; sleep 60'
    [ "$status" -eq 124 ]
    [ "$(field .reason)" = wall_time ]
    [ "$(cat "$(field .logs.stdout)")" = 12345 ]
    [ "$(field '.isolation.missing | sort | join(" ")')" = "cpu_time cpus memory pids" ]
    [ "$(field '.outputs | length')" -eq 1 ]
    [ -z "$(rootless_podman ps -aq)" ]
    [ -z "$(find "$rootless/work" "$rootless/forge/containers" -mindepth 1)" ]
}

@test "an engine whose disk is full: refused with its words, and nothing stays" {
    mount -t tmpfs -o size=4k none "$FORGE_ENGINES/d.data/containers"
    dd if=/dev/zero of="$FORGE_ENGINES/d.data/containers/full" bs=4k count=2 2>/dev/null || true
    forge_run -- true
    umount "$FORGE_ENGINES/d.data/containers"
    refused "no space left on device"
    forge_run -- true
    verdict succeeded exit 0
}
