#!/usr/bin/env bats
# Watching: a queued run's log, ^C, a closed terminal, an empty environment.
# SPDX-License-Identifier: Apache-2.0

load ../lib/newcomer.bash
setup() { setup_newcomer; }
teardown() {
    # Its server would keep bats waiting.
    [ -z "${TMUX_TMPDIR:-}" ] || tmux kill-server 2>/dev/null || true
    forge kill -f --now '*' >/dev/null 2>&1 || true
    teardown_forge
}

@test "logs -f of a queued run says so, and goes on when it starts" {
    echo 'host: {budget: {cpus: 1, memory: 4G}}' >forge.yaml
    mkdir gate
    first=$(forge submit -i gate -- sh -c 'until [ -e gate/open ]; do sleep 0.02; done')
    second=$(forge submit -- echo arrived)
    patiently sh -c "forge ps -q --status queued | grep -q $second"
    forge logs -f "$second" >said 2>&1 &
    reader=$!
    started+=("$reader")
    patiently grep -q "is queued" said
    touch gate/open
    wait "$reader"
    grep -q arrived said
    forge wait -q "$first"
}

@test "forge run says why it is queued" {
    echo 'host: {budget: {cpus: 1, memory: 4G}}' >forge.yaml
    mkdir gate
    forge submit -i gate -- sh -c 'until [ -e gate/open ]; do sleep 0.02; done' >/dev/null
    forge run echo "done" >said 2>&1 &
    runner=$!
    started+=("$runner")
    patiently grep -q "queued: waits for 1 CPU: 1 of 1 in use" said
    touch gate/open
    wait "$runner"
}

# A run in the background that ignores SIGTERM.
stubborn() {
    forge run --grace 60s -- sh -c 'trap "" TERM; echo ready; while :; do sleep 0.1; done' >said 2>&1 &
    runner=$!
    started+=("$runner")
    patiently grep -q ready said
}

@test "the first ^C asks and says how to insist, the second kills" {
    # Job control, or SIGINT would be ignored in the background.
    set -m
    stubborn
    set +m
    kill -INT "$runner"
    patiently grep -q "stopping; again to kill now" said
    kill -0 "$runner"
    kill -INT "$runner"
    status=0
    wait "$runner" || status=$?
    [ "$status" -eq 130 ]
    grep -q Cancelled said
}

@test "a submitted run outlives its terminal" {
    script -qec 'forge submit --id stays -- sleep 300' /dev/null
    [ "$(forge ps -q --analysis stays -r | wc -l)" -eq 1 ]
    forge kill --now stays
}

@test "a run whose terminal closes is ended, and recorded" {
    mkfifo keys
    script -qec 'forge run --id ends -- sleep 300' /dev/null <keys >/dev/null 2>&1 &
    terminal=$!
    started+=("$terminal")
    exec {keys}>keys
    patiently sh -c '[ "$(forge ps --json --analysis ends | jq -r .status)" = running ]'
    kill -9 "$terminal"
    exec {keys}>&-
    patiently sh -c '[ "$(forge ps --json --analysis ends | jq -r .status)" = cancelled ]'
}

@test "env -i: without HOME and PATH it still runs" {
    run env -i "FORGE_HOME=$FORGE_HOME" "$FORGE" run -- sh -c 'echo "$HOME"'
    [ "$status" -eq 0 ]
    says /tmp/scidex-analysis-
    # Root's own place is /var/lib/forge; not the one of this host.
    skip_unless "only root can do this" is_root
    run unshare -m sh -c 'mount -t tmpfs none /var/lib && env -i "$0" run -- true && ls /var/lib/forge/runs' "$FORGE"
    [ "$status" -eq 0 ]
    says_not "(null)"
    [ "${lines[1]}" = "${lines[0]: -27:26}" ]
}

@test "forge top prints what runs, with its memory, and why the rest waits" {
    echo 'host: {budget: {cpus: 1, memory: 4G}}' >forge.yaml
    forge submit --id going -- sleep 300 >/dev/null
    forge submit --id waiting -- sleep 301 >/dev/null
    patiently sh -c 'forge ps -q --status queued | grep -q .'
    run forge top --once
    [ "$status" -eq 0 ]
    says "1 running, 1 queued"
    grep -Eq "going .*iB +2.00 GiB +sleep 300" <<<"$output"
    says "waits for 1 CPU: 1 of 1 in use"
}

@test "forge top is a page in tmux: it changes, sorts, and gives the terminal back" {
    skip_unless "tmux is not installed" command -v tmux
    forge submit --cpus 0.1 --memory 64M --id small -- sleep 300 >/dev/null
    forge submit --cpus 0.5 --memory 64M --id busy -- sh -c 'while :; do :; done' >/dev/null
    export TMUX_TMPDIR=$T
    page() { tmux capture-pane -p -t top; }
    shows() { page | grep -q "$1"; }
    tmux -f /dev/null new-session -d -s top -x 100 -y 20 "echo before; forge top -d 200ms; echo after; sleep 300" 3>&-
    patiently shows "2 running, 0 queued"
    # A second look has CPU times.
    patiently sh -c 'tmux capture-pane -p -t top | grep -Eq "busy .* 0\.[0-9]+|busy .* 1\.[0-9]+"'
    tmux send-keys -t top c
    patiently shows "by cpu"
    patiently sh -c 'tmux capture-pane -p -t top | grep -A1 "^RUN" | grep -q busy'
    forge submit --cpus 0.1 --memory 64M --id third -- sh -c 'x=$(head -c 9000000 /dev/zero | tr "\0" x); sleep 300' >/dev/null
    patiently shows "3 running"
    tmux send-keys -t top m
    patiently shows "by memory"
    patiently sh -c 'tmux capture-pane -p -t top | grep -A1 "^RUN" | grep -q third'
    [ "$(page | awk '{ if (length($0) > most) most = length($0) } END { print most }')" -le 100 ]
    tmux send-keys -t top q
    patiently shows after
    shows before
    run ! shows "running"
    tmux kill-session -t top
}
