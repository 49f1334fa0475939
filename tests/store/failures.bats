#!/usr/bin/env bats
# One system call of the supervisor's that fails, by strace: nothing is left, nothing is untrue.
# SPDX-License-Identifier: Apache-2.0

load ../lib/store.bash
setup() { setup_store; }
teardown() { teardown_store; }

# failing CALL:ERROR[:WHEN] [STRACE OPTION...] -- OPTION... -- COMMAND...: as forge_run. Of one PATH
# only with -P.
failing() {
    local how=() inject=$1
    shift
    while [ "$1" != -- ]; do
        how+=("$1")
        shift
    done
    shift
    status=0
    under "${how[@]}" -e "inject=${inject/:/:error=}" -- "$FORGE" run --json "$@" \
        >"$record" 2>"$err" </dev/null || status=$?
    grep -q INJECTED "$T/trace"
    echo "$status $(field .status) $(field .reason): $(field .completion_notes)"
    cat "$err"
}

# under STRACE OPTION... -- COMMAND...
under() {
    local how=()
    while [ "$1" != -- ]; do
        how+=("$1")
        shift
    done
    shift
    # Leaks cannot be looked for under a tracer.
    ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 strace -qq -o "$T/trace" "${how[@]}" "$@"
}

nothing_left() {
    nothing_active
    [ -z "$(ls -d "$work"/scidex-analysis-"${1:-*}" 2>/dev/null)" ]
}

@test "who cannot be watched any longer is dead before its outputs are looked at" {
    failing ppoll:ENOMEM:when=100 -- -o a -- sh -c 'exec 3>a; while :; do echo more; echo more >&3; done'
    [ "$(field .status)" = lost ]
    [ -n "$(objects)" ]
    for object in $(objects); do
        digest=$(sha256sum "$object" | cut -d' ' -f1)
        [ "$object" = "$FORGE_HOME/objects/${digest:0:2}/${digest:2}" ]
    done
}

@test "a run that is known to the store and can have no directory leaves nothing" {
    failing mkdirat:ENOSPC -P "$FORGE_HOME/runs" -- --id "full-$$" --idempotency-key full -- sleep 60
    [ "$status" -eq 123 ]
    grep -q "make $FORGE_HOME/runs/.*: No space left on device" "$err"
    nothing_left "full-$$"
    [ "$("$FORGE" ps -qa --status lost | wc -l)" -eq 1 ]
}

@test "a directory that was made and cannot be opened is no reason of its own" {
    failing openat:EIO:when=1 -P "$FORGE_HOME/runs" -- --id "torn-$$" -- true
    [ "$status" -eq 125 ]
    [[ "$(field .completion_notes)" == *"Input/output error"* ]]
    nothing_left "torn-$$"
}

@test "a directory that cannot be read to its end is no success with fewer outputs" {
    for dir in "" /outputs; do
        failing getdents64:EIO:when=1+ -P "$work/scidex-analysis-torn-$$/work$dir" -- --id "torn-$$" -- \
            sh -c 'mkdir outputs; touch outputs/a'
        [ "$(field .status)" = failed ]
        [ "$(field .reason)" = missing_output ]
        [[ "$(field .completion_notes)" == *"could not be looked at: Input/output error"* ]]
        # Who knows what is in it: it is kept, by the next command, which has a disk that works.
        "$FORGE" gc
        id=$(field .run_id)
        [ "$(of "$id" .workdir_kept)" = true ]
        [ -e "$(of "$id" .workdir)/outputs/a" ]
        rm -r "$(of "$id" .workdir)"
    done
}

@test "a queue that cannot be read is not an empty one" {
    budget '    runs: 1'
    start
    failing getdents64:EIO:when=1 -P "$FORGE_HOME/queue" -- -- true
    [ "$status" -eq 125 ]
    grep -q 'read the queue: Input/output error' "$err"
}

@test "a run's directory that cannot be opened now is not taken for one that never was" {
    start --keep --id "seen-$$"
    a=$id
    murder "$a"
    run under -P "$FORGE_HOME/runs" -e inject=openat:error=EIO:when=1 -- "$FORGE" gc
    [ "$status" -ne 0 ]
    [[ "$output" == *"open $FORGE_HOME/runs/$a: Input/output error"* ]]
    [ -d "$work/scidex-analysis-seen-$$" ]
    "$FORGE" gc
    [ "$(of "$a" .status)" = lost ]
    [ -d "$work/scidex-analysis-seen-$$" ]
    rm -r "$work/scidex-analysis-seen-$$"
}
