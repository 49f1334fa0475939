#!/usr/bin/env bats
# The host's health around a run: checks before and after it, what waits, what is refused, what is recorded, and
# quarantine. A check of this file passes while a path exists; files that are guarded are changed from outside.
# SPDX-License-Identifier: Apache-2.0

load ../lib/store.bash

setup() { setup_store; }
teardown() { teardown_store; }

# checks LINE...: the configuration of what follows, with these rows of health.
checks() { budget 'health:' "$@"; }
# A check with the name "mark".
mark() { printf '  mark: {kind: disk, path: %s/mark, min_free: 1, min_inodes: 1%s}' "$T" "${1:+, $1}"; }
health() { of last ".health | $1"; }
notes() { of "${1:-last}" .completion_notes; }

@test "every run has the checks of the host in its record, and its host" {
    forge_run -- true
    [ "$status" -eq 0 ]
    [ "$(health .pre.ok)" = true ]
    [ "$(health .post.ok)" = true ]
    [ "$(health .pre.host)" = "$(hostname)" ]
    [ "$(health '[.pre.checks[].name] | sort | join(" ")')" = "disk memory" ]
    [ "$(health '.pre.checks[] | select(.name == "disk").numbers.free_bytes > 0')" = true ]
    run "$FORGE" show last
    [[ "$output" == *"health    pre ok, post ok"* ]]
}

@test "a check that blocks: the run is rejected, with the reason, and never starts" {
    checks "$(mark)"
    forge_run -- touch "$T/ran"
    [ "$status" -eq 125 ]
    [ "$(of last .status)" = rejected ]
    [ "$(of last .reason)" = health_pre ]
    [ "$(of last .started_at)" = null ]
    [[ "$(notes)" == "Not started: this host is not healthy: mark: $T/mark: No such file"* ]]
    touch "$T/mark"
    forge_run -- true
    [ "$status" -eq 0 ]
}

@test "a check that warns: the run goes on, and says so" {
    checks "$(mark 'severity: warn')"
    forge_run -- true
    [ "$status" -eq 0 ]
    grep -F "health: mark: $T/mark: No such file" "$err"
    [ "$(health .pre.ok)" = true ]
    [ "$(health '.pre.checks[] | select(.name == "mark").ok')" = false ]
}

@test "if_failed: wait: the run is queued with the reason, and starts when the check passes" {
    checks "$(mark 'if_failed: wait')"
    submit -- true
    is_in "$id" queued
    says_why() { "$FORGE" ps | grep -F "waits for health: mark: $T/mark"; }
    patiently says_why
    touch "$T/mark"
    finished "$id"
    [ "$status" -eq 0 ]
    [ "$(field .status)" = succeeded ]
}

@test "a run that waits for health can be killed, and is given up after queue.max_wait" {
    checks "$(mark 'if_failed: wait')"
    submit -- true
    is_in "$id" queued
    "$FORGE" kill "$id"
    finished "$id"
    [ "$(field .status)" = cancelled ]
    budget 'queue:' '  max_wait: 1s' 'health:' "$(mark 'if_failed: wait')"
    forge_run -- true
    [ "$status" -eq 125 ]
    [ "$(of last .reason)" = health_pre ]
}

@test "when: pre, post, demand: a check is carried out then, and at no other time" {
    checks "$(mark 'when: post')" "  other: {kind: disk, path: $T/none, when: demand}"
    forge_run -- true
    [ "$status" -eq 0 ]
    [ "$(health '[.pre.checks[].name] | sort | join(" ")')" = "disk memory" ]
    [ "$(health '[.post.checks[].name] | sort | join(" ")')" = "disk mark memory" ]
    [ "$(health .post.ok)" = false ]
    run "$FORGE" health check
    [ "$status" -eq 1 ]
    [[ "$output" == *"other "*"fail"* ]]
}

@test "a check that passed before and fails after the run: told, marked in ps, and nobody is blamed" {
    touch "$T/mark"
    checks "$(mark)"
    submit -i "$T/gate" -- sh -c "$(gated)"
    is_in "$id" running
    rm "$T/mark"
    open_gate
    finished "$id"
    [ "$status" -eq 0 ]
    [ "$(field .status)" = succeeded ]
    [[ "$(field .completion_notes)" == *"Health: mark, which passed before, fails: $T/mark: No such"* ]]
    "$FORGE" ps | grep -F 'succeeded (health!)'
}

@test "every: a young result is used again by other runs, an old one and a changed check are not" {
    touch "$T/mark"
    checks "$(mark 'every: 1h')"
    forge_run -- true
    [ "$(health '.pre.checks[] | select(.name == "mark").reused')" = false ]
    rm "$T/mark"
    forge_run -- true
    [ "$status" -eq 0 ]
    [ "$(health '.pre.checks[] | select(.name == "mark").age_seconds > 0')" = true ]
    # On demand it is always carried out, and that result counts from then on.
    run "$FORGE" health check mark
    [ "$status" -eq 1 ]
    forge_run -- true
    [ "$status" -eq 125 ]
    touch "$T/mark"
    checks "$(mark 'every: 1ms')"
    forge_run -- true
    [ "$status" -eq 0 ]
}

@test "a check that hangs costs its time-out, and is not waited for again within every" {
    touch "$T/mark"
    checks "  stuck: {kind: command, command: 'sleep 300', timeout: 1s, every: 1h, severity: warn}" "$(mark)"
    forge_run -- true
    [ "$status" -eq 0 ]
    [ "$(health '.pre.checks[] | select(.name == "stuck").ok')" = false ]
    [ "$(health '.pre.checks[] | select(.name == "mark").ok')" = true ]
    forge_run -- true
    [ "$(health '.pre.checks[] | select(.name == "stuck").reused')" = true ]
    nothing_active
}

@test "kind command runs in a sandbox: it sees no file of the project, and its runs are not listed" {
    echo secret >"$T/secret"
    checks "  look: {kind: command, command: 'test ! -e $T/secret'}"
    run "$FORGE" health check look
    echo "$output"
    [ "$status" -eq 0 ]
    [ -z "$("$FORGE" ps -q)" ]
    checks "  look: {kind: command, command: 'exit 7'}"
    run "$FORGE" health check look
    [ "$status" -eq 1 ]
    [[ "$output" == *"exit code 7"* ]]
}

@test "inner files add checks and guards, and cannot weaken those of outer ones" {
    mkdir project
    cd project
    printf 'health:\n%s\n' "$(mark)" >forge.yaml
    checks '  mark: {kind: disk, path: /, when: demand}' "  more: {kind: disk, path: $T/none}"
    run "$FORGE" health check
    [[ "$output" == *"mark "*"fail"*"$T/mark"* ]]
    [[ "$output" == *"more "*"fail"* ]]
}

# guard [LINE...]: one guarded directory, by comparing, so that this works for every user.
guard() { mkdir -p "$T/site"; echo a >"$T/site/page"; budget 'guard:' "  paths: [$T/site]" '  mode: snapshot' "$@"; }
# damaged OPTION...: a run during which a guarded file is changed.
damaged() {
    submit -i "$T/gate" "$@" -- sh -c "echo out >result; $(gated)"
    is_in "$id" running
    echo b >>"$T/site/page"
    open_gate
    finished "$id"
}

@test "guarded files: a change that cannot be attributed is the run's if it was alone" {
    guard
    damaged
    [ "$status" -eq 1 ]
    [ "$(field .status)" = corrupted ]
    [ "$(field .reason)" = health_post ]
    [[ "$(field .completion_notes)" == "Corrupted: 1 guarded file was changed while it ran, and by whom is not known, e.g. $T/site/page (modified)"* ]]
    [ "$(field .health.post.guard.unattributed)" = 1 ]
    [ "$(field .health.post.guard.mode)" = snapshot ]
    "$FORGE" show "$id" | grep -F '(0 guarded files changed by this run; 0 changed by others; 1 by whom is not known)'
}

@test "guarded files: such a change is only told where another run was there, or guard.unattributed says so" {
    guard
    start
    other=$id
    damaged
    [ "$(field .status)" = succeeded ]
    [[ "$(field .completion_notes)" == *"Health: 1 guarded file was changed while it ran"* ]]
    finished "$other"
    rm "$T/gate/open"
    guard '  unattributed: warn'
    damaged
    [ "$(field .status)" = succeeded ]
    rm "$T/gate/open"
    guard '  unattributed: corrupted'
    start
    other=$id
    damaged
    [ "$(field .status)" = corrupted ]
    finished "$other"
}

@test "quarantine: outputs are kept apart until a person clears the run, with who and why" {
    guard
    damaged
    [ "$(of "$id" .quarantine)" = true ]
    run "$FORGE" outputs "$id"
    [ "$status" -eq 0 ]
    [[ "$output" == *result* ]]
    [[ "$output" == *"in quarantine"* ]]
    run "$FORGE" outputs "$id" --copy copies
    [ "$status" -eq 1 ]
    [[ "$output" == *"its outputs are in quarantine"*"forge health clear $id --note"* ]]
    [ ! -e copies/result ]
    run "$FORGE" health clear "$id"
    [ "$status" -eq 1 ]
    [[ "$output" == *"say with --note why"* ]]
    "$FORGE" health clear "$id" --note 'restored from backup'
    "$FORGE" outputs "$id" --copy copies
    [ "$(cat copies/result)" = out ]
    [ "$(of "$id" .status)" = corrupted ]
    [ "$(of "$id" .cleared.note)" = 'restored from backup' ]
    [ "$(of "$id" .cleared.by)" = "$(id -un)" ]
    "$FORGE" show "$id" | grep -F 'restored from backup'
    "$FORGE" logs --events "$id" | jq -e 'select(.event == "cleared")'
    run "$FORGE" health clear "$id" --note again
    [ "$status" -eq 1 ]
    [[ "$output" == *"is in no quarantine"* ]]
}

@test "guard.hold: runs wait after a corruption, until it is cleared" {
    guard '  hold: true'
    damaged
    bad=$id
    submit -- true
    is_in "$id" queued
    says_why() { "$FORGE" ps | grep -F "run $bad has changed guarded files (forge health clear $bad)"; }
    patiently says_why
    "$FORGE" health clear "$bad" --note ok
    finished "$id"
    [ "$(field .status)" = succeeded ]
}

@test "a run in quarantine is not removed; one whose supervisor died is cleared as well" {
    guard '  hold: true'
    damaged
    run "$FORGE" rm -f "$id"
    [ "$status" -eq 1 ]
    [[ "$output" == *"is in quarantine"* ]]
    "$FORGE" health clear "$id" --note ok
    "$FORGE" rm -f "$id"
    # The mark is there before the record says so.
    guard
    rm "$T/gate/open"
    start
    touch "$FORGE_HOME/quarantine/$id"
    murder "$id"
    "$FORGE" gc
    [ "$(of "$id" .status)" = lost ]
    [[ "$(notes "$id")" == *"Health: the supervisor that watched has died; by their times no guarded file was changed."* ]]
    "$FORGE" health clear "$id" --note ok
    [ -z "$(ls "$FORGE_HOME/quarantine")" ]
}

# lost_with LINE...: a run with this guard is lost, and the page was changed meanwhile.
lost_with() {
    guard "$@"
    rm -f "$T/gate/open"
    start
    echo b >>"$T/site/page"
    murder "$id"
    "$FORGE" gc
    [ "$(of "$id" .status)" = lost ]
    [[ "$(notes "$id")" == *"Health: 1 guarded file was changed since it began, and by whom is not known, e.g. $T/site/page (modified) [the supervisor that watched has died]."* ]]
    [ "$(of "$id" .health.post.guard.mode)" = times ]
}

@test "guard.hold: a lost run that was alone when guarded files changed is in quarantine, and others wait" {
    lost_with '  hold: true'
    bad=$id
    [ "$(of "$bad" .quarantine)" = true ]
    [ -e "$FORGE_HOME/quarantine/$bad" ]
    submit -- true
    is_in "$id" queued
    "$FORGE" health clear "$bad" --note ok
    finished "$id"
    [ "$(field .status)" = succeeded ]
    [ "$(of "$bad" .cleared.note)" = ok ]
}

@test "guard.hold: a lost run that only warns, that was not alone, or while nothing changed holds nothing" {
    lost_with '  hold: true' '  unattributed: warn'
    [ "$(of "$id" .quarantine)" = null ]
    # Not alone.
    guard '  hold: true'
    rm -f "$T/gate/open"
    start
    other=$id
    start
    echo b >>"$T/site/page"
    murder "$id"
    "$FORGE" gc
    [ "$(of "$id" .status)" = lost ]
    [[ "$(notes "$id")" == *"Health: 1 guarded file was changed since it began"* ]]
    [ "$(of "$id" .quarantine)" = null ]
    open_gate
    finished "$other"
    [ "$(field .status)" = succeeded ] # it was not alone, either
    # Nothing changed.
    rm -f "$T/gate/open"
    start
    murder "$id"
    "$FORGE" gc
    [[ "$(notes "$id")" == *"by their times no guarded file was changed."* ]]
    [ "$(of "$id" .quarantine)" = null ]
    [ -z "$(ls "$FORGE_HOME/quarantine" 2>/dev/null)" ]
    forge_run -- true
    [ "$status" -eq 0 ]
}

@test "a corrupted run copies nothing, and its post-process does not run" {
    guard
    damaged --copy "$T/copies" --post-process 'echo {}'
    [ "$(field .status)" = corrupted ]
    [ ! -e "$T/copies/result" ]
    [ "$(field .post_process)" = null ]
}

@test "history: how often each check passed, the slowest, and what failed last, also as JSON" {
    checks "$(mark)"
    forge_run -- true
    bad=$(of last .run_id)
    touch "$T/mark"
    for _ in 1 2 3; do
        forge_run -- true
    done
    run "$FORGE" health history
    echo "$output"
    [[ "$output" == *"mark "*"disk "*"6 of 7 (85.7 %)"*"$T/mark: No such file"* ]]
    run "$FORGE" health history --json mark
    [ "$(jq -r '.[0] | "\(.checks) \(.failed) \(.run_id)"' <<<"$output")" = "7 1 $bad" ]
    # Rows go with their run, and with time.
    "$FORGE" rm -f "$bad"
    [ "$("$FORGE" health history --json mark | jq '.[0].failed')" = 0 ]
    budget 'retention: {health: 1ms}'
    collected() { "$FORGE" gc >>"$T/gc" && [ "$("$FORGE" health history --json | jq length)" = 0 ]; }
    patiently collected # times are compared by the second
    grep -F 'remove old results of checks: ' "$T/gc"
}

@test "a wrong configuration: each with its place and what is legal" {
    wrong() {
        budget "$1"
        run "$FORGE" health check
        echo "$output"
        [ "$status" -eq 1 ]
        [[ "$output" == *"$2"* ]]
    }
    wrong 'health: {x: {kind: dsk}}' "health.x.kind: 'dsk' is not one of disk, memory"
    wrong 'health: {x: {kind: tcp}}' 'a check of kind tcp needs address'
    wrong 'health: {x: {kind: disk, url: y}}' 'a check of kind disk has no url'
    wrong 'health: {x: {kind: disk, min_free: 101%}}' "'101%' is no part"
    wrong 'health: {x: {path: /}}' 'has no kind'
    wrong 'guard: {paths: [/]}' '/ is too much'
    wrong "guard: {paths: [$(dirname "${WORKDIRS:-/tmp/x}")]}" 'contains the workdirs of runs'
    wrong 'guard: {mode: wach}' "did you mean 'watch'"
    run "$FORGE" health check nosuch
    [ "$status" -eq 1 ]
    budget
    run "$FORGE" health check nosuch
    [[ "$output" == *"unknown check 'nosuch' (have: disk, memory)"* ]]
}

@test "what failed before and fails after is said once; what fails since says when" {
    checks "$(mark 'severity: warn')"
    run "$FORGE" run -- true
    [ "$status" -eq 0 ]
    [ "$(grep -c "health.*: mark: " <<<"$output")" -eq 1 ]
    [[ "$output" == *"health: mark: "* ]]
    touch "$T/mark"
    "$FORGE" submit -i "$T/gate" -- sh -c "echo ready; $(gated)" >id
    is_in "$(cat id)" running
    rm "$T/mark"
    open_gate
    finished "$(cat id)" >/dev/null
    [[ "$("$FORGE" logs --events "$(cat id)")" == *"health after the run: mark: "* ]]
}

@test "history of a name that is no check names those that there are; a check of a command gives no advice for runs" {
    "$FORGE" run -q -- true
    run "$FORGE" health history mrak
    [ "$status" -eq 1 ]
    [[ "$output" == *"unknown check 'mrak' (have: "*"disk"* ]]
    checks '  slow: {kind: command, command: sleep 60, timeout: 1s, when: demand}'
    run "$FORGE" health history slow
    [ "$status" -eq 0 ]
    [[ "$output" == *"no check was carried out in this time"* ]]
    run "$FORGE" health check slow
    [ "$status" -eq 1 ]
    [[ "$output" != *"Retry with"* ]]
}
