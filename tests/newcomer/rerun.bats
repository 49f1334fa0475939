#!/usr/bin/env bats
# The same again, with changes; and what was different.
# SPDX-License-Identifier: Apache-2.0

load ../lib/newcomer.bash
setup() { setup_newcomer; }
teardown() { teardown_forge; }

# A script that reads an input and leaves a file.
analysis() {
    mkdir -p data
    echo 1 >data/x
    printf 'import sys\nopen("out", "w").write(open(sys.argv[1]).read() + "%s")\n' "${1:-a}" >fit.py
    forge run -q --id fit -i data fit.py data/x
}

@test "rerun asks for the same, from wherever, with other limits" {
    analysis
    first=$(forge show --json last | jq -r .run_id)
    cd /
    run forge rerun --memory 64M fit
    [ "$status" -eq 0 ]
    [ "$(forge show --json last | jq -r .rerun_of)" = "$first" ]
    [ "$(forge show --json last | jq .limits.memory_bytes)" -eq 67108864 ]
    [ "$(forge show --json last | jq -r '.command | last')" = data/x ]
    # What was changed once stays changed when that run is the one to repeat.
    forge rerun -q last
    [ "$(forge show --json last | jq .limits.memory_bytes)" -eq 67108864 ]
}

@test "rerun: a run that ran out of memory goes on with more" {
    run forge run --id hungry --memory 32M python3 -c 'x = bytearray(64 << 20); x[::4096] = b"1" * len(x[::4096])'
    [ "$status" -eq 137 ]
    says "Retry with --memory"
    run forge rerun --memory 256M hungry
    [ "$status" -eq 0 ]
}

@test "rerun: inputs and variables are added, patterns replaced" {
    echo 2 >other
    forge run -q --env A=1 --env B=1 -o x -- sh -c 'echo "$A $B" >x; echo y >y'
    mkdir elsewhere
    cd elsewhere
    echo 3 >mine
    forge rerun -q --env B=2 -o y -i mine last
    [ "$(forge show --json last | jq -r '.asked.env | sort | join(" ")')" = "A=1 B=2" ]
    [ "$(forge outputs --json last | jq -r '.[].path')" = y ]
    # Relative to where it was typed now, not to where the run was.
    [ "$(forge show --json last | jq -r '.inputs[0].path')" = "$(realpath mine)" ]
}

@test "the value of a secret is not kept, and is asked for again" {
    forge run -q --env API_TOKEN=s3cret --env PLAIN=seen -- true
    run ! grep -rq s3cret "$FORGE_HOME"
    [ "$(forge show --json last | jq -r '.asked.env | join(" ")')" = "API_TOKEN PLAIN=seen" ]
    run forge rerun last
    [ "$status" -eq 125 ]
    says "the value of API_TOKEN was not kept"
    run forge rerun -q --env API_TOKEN=again last
    [ "$status" -eq 0 ]
    API_TOKEN="env" run forge rerun -q last
    [ "$status" -eq 0 ]
}

@test "rerun of what is not there, or whose directory is gone" {
    run forge rerun nothing
    [ "$status" -eq 125 ]
    mkdir gone
    cd gone
    forge run -q -- true
    cd "$T/project"
    rmdir gone
    run forge rerun last
    [ "$status" -eq 125 ]
    says "was asked for in $PWD/gone"
}

@test "diff: equal runs are equal" {
    analysis
    forge rerun -q fit
    run forge diff "$(forge ps -q | tail -1)" last
    [ "$status" -eq 0 ]
    [ -z "$output" ]
}

@test "diff names the input, the limit, the variable, the output and the line of the script" {
    analysis a
    echo 2 >data/x
    printf 'import sys\nopen("out", "w").write(open(sys.argv[1]).read() + "b")\n' >fit.py
    forge rerun -q --id second --memory 64M --env A=1 fit
    run forge diff fit second
    [ "$status" -eq 1 ]
    says "limit     memory  2.00 GiB -> 64.00 MiB"
    says "variable  A  - -> 1"
    says "data  sha256:"
    says "output    out  sha256:"
    says '  - open("out", "w").write(open(sys.argv[1]).read() + "a")'
    says '  + open("out", "w").write(open(sys.argv[1]).read() + "b")'
    says_not "import sys"
    [ "$(forge diff --json fit second | jq -r '[.[].what] | unique | join(" ")')" = "input limit output variable" ]
    run forge diff fit
    [ "$status" -eq 2 ]
    run forge diff fit nothing
    [ "$status" -eq 2 ]
}

@test "diff names the command, the packages of the runtime and what each pattern asked for" {
    conda-like() {
        mkdir -p env/bin env/conda-meta
        printf '{"name": "tool", "version": "%s", "build": "0", "files": ["bin/tool"]}' "$1" >env/conda-meta/tool.json
        printf '#!/bin/sh\necho "$1" >made\n' >env/bin/tool
        chmod 755 env/bin/tool
        chmod -R go+rX .
    }
    conda-like 1.0
    forge run -q --id one -r ./env -o made tool x
    conda-like 2.0
    forge run -q --id two -r ./env -o 'm*' tool y
    run forge diff one two
    [ "$status" -eq 1 ]
    says "command"
    says "tool x"
    says "tool y"
    says "package   tool  1.0"
    says "2.0"
    says "m*"
}

@test "the script's text stays when the file is gone, and goes with the run" {
    analysis
    digest=$(forge show --json last | jq -r .asked.script.sha256)
    [ "$digest" = "sha256:$(sha256sum fit.py | cut -d' ' -f1)" ]
    rm fit.py
    object=$FORGE_HOME/objects/${digest:7:2}/${digest:9}
    grep -q 'import sys' "$object"
    echo 'retention: {objects: 1ms}' >forge.yaml
    forge gc
    [ -e "$object" ]
    forge rm -f last
    [ ! -e "$object" ]
}

@test "a script that was edited while it ran is not taken for what ran" {
    cat >edit.sh <<'EOF'
echo ready
until [ -e gate/open ]; do sleep 0.02; done
EOF
    mkdir gate
    id=$(forge submit -i gate edit.sh)
    patiently sh -c "forge logs $id | grep -q ready"
    echo 'echo changed' >>edit.sh
    touch gate/open
    forge wait -q "$id"
    [ "$(forge show --json "$id" | jq -r .asked.script.path)" = "$PWD/edit.sh" ]
    kept=$(forge show --json "$id" | jq -r '.asked.script.sha256 // "none"')
    ran=$(forge show --json "$id" | jq -r '[.inputs[] | select(.path | endswith("edit.sh"))][0].sha256')
    [ "$kept" = none ] || [ "$kept" = "$ran" ]
}

# sql STATEMENT: what somebody else who writes the store can do.
sql() { python3 -c 'import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute(sys.argv[2]); db.commit()' "$FORGE_HOME/forge.db" "$1"; }

@test "rerun runs what our own record says, and nothing that only a store has" {
    forge run -q --id fit -- echo mine
    sql "UPDATE runs SET record = replace(record, '\"mine\"', '\"forged\"')"
    run forge rerun fit
    says mine
    says_not forged
    mv "$FORGE_HOME/runs" "$FORGE_HOME/gone"
    mkdir -m 700 "$FORGE_HOME/runs"
    run forge rerun fit
    [ "$status" -eq 125 ]
    says "is not of this FORGE_HOME"
}

@test "somebody else's label is not taken for the beginning of an id" {
    forge run -q --id mine -- true
    id=$(forge ps -q)
    forge run -q --id "${id:0:13}" -- false || true
    # A label of one's own goes before the beginning of an id,
    [ "$(forge show --json "${id:0:13}" | jq -r .analysis_id)" = "${id:0:13}" ]
    sql "UPDATE runs SET username = 'bob' WHERE run_id <> '$id'"
    # somebody else's does not,
    [ "$(forge show --json "${id:0:13}" | jq -r .run_id)" = "$id" ]
    # and names a run where nothing else does.
    forge run -q --id theirs -- true
    theirs=$(forge ps -q --analysis theirs)
    sql "UPDATE runs SET username = 'bob' WHERE run_id = '$theirs'"
    [ "$(forge show --json theirs | jq -r .run_id)" = "$theirs" ]
}

@test "the rerun of a run that had the host's network by its script has it too" {
    mkdir -p "$HOME/.config/forge"
    echo 'host: {scripts_network: true}' >"$HOME/.config/forge/forge.yaml"
    printf '# forge: network=host\nprint(1)\n' >net.py
    forge run -q net.py
    forge rerun -q last
    [ "$(forge show --json last | jq -r .network)" = host ]
}

@test "diff prints nothing that a terminal obeys" {
    forge run -q --id one echo $'sha256:\e[31mX'
    forge run -q --id two echo plain
    run forge diff one two
    [ "$status" -eq 1 ]
    run ! grep -q $'\e' <<<"$output"
}

@test "rerun --detach prints the id of the new run and does not wait" {
    forge run -q --id gated -- true
    id=$(forge rerun --detach --memory 64M --id again gated)
    run forge wait "$id"
    [ "$status" -eq 0 ]
    [ "$(forge show --json "$id" | jq -r '.rerun_of != null')" = true ]
    [ "$(forge show --json "$id" | jq .limits.memory_bytes)" -eq 67108864 ]
    # A refused request is refused here, and starts nothing.
    run forge rerun --detach --memory 0 gated
    [ "$status" -eq 125 ]
}

uses_memory() { forge show --json "$1" | jq -e '.now.memory_bytes > 0'; }

@test "rerun --detach prints the id, and show has what a run uses until it is over" {
    forge run -q --id short -- sleep 0.1
    first=$(forge ps -q)
    id=$(forge rerun --detach short)
    forge wait -q "$id"
    [ "$(forge show --json "$id" | jq -r .rerun_of)" = "$first" ]
    [ "$(forge show --json "$id" | jq .now)" = null ]
    forge rerun --detach --json "$first" >again.json
    [ "$(jq .existing again.json)" = false ]
    forge wait -q "$(jq -r .run_id again.json)"
    id=$(forge submit -- sleep 300)
    patiently uses_memory "$id"
    forge kill --now "$id"
}
