#!/usr/bin/env bats
# Named runtimes for real: Debian's programs and modules, venvs, trees, conda environments.
# SPDX-License-Identifier: Apache-2.0
load ../lib/runtime.bash

setup() { setup_runtimes; }
teardown() { teardown_store; }

@test "a runtime is probed in a sandbox, and then healthy, with versions" {
    cp "$examples/data-ml.yaml" runtimes.d
    [ "$(health data-ml)" = unchecked ]
    run "$FORGE" runtime check data-ml
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"numpy: 1."* && "$output" == *"sklearn: 1."* ]]
    [ "$(health data-ml)" = healthy ]
}

@test "every example runtime is real" {
    cp "$examples"/*.yaml runtimes.d
    run "$FORGE" runtime check
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$("$FORGE" runtime list --json | jq '[.[] | select(.health == "healthy")] | length')" -ge 6 ]
}

@test "an unknown runtime names the near miss and runs nothing" {
    declare_runtime data-ml 'kind: system' 'commands: [python3]'
    run "$FORGE" run -r dat-ml -- python3 -c 'print("fell back")'
    [ "$status" -eq 125 ]
    [[ "$output" == *"did you mean 'data-ml'"* ]]
    [[ "$output" != *"fell back"* ]]
}

@test "a run in an unchecked runtime is probed first; the record says what it relied on" {
    declare_runtime py 'kind: system' 'commands: [python3]'
    forge_run -r py -- python3 -c 'print(1)'
    [ "$status" -eq 0 ]
    [ "$(field .runtime.name)" = py ]
    [ "$(field .runtime.kind)" = system ]
    [[ "$(field .runtime.digest)" == sha256:* ]]
    [[ "$(field .runtime.versions.python3)" == "Python 3."* ]]
    [ "$(field .runtime.why)" = "asked for" ]
    [ "$(of "$(field .runtime.probe_run)" .status)" = succeeded ]
    before=$("$FORGE" ps -aq | wc -l)
    forge_run -r py -- python3 -c 'print(1)'
    # Not probed again: one run more, not two.
    [ "$("$FORGE" ps -aq | wc -l)" -eq $((before + 1)) ]
}

@test "a runtime that lacks what it declares is broken, and refused" {
    declare_runtime bad 'kind: system' 'commands: [python3]' 'python: [no_such_module]'
    run "$FORGE" runtime check bad
    [ "$status" -eq 1 ]
    [[ "$output" == *"no_such_module"* ]]
    run "$FORGE" run -r bad -- python3 -c 'print("ran")'
    [ "$status" -eq 125 ]
    [[ "$output" == *"broken"*"no_such_module"* && "$output" != *ran* ]]
    declare_runtime none 'kind: system' 'commands: [no-such-program]'
    run "$FORGE" run -r none -- true
    [ "$status" -eq 125 ]
    [[ "$output" == *"no-such-program"* ]]
}

@test "a module that crashes, a test of its own that fails, a probe that hangs" {
    mkdir lib
    echo 'import os; os.kill(os.getpid(), 11)' >lib/crasher.py
    chmod -R go+rX lib .
    declare_runtime tree 'kind: prefix' "prefix: $T/tree" 'commands: [tool]' 'smoke: exit 3'
    mkdir -p tree/bin
    printf '#!/bin/sh\necho tool 1.0\n' >tree/bin/tool
    chmod +x tree/bin/tool
    run "$FORGE" runtime check tree
    [ "$status" -eq 1 ]
    [[ "$output" == *"its own test"*"exit 3"* ]]
    printf '#!/bin/sh\nexec sleep 60\n' >tree/bin/tool
    declare_runtime tree 'kind: prefix' "prefix: $T/tree" 'commands: [tool]' 'limits: {timeout: 1s, grace: 200ms}'
    run "$FORGE" runtime check tree
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"did not end"* ]]
    declare_runtime crash 'kind: system' 'commands: [python3]' 'python: [crasher]' "env: {PYTHONPATH: $T/lib}"
    configure 'host: {budget: {cpus: 64, memory: 64G}}' "read_only: [$T/lib]"
    run "$FORGE" runtime check crash
    echo "$output"
    [[ "$output" == *"crasher"*"signal 11"* ]]
}

@test "kind system: only what is declared is in PATH" {
    declare_runtime py 'kind: system' 'commands: [python3]'
    forge_run -r py -- python3 -c 'import os, shutil; print(os.environ["PATH"], shutil.which("python3"), shutil.which("perl"))'
    [ "$(cat "$out")" = "/opt/forge/bin /opt/forge/bin/python3 None" ]
    forge_run -r py -- ls
    [ "$status" -eq 127 ]
}

@test "kind venv: its own packages, the interpreter behind it, and a broken one" {
    python3 -m venv --without-pip venv
    mkdir -p venv/lib/python3.11/site-packages/thing-2.5.dist-info
    echo "__version__ = '2.5'" >venv/lib/python3.11/site-packages/thing.py
    printf 'Metadata-Version: 2.1\nName: thing\nVersion: 2.5\n' >venv/lib/python3.11/site-packages/thing-2.5.dist-info/METADATA
    chmod -R go+rX venv .
    declare_runtime v 'kind: venv' "prefix: $T/venv" 'python: [thing]'
    forge_run -r v -- python -c 'import sys, thing; print(sys.prefix, thing.__version__)'
    [ "$(cat "$out")" = "$T/venv 2.5" ]
    [ "$(field .runtime.versions.thing)" = 2.5 ]
    before=$(digest v)
    sed -i 's/2.5/2.6/' venv/lib/python3.11/site-packages/thing-2.5.dist-info/METADATA
    touch venv/lib/python3.11/site-packages
    [ "$(digest v)" != "$before" ]
    ln -sfn /no/such/python venv/bin/python3
    ln -sfn /no/such/python venv/bin/python
    run "$FORGE" run -r v -- python -c 1
    [ "$status" -eq 125 ]
    [[ "$output" == *"leads to no interpreter"* ]]
}

@test "kind r: library directories of its own come first" {
    mkdir -p rlib/toy
    printf 'Package: toy\nVersion: 0.3\nTitle: t\nDescription: d\nLicense: x\nAuthor: a\nMaintainer: a <a@b.c>\n' >rlib/DESCRIPTION
    declare_runtime rr 'kind: r' "libraries: [$T/rlib]" 'R: [stats]'
    chmod -R go+rX rlib .
    forge_run -r rr -- Rscript --vanilla -e 'cat(.libPaths()[1])'
    [ "$status" -eq 0 ]
    [ "$(cat "$out")" = "$T/rlib" ] || [[ "$(cat "$out")" == */rlib ]]
}

@test "kind rootfs: another user land is /, with its own identity" {
    mkdir -p root/usr/bin root/usr/lib root/etc
    cp /bin/busybox root/usr/bin/busybox
    for name in sh ls cat tr cut grep head tail; do ln -s busybox "root/usr/bin/$name"; done
    ln -s usr/bin root/bin
    echo marker >root/usr/lib/only-here
    chmod -R go+rX root .
    declare_runtime box 'kind: rootfs' "prefix: $T/root" 'commands: [sh, ls]'
    forge_run -r box -- sh -c 'cat /usr/lib/only-here; ls /usr/bin | grep -c . ; [ -e /usr/bin/python3 ] || echo no python'
    cat "$out"
    [ "$(sed -n 1p "$out")" = marker ]
    [ "$(sed -n 3p "$out")" = "no python" ]
    before=$(digest box)
    echo other >root/usr/lib/only-here
    [ -n "$before" ]
    [ "$(digest box)" != "$before" ]
}

@test "two conda environments with different versions of one library, at once" {
    conda_env one 1.0
    conda_env two 2.0
    [ "$(digest one)" != "$(digest two)" ]
    submit -r one -i "$T/gate" -- python -c "import os, shape, time
while not os.path.exists('$T/gate/open'): time.sleep(0.02)
print(shape.__version__)"
    first=$id
    is_in "$first" running || { "$FORGE" show "$first"; "$FORGE" logs "$first"; false; }
    forge_run -r two -- python -c 'import shape, sys; print(shape.__version__, sys.prefix)'
    [ "$(cat "$out")" = "2.0 $HOME/miniconda3/envs/two" ]
    open_gate
    finished "$first"
    [ "$("$FORGE" logs "$first")" = 1.0 ]
}

@test "the same packages elsewhere have the same digest; a changed one is told against the lock" {
    conda_env one 1.0
    cp -r "$HOME/miniconda3/envs/one" "$HOME/miniconda3/envs/copy"
    [ "$(digest one)" = "$(digest copy)" ]
    "$FORGE" runtime lock one >one.lock
    grep -qx '@EXPLICIT' one.lock
    run "$FORGE" runtime check one --lock one.lock
    [ "$status" -eq 0 ]
    conda_env one 1.1
    touch "$HOME/miniconda3/envs/one/conda-meta"
    run "$FORGE" runtime check one --lock one.lock
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"changed shape 1.0 0 -> 1.1 0"* ]]
}

@test "activate.d is sourced once, in a sandbox; a changed script is sourced again" {
    conda_env one 1.0
    mkdir -p "$HOME/miniconda3/envs/one/etc/conda/activate.d"
    script=$HOME/miniconda3/envs/one/etc/conda/activate.d/a.sh
    # shellcheck disable=SC2016 # for the script
    echo 'echo noise; export SEEN="$CONDA_PREFIX/x"; export PATH="$PATH:/more"; touch /tmp/escaped 2>/dev/null; cat "$HOME/.." >/dev/null 2>&1 || true' >"$script"
    chmod -R go+rX "$HOME"
    forge_run -r one -- python -c 'import os; print(os.environ["SEEN"], os.environ["PATH"].endswith(":/more"))'
    [ "$(cat "$out")" = "$HOME/miniconda3/envs/one/x True" ]
    [ ! -e /tmp/escaped ]
    before=$("$FORGE" ps -aq | wc -l)
    forge_run -r one -- python -c 1
    [ "$("$FORGE" ps -aq | wc -l)" -eq $((before + 1)) ]
    echo 'export SEEN=new' >"$script"
    forge_run -r one -- python -c 'import os; print(os.environ["SEEN"])'
    [ "$(cat "$out")" = new ]
    echo 'exit 7' >"$script"
    run "$FORGE" run -r one -- python -c 1
    echo "$output"
    [ "$status" -eq 125 ]
    [[ "$output" == *"activate.d"* ]]
}

@test "packages of the user's home and the caller's variables stay out" {
    mkdir -p "$HOME/.local/lib/python3.11/site-packages"
    echo 'leaked = 1' >"$HOME/.local/lib/python3.11/site-packages/leaky.py"
    declare_runtime py 'kind: system' 'commands: [python3]'
    PYTHONPATH=$HOME/.local/lib/python3.11/site-packages forge_run -r py -- \
        python3 -c 'import importlib.util, os; print(importlib.util.find_spec("leaky"), os.environ.get("PYTHONPATH"), os.environ["PYTHONNOUSERSITE"])'
    [ "$(cat "$out")" = "None None 1" ]
}

@test "a runtime that changes during a run is noticed" {
    conda_env one 1.0
    "$FORGE" runtime check one
    submit -r one -i "$T/gate" -- python -c "import os, time
while not os.path.exists('$T/gate/open'): time.sleep(0.02)"
    is_in "$id" running
    conda_env one 1.5
    touch "$HOME/miniconda3/envs/one/conda-meta"
    open_gate
    finished "$id"
    [[ "$(of "$id" .runtime.changed_to)" == sha256:* ]]
}

@test "damaged metadata is told by its file" {
    conda_env one 1.0
    echo '{"name": "sha' >"$HOME/miniconda3/envs/one/conda-meta/shape.json"
    run "$FORGE" run -r one -- python -c 1
    [ "$status" -eq 125 ]
    [[ "$output" == *"shape.json is damaged"* ]]
}

@test "limits: profile, runtime, script, command line; and no header exceeds the host's caps" {
    declare_runtime py 'kind: system' 'commands: [python3]' 'limits: {memory: 300M, pids: 50}'
    printf '# forge: memory=200M timeout=90s runtime=py\nprint(1)\n' >a.py
    run "$FORGE" run --explain-limits --pids 40 a.py
    echo "$output"
    [[ "$output" == *"memory"*"200.00 MiB"*"script"* ]]
    [[ "$output" == *"pids"*"40"*"command line"* ]]
    forge_run a.py
    [ "$(field .limits.memory_bytes)" -eq $((200 << 20)) ]
    [ "$(field .limits.pids)" -eq 50 ]
    [ "$(field .limits.wall_seconds)" = 90.0 ] || [ "$(field .limits.wall_seconds)" = 90 ]
    [ "$(field .runtime.why)" = "the script's header" ]
    printf '# forge: memry=200M\n' >b.py
    run "$FORGE" run b.py
    [ "$status" -eq 125 ]
    [[ "$output" == *"memry"* ]]
    rm runtimes.d/py.yaml
    printf '# forge: memory=200M\nprint(1)\n' >a.py
    configure 'host: {max: {memory: 100M}, budget: {cpus: 64, memory: 64G}}'
    run "$FORGE" run a.py
    [ "$status" -eq 125 ]
    [[ "$output" == *memory* ]]
}

@test "a forge.yaml beside the script says how it is run, and its header goes before that" {
    declare_runtime py 'kind: system' 'commands: [python3]'
    mkdir project
    printf 'analysis:\n  runtime: py\n  profile: tool\n  limits: {memory: 150M, pids: 33}\n' >project/forge.yaml
    chmod go-w project/forge.yaml
    printf '# forge: pids=44\nprint(1)\n' >project/a.py
    forge_run project/a.py
    [ "$status" -eq 0 ]
    [ "$(field .runtime.name)" = py ]
    [ "$(field .profile)" = tool ]
    [ "$(field .limits.memory_bytes)" -eq $((150 << 20)) ]
    [ "$(field .limits.pids)" -eq 44 ]
    printf 'analysis: {rntime: py}\n' >project/forge.yaml
    run "$FORGE" run project/a.py
    [ "$status" -eq 125 ]
    [[ "$output" == *"did you mean 'runtime'"* ]]
}

@test "history: digests over time, and the runs on each" {
    conda_env one 1.0
    forge_run -r one -- python -c 1
    conda_env one 1.1
    touch "$HOME/miniconda3/envs/one/conda-meta"
    forge_run -r one -- python -c 1
    run "$FORGE" runtime history one
    echo "$output"
    [ "${#lines[@]}" -eq 4 ] # with a check each
    [ "$("$FORGE" ps --runtime one -aq | wc -l)" -eq 4 ] # two probes, two runs
}

@test "records of two runtimes' runs can be told apart by ps" {
    declare_runtime py 'kind: system' 'commands: [python3]'
    forge_run -r py -- python3 -c 1
    forge_run -- true
    [ "$("$FORGE" ps --runtime py -aq | wc -l)" -eq 2 ] # with its probe
}

@test "which runtime: asked for, the script's header, the file beside it, the configuration" {
    for name in asked header beside configured; do
        declare_runtime "$name" 'kind: system' 'commands: [sh]'
    done
    configure 'runtime: configured' 'host: {budget: {cpus: 64, memory: 64G}}'
    mkdir project
    echo 'echo 1' >project/a.sh
    forge_run project/a.sh
    [ "$(field '.runtime.name + ": " + .runtime.why')" = "configured: the configuration" ]
    printf 'analysis: {runtime: beside}\n' >project/forge.yaml
    chmod go-w project/forge.yaml
    forge_run project/a.sh
    [ "$(field '.runtime.name + ": " + .runtime.why')" = "beside: the forge.yaml beside the script" ]
    printf '# forge: runtime=header\necho 1\n' >project/a.sh
    forge_run project/a.sh
    [ "$(field '.runtime.name + ": " + .runtime.why')" = "header: the script's header" ]
    forge_run -r asked project/a.sh
    [ "$(field '.runtime.name + ": " + .runtime.why')" = "asked: asked for" ]
    # A script that is only an argument says nothing about the run.
    forge_run -i project/a.sh -- sh project/a.sh
    [ "$(field .runtime.name)" = configured ]
}
