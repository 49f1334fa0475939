# runtime.bash: what the suites in tests/runtime share, on top of store.bash.
# shellcheck shell=bash disable=SC2034,SC2154 # the tests' variables and ours
# SPDX-License-Identifier: Apache-2.0
load ../lib/store.bash

setup_runtimes() {
    setup_store
    mkdir runtimes.d
    export HOME=$T/user
    mkdir -p "$HOME"
    # Where the tests are copied to, examples are too.
    examples=$(dirname "$BATS_TEST_DIRNAME")/../examples/runtimes
}

# declare_runtime NAME LINE...: the lines of its declaration.
declare_runtime() {
    local name=$1
    shift
    { printf 'runtimes:\n  %s:\n' "$name"; printf '    %s\n' "$@"; } >"runtimes.d/$name.yaml"
}

health() { "$FORGE" runtime list --json | jq -r ".[] | select(.name == \"$1\") | .health"; }
digest() { "$FORGE" runtime list --json | jq -r ".[] | select(.name == \"$1\") | .digest"; }

# Runs there are, of all kinds; what a probe starts is one.
count_runs() { "$FORGE" ps -aq | wc -l; }

# conda_env NAME VERSION: an environment with a Python of its own and "shape" in that version.
conda_env() {
    mkdir -p "$HOME/miniconda3/conda-meta" "$HOME/miniconda3/condabin"
    touch "$HOME/miniconda3/conda-meta/history"
    conda_prefix "$HOME/miniconda3/envs/$1" "$2"
}

# conda_prefix PREFIX VERSION: the same wherever it lies, of no installation.
conda_prefix() {
    local prefix=$1
    mkdir -p "$prefix/bin" "$prefix/conda-meta"
    touch "$prefix/conda-meta/history"
    [ -e "$prefix/bin/python3.11" ] || cp /usr/bin/python3.11 "$prefix/bin/python3.11"
    ln -sf python3.11 "$prefix/bin/python3"
    ln -sf python3.11 "$prefix/bin/python"
    mkdir -p "$prefix/lib"
    [ -d "$prefix/lib/python3.11" ] || cp -r /usr/lib/python3.11 "$prefix/lib/python3.11"
    # Debian's Python looks for modules in dist-packages; its library directory will do.
    echo "__version__ = '$2'" >"$prefix/lib/python3.11/shape.py"
    printf '{"name": "shape", "version": "%s", "build": "0", "url": "https://c.example/shape-%s-0.conda", "md5": "%032d", "subdir": "linux-64", "depends": ["python"]}' \
        "$2" "$2" "${2%%.*}" >"$prefix/conda-meta/shape.json"
    printf '{"name": "python", "version": "3.11", "build": "0", "url": "https://c.example/python-3.11-0.conda", "md5": "%032d", "subdir": "linux-64", "depends": []}' \
        1 >"$prefix/conda-meta/python.json"
    chmod -R go+rX "$HOME"
}


# light_env NAME LINE...: an environment of conda with one program and no Python, declared.
light_env() {
    local name=$1
    env_dir=$HOME/miniconda3/envs/$name
    shift
    mkdir -p "$env_dir/bin" "$env_dir/conda-meta" "$HOME/miniconda3/conda-meta" "$HOME/miniconda3/condabin"
    touch "$env_dir/conda-meta/history" "$HOME/miniconda3/conda-meta/history"
    printf '#!/bin/sh\necho tool 1.0\n' >"$env_dir/bin/tool"
    chmod +x "$env_dir/bin/tool"
    echo '{"name": "tool", "version": "1.0", "build": "0"}' >"$env_dir/conda-meta/tool.json"
    chmod -R go+rX "$HOME"
    declare_runtime "$name" 'kind: conda' "prefix: $env_dir" 'commands: [tool]' "$@"
}

# activate_script NAME LINE...: a script of the environment that light_env made last.
activate_script() {
    mkdir -p "$env_dir/etc/conda/activate.d"
    printf '%s\n' "${@:2}" >"$env_dir/etc/conda/activate.d/$1"
    chmod -R go+rX "$env_dir"
}
