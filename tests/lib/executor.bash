# executor.bash: what the suites in tests/executor share, on top of store.bash. The runs of a test happen on the
# executor $executor; with docker and podman, on an engine of our own that a suite starts once.
# shellcheck shell=bash disable=SC2034,SC2154 # the tests' variables and ours
# SPDX-License-Identifier: Apache-2.0
load ../lib/store.bash
load ../lib/engines.bash

# setup_engines NAME...: for setup_file. Starts those engines, where that can be done.
setup_engines() {
    local name
    [ -z "$(engines_missing)" ] || return 0
    engines_make
    for name; do
        engine_start "$name" 3>&- 4>&-
    done
}

# setup_executor NAME: every run of this test names it.
setup_executor() {
    executor=$1
    [ "$executor" = local ] ||
        skip_unless "no container engine of our own: this host has no $(engines_missing)" test -n "${FORGE_ENGINES:-}"
    setup_store
    OPTS=(--executor "$executor")
}

# As that of store.bash, with the engines. The image has what the tests need; a local run has the host's programs.
budget() {
    configure 'host:' '  budget:' '    cpus: 64' '    memory: 64G' 'executors:' \
        "  docker: {kind: container, socket: ${FORGE_ENGINES:-}/docker.sock, image: py}" \
        "  podman: {kind: container, socket: ${FORGE_ENGINES:-}/podman.sock, image: py}" "$@"
}

# Nothing of any run is left: processes, containers, the sockets of their supervisors, workdirs, slots.
teardown_executor() {
    local rc=0 name left
    [ -n "${T:-}" ] || return 0 # it was skipped
    teardown_store || rc=$?
    left=$(find "$FORGE_HOME/containers" -mindepth 1 2>/dev/null)
    [ -z "$left" ] || { echo "left: $left"; rc=1; }
    for name in docker podman; do
        [ -S "${FORGE_ENGINES:-}/$name.sock" ] || continue
        left=$(containers "$name")
        [ -z "$left" ] || { echo "left in $name: $left"; rc=1; }
    done
    return "$rc"
}

# on_host PATTERN: the processes of the whole host with that in their command line.
on_host() { pgrep -f -- "$1"; }
not_on_host() { [ -z "$(on_host "$1")" ]; }
says_ready() { grep -q ready "$(of "$id" .logs.stdout)"; }
