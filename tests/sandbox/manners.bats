# What people type, and what they should get for it.
# SPDX-License-Identifier: Apache-2.0
load ../lib/forge.bash
setup() { setup_forge; }
teardown() { teardown_forge; }

@test "-i . makes everything in the current directory work as typed" {
    mkdir -p here/data
    cd here
    echo 7 >data/x
    echo 'cat data/x "$1"' >show.sh
    chmod -R a+rX .
    forge_run -i . -- sh show.sh data/x
    [ "$status" -eq 0 ]
    [ "$(cat "$out")" = $'7\n7' ]
}

@test "variables that forge sets cannot be set by options" {
    for name in HOME PWD TMPDIR USER LOGNAME SHELL FORGE_RUN_ID; do
        run "$FORGE" run --env "$name=/x" true
        [ "$status" -eq 125 ]
        [[ "$output" == *"set by forge"* ]]
    done
}

@test "limits that no sandbox can be made with are refused with the least or the most" {
    run "$FORGE" run --memory 1000 true
    [ "$status" -eq 125 ]
    [[ "$output" == *"--memory: the least is 1M"* ]]
    run "$FORGE" run --open-files 8 true
    [ "$status" -eq 125 ]
    [[ "$output" == *"--open-files: the least is 32"* ]]
    run "$FORGE" run --pids 99999999999 true
    [ "$status" -eq 125 ]
    [[ "$output" == *"--pids: the most is 4194304"* ]]
    run "$FORGE" run --open-files "$(($(ulimit -Hn) + 1))" true
    [ "$status" -eq 125 ]
    [[ "$output" == *"hard limit is $(ulimit -Hn)"* ]]
    forge_run --open-files 32 -- true
    [ "$status" -eq 0 ]
}

@test "--keep says where, and keeps nothing of a command that never ran" {
    run "$FORGE" run --keep --id "kept-$$" touch file
    [ "$status" -eq 0 ]
    [[ "$output" == *"workdir kept in $work/scidex-analysis-kept-$$"* ]]
    [ -e "$work/scidex-analysis-kept-$$/file" ]
    rm -r "$work/scidex-analysis-kept-$$"
    run -127 "$FORGE" run --keep --id "kept-$$" no-such-program
    [ "$status" -eq 127 ]
    [ ! -e "$work/scidex-analysis-kept-$$" ]
}

@test "a run that succeeds although it met a limit says so" {
    forge_run --disk 2M -- sh -c 'head -c 20M /dev/zero >file; exit 0'
    [ "$(field .status)" = succeeded ]
    [[ "$(field .completion_notes)" == *"met its limit on disk"* ]]
    forge_run --pids 5 -- "$PROBE" fork-bomb 20
    [ "$(field .status)" = succeeded ]
    [[ "$(field .completion_notes)" == *"met its limit on processes"* ]]
}

@test "thread counts never exceed the CPUs there are" {
    printf 'host: {budget: {cpus: 1000}}\n' >many.yaml
    forge_run --config many.yaml --cpus 1000 -- sh -c 'echo $OMP_NUM_THREADS'
    [ "$(cat "$out")" -le "$(nproc)" ]
}

@test "an input that cannot be read is named before anything runs" {
    # Root reads every file; its runs do not.
    if is_root; then
        install -m 600 /dev/null secret
    else
        install -m 000 /dev/null secret
    fi
    run "$FORGE" run -i secret true
    [ "$status" -eq 125 ]
    [[ "$output" == *"input"*"secret"* ]]
}

@test "doctor finds every promise held, and leaves nothing behind" {
    before=$(ls "$FORGE_HOME/runs" 2>/dev/null || true)
    run -0 "$FORGE" doctor
    [[ "$output" == *"isolation: full"* ]]
    [ "$(ls "$FORGE_HOME/runs" 2>/dev/null || true)" = "$before" ]
    "$FORGE" doctor --json >report
    [ "$(python3 -c 'import json; print(len(json.load(open("report"))["checks"]))')" -ge 25 ]
}

@test "locale and time zone come along, and nothing else of the caller's" {
    LANG=C.UTF-8 LC_TIME=POSIX TZ=Asia/Tokyo EDITOR=vi forge_run -- \
        sh -c 'echo "$LANG $LC_TIME $TZ ${EDITOR-none}"; date +%Z'
    [ "$(cat "$out")" = $'C.UTF-8 POSIX Asia/Tokyo none\nJST' ]
}

@test "events tell the story of a run, one JSON object a line" {
    forge_run -- true
    python3 -c 'import json, sys
names = [json.loads(line)["event"] for line in open(sys.argv[1])]
assert names == ["preparing", "started", "collecting", "succeeded", "workdir_removed"], names' "$(field .logs.events)"
}
