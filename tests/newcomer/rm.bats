#!/usr/bin/env bats
# Removing runs: what nobody else needs goes, and nothing more.
# SPDX-License-Identifier: Apache-2.0

load ../lib/newcomer.bash
setup() { setup_newcomer; }
teardown() { teardown_forge; }

objects() { find "$FORGE_HOME/objects" -type f 2>/dev/null | wc -l; }

@test "a run is gone with its record, logs and outputs" {
    forge run -q --id one -- sh -c 'echo 1 >one'
    id=$(forge ps -q)
    run forge rm -f one
    [ "$status" -eq 0 ]
    says "of 1 run removed; 2 B freed"
    [ -z "$(forge ps -qa)" ]
    [ ! -e "$FORGE_HOME/runs/$id" ]
    [ "$(objects)" -eq 0 ]
    grep -q "remove run.*$id" "$FORGE_HOME/gc.jsonl"
    run forge show "$id"
    [ "$status" -eq 1 ]
    run forge gc
    [ "$status" -eq 0 ]
}

@test "an output that another run has too stays" {
    forge run -q --id one -- sh -c 'echo same >x; echo 1 >own'
    forge run -q --id two -- sh -c 'echo same >y'
    forge rm -f one
    [ "$(objects)" -eq 1 ]
    forge outputs two --copy got
    [ "$(cat got/y)" = same ]
}

@test "an output that a run of another store has stays too" {
    forge run -q --id one -- sh -c 'echo same >x'
    forge run -q --id two --store "sqlite:$T/other.db" -- sh -c 'echo same >y'
    forge rm -f one
    [ "$(objects)" -eq 1 ]
    forge outputs two --store "sqlite:$T/other.db" --copy got
    [ "$(cat got/y)" = same ]
}

@test "--outputs-only frees the space, and the record says what was there" {
    forge run -q --id one -- sh -c 'echo 1 >one; echo said'
    run forge rm -f --outputs-only one
    [ "$status" -eq 0 ]
    [ "$(objects)" -eq 0 ]
    [ "$(forge show --json one | jq -r '.outputs | length')" -eq 0 ]
    [ "$(forge show --json one | jq -r '.outputs_removed[0].path')" = one ]
    [ "$(forge logs one)" = said ]
    # Also when the store is asked, not the run's directory.
    [ -z "$(forge ps -q --output "$(forge show --json one | jq -r '.outputs_removed[0].sha256')")" ]
    forge rm -f one
    [ -z "$(forge ps -qa)" ]
}

@test "a kept workdir and the post-process go with the run" {
    forge run -q --keep --post-process 'echo "{\"a\": 1}"' -- sh -c 'echo 1 >one'
    dir=$(forge show --json last | jq -r .workdir)
    [ -e "$dir/one" ]
    [ "$(forge ps -qa | wc -l)" -eq 2 ]
    forge rm -f last
    [ ! -e "$dir" ]
    [ -z "$(forge ps -qa)" ]
    [ -z "$(ls "$FORGE_HOME/runs")" ]
}

@test "what runs is not removed, and neither is what stands beside it" {
    id=$(forge submit --id busy -- sleep 300)
    forge run -q --id over -- true
    run forge rm -f over busy
    [ "$status" -eq 1 ]
    says "is not over"
    says "forge kill"
    [ "$(forge ps -qa | wc -l)" -eq 2 ]
    forge kill --now "$id"
}

@test "a pattern means the runs of that name" {
    for i in 1 2 3; do forge run -q --id "sweep-$i" -- true; done
    forge run -q --id other -- true
    run forge rm -f 'sweep-*'
    says "of 3 runs"
    [ "$(forge ps -qa | wc -l)" -eq 1 ]
    run forge rm -f 'sweep-*'
    [ "$status" -eq 1 ]
    says "no run of yours is named like 'sweep-*'"
}

@test "it asks on a terminal, and wants -f without one" {
    forge run -q --id one -- true
    run forge rm one </dev/null
    [ "$status" -eq 1 ]
    says "-f removes without asking"
    run script -qec 'forge rm one' /dev/null <<<n
    says "of 1 run? [y/N]"
    [ "$(forge ps -qa | wc -l)" -eq 1 ]
    run script -qec 'forge rm one' /dev/null <<<y
    [ -z "$(forge ps -qa)" ]
}

@test "another user's run is not mine to remove" {
    forge run -q --id one -- true
    id=$(forge ps -q)
    sqlite3 "$FORGE_HOME/forge.db" "UPDATE runs SET username = 'bob', record = json_set(record, '\$.user', 'bob')" ||
        python3 -c "
import json, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
record = json.loads(db.execute('SELECT record FROM runs').fetchone()[0])
record['user'] = 'bob'
db.execute('UPDATE runs SET username = ?, record = ?', ('bob', json.dumps(record)))
db.commit()" "$FORGE_HOME/forge.db"
    run forge rm -f "$id"
    [ "$status" -eq 1 ]
    says "is bob's"
    [ -e "$FORGE_HOME/runs/$id" ]
}

# sql STATEMENT: what somebody else who writes the store can do.
sql() { python3 -c 'import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute(sys.argv[2]); db.commit()' "$FORGE_HOME/forge.db" "$1"; }

@test "what only the store calls a part of the run stays" {
    forge run -q --id one -- true
    forge run -q --id mine --keep -- sh -c 'echo thesis >x'
    id=$(forge submit --id busy -- sleep 300)
    one=$(forge show --json one | jq -r .run_id)
    dir=$(forge show --json mine | jq -r .workdir)
    sql "UPDATE runs SET part_of = '$one' WHERE run_id <> '$one'"
    forge rm -f one
    [ "$(cat "$dir/x")" = thesis ]
    [ "$(forge ps -qa | wc -l)" -eq 2 ]
    [ -e "$FORGE_HOME/runs/$id" ]
    forge kill --now busy
}

@test "--outputs-only changes our own record, not to what the store says" {
    forge run -q --id one -- sh -c 'echo 1 >one'
    sql "UPDATE runs SET record = replace(record, 'Succeeded', 'FORGED')"
    forge rm -f --outputs-only one
    run ! grep -q FORGED "$FORGE_HOME/runs/$(forge ps -q)/record.json"
}

@test "rm does not wait for ever for somebody who collects" {
    forge run -q --id one -- sh -c 'echo 1 >one'
    exec {other}<>"$FORGE_HOME/objects.lock"
    flock -s "$other"
    run forge rm -f one
    exec {other}>&-
    [ "$status" -eq 0 ]
    says "left to forge gc"
    [ -z "$(forge ps -qa)" ]
}
