#!/usr/bin/env bats
# Runtimes that nobody declared: those that come with forge, directories, and what is active.
# SPDX-License-Identifier: Apache-2.0
load ../lib/runtime.bash

setup() { setup_runtimes; }
teardown() { teardown_store; }

# shipped NAME LINE...: a runtime that comes with forge.
shipped() {
    local name=$1
    shift
    export FORGE_DATADIR=$T/data
    mkdir -p data/runtimes.d
    { printf 'runtimes:\n  %s:\n' "$name"; printf '    %s\n' "$@"; } >"data/runtimes.d/$name.yaml"
}
listed() { "$FORGE" runtime list --json | jq -r ".[] | select(.name == \"$1\") | .$2"; }

@test "runtimes that come with forge are found without configuration, behind all others" {
    shipped tool 'kind: system' 'commands: [sed]' 'description: shipped'
    shipped other 'kind: system' 'commands: [sed]'
    [ "$(listed tool description)" = shipped ]
    forge_run -r tool -- sed --version
    [ "$status" -eq 0 ]
    declare_runtime tool 'kind: system' 'commands: [sed]' 'description: mine'
    [ "$(listed tool description)" = mine ]
    mkdir -p "$HOME/.config/forge/runtimes.d"
    printf 'runtimes:\n  other: {kind: system, commands: [sed], description: own}\n' >"$HOME/.config/forge/runtimes.d/x.yaml"
    [ "$(listed other description)" = own ]
}

@test "the examples are those that come with forge, installed and in a build tree" {
    # A build tree is three directories above its program.
    mkdir -p tree/build/src/cli tree/examples tree/bin tree/share/forge
    cp "$FORGE" tree/build/src/cli/forge
    cp "$FORGE" tree/bin/forge
    cp -r "$examples" tree/examples/runtimes
    cp -r "$examples" tree/share/forge/runtimes.d
    chmod -R go+rX,go-w tree
    unset FORGE_DATADIR
    for program in tree/build/src/cli/forge tree/bin/forge; do
        run "$program" runtime list --json
        [ "$status" -eq 0 ]
        for name in data-ml genomics notebook python3 r-base single-cell; do
            [ "$(jq -r ".[] | select(.name == \"$name\") | .name" <<<"$output")" = "$name" ]
        done
    done
}

@test "what the host lacks is not installed, which is no error" {
    shipped lacking 'kind: system' 'commands: [sed, no-such-program]' 'needs: [no-such-package, also-missing]'
    shipped fine 'kind: system' 'commands: [sed]'
    shipped modules 'kind: system' 'commands: [python3]' 'python: [json, no_such_module]' 'needs: [no-such-package]'
    run "$FORGE" runtime list
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"not installed: needs no-such-package also-missing"* ]]
    [ "$(listed lacking health)" = "not installed" ]
    [ "$(listed modules health)" = "not installed" ]
    [ "$(listed fine health)" = unchecked ]
    run "$FORGE" runtime check
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"lacking: not installed: needs no-such-package also-missing"* ]]
    run "$FORGE" run -r lacking -- sed --version
    echo "$output"
    [ "$status" -eq 125 ]
    [[ "$output" == *"not installed: needs no-such-package"* ]]
    [[ "$output" == *"apt install no-such-package also-missing"* ]]
    # Asked for by name it is a failure.
    run "$FORGE" runtime check lacking
    [ "$status" -eq 1 ]
}

@test "a runtime above the host's caps is clamped, says so, and stops nobody" {
    declare_runtime big 'kind: system' 'commands: [sed]' 'limits: {memory: 64G, pids: 20}'
    declare_runtime small 'kind: system' 'commands: [sed]'
    configure 'host: {max: {memory: 512M}, budget: {cpus: 64, memory: 64G}}'
    forge_run -- true
    [ "$status" -eq 0 ]
    run "$FORGE" runtime list
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *big*"memory clamped to 512.00 MiB (host.max)"* ]]
    forge_run -r big -- sed --version
    [ "$status" -eq 0 ]
    [ "$(field .limits.memory_bytes)" -eq $((512 << 20)) ]
    [ "$(field .limits.pids)" -eq 20 ]
    grep -q 'warning: runtime big: memory clamped to 512.00 MiB (host.max)' "$err"
    forge_run -r small -- sed --version
    [ "$(grep -c clamped "$err")" -eq 0 ]
}

@test "an environment of tools alone is usable as it was found" {
    light_env tools
    rm runtimes.d/tools.yaml
    printf '#!/bin/sh\nexit 200\n' >"$env_dir/bin/another"
    chmod +x "$env_dir/bin/another"
    forge_run -r tools -- tool
    [ "$status" -eq 0 ]
    [ "$(cat "$out")" = "tool 1.0" ]
    [ "$(field .runtime.versions.tool)" = "tool 1.0" ]
    # One without anything is not.
    rm "$env_dir"/bin/*
    run "$FORGE" runtime check tools
    [ "$status" -eq 1 ]
    [[ "$output" == *"nothing that could be tried"* ]]
}

@test "probes are no runs in the history" {
    light_env e
    activate_script a.sh 'export X=1'
    "$FORGE" runtime check e
    [ "$("$FORGE" runtime history e --json | jq -s '[.[].runs] | add')" -eq 0 ]
    forge_run -r e -- tool
    forge_run -r e -- tool
    [ "$("$FORGE" runtime history e --json | jq -s '[.[].runs] | add')" -eq 2 ]
    [[ "$("$FORGE" runtime history e)" == *"2 runs"* ]]
}

@test "a verb that is none has a near miss, and an empty list says what to do" {
    run "$FORGE" runtime chekc
    echo "$output"
    [ "$status" -eq 2 ]
    [[ "$output" == *"'chekc'"*"did you mean 'check'"* ]]
    run "$FORGE" runtime list
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"no runtimes"*"runtimes.d"* ]]
    [ "$("$FORGE" runtime list --json 2>/dev/null)" = "[]" ]
}

@test "a directory of the name of what is missing is pointed at" {
    conda_prefix "$T/condaenv" 1.0
    configure 'host: {budget: {cpus: 64, memory: 64G}}' 'runtimes: {c: {kind: conda, prefix: condaenv}}'
    run "$FORGE" run -r c -- python -c 1
    echo "$output"
    [ "$status" -eq 125 ]
    [[ "$output" == *"there is no conda environment 'condaenv'"* ]]
    [[ "$output" == *"write ./condaenv for the directory here"* ]]
    run "$FORGE" run -r condaenv -- python -c 1
    echo "$output"
    [[ "$output" == *"unknown runtime 'condaenv'"* ]]
    [[ "$output" == *"write ./condaenv for the directory here"* ]]
}

@test "-r takes a directory: a venv, a conda environment, any tree with bin/" {
    python3 -m venv --without-pip venv
    conda_prefix "$T/condaenv" 1.0
    mkdir -p "tree of tools/bin" empty
    printf '#!/bin/sh\necho tool 1.0\n' >"tree of tools/bin/tool"
    chmod +x "tree of tools/bin/tool"
    chmod -R go+rX .
    for path in ./venv "$T/venv" venv/ .//venv ../$(basename "$T")/venv; do
        forge_run -r "$path" -- python -c 'import os, sys; print(sys.prefix, os.environ["VIRTUAL_ENV"])'
        [ "$(cat "$out")" = "$T/venv $T/venv" ]
        [ "$(field .runtime.name)" = "$T/venv" ]
        [ "$(field .runtime.kind)" = venv ]
    done
    # Probed once, however it is written.
    [ "$("$FORGE" runtime history ./venv --json | jq -s '[.[].checks[]] | length')" -eq 1 ]
    forge_run -r ./condaenv -- python -c 'import os, shape; print(os.environ["CONDA_PREFIX"], shape.__version__)'
    [ "$(cat "$out")" = "$T/condaenv 1.0" ]
    [ "$(field .runtime.kind)" = conda ]
    forge_run -r "./tree of tools" -- tool
    [ "$(cat "$out")" = "tool 1.0" ]
    [ "$(field .runtime.kind)" = prefix ]
    # shellcheck disable=SC2088 # for forge to expand
    HOME=$T forge_run -r '~/venv' -- python -c 'import sys; print(sys.prefix)'
    [ "$(cat "$out")" = "$T/venv" ]
    mv venv .venv
    forge_run -r .venv -- python -c 'import sys; print(sys.prefix)'
    [ "$(cat "$out")" = "$T/.venv" ]
    run "$FORGE" run -r ./empty -- true
    [ "$status" -eq 125 ]
    [[ "$output" == *"is no environment"*"conda-meta"*"pyvenv.cfg"*"bin/"* ]]
    run "$FORGE" run -r ./nowhere -- true
    [ "$status" -eq 125 ]
    [[ "$output" == *"nowhere"*"No such file"* ]]
    "$FORGE" runtime check ./.venv
    "$FORGE" runtime show ./.venv | grep -q "^kind  *venv"
}

@test "a script and its forge.yaml name a directory beside them" {
    mkdir -p project
    python3 -m venv --without-pip project/venv
    printf '# forge: runtime=./venv\nimport sys\nprint(sys.prefix)\n' >project/a.py
    chmod -R go+rX .
    forge_run project/a.py
    [ "$(cat "$out")" = "$T/project/venv" ]
    printf 'import sys\nprint(sys.prefix)\n' >project/a.py
    printf 'analysis: {runtime: ./venv}\n' >project/forge.yaml
    chmod go-w project/forge.yaml
    forge_run project/a.py
    [ "$(cat "$out")" = "$T/project/venv" ]
}

@test "a path of the configuration is below its directory, one of submit below ours" {
    mkdir -p conf elsewhere
    python3 -m venv --without-pip conf/venv
    chmod -R go+rX .
    printf 'version: 1\nruntime: ./venv\nhost: {budget: {cpus: 64, memory: 64G}}\n' >conf/forge.yaml
    chmod go-w conf conf/forge.yaml
    cd elsewhere
    FORGE_CONFIG=$T/conf/forge.yaml forge_run -- python -c 'import sys; print(sys.prefix)'
    [ "$(cat "$out")" = "$T/conf/venv" ]
    submit -r ../conf/venv -- python -c 'import sys; print(sys.prefix)'
    finished "$id"
    [ "$("$FORGE" logs "$id")" = "$T/conf/venv" ]
}

@test "an environment that is active and not used is told, with the way to use it" {
    python3 -m venv --without-pip venv
    light_env e
    chmod -R go+rX .
    VIRTUAL_ENV=$T/venv forge_run -- true
    grep -qxF "forge: warning: the active environment $T/venv is not used; to run in it: -r $T/venv" "$err"
    CONDA_PREFIX=$env_dir forge_run -- true
    grep -qxF "forge: warning: the active environment $env_dir is not used; to run in it: -r $env_dir" "$err"
    VIRTUAL_ENV=$T/venv CONDA_PREFIX=$env_dir forge_run -- true
    [ "$(grep -c 'is not used' "$err")" -eq 1 ]
    mkdir -p "$HOME/.pyenv/shims"
    printf '#!/bin/sh\n' >"$HOME/.pyenv/shims/python3"
    chmod +x "$HOME/.pyenv/shims/python3"
    PATH=$HOME/.pyenv/shims:$PATH forge_run -- python3 -c 1
    grep -q "warning: pyenv's Python .* is not used; to run in it: -r .*pyenv prefix" "$err"
    # Chosen, or none there: nothing to say.
    VIRTUAL_ENV=$T/venv forge_run -r e -- tool
    [ "$(grep -c 'is not used' "$err")" -eq 0 ]
    VIRTUAL_ENV=$T/gone forge_run -- true
    [ "$(grep -c 'is not used' "$err")" -eq 0 ]
    forge_run -- true
    [ "$(grep -c 'is not used' "$err")" -eq 0 ]
}

@test "environments by names that are no words" {
    light_env 'my env'
    light_env 'a#b'
    rm -f runtimes.d/*.yaml
    for name in 'my env' 'a#b'; do
        [ "$(health "$name")" = unchecked ]
        forge_run -r "$name" -- tool
        [ "$(cat "$out")" = "tool 1.0" ]
        [ "$(health "$name")" = healthy ]
    done
    # PATH has no way to name this one.
    light_env 'a:b'
    rm -f runtimes.d/*.yaml
    run "$FORGE" run -r 'a:b' -- tool
    [ "$status" -eq 125 ]
    [[ "$output" == *"PATH cannot have a ':' in a path"* ]]
    declare_runtime by-home 'kind: conda' 'prefix: ~/miniconda3/envs/my env' 'commands: [tool]'
    declare_runtime by-variable 'kind: conda' 'prefix: $HOME/miniconda3/envs/a#b' 'commands: [tool]'
    for name in by-home by-variable; do
        forge_run -r "$name" -- tool
        [ "$(cat "$out")" = "tool 1.0" ]
    done
}

@test "the runtime for genomics has the programs that scripts are made of" {
    cp "$examples/genomics.yaml" runtimes.d
    forge_run -r genomics -- sh -c 'set -e; mkdir -p d; ls / | head -n 1 | cut -c1 | tr a-z A-Z | tee d/x | wc -l; cp d/x y; basename "$(pwd)" >z; test -s z; samtools --version | head -n 1'
    [ "$status" -eq 0 ]
    [[ "$(sed -n 2p "$out")" == samtools* ]]
}
