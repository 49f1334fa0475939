#!/usr/bin/env bats
# What probes found: in the state file, in the store, and for how long it is believed.
# SPDX-License-Identifier: Apache-2.0
load ../lib/runtime.bash

setup() { setup_runtimes; }
teardown() { teardown_store; }

checks_of() { "$FORGE" runtime history "$1" --json | jq -s '[.[].checks[]] | length'; }
state_of() { jq -r ".$2" "$FORGE_HOME/runtimes/$1.json"; }

# as_if_older NAME SECONDS: its last probe was so long ago.
as_if_older() {
    local file=$FORGE_HOME/runtimes/$1.json
    jq ".checked_unix -= $2" "$file" >"$file.new" && mv "$file.new" "$file"
}

@test "a check is in the history, with what was wrong; the newest content first" {
    light_env e
    "$FORGE" runtime check e
    echo '{"name": "tool", "version": "2.0", "build": "0"}' >"$env_dir/conda-meta/tool.json"
    rm "$env_dir/bin/tool"
    run "$FORGE" runtime check e
    [ "$status" -eq 1 ]
    run "$FORGE" runtime history e
    echo "$output"
    [ "${#lines[@]}" -eq 4 ]
    [[ "${lines[0]}" == sha256:*"0 runs" ]] # a probe is none
    [[ "${lines[1]}" == *"broken: command tool: not in PATH" ]]
    [[ "${lines[3]}" == *healthy ]]
    "$FORGE" runtime history e --json | jq -se '.[1].checks[0].versions.tool == "tool 1.0"
        and .[0].digest != .[1].digest and (.[1].checks[0].probe_run | length) == 26'
    # For a digest of now.
    [ "$("$FORGE" runtime history e --json | jq -sr '.[0].digest')" = "$(digest e)" ]
}

@test "a content that no run ever began with is in the history too" {
    light_env e
    activate_script a.sh 'exit 5'
    run "$FORGE" runtime check e
    [ "$status" -eq 1 ]
    [[ "$output" == *"its activate.d scripts failed"* ]]
    run "$FORGE" runtime history e
    echo "$output"
    [[ "$output" == *"broken: its activate.d scripts failed"* ]]
}

@test "a run in a checked runtime tells no check again" {
    light_env e
    forge_run -r e -- tool
    [ "$(checks_of e)" -eq 1 ]
    forge_run -r e -- tool
    forge_run -r e -- tool
    [ "$(checks_of e)" -eq 1 ]
    "$FORGE" runtime check e
    [ "$(checks_of e)" -eq 2 ]
}

@test "a store that is away breaks nothing; it hears of the check later" {
    light_env e
    status=0
    FORGE_STORE=sqlite:$T/away/forge.db forge_run -r e -- tool
    [ "$status" -eq 0 ]
    [ "$(cat "$out")" = "tool 1.0" ]
    [ "$(state_of e status)" = healthy ]
    [ "$(state_of e told)" = false ]
    # Another store, which is there.
    [ "$(checks_of e)" -eq 1 ]
    [ "$(state_of e told)" = true ]
    [ "$(checks_of e)" -eq 1 ]
}

@test "a broken runtime is not probed again at once, but by check, after a while, and when it changes" {
    light_env e
    rm "$env_dir/bin/tool"
    run "$FORGE" run -r e -- tool
    [ "$status" -eq 125 ]
    [[ "$output" == *"broken: command tool"* ]]
    before=$(count_runs)
    for _ in 1 2 3; do
        run "$FORGE" run -r e -- tool
        [ "$status" -eq 125 ]
        [[ "$output" == *"broken: command tool"* ]]
    done
    [ "$(count_runs)" -eq "$before" ]
    "$FORGE" runtime check e || true
    [ "$(count_runs)" -eq $((before + 1)) ]
    as_if_older e 45
    run "$FORGE" run -r e -- tool
    [ "$(count_runs)" -eq $((before + 1)) ]
    as_if_older e 15
    run "$FORGE" run -r e -- tool
    [ "$(count_runs)" -eq $((before + 2)) ]
    # A clock that was set back believes nothing of the future.
    as_if_older e -1000
    run "$FORGE" run -r e -- tool
    [ "$(count_runs)" -eq $((before + 3)) ]
    # Mended by another package: another digest.
    light_env e
    echo '{"name": "tool", "version": "2.0", "build": "0"}' >"$env_dir/conda-meta/tool.json"
    forge_run -r e -- tool
    [ "$status" -eq 0 ]
}

@test "another declaration is asked about anew, whatever the last one said" {
    light_env e 'smoke: "false"'
    run "$FORGE" run -r e -- tool
    [ "$status" -eq 125 ]
    light_env e 'smoke: "true"'
    forge_run -r e -- tool
    [ "$status" -eq 0 ]
    light_env e 'smoke: "exit 4"'
    run "$FORGE" run -r e -- tool
    [ "$status" -eq 125 ]
    [[ "$output" == *"exit 4"* ]]
}

@test "scripts that fail are remembered as well" {
    light_env e
    activate_script a.sh 'exit 7'
    run "$FORGE" run -r e -- tool
    [ "$status" -eq 125 ]
    before=$(count_runs)
    run "$FORGE" run -r e -- tool
    [ "$status" -eq 125 ]
    [[ "$output" == *"activate.d scripts failed"* ]]
    [ "$(count_runs)" -eq "$before" ]
}

# probing NAME: its probe is under way, and has begun to try.
probing() {
    id=$("$FORGE" ps -raq --runtime "$1" | head -n 1)
    [ -n "$id" ] && has_status "$id" running
}

@test "what changes while it is checked is not healthy, and is checked again" {
    light_env e
    printf '#!/bin/sh\nuntil [ -e "$CONDA_PREFIX/go" ]; do sleep 0.02; done\necho tool 1.0\n' >"$env_dir/bin/tool"
    "$FORGE" runtime check e >"$T/said" 2>&1 3>&- &
    started+=($!)
    patiently probing e
    echo '{"name": "tool", "version": "2.0", "build": "0"}' >"$env_dir/conda-meta/tool.json"
    touch "$env_dir/go"
    status=0
    wait "${started[0]}" || status=$?
    started=()
    [ "$status" -eq 1 ]
    grep -q 'it changed while it was checked' "$T/said"
    [ "$(health e)" = unchecked ]
    forge_run -r e -- tool
    [ "$status" -eq 0 ]
}

# with_packages COMMAND... &: in place of this shell, with a package database of this test's own, whose lock hold_packages holds.
with_packages() {
    exec unshare --mount --propagation private sh -ec '
        for file in status lock lock-frontend; do mount --bind "$0/$file" "/var/lib/dpkg/$file"; done
        exec "$@"' "$T/dpkg" "$@"
}
own_packages() {
    skip_unless "only root can do this" is_root
    [ -e /var/lib/dpkg/lock-frontend ] || skip "no dpkg here"
    mkdir dpkg
    cp /var/lib/dpkg/status dpkg/status
    touch dpkg/lock dpkg/lock-frontend
    budget "read_only: [$T/gate]"
    declare_runtime s 'kind: system' 'commands: [sed]' "smoke: 'until [ -e $T/gate/open ]; do sleep 0.02; done'"
}
# As apt does while it installs.
hold_packages() {
    python3 -c 'import fcntl, os, sys, time
with open(sys.argv[1], "w") as lock:
    fcntl.lockf(lock, fcntl.LOCK_EX)
    open(sys.argv[2], "w").close()
    while not os.path.exists(sys.argv[3]):
        time.sleep(0.02)' dpkg/lock-frontend held release 3>&- &
    started+=($!)
    patiently test -e held
}
# An upgrade of what the runtime consists of.
upgrade_sed() {
    sed '/^Package: sed$/,/^$/s/^Version: .*/Version: 99-1/' dpkg/status >upgraded
    cat upgraded >dpkg/status
}

# upgrade_during OPTION...: forge, and while it probes the runtime s, sed is upgraded.
upgrade_during() {
    with_packages "$FORGE" "$@" >"$T/said" 2>&1 3>&- &
    started+=($!)
    patiently probing s
    upgrade_sed
    touch gate/open
}
# The same during an installation that goes on.
upgrade_waiting() {
    own_packages
    hold_packages
    upgrade_during "$@"
    patiently grep -q 'packages are being installed' "$T/said"
}

@test "what changes because packages are installed is checked again when that is over" {
    upgrade_waiting runtime check s
    run grep -c healthy "$T/said"
    [ "$output" = 0 ]
    touch release
    wait "${started[1]}"
    cat "$T/said"
    grep -q 'healthy' "$T/said"
}

@test "... also for a run, which goes on then" {
    upgrade_waiting run -r s -- sed --version
    touch release
    wait "${started[1]}"
    cat "$T/said"
    grep -q '^sed (GNU sed)' "$T/said"
}

@test "... also where the installation is over when the change is found" {
    own_packages
    upgrade_during runtime check s
    wait "${started[0]}"
    cat "$T/said"
    grep -q 'healthy' "$T/said"
}

@test "... and the wait can be ended" {
    upgrade_waiting run -r s -- sed --version
    kill -TERM "${started[1]}"
    status=0
    wait "${started[1]}" || status=$?
    cat "$T/said"
    [ "$status" -eq 125 ]
    touch release
}

# impatient COMMAND...: with strace, by which each wait for a moment takes none: minutes pass at once.
impatient() {
    ASAN_OPTIONS=detect_leaks=0:${ASAN_OPTIONS:-} with_packages strace -qq -o "$T/trace" -e trace=poll \
        -e inject=poll:retval=0 "$@"
}

@test "... and who has waited long enough is told that packages are being installed" {
    own_packages
    skip_unless "strace cannot trace here" strace -qq -o /dev/null true
    declare_runtime s 'kind: system' 'commands: [sed]' 'smoke: "exit 3"'
    hold_packages
    for command in "run -r s -- sed --version" "runtime check s"; do
        # shellcheck disable=SC2086 # words
        run impatient "$FORGE" $command
        echo "$output"
        [ "$status" -eq "$([ "$command" = "runtime check s" ] && echo 1 || echo 125)" ]
        [[ "$output" == *"its own test: exit 3:"*"(packages are being installed on this host)"* ]]
        # Three times a minute, looking five times a second.
        [ "$(grep -c 'poll(.*, 200) *= 0' "$T/trace")" -eq 900 ]
    done
    [[ "$output" == *"packages are being installed on this host (dpkg): runtime s is checked when that is over"* ]]
    [ "$(count_runs)" -eq 8 ]
    # When that is over, it is as it was.
    touch release
    wait "${started[0]}"
    started=()
    declare_runtime s 'kind: system' 'commands: [sed]' 'smoke: "true"'
    forge_run -r s -- sed --version
    [ "$status" -eq 0 ]
}

@test "a probe that somebody ended says nothing about the runtime" {
    light_env e
    printf '#!/bin/sh\nuntil [ -e "$CONDA_PREFIX/go" ]; do sleep 0.02; done\necho tool 1.0\n' >"$env_dir/bin/tool"
    "$FORGE" run -r e -- tool >"$T/said" 2>&1 3>&- &
    started+=($!)
    patiently probing e
    kill -TERM "${started[0]}"
    status=0
    wait "${started[0]}" || status=$?
    started=()
    cat "$T/said"
    [ "$status" -eq 125 ]
    grep -q 'runtime e could not be checked' "$T/said"
    [ "$(health e)" = unchecked ]
    touch "$env_dir/go"
    forge_run -r e -- tool
    [ "$status" -eq 0 ]
}

@test "many runs at once in an unchecked runtime start one probe" {
    light_env e 'smoke: "sleep 1"'
    for i in 1 2 3 4 5 6; do
        "$FORGE" run -r e -- tool >"$T/out.$i" 2>&1 3>&- &
        started+=($!)
    done
    for pid in "${started[@]}"; do wait "$pid"; done
    started=()
    cat "$T"/out.*
    [ "$(cat "$T"/out.* | grep -c 'tool 1.0')" -eq 6 ]
    [ "$(count_runs)" -eq 7 ]
    [ "$(checks_of e)" -eq 1 ]
}

@test "who waits for another's probe can be interrupted" {
    light_env e
    mkdir -p "$FORGE_HOME/runtimes"
    exec 8>"$FORGE_HOME/runtimes/e.lock"
    flock 8
    "$FORGE" run -r e -- tool >"$T/waiting" 2>&1 3>&- 8>&- &
    pid=$!
    started+=("$pid")
    # It has the lock file open while it waits.
    patiently sh -c "ls -l /proc/$pid/fd | grep -q e.lock"
    kill -INT "$pid" || true
    kill -TERM "$pid"
    status=0
    wait "$pid" || status=$?
    cat "$T/waiting"
    [ "$status" -eq 125 ]
    grep -q 'interrupted while runtime e is checked' "$T/waiting"
}
