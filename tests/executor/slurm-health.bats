#!/usr/bin/env bats
# The health of the nodes of a cluster: checks and guarded files are where the run is, and its record says so.
# SPDX-License-Identifier: Apache-2.0

load ../lib/executor.bash

setup_file() { setup_cluster; }
teardown_file() { slurm_remove; }
setup() { setup_executor slurm; }
teardown() { [ -z "${T:-}" ] || teardown_executor; }

@test "checks are carried out on the node, before and after the job" {
    budget 'health:' "  mark: {kind: disk, path: $shared, min_free: 1, min_inodes: 1}"
    forge_run -- true
    [ "$status" -eq 0 ]
    [ "$(field '[.health.pre.checks[].name] | sort | join(" ")')" = "disk mark memory" ]
    [ "$(field '[.health.post.checks[].name] | sort | join(" ")')" = "disk mark memory" ]
    [ "$(field '.health.pre.host')" = "$(hostname)" ]
    # The free space that counts is that of the state of the node, not of this side.
    [[ "$(field '.health.pre.checks[] | select(.name == "disk").numbers.path')" == "$shared"/* ]]
    "$FORGE" health history | grep -F 'mark '
}

@test "a check that fails on the node: the run is rejected there, with the reason" {
    budget 'health:' "  mark: {kind: disk, path: $T/mark}"
    forge_run -- touch "$T/ran"
    [ "$status" -eq 125 ]
    [ "$(field .status)" = rejected ]
    [ "$(field .reason)" = health_pre ]
    [ "$(field .health.pre.ok)" = false ]
    [[ "$(field .completion_notes)" == *"not healthy: node "*": mark: $T/mark: No such file"* ]]
}

@test "a guarded file that changes while a job is there: seen on the node" {
    mkdir "$T/site"
    echo a >"$T/site/page"
    chmod -R go+rX "$T/site"
    budget 'guard:' "  paths: [$T/site]" '  mode: snapshot' '  unattributed: corrupted'
    submit -i "$T/gate" -- sh -c "$(gated)"
    is_in "$id" running
    echo b >>"$T/site/page"
    open_gate
    finished "$id"
    [ "$(field .status)" = corrupted ]
    [ "$(field .health.post.guard.unattributed)" = 1 ]
    [ "$(field .quarantine)" = true ]
    rm "$T/gate/open"
    # Watched, where root watches: somebody else did it, and nobody is blamed.
    budget 'guard:' "  paths: [$T/site]"
    submit -i "$T/gate" -- sh -c "$(gated)"
    is_in "$id" running
    sh -c "echo c >>$T/site/page"
    open_gate
    finished "$id"
    [ "$(field .status)" = succeeded ]
    [ "$(field .health.post.guard.mode)" = watch ]
    [ "$(field .health.post.guard.by_others)" = 1 ]
}
