#!/usr/bin/env bats
# Post-processing: a second sandbox reads the outputs, forge keeps what it prints.
# SPDX-License-Identifier: Apache-2.0

load ../lib/store.bash
setup() { setup_store; }
teardown() { teardown_store; }

records() { "$FORGE" post-process --records "$1"; }

@test "the JSON lines of a post-process are kept with the verdict" {
    forge_run -o 'r/*' --post-process 'for f in r/*; do printf "{\"file\": \"%s\", \"text\": \"%s\"}\n" "$f" "$(cat "$f")"; done' \
        -- sh -c 'mkdir r; echo one >r/a; echo two >r/b'
    [ "$status" -eq 0 ]
    [ "$(field .post_process.status)" = succeeded ]
    [ "$(field .post_process.records)" -eq 2 ]
    id=$(field .run_id)
    [ "$(records "$id" | jq -r '"\(.file)=\(.text)"' | xargs)" = "r/a=one r/b=two" ]
    run "$FORGE" show "$id"
    [[ "$output" == *"post      succeeded, 2 records"* ]]
    # It is a run of its own, which knows its parent.
    child=$(field .post_process.run_id)
    [ "$(of "$child" .parent_run)" = "$id" ]
    [ "$(of "$child" .profile)" = post_process ]
    # There is no moment with the verdict and without the records.
    "$FORGE" logs --events "$id" | jq -s -e '[.[].event] | index("post_process") < index("succeeded")'
}

@test "its numbers come back with all their digits, and no more" {
    forge_run --post-process 'echo "{\"a\":49.86,\"b\":0.30000000000000004,\"c\":[1234567890.123,1.0,9007199254740993]}"' -- true
    [ "$(records "$(field .run_id)")" = '{"a":49.86,"b":0.30000000000000004,"c":[1234567890.123,1.0,9007199254740993]}' ]
}

@test "post_process: of the configuration is for every run that succeeds" {
    budget 'post_process: [/bin/sh, -c, "echo {}"]'
    forge_run -- true
    [ "$(field .post_process.records)" -eq 1 ]
    forge_run -- sh -c 'exit 3'
    [ "$status" -eq 3 ]
    [ "$(field .post_process)" = null ]
    [ -z "$(records "$(field .run_id)")" ]
}

@test "a line that is no JSON object is a recorded failure; the run succeeded all the same" {
    forge_run -o x --post-process 'echo "{\"a\": 1}"; echo nonsense' -- touch x
    [ "$status" -eq 0 ]
    [ "$(field .status)" = succeeded ]
    [ "$(field .post_process.status)" = failed ]
    [[ "$(field .post_process.completion_notes)" == *"line 2"* ]]
    [ "$(field .post_process.records)" -eq 0 ]
    [ -z "$(records "$(field .run_id)")" ]
    [ "$(field '.outputs | length')" -eq 1 ]
}

@test "a post-process that fails, dies or takes too long loses nothing" {
    budget 'profiles:' '  post_process:' '    timeout: 500ms'
    for command in 'echo {}; exit 3' 'echo {}; kill -SEGV $$' 'echo {}; sleep 60' no-such-command; do
        forge_run -o x --post-process "$command" -- touch x
        [ "$status" -eq 0 ]
        [ "$(field .status)" = succeeded ]
        [[ "$(field .post_process.status)" =~ ^(failed|killed)$ ]]
        [ -n "$(field .post_process.completion_notes)" ]
        [ -z "$(records "$(field .run_id)")" ]
    done
}

@test "it sees the outputs and inputs read-only, under their names, and nothing else of forge's" {
    echo script >in.txt
    mkdir -p "$FORGE_HOME"
    chmod 700 "$FORGE_HOME"
    forge_run -i in.txt -o 'out/*' --post-process '
        test "$(cat in.txt)" = script || exit 11
        test "$(cat out/x)" = data || exit 12
        if echo evil 2>/dev/null >out/x; then exit 13; fi
        if echo evil 2>/dev/null >out/new; then exit 14; fi
        if rm -f out/x 2>/dev/null; then exit 15; fi
        # the way to its own outputs, and nothing beside it
        if ls -A "'"$FORGE_HOME"'" 2>/dev/null | grep -qvx staging; then exit 16; fi
        test "$(ls "'"$FORGE_HOME"'/staging" | wc -l)" -le 1 || exit 17
        test -z "$(env | grep -E "^(FORGE_STORE|FORGE_HOME|PG)")" || exit 18
        echo "{\"ok\": true}"' -- sh -c 'mkdir out; echo data >out/x'
    field .post_process.completion_notes
    [ "$(field .post_process.status)" = succeeded ]
    [ "$(cat "$FORGE_HOME/$(field '.outputs[0].stored_as')")" = data ]
    [ "$(stat -c %a "$FORGE_HOME/$(field '.outputs[0].stored_as')")" = 444 ]
    [ -z "$(ls "$FORGE_HOME/staging" 2>/dev/null)" ]
}

@test "it has no network, also when the run had one" {
    forge_run --network host --post-process 'grep -c : /proc/net/dev | sed "s/.*/{\"devices\": &}/"' -- true
    [ "$(field .post_process.status)" = succeeded ]
    # Its own loopback and nothing else.
    [ "$(records "$(field .run_id)" | jq .devices)" -eq 1 ]
}

@test "it cannot reach the database server" {
    skip_unless "PostgreSQL only" test -n "${FORGE_PG_DIR:-}"
    forge_run --post-process "test ! -e $FORGE_PG_DIR && test ! -e /run/postgresql && echo '{}'" -- true
    [ "$(field .post_process.status)" = succeeded ]
    [ "$(field .post_process.records)" -eq 1 ]
}

@test "its output has a limit, as that of every run" {
    forge_run --post-process 'yes "{}" | head -n 100001' -- true
    [ "$(field .status)" = succeeded ]
    [ "$(field .post_process.status)" = failed ]
    [[ "$(field .post_process.completion_notes)" == *100000* ]]
    [ -z "$(records "$(field .run_id)")" ]
}

@test "forge post-process repeats it and replaces what was there" {
    forge_run -o x --post-process 'echo "{\"n\": 1}"; echo "{\"n\": 2}"' -- touch x
    id=$(field .run_id)
    run "$FORGE" post-process "$id"
    [ "$status" -eq 0 ]
    [[ "$output" == "succeeded: 2 records."* ]]
    [ "$(records "$id" | wc -l)" -eq 2 ]
    run "$FORGE" post-process --command 'test -e x && echo "{\"n\": 3}"' "$id"
    [ "$status" -eq 0 ]
    [ "$(records "$id")" = '{"n":3}' ]
    [ "$(of "$id" .post_process.records)" -eq 1 ]
    # the record in the directory says the same
    [ "$(field .post_process.records "$FORGE_HOME/runs/$id/record.json")" -eq 1 ]
    [ "$(of "$id" .status)" = succeeded ]
}

@test "a repetition that fails keeps the records there are" {
    forge_run --post-process 'echo "{\"n\": 1}"' -- true
    id=$(field .run_id)
    for command in 'exit 3' 'echo nonsense' 'echo "{\"n\": 9}"; kill -KILL $$'; do
        run "$FORGE" post-process --command "$command" "$id"
        [ "$status" -eq 1 ]
        [ "$(records "$id")" = '{"n":1}' ]
    done
    # and what failed at first can be made good
    forge_run --post-process 'exit 3' -- true
    id=$(field .run_id)
    run "$FORGE" post-process --command 'echo "{\"n\": 2}"' "$id"
    [ "$status" -eq 0 ]
    [ "$(records "$id")" = '{"n":2}' ]
    [ "$(of "$id" .post_process.status)" = succeeded ]
}

@test "forge post-process says what it cannot do" {
    forge_run -- true
    run "$FORGE" post-process "$(field .run_id)"
    [ "$status" -eq 1 ]
    [[ "$output" == *"no post-process to repeat"* ]]
    start
    run "$FORGE" post-process --command true "$id"
    [ "$status" -eq 1 ]
    [[ "$output" == *"still running"* ]]
}

@test "what it printed does not reach the terminal through the reason" {
    forge_run --post-process 'printf "{\\033[2J\\302\\233}\\n"' -- true
    run "$FORGE" post-process "$(field .run_id)"
    [ "$status" -eq 1 ]
    [[ "$output" == "failed: 0 records."*"line 1"* ]]
    [[ "$output" != *$'\033'* ]]
}

@test "a run of another FORGE_HOME is not post-processed: others could have written its record" {
    export FORGE_STORE=${FORGE_STORE:-sqlite:$T/shared.db}
    forge_run -o x --post-process 'echo "{}"' -- touch x
    FORGE_HOME=$T/home2 run "$FORGE" post-process "$(field .run_id)"
    [ "$status" -eq 1 ]
    [[ "$output" == *"not of this FORGE_HOME"* ]]
}

@test "a name with two dots at its end is no way out" {
    forge_run --post-process 'test -e "outputs/a../b" && echo "{}"' -- sh -c 'mkdir -p outputs/a..; echo 1 >outputs/a../b'
    [ "$(field .post_process.status)" = succeeded ]
}

@test "the post-process of a detached run comes in its turn" {
    budget '    runs: 1'
    submit -o x --post-process 'echo "{\"x\": \"$(cat x)\"}"' -- sh -c 'echo hello >x'
    finished "$id"
    [ "$(field .status)" = succeeded ]
    [ "$(records "$id")" = '{"x":"hello"}' ]
}
