#!/usr/bin/env bats
# Runtimes that somebody else wrote: nothing in them hangs forge, gets out or passes for another.
# SPDX-License-Identifier: Apache-2.0
load ../lib/runtime.bash

setup() { setup_runtimes; }
teardown() { teardown_store; }

@test "a fifo among the packages makes one environment broken, and hangs nobody" {
    light_env good
    light_env bad
    mkfifo "$env_dir/conda-meta/x.json"
    run timeout 20 "$FORGE" runtime list --json
    [ "$status" -eq 0 ]
    [ "$(jq -r '.[] | select(.name == "bad") | .health' <<<"$output")" = broken ]
    [[ "$(jq -r '.[] | select(.name == "bad") | .problem' <<<"$output")" == *"x.json"*"no regular file"* ]]
    [ "$(jq -r '.[] | select(.name == "good") | .health' <<<"$output")" = unchecked ]
    run timeout 20 "$FORGE" run -r bad -- tool
    [ "$status" -eq 125 ]
}

@test "names that move the cursor do not, and what is no text is still listed" {
    light_env esc
    mv "$env_dir/conda-meta/tool.json" "$env_dir/conda-meta/"$'\e]0;owned\a'.json
    echo '{"nam' >"$env_dir/conda-meta/"$'\e]0;owned\a'.json
    light_env bytes
    echo '{"nam' >"$env_dir/conda-meta/"$'\xff\xfe'.json
    for command in "runtime list" "runtime check" "runtime check esc" "run -r esc -- tool"; do
        # shellcheck disable=SC2086 # words
        run "$FORGE" $command
        [ "$status" -ne 0 ] || [ "$command" = "runtime list" ]
        [[ "$output" == *damaged* ]]
        [[ "$output" != *$'\e'* ]]
    done
    [ "$("$FORGE" runtime list --json | jq -r '.[] | select(.name == "bytes") | .health')" = broken ]
}

@test "a probe that says what is no text: broken, and kept" {
    declare_runtime odd 'kind: system' 'commands: [python3]' "smoke: \"printf 'gr\\\\303\\\\374\\\\377\\\\033[2J' && exit 3\""
    run "$FORGE" runtime check odd
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"its own test: exit 3"* && "$output" != *$'\e'* ]]
    [ "$(health odd)" = broken ]
    "$FORGE" runtime history odd | grep -q 'broken: its own test'
}

@test "scripts that print, go elsewhere, fork, trap and lock what they set" {
    light_env e
    activate_script a.sh 'echo noise; echo more >&2' 'cd /' 'export SEEN=1; readonly SEEN' \
        '(sleep 300; touch /tmp/late) &' "trap 'echo end' EXIT" 'set -u' 'export PATH=/nowhere:$PATH'
    activate_script b.sh 'mkdir -p "$HOME/outputs"; echo X=stolen >"$HOME/outputs/aaa"' 'export SECOND=$SEEN'
    forge_run -r e -- /bin/sh -c 'echo "$SEEN $SECOND ${X-none} ${PATH%%:*}"; pwd'
    [ "$(sed -n 1p "$out")" = "1 1 none /nowhere" ]
    [ "$(sed -n 2p "$out")" = "$(field .workdir)" ]
}

@test "a script that ends the shell, fails, hangs or is none is named, and nothing runs" {
    light_env e 'limits: {timeout: 2s, grace: 200ms}'
    activate_script a.sh 'exit 0'
    run "$FORGE" run -r e -- tool
    echo "$output"
    [ "$status" -eq 125 ]
    [[ "$output" == *"ended the shell"* ]]
    activate_script a.sh 'exec sleep 0'
    run "$FORGE" run -r e -- tool
    [ "$status" -eq 125 ]
    "$FORGE" runtime check e || true
    activate_script a.sh 'while :; do sleep 1; done'
    run "$FORGE" runtime check e
    echo "$output"
    [[ "$output" == *broken*activate.d* ]]
    rm "$env_dir/etc/conda/activate.d/a.sh"
    mkfifo "$env_dir/etc/conda/activate.d/a.sh"
    before=$(count_runs)
    run timeout 20 "$FORGE" runtime check e
    echo "$output"
    [[ "$output" == *"a.sh: it is no regular file"* ]]
    [ "$(count_runs)" -eq "$before" ]
    rm "$env_dir/etc/conda/activate.d/a.sh"
    echo 'export STOLEN=1' >outside.sh
    ln -s "$T/outside.sh" "$env_dir/etc/conda/activate.d/a.sh"
    run "$FORGE" runtime check e
    [[ "$output" == *"a.sh: a link leads out"* ]]
}

@test "what a script makes of \$HOME is the home of each run" {
    light_env e
    activate_script a.sh 'export CACHE=$HOME/cache:$HOME/x' 'export FORGE_RUN_ID=fake FORGE_OTHER=mine'
    for _ in 1 2; do
        forge_run -r e -- /bin/sh -c 'echo "$CACHE"; [ "$FORGE_RUN_ID" = fake ] && echo fake; env | grep FORGE_OTHER'
        [ "$(cat "$out")" = "$(field .workdir)/cache:$(field .workdir)/x" ]
    done
}

@test "what is declared goes before scripts, and the user's packages stay out" {
    light_env e 'env: {MODE: declared}'
    activate_script a.sh 'export MODE=script' 'unset PYTHONNOUSERSITE' 'export R_LIBS_USER=/x'
    forge_run -r e -- /bin/sh -c 'echo "$MODE $PYTHONNOUSERSITE $R_LIBS_USER"'
    [ "$(cat "$out")" = "declared 1 NULL" ]
}

@test "scripts see the environment and nothing else of the host, and cannot change it" {
    light_env e
    echo secret >"$HOME/secret"
    mkdir -p "$T/victim"
    echo secret >"$T/victim/file"
    chmod -R a+rwX "$T/victim" "$env_dir"
    activate_script a.sh "cat '$HOME/secret' '$T/victim/file' /root/.bashrc /etc/shadow" \
        "touch '$env_dir/planted' '$T/victim/planted'" "rm -f '$env_dir/bin/tool'" \
        'export GOT=$(cat '"'$HOME/secret'"' 2>/dev/null) NET=$(ls /sys/class/net 2>/dev/null | tr "\n" " ")' true
    forge_run -r e -- /bin/sh -c 'echo "[$GOT] [$NET]"; tool; touch "$CONDA_PREFIX/here" 2>/dev/null && echo written'
    [[ "$(cat "$out")" == "[]"*"tool 1.0" ]]
    [[ "$(cat "$out")" != *eth* ]]
    [ ! -e "$env_dir/planted" ]
    [ ! -e "$env_dir/here" ]
    [ ! -e "$T/victim/planted" ]
    [ -x "$env_dir/bin/tool" ]
}

@test "variables of the environment: no names that are none, and forge's stay forge's" {
    light_env e
    cat >"$env_dir/conda-meta/state" <<'STATE'
{"version": 1, "env_vars": {"A=B": "1", "NEW\nLINE=x": "2", "": "3", "FORGE_RUN_ID": "fake", "PATH": "/evil",
 "HOME": "/evil", "lower": "up", "LD_PRELOAD": "/no/such.so"}}
STATE
    forge_run -r e -- /bin/sh -c 'echo "$A|$LINE|$LOWER|$HOME|${PATH%%:*}"; [ "$FORGE_RUN_ID" = fake ] && echo fake; env | grep -c "^="'
    [ "$(sed -n 1p "$out")" = "||up|$(field .workdir)|$env_dir/bin" ]
    [ "$(sed -n 2p "$out")" = 0 ]
    # Whoever prepares the run does not load what the environment names.
    run grep such.so "$err"
    [ "$status" -eq 1 ]
}

@test "an environment without an interpreter never gets the host's" {
    light_env e
    echo 'print("the host")' >a.py
    run "$FORGE" run -r e a.py
    echo "$output"
    [ "$status" -eq 125 ]
    [[ "$output" == *"has no python3 of its own"* ]]
    run "$FORGE" run -r e -- Rscript -e 'cat("the host")'
    [[ "$output" == *"has no Rscript of its own"* ]]
    declare_runtime e 'kind: conda' "prefix: $env_dir" 'commands: [tool]' 'python: [json]'
    run "$FORGE" runtime check e
    [[ "$output" == *"Python module json: there is no python"* ]]
    declare_runtime e 'kind: conda' "prefix: $env_dir" 'commands: [tool, python3]'
    run "$FORGE" runtime check e
    [[ "$output" == *"command python3: it has none of its own"* ]]
    declare_runtime e 'kind: conda' "prefix: $env_dir" 'commands: [tool]' 'R: [stats]'
    run "$FORGE" runtime check e
    [[ "$output" == *"there is no Rscript"* ]]
}

@test "a link to an interpreter that is gone, or a bin that lies elsewhere, is not healthy" {
    light_env e
    ln -s /usr/bin/nowhere "$env_dir/bin/python3"
    declare_runtime e 'kind: conda' "prefix: $env_dir"
    run "$FORGE" runtime check e
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"none of its own"* ]]
    mv "$env_dir/bin" "$T/bin-elsewhere"
    ln -sf /usr/bin/python3 "$T/bin-elsewhere/python3"
    ln -s "$T/bin-elsewhere" "$env_dir/bin"
    run "$FORGE" runtime check e
    [ "$status" -eq 1 ]
}

@test "a venv cannot show a home by where its python leads" {
    python3 -m venv --without-pip venv
    mkdir -p "$HOME/bin"
    cp /usr/bin/python3.11 "$HOME/bin/python"
    echo secret >"$HOME/secret"
    ln -sf "$HOME/bin/python" venv/bin/python
    chmod -R go+rX venv . "$HOME"
    declare_runtime v 'kind: venv' "prefix: $T/venv" 'commands: [cat]'
    run "$FORGE" run -r v -- cat "$HOME/secret"
    echo "$output"
    [ "$status" -eq 125 ]
    [[ "$output" != *secret$'\n'* && "$output" == *"no tree that could be shown"* ]]
}

@test "an environment that is replaced while runs use it is another one" {
    light_env e
    "$FORGE" runtime check e
    submit -r e -i "$T/gate" -- /bin/sh -c "$(gated); tool"
    is_in "$id" running
    mv "$env_dir" "$env_dir.old"
    light_env e
    echo '{"name": "tool", "version": "2.0", "build": "0"}' >"$env_dir/conda-meta/tool.json"
    open_gate
    finished "$id"
    [[ "$(of "$id" .runtime.changed_to)" == sha256:* ]]
    # What it saw stays what it was.
    [ "$("$FORGE" logs "$id")" = "tool 1.0" ]
    rm -rf "$env_dir"
    run "$FORGE" run -r e -- tool
    [ "$status" -eq 125 ]
}

@test "scripts that were given something else are sourced again" {
    light_env e 'env: {MODE: one}'
    activate_script a.sh 'export MADE=from-$MODE'
    forge_run -r e -- /bin/sh -c 'echo "$MADE"'
    [ "$(cat "$out")" = from-one ]
    light_env e 'env: {MODE: two}'
    forge_run -r e -- /bin/sh -c 'echo "$MADE"'
    [ "$(cat "$out")" = from-two ]
}

@test "a program whose interpreter is gone, or that dies, does not work" {
    light_env e
    printf '#!/no/such/prefix/bin/python\n' >"$env_dir/bin/tool"
    run "$FORGE" runtime check e
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"command tool: it cannot be executed"* ]]
    printf '#!/bin/sh\nkill -SEGV $$\n' >"$env_dir/bin/tool"
    run "$FORGE" runtime check e
    [ "$status" -eq 1 ]
    [[ "$output" == *"command tool: died of signal 11"* ]]
    # Not to know --version is no disease.
    printf '#!/bin/sh\n[ $# -eq 0 ] || exit 255\n' >"$env_dir/bin/tool"
    "$FORGE" runtime check e
}

@test "a runtime is mounted read-only, and not only kept so by the second wall" {
    light_env e
    # shellcheck disable=SC2016 # for the shell inside
    forge_run -r e -- /bin/sh -c 'real=$(cd -P "$CONDA_PREFIX" && pwd -P)
        while read -r _ _ _ _ where options _; do [ "$where" = "$real" ] && echo "$options"; done </proc/self/mountinfo'
    [[ "$(cat "$out")" == ro,* ]]
}
