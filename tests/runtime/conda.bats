#!/usr/bin/env bats
# What conda does with an environment, forge does with it too: values, names, links, scripts.
# SPDX-License-Identifier: Apache-2.0
load ../lib/runtime.bash

setup() { setup_runtimes; }
teardown() { teardown_store; }

has() { grep -qxF -- "$1" "$out" || { echo "not there: $1"; cat "$out"; return 1; }; }
state() { printf '{"version": 1, "env_vars": %s}' "$1" >"$env_dir/conda-meta/state"; }

@test "numbers and truths of an environment are values of a run" {
    light_env e
    state '{"THREADS": 4, "DEBUG": true, "NONE": null, "BIG": 123456789012345678901234567890}'
    forge_run -r e -- /bin/sh -c 'echo "$THREADS $DEBUG [${NONE-unset}] $BIG"'
    [ "$(cat "$out")" = "4 True [] 123456789012345678901234567890" ]
}

@test "what an environment sets and a run does not get is told, and in its events" {
    light_env e
    state '{"PATH": "/evil", "LIST": [1], "FORGE_X": "1", "GOOD": "1"}'
    forge_run -r e -- /bin/sh -c 'echo "$GOOD"'
    [ "$(cat "$out")" = 1 ]
    grep -q "warning: .*'PATH' is left out: PATH is reserved" "$err"
    grep -q "warning: .*'LIST' is left out" "$err"
    grep -q "warning: .*'FORGE_X' is left out" "$err"
    [ "$(grep -c runtime_warning "$(field .logs.events)")" -eq 3 ]
    run "$FORGE" runtime check e
    [[ "$output" == *"warning: runtime e: "*"'LIST' is left out"* ]]
    # Once each, and not of the probe.
    [ "$(grep -c "'PATH' is left out" "$err")" -eq 1 ]
}

@test "what a condarc says and nobody understands is told" {
    light_env e
    printf 'changeps1: maybe\nenvs_dirs: 7\n' >"$HOME/.condarc"
    forge_run -r e -- tool
    [ "$status" -eq 0 ]
    grep -q "warning: runtime e: .*/.condarc: changeps1: 'maybe' is neither true nor false" "$err"
    grep -q "warning: runtime e: .*/.condarc: envs_dirs is no list" "$err"
}

@test "a script whose last command is false breaks nothing, as with conda" {
    light_env e
    activate_script a.sh 'export FIRST=1' '[ -n "" ] && export NOT=1'
    activate_script b.sh 'export SECOND=$FIRST' 'return 7'
    activate_script c.sh 'export THIRD=$SECOND' 'no-such-command 2>/dev/null'
    forge_run -r e -- /bin/sh -c 'echo "$FIRST $SECOND $THIRD ${NOT-none}"'
    [ "$status" -eq 0 ]
    [ "$(cat "$out")" = "1 1 1 none" ]
}

@test "... but one that ends the shell does, by whatever way, and is named" {
    light_env e
    activate_script a.sh 'export FIRST=1'
    activate_script c.sh 'export THIRD=1'
    for way in 'exit 0' 'exit 3' 'kill -9 $$' 'kill $$; sleep 60'; do
        activate_script b.sh "$way"
        run "$FORGE" runtime check e
        echo "$output"
        [ "$status" -eq 1 ]
        [[ "$output" == *"activate.d/b.sh"* ]]
        [[ "$output" != *"c.sh"* ]]
    done
}

@test "a PATH that is passed on is there once, behind the environment's" {
    light_env e
    budget 'env: {pass: [PATH, LANG]}'
    PATH=/usr/bin:/bin:/sbin forge_run -r e -- /usr/bin/env
    [ "$(grep -c '^PATH=' "$out")" -eq 1 ]
    has "PATH=$env_dir/bin:$HOME/miniconda3/condabin:/usr/bin:/bin:/sbin"
    PATH=/usr/bin:/bin:/sbin forge_run -- /usr/bin/env
    [ "$(grep -c '^PATH=' "$out")" -eq 1 ]
    has "PATH=/usr/bin:/bin:/sbin"
}

@test "a prefix behind a link keeps the name it was reached by, and both are there" {
    light_env e
    mkdir "$T/data"
    mv "$HOME/miniconda3" "$T/data/mc"
    ln -s "$T/data/mc" "$HOME/miniconda3"
    # A script of the environment has the name in its first line.
    printf '#!%s/bin/sh\necho "from $0"\n' "$env_dir" >"$env_dir/bin/named"
    cp /bin/busybox "$env_dir/bin/sh"
    chmod +x "$env_dir/bin/named"
    chmod -R go+rX "$T/data"
    rm runtimes.d/e.yaml
    for name in e "$env_dir"; do
        declare_runtime linked 'kind: conda' "prefix: $name" 'commands: [tool]'
        forge_run -r linked -- /bin/sh -c 'echo "$CONDA_PREFIX"; echo "${PATH%%:*}"; command -v tool; named; cat '"$T"'/data/mc/envs/e/conda-meta/tool.json >/dev/null && echo both; echo "$CONDA_DEFAULT_ENV"'
        [ "$(sed -n 1p "$out")" = "$env_dir" ]
        [ "$(sed -n 2p "$out")" = "$env_dir/bin" ]
        [ "$(sed -n 3p "$out")" = "$env_dir/bin/tool" ]
        [ "$(sed -n 4p "$out")" = "from $env_dir/bin/named" ]
        [ "$(sed -n 5p "$out")" = both ]
        [ "$(sed -n 6p "$out")" = e ]
        [ "$(field .runtime.prefix)" = "$env_dir" ]
    done
    # Found by itself too.
    rm runtimes.d/linked.yaml
    [ "$("$FORGE" runtime list --json | jq -r '.[] | select(.name == "e") | .prefix')" = "$env_dir" ]
}

@test "a venv behind a link keeps the name it was reached by" {
    python3 -m venv --without-pip "$T/real-venv"
    ln -s "$T/real-venv" "$T/venv"
    chmod -R go+rX "$T/real-venv" "$T"
    declare_runtime v 'kind: venv' "prefix: $T/venv" 'commands: [python]'
    forge_run -r v -- python -c 'import os, sys; print(os.environ["VIRTUAL_ENV"], sys.prefix, os.path.exists(sys.argv[1]))' "$T/real-venv/bin"
    [ "$(cat "$out")" = "$T/venv $T/venv True" ]
}
