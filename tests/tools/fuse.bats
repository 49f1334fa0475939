#!/usr/bin/env bats
# Inputs and guarded files on a file system whose server does not answer [36]. The kernel lets nobody end who waits
# for it, not even by SIGKILL; the run must end all the same, and what is left must go once the
# server is gone. Needs root, for the mount.
# SPDX-License-Identifier: Apache-2.0

user=${FORGE_TEST_UID:-12345}

setup() {
    : "${FORGE:?set FORGE to the program under test}" "${FUSE_STUCK:?set FUSE_STUCK to the server}"
    bats_require_minimum_version 1.5.0
    [ "$(id -u)" -eq 0 ] || skip "only root can mount"
    [ -c /dev/fuse ] || skip "no /dev/fuse on this host"
    . "$BATS_TEST_DIRNAME/../lib/cgroups.bash"
    . "$BATS_TEST_DIRNAME/../lib/time.bash"
    dir=$(mktemp -d)
    chmod 755 "$dir"
    mkdir "$dir/in"
    mkdir -m 700 "$dir/home" "$dir/work"
    export FORGE FORGE_HOME=$dir/home FORGE_CONFIG=$dir/forge.yaml HOME=$dir
    printf '%s\n' "version: 1" "workdir: $dir/work/{run_id}" >"$FORGE_CONFIG"
    cd "$dir"
    started=()
}

teardown() {
    [ -n "${dir:-}" ] || return 0
    end_server
    for pid in "${started[@]}"; do
        kill "$pid" 2>/dev/null || continue
        wait "$pid" || true
    done
    rm -rf "$dir"
}

# serve WHEN: see fuse-stuck.c. Lives until end_server.
serve() {
    mkfifo "$dir/ends"
    "$FUSE_STUCK" "$dir/in" "$1" <"$dir/ends" >"$dir/said" 3>&- &
    server=$!
    exec {ends}>"$dir/ends"
    wait_for grep -q mounted "$dir/said"
}
end_server() {
    [ -n "${server:-}" ] || return 0
    exec {ends}>&-
    wait "$server"
    server=
}

# wait_for COMMAND...: until it succeeds; fails after half a minute.
wait_for() {
    local deadline=$((SECONDS + 30))
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        read -rt 0.02 <> <(:) || true
    done
}

groups_left() { own_cgroups | while read -r own; do find "$own" -name "forge-$(field .run_id)"; done; }
field() { jq -r "$1" record; }
gone() { [ ! -e "/proc/$1" ] || grep -q '^State:.[ZX]' "/proc/$1/status"; }

# ended STATUS: the run has, soon, with its verdict, and says what is left and why.
ended() {
    echo "$status: $(field .completion_notes) $(field .cleanup_error)"
    [ "$status" -eq "$1" ]
    in_time "$begin" 8000
    [[ "$(field .cleanup_error)" == *"does not answer"*"forge gc"* ]]
    [ -n "$(groups_left)" ]
    [ ! -e "$(field .workdir)" ]
}

# repaired COMMAND...: not while the server is there, whole once it is gone.
repaired() {
    run "$@" "$FORGE" gc
    [ "$status" -ne 0 ]
    [ -n "$(groups_left)" ]
    end_server
    run "$@" "$FORGE" gc
    [ "$status" -eq 0 ]
    [ -z "$(groups_left)" ]
    [ -z "$(find "$FORGE_HOME/active" -type f -size +0)" ]
    # The store has heard by now what was left, and why.
    [[ "$("$@" "$FORGE" show --json "$(field .run_id)" | jq -r .cleanup_error)" == *"does not answer"* ]]
    # The verdict stays what it was.
    [ "$(jq -r .status "$FORGE_HOME"/runs/*/record.json)" = "$(field .status)" ]
}

@test "[36] a read that is never answered: the run ends on time, the rest when it can" {
    serve taken
    begin=$(now_ms) status=0
    "$FORGE" run --json --timeout 500ms --grace 100ms -i in -- cat in/stuck >record {ends}>&- || status=$?
    grep -q read said # it did wait there
    ended 124
    [ "$(field .reason)" = wall_time ]
    # Others are not kept from running.
    run "$FORGE" run -q -- true
    [ "$status" -eq 0 ]
    find "$FORGE_HOME/runs" -mindepth 1 -maxdepth 1 ! -name "$(field .run_id)" -exec rm -rf {} +
    repaired
}

@test "[36] ... also as an ordinary user, with a server that takes no request" {
    serve deaf
    chown -R "$user" home work forge.yaml
    # The user's cgroups must outlive the run, so all of it happens in them.
    cat >steps <<'EOS'
        . "$1/lib/cgroups.bash"
        "$FORGE" run --json --timeout 500ms --grace 100ms -i in -- cat in/stuck >work/record
        echo "status $?" >work/status
        own_cgroups | while read -r own; do find "$own" -name 'forge-0*'; done >work/left
        rm work/left.end 2>/dev/null; read -r _ <"$2"
        "$FORGE" gc >work/gc 2>&1; echo "gc $?" >>work/status
        own_cgroups | while read -r own; do find "$own" -name 'forge-0*'; done >work/left.end
EOS
    mkfifo -m 666 go
    "$BATS_TEST_DIRNAME/delegate.sh" --user "$user" env FORGE_HOME="$FORGE_HOME" HOME="$dir" \
        sh steps "$(realpath "$BATS_TEST_DIRNAME/..")" "$dir/go" 3>&- {ends}>&- &
    started+=($!)
    exec {go}>"$dir/go" # waits until the run has ended
    grep -qx 'status 124' work/status
    [ -s work/left ]
    end_server
    echo >&"$go"
    exec {go}>&-
    wait "${started[0]}"
    started=()
    grep -qx 'gc 0' work/status
    [ ! -s work/left.end ]
}

@test "[36] the command ends and leaves a child that cannot: its own verdict, at once" {
    serve taken
    mkfifo stdin
    "$FORGE" run --json --stdin -i in -- sh -c 'cat in/stuck & read -r _; exit 7' <stdin >record 3>&- {ends}>&- &
    started+=($!)
    exec {feed}>stdin
    wait_for grep -q read said
    begin=$(now_ms) status=0
    echo >&"$feed"
    exec {feed}>&-
    wait "${started[0]}" || status=$?
    started=()
    ended 7
    [ "$(field .status)" = failed ]
    [ "$(field .exit_code)" -eq 7 ]
    repaired
}

@test "[36] an input that cannot even be looked at: forge waits as ls does, and can be ended" {
    serve dead
    "$FORGE" run --json -i in/stuck -- true >record 3>&- {ends}>&- &
    started+=($!)
    wait_for grep -q request_wait_answer "/proc/${started[0]}/wchan"
    status=0
    kill -TERM "${started[0]}"
    wait "${started[0]}" || status=$?
    started=()
    [ "$status" -eq 143 ]
    [ ! -s record ]
    [ -z "$(ls work)$(ls home)" ]
}

@test "an input on FUSE is like any other as long as it answers" {
    serve taken
    run "$FORGE" run -q -i in -- sh -c 'test -f in/stuck && ! touch in/new'
    [ "$status" -eq 0 ]
}

@test "hashing an input that is never answered: the run ends when it is told to" {
    serve taken
    "$FORGE" run --json -i in/stuck -- true >record 3>&- {ends}>&- &
    started+=($!)
    wait_for grep -q read said
    hasher=$(pgrep -P "${started[0]}" -x forge-hasher)
    begin=$(now_ms) status=0
    kill -TERM "${started[0]}"
    wait "${started[0]}" || status=$?
    started=()
    in_time "$begin" 5000
    [ "$(field .inputs[0].error)" = cancelled ]
    # It ends when it can.
    end_server
    wait_for gone "$hasher"
}

@test "an open input whose server is silent does not keep the supervisor from its limits" {
    serve deaf
    "$FORGE" run --json --disk 20M --timeout 3s --grace 100ms -i in -- \
        sh -c 'exec 3<in/stuck; echo open; sleep 60' >record 3>&- {ends}>&- &
    started+=($!)
    wait_for has_opened
    # The file system loses more than the run may use: now its descriptors are looked at.
    head -c 60000000 /dev/zero >neighbour
    SECONDS=0 status=0
    wait "${started[0]}" || status=$?
    started=()
    echo "$status after $SECONDS s: $(field .completion_notes)"
    [ "$status" -eq 124 ]
    # Nor is its digest waited for as long as that of a run that succeeded.
    [ "$SECONDS" -lt 25 ]
    # 3 s, and 5 s for a process that waits for the server when its file is closed.
    [ "$(jq '.usage.wall_seconds < 12' record)" = true ]
}
has_opened() { cat home/runs/*/stdout | grep -q open; }

# ---- guarded files

# guard LINE...: the file is guarded.
guard() { printf '%s\n' 'version: 1' "workdir: $dir/work/{run_id}" 'guard:' "  paths: [$dir/in/stuck]" "${@/#/  }" >"$FORGE_CONFIG"; }
# grow: others change the file, on the server.
grow() {
    echo >&"$ends"
    wait_for grep -q grown "$dir/said"
}
record() { "$FORGE" show --json last | jq -r "$1"; }

@test "a guarded file on FUSE is compared, not watched" {
    serve taken
    guard "unattributed: corrupted"
    "$FORGE" run -q -- true
    [ "$(record .status)" = succeeded ]
    [ "$(record .health.post.guard.mode)" = both ]
    [[ "$(record .health.post.guard.note)" == *"$dir/in/stuck is on FUSE, where others can change files unseen" ]]
    [ "$(record .health.post.guard.unattributed)" -eq 0 ]
    mkfifo go
    "$FORGE" run --stdin -- sh -c 'echo is-ready; read x' <go >out {ends}>&- 3>&- &
    started+=($!)
    exec {open}>go
    wait_for grep -q is-ready out
    grow
    exec {open}>&-
    status=0
    wait "${started[0]}" || status=$?
    started=()
    [ "$status" -ne 0 ]
    [ "$(record .status)" = corrupted ]
    [ "$(record '.health.post.guard.files[0] | .path + " " + .what + " " + .by')" = "$dir/in/stuck modified unknown" ]
}

@test "a guarded file on FUSE cannot be watched, and guard.mode: watch says so" {
    serve taken
    guard "mode: watch"
    run "$FORGE" run -- true
    [ "$status" -eq 125 ]
    [[ "$output" == *"guarded files cannot be watched: $dir/in/stuck is on FUSE"* ]]
}

@test "a guard on a dead file server: the run is refused in time, and can be cancelled before" {
    serve dead
    guard
    begin=$(now_ms)
    run "$FORGE" run -- true
    in_time "$begin" 20000
    [ "$status" -eq 125 ]
    [[ "$output" == *"guarded files: their file server does not answer"* ]]
    [ "$(record .reason)" = health_pre ]
    "$FORGE" run -q -- true {ends}>&- 3>&- &
    started+=($!)
    looks() { pgrep -P "${started[0]}" -x forge-guard; }
    wait_for looks
    begin=$(now_ms)
    kill -TERM "${started[0]}"
    status=0
    wait "${started[0]}" || status=$?
    started=()
    in_time "$begin" 5000
    [ "$status" -eq 130 ]
    # ... and so does a look at the host's health.
    begin=$(now_ms)
    run "$FORGE" health check
    in_time "$begin" 20000
    [ "$status" -ne 0 ]
    [[ "$output" == *"their file server does not answer"* ]]
}
