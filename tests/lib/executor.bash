# executor.bash: what the suites in tests/executor share, on top of store.bash. The runs of a test happen on the
# executor $executor; with docker and podman, on an engine of our own that a suite starts once, and with slurm on a
# cluster of our own.
# shellcheck shell=bash disable=SC2034,SC2154 # the tests' variables and ours
# SPDX-License-Identifier: Apache-2.0
load ../lib/store.bash
load ../lib/engines.bash
load ../lib/slurm.bash

# setup_engines NAME...: for setup_file. Starts those engines, where that can be done.
setup_engines() {
    local name
    [ -z "$(engines_missing)" ] || return 0
    engines_make
    for name; do
        engine_start "$name" 3>&- 4>&-
    done
}

# For setup_file. Starts a cluster, where that can be done.
setup_cluster() {
    [ -z "$(slurm_missing)" ] || return 0
    slurm_make
    run_groups >"$FORGE_SLURM/groups"
}

# For teardown_file. Fails if a run of this suite has left a cgroup, here or on a node.
remove_cluster() {
    local left=
    [ -n "${FORGE_SLURM:-}" ] || return 0
    left=$(run_groups | comm -13 "$FORGE_SLURM/groups" -)
    slurm_remove
    [ -z "$left" ] || { echo "left: $left"; return 1; }
}
run_groups() {
    # shellcheck disable=SC2046 # one a line
    find $(own_cgroups) /sys/fs/cgroup/*/"slurm_forge$(<"$FORGE_SLURM/number")"-* -name 'forge-0*' 2>/dev/null | sort -u
}

# setup_executor NAME: every run of this test names it. $shared is the directory that it shares with its nodes.
setup_executor() {
    executor=$1
    case $executor in
    local) ;;
    slurm)
        skip_unless "no Slurm of our own: this host has no $(slurm_missing)" test -n "${FORGE_SLURM:-}"
        shared=$FORGE_SLURM/shared.$BATS_TEST_NUMBER
        mkdir "$shared"
        cluster_rows=()
        ;;
    *) skip_unless "no container engine of our own: this host has no $(engines_missing)" test -n "${FORGE_ENGINES:-}" ;;
    esac
    setup_store
    OPTS=(--executor "$executor")
}

# As that of store.bash, with the engines and the cluster. The image has what the tests need; other runs have the
# host's programs.
budget() {
    [ -z "${FORGE_SLURM:-}" ] || set -- "  slurm: {$(cluster "${cluster_rows[@]}")}" "$@"
    configure 'host:' '  budget:' '    cpus: 64' '    memory: 64G' 'executors:' \
        "  docker: {kind: container, socket: ${FORGE_ENGINES:-}/docker.sock, image: py}" \
        "  podman: {kind: container, socket: ${FORGE_ENGINES:-}/podman.sock, image: py}" "$@"
}

# cluster [KEY: VALUE]...: the declaration of our cluster, as YAML between braces; what is given replaces ours.
cluster() {
    local row
    printf 'kind: slurm'
    for row in "slurm_conf: $FORGE_SLURM/slurm.conf" "dir: $shared" "poll: 500ms" "max_lag: 3s"; do
        [[ $'\n'"$(printf '%s\n' "$@")" == *$'\n'"${row%%:*}: "* ]] || printf ', %s' "$row"
    done
    [ $# -eq 0 ] || printf ', %s' "$@"
}

# declare_cluster KEY: VALUE...: the configuration of what follows.
declare_cluster() {
    cluster_rows=("$@")
    budget
}

# Nothing of any run is left: processes, containers, the sockets of their supervisors, workdirs, slots.
teardown_executor() {
    local rc=0 name left
    [ -n "${T:-}" ] || return 0 # it was skipped
    teardown_store || rc=$?
    [ "$executor" != slurm ] || teardown_cluster || rc=1
    left=$(find "$FORGE_HOME/containers" -mindepth 1 2>/dev/null)
    [ -z "$left" ] || { echo "left: $left"; rc=1; }
    for name in docker podman; do
        [ -S "${FORGE_ENGINES:-}/$name.sock" ] || continue
        left=$(containers "$name")
        [ -z "$left" ] || { echo "left in $name: $left"; rc=1; }
    done
    return "$rc"
}

# interruptible COMMAND...: in the background, where a shell would have it ignore SIGINT.
interruptible() {
    background python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$@"
}

# on_host PATTERN: the processes of the whole host with that in their command line.
on_host() { pgrep -f -- "$1"; }
not_on_host() { [ -z "$(on_host "$1")" ]; }
says_ready() { "$FORGE" logs --stdout "$id" | grep -q ready; }

# The watcher has ended, and there is no job, no directory of a job, no workdir and no cgroup.
teardown_cluster() {
    local rc=0 left
    patiently no_watcher || rc=1
    # The next test shall not find them.
    patiently no_jobs || { slurm_jobs; slurm scancel -u root; rc=1; }
    left=$(find "$shared" -mindepth 1 -maxdepth 1 ! -name .forge-shared 2>/dev/null)
    [ -z "$left" ] || { echo "left: $left"; rc=1; }
    patiently no_cgroups || { slurm_cgroups; rc=1; }
    return "$rc"
}

# watchers: the processes that attend the submitted runs of this test.
watchers() {
    local pid
    for pid in $(pgrep -f '^forge __watch '); do
        if grep -qszxF -- "FORGE_HOME=$FORGE_HOME" "/proc/$pid/environ"; then
            echo "$pid"
        fi
    done
}
no_watcher() { [ -z "$(watchers)" ]; }
no_jobs() { [ -z "$(slurm_jobs)" ]; }
no_cgroups() { [ -z "$(slurm_cgroups)" ]; }
