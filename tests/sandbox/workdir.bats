#!/usr/bin/env bats
# Where a workdir lies on the host, and who else can get into it.
# SPDX-License-Identifier: Apache-2.0

load ../lib/forge.bash
setup() { setup_forge; }
teardown() {
    rm -rf "$work/scidex-analysis-kept-$$"*
    teardown_forge
}

# as_accomplice COMMAND...: as another user of the host.
as_accomplice() { setpriv --reuid 65533 --regid 65533 --clear-groups "$@"; }

# open_run OPTION... -- COMMAND...: a run in the background that opens its workdir to everybody.
open_run() {
    background "$FORGE" run -q --id "kept-$$" "$@"
    wait_for test -e "$work/scidex-analysis-kept-$$/work/ready"
}

@test "a run that opens its workdir to everybody lets nobody in" {
    skip_unless "only root can do this" is_root
    dir=$work/scidex-analysis-kept-$$
    open_run -- sh -c 'echo mine >file; chmod -R 777 .; chmod 666 file; touch ready; sleep 30'
    # The mode is what the run wanted; the way there is closed.
    [ "$(stat -c %a "$dir/work")" = 777 ]
    [ "$(stat -c '%a %u' "$dir")" = "700 $(id -u)" ]
    run as_accomplice cat "$dir/work/file"
    [ "$status" -ne 0 ]
    run as_accomplice sh -c "exec 3<>'$dir/work/file'"
    [ "$status" -ne 0 ]
    run as_accomplice ls "$dir"
    [ "$status" -ne 0 ]
    kill "$pid"
    wait "$pid" || true
    [ ! -e "$dir" ]
}

@test "nobody outside can talk to a socket that a run has made" {
    skip_unless "only root can do this" is_root
    cat >listen.py <<'EOS'
import os, socket
s = socket.socket(socket.AF_UNIX)
s.bind("socket")
os.chmod(".", 0o777)
os.chmod("socket", 0o777)
s.listen(1)
open("ready", "w")
s.settimeout(30)
s.accept()
EOS
    open_run -i listen.py -- python3 "$T/listen.py"
    run as_accomplice /usr/bin/python3 -c 'import socket, sys
socket.socket(socket.AF_UNIX).connect(sys.argv[1])' "$work/scidex-analysis-kept-$$/work/socket"
    [ "$status" -ne 0 ]
    [[ "$output" == *PermissionError* ]]
    kill "$pid"
    wait "$pid" || true
}

@test "inside, the workdir has the name of the template, and nothing is around it" {
    forge_run --id "kept-$$" -- sh -c 'pwd; ls -a | xargs; echo $HOME; touch x; ls ..'
    [ "$(sed -n 1p "$out")" = "$work/scidex-analysis-kept-$$" ]
    [ "$(sed -n 2p "$out")" = ". .." ]
    [ "$(sed -n 3p "$out")" = "$work/scidex-analysis-kept-$$" ]
    [ "$(sed -n 4p "$out")" = "scidex-analysis-kept-$$" ]
    [ "$(field .workdir)" = "$work/scidex-analysis-kept-$$" ]
    [ ! -e "$work/scidex-analysis-kept-$$" ]
}

@test "a kept workdir lies where its name says, and is closed to others" {
    forge_run --keep --id "kept-$$" -- sh -c 'mkdir a; echo x >a/b; chmod -R 777 .'
    w=$work/scidex-analysis-kept-$$
    [ "$(field .workdir)" = "$w" ]
    [ "$(cat "$w/a/b")" = x ]
    [ ! -e "$w/work" ]
    [ "$(stat -c '%a %u' "$w")" = "700 $(id -u)" ]
    [ -z "$(ls -d "$w"-* 2>/dev/null)" ]
}

@test "what a killed supervisor was to keep is kept, wherever it was by then" {
    w=$work/scidex-analysis-kept-$$
    background "$FORGE" run -q --keep --id "kept-$$" -- sh -c 'touch file ready; sleep 60'
    wait_for test -e "$w/work/ready"
    id=$(basename "$FORGE_HOME"/runs/*)
    kill -KILL "$pid"
    wait "$pid" || true
    started=() # it is gone
    slot=$(find "$FORGE_HOME/active" -type f -size +0)
    cp "$slot" slot
    # Aside, with the directory around it still there, and without.
    "$FORGE" gc
    [ -e "$w/file" ]
    [ "$(field .workdir "$FORGE_HOME/runs/$id/record.json")" = "$w" ]
    mkdir -m 700 "$w.outer"
    mv "$w" "$w-$id"
    cp "$FORGE_HOME/runs/$id/record.json" record
    jq 'del(.workdir_kept)' record >"$FORGE_HOME/runs/$id/record.json"
    rmdir "$w.outer"
    cp slot "$slot"
    "$FORGE" gc
    [ -e "$w/file" ]
    [ ! -e "$w-$id" ]
}

@test "a name that is taken, by whomever, gets the run id, and the run goes on" {
    dir=$work/scidex-analysis-kept-$$
    # shellcheck disable=SC2016 # for the run's shell
    show='pwd; echo $HOME $FORGE_WORKDIR; echo x >y'
    for kind in directory foreign link file; do
        case $kind in
        directory)
            mkdir -m 700 "$dir"
            touch "$dir/mine"
            ;;
        foreign)
            is_root || continue
            as_accomplice mkdir "$dir" ;;
        link)
            mkdir -p "$T/victim"
            ln -s "$T/victim" "$dir"
            ;;
        file) touch "$dir" ;;
        esac
        before=$(hash_of "$dir" "$dir/")
        forge_run --id "kept-$$" -o y -- sh -c "$show"
        [ "$status" -eq 0 ]
        id=$(field .run_id)
        [ "$(field .workdir)" = "$dir-$id" ]
        [ "$(sed -n 1p "$out")" = "$dir-$id" ]
        [ "$(sed -n 2p "$out")" = "$dir-$id $dir-$id" ]
        [ ! -e "$dir-$id" ]
        [ "$(hash_of "$dir" "$dir/")" = "$before" ]
        [ -z "$(ls "$T/victim" 2>/dev/null)" ]
        rm -rf "$dir"
    done
}

@test "many runs of one analysis at once all have a workdir" {
    configure 'host:' '  budget:' '    cpus: 64' '    memory: 64G'
    pids=()
    for i in 1 2 3 4 5 6 7 8; do
        "$FORGE" run --json --id "kept-$$" -- sh -c 'pwd; sleep 0.3' >"r$i" 2>/dev/null 3>&- &
        pids+=("$!")
    done
    for pid in "${pids[@]}"; do
        wait "$pid"
    done
    for i in 1 2 3 4 5 6 7 8; do
        [ "$(field .status "r$i")" = succeeded ]
        [ "$(cat "$(field .logs.stdout "r$i")")" = "$(field .workdir "r$i")" ]
        field .workdir "r$i"
    done | sort -u >dirs
    [ "$(wc -l <dirs)" -ge 2 ]
    [ -z "$(ls -d "$work/scidex-analysis-kept-$$"* 2>/dev/null)" ]
}

@test "a kept workdir whose name was taken meanwhile has the run id" {
    dir=$work/scidex-analysis-kept-$$
    forge_run --keep --id "kept-$$" -- touch one
    forge_run --keep --id "kept-$$" -- touch two
    [ "$(field .workdir)" = "$dir-$(field .run_id)" ]
    [ -e "$dir/one" ]
    [ -e "$dir-$(field .run_id)/two" ]
    rm -r "$dir-$(field .run_id)"
}

@test "a kept workdir may be deeper than anybody goes" {
    # Where the disk is measured this is over its limit, and kept all the same.
    forge_run --keep --id "kept-$$" -- python3 -c 'import os
for i in range(400):
    os.mkdir("d")
    os.chdir("d")'
    [ "$(field .cleanup_error)" = null ]
    [ "$(field .workdir_kept)" = true ]
    [ -d "$work/scidex-analysis-kept-$$/d/d" ]
    "$FORGE" gc
}

@test "a workdir can be below a directory with the setgid bit" {
    mkdir -m 2755 "$T/shared"
    chmod g+s "$T/shared"
    configure "workdir: $T/shared/{id}"
    for _ in 1 2; do
        forge_run --id one -- stat -c %a .
        [ "$status" -eq 0 ]
        [ -z "$(ls -A "$T/shared")" ]
    done
}

@test "a FORGE_HOME that was opened to others and closed again still runs" {
    forge_run -- true
    [ "$status" -eq 0 ]
    chmod -R go+rX "$FORGE_HOME"
    chmod go-rwx "$FORGE_HOME"
    forge_run -- stat -c %a ..
    [ "$status" -eq 0 ]
    forge_run -- true
    [ "$status" -eq 0 ]
}
