#!/usr/bin/env bats
# What a run leaves: collected, hashed, kept by content, given back. Also from hostile trees.
# SPDX-License-Identifier: Apache-2.0

load ../lib/store.bash
setup() { setup_store; }
teardown() {
    rm -rf "$work/scidex-analysis-kept-$$"
    teardown_store
}

# digest_of FILE...: as forge writes it.
digest_of() { echo "sha256:$(sha256sum "$@" | cut -d' ' -f1)"; }
# output PATH KEY: of the last record.
output() { field ".outputs[] | select(.path == \"$1\") | .$2"; }
skipped() { field ".outputs_skipped[] | select(.path == \"$1\") | .why"; }
outputs() { field '[.outputs[].path] | join(" ")'; }

@test "outputs are stored under their digest, which is sha256sum's" {
    forge_run -- sh -c 'mkdir -p outputs/d; echo one >outputs/a; head -c 300000 /dev/zero >outputs/d/b; : >outputs/empty'
    [ "$status" -eq 0 ]
    [ "$(outputs)" = "outputs/a outputs/d/b outputs/empty" ]
    [ "$(output outputs/a sha256)" = "$(digest_of <(echo one))" ]
    [ "$(output outputs/d/b size)" -eq 300000 ]
    for path in outputs/a outputs/d/b outputs/empty; do
        stored=$FORGE_HOME/$(output "$path" stored_as)
        [ "$(digest_of "$stored")" = "$(output "$path" sha256)" ]
        [ "$(stat -c '%a %u' "$stored")" = "444 $(id -u)" ]
    done
    "$FORGE" outputs "$(field .run_id)" >list
    grep -q "outputs/d/b.*292.97 KiB" list
    [ "$("$FORGE" outputs --json "$(field .run_id)" | jq length)" -eq 3 ]
}

@test "an input that cannot be seen whole has no digest of the rest" {
    mkdir -p "in/$(printf 'd/%.0s' {1..70})"
    echo x >in/x
    forge_run -i in -- true
    [ "$status" -eq 0 ]
    [ "$(field '.inputs[0].sha256')" = null ]
    [[ "$(field '.inputs[0].error')" == d/d/*"too long" ]]
}

@test "equal content is there once, whoever made it" {
    for _ in 1 2; do
        forge_run -- sh -c 'mkdir outputs; for i in 1 2 3; do echo same >outputs/$i; done; ln outputs/1 outputs/hard'
        [ "$status" -eq 0 ]
    done
    [ "$(field '.outputs | length')" -eq 4 ]
    [ "$(field '[.outputs[].sha256] | unique | length')" -eq 1 ]
    [ "$(objects | wc -l)" -eq 1 ]
}

@test "patterns choose; what they do not mean is listed as left" {
    forge_run -o '*.csv' -o 'res/**' -o 'log?' -- sh -c 'mkdir -p res/x/y; touch a.csv b.txt res/x/y/z log1 log10 .hidden'
    [ "$status" -eq 0 ]
    [ "$(outputs)" = "a.csv log1 res/x/y/z" ]
    [ "$(field '[.undeclared[].path] | sort | join(" ")')" = ".hidden b.txt log10" ]
    [ "$(field .undeclared_count)" -eq 3 ]
}

@test "a pattern that leads out is refused" {
    for pattern in ../x /etc/passwd a/../../x '' ./x; do
        run "$FORGE" run -o "$pattern" -- true
        [ "$status" -eq 125 ]
        [[ "$output" == *output* ]]
    done
}

@test "a declared output that is missing fails the run: missing_output, exit 1" {
    forge_run -o 'there' -o 'not-there/*' -- touch there
    [ "$status" -eq 1 ]
    [ "$(field .status)" = failed ]
    [ "$(field .reason)" = missing_output ]
    [[ "$(field .completion_notes)" == *"no output 'not-there/*'"* ]]
    [ "$(field .exit_code)" -eq 0 ]
    # what is there is kept all the same
    [ "$(outputs)" = there ]
    "$FORGE" outputs --copy got "$(field .run_id)"
    [ -e got/there ]
}

@test "a run that failed by itself keeps its own reason" {
    forge_run -o nothing -- sh -c 'exit 7'
    [ "$status" -eq 7 ]
    [ "$(field .reason)" = exit ]
}

@test "without -o nothing has to be there" {
    forge_run -- true
    [ "$status" -eq 0 ]
    [ "$(field '.outputs | length')" -eq 0 ]
}

@test "an output that is only an empty directory, or no file, is missing" {
    forge_run -o 'd/**' -- mkdir d
    [ "$(field .reason)" = missing_output ]
    forge_run -o link -- ln -s /etc/passwd link
    [ "$(field .reason)" = missing_output ]
    [ "$(skipped link)" = "a symbolic link" ]
}

@test "after a limit what is there is collected, and marked partial" {
    forge_run --timeout 500ms -o 'part*' -- sh -c 'echo half >part1; sleep 60'
    [ "$status" -eq 124 ]
    [ "$(field .reason)" = wall_time ]
    [ "$(output part1 partial)" = true ]
    [ "$(cat "$FORGE_HOME/$(output part1 stored_as)")" = half ]
    forge_run -o 'part*' -- sh -c 'echo whole >part1'
    [ "$(output part1 partial)" = null ]
}

@test "after a kill too" {
    submit -i gate -o x -- sh -c "echo half >x; echo ready; $(gated)"
    patiently grep -q ready "$(of "$id" .logs.stdout)"
    "$FORGE" kill "$id"
    [ "$(of "$id" '.outputs[0].partial')" = true ]
}

@test "links, fifos and sockets are reported and never followed" {
    echo secret >"$T/secret"
    chmod 644 "$T/secret"
    forge_run -i "$T/secret" -- python3 -c '
import os, socket, sys
os.mkdir("outputs")
os.symlink(sys.argv[1], "outputs/link")
os.symlink("/etc", "outputs/dirlink")
os.symlink("missing", "outputs/dangling")
os.symlink(".", "outputs/self")
os.mkfifo("outputs/fifo")
socket.socket(socket.AF_UNIX).bind("outputs/socket")
open("outputs/file", "w").write("x")' "$T/secret"
    [ "$status" -eq 0 ]
    [ "$(outputs)" = outputs/file ]
    for name in link dirlink dangling self; do
        [ "$(skipped "outputs/$name")" = "a symbolic link" ]
    done
    [ "$(skipped outputs/fifo)" = "a fifo" ]
    [ "$(skipped outputs/socket)" = "a socket" ]
    run ! grep -rqs secret "$FORGE_HOME/objects"
}

@test "a directory that is a link is not walked into" {
    mkdir "$T/tree"
    echo secret >"$T/tree/x"
    forge_run -i "$T/tree" -o 'd/**' -o 'real' -- sh -c 'ln -s "$0" d; touch real' "$T/tree"
    [ "$(field .reason)" = missing_output ]
    [ "$(outputs)" = real ]
    run ! grep -rqs secret "$FORGE_HOME/objects"
}

@test "device nodes in the workdir are reported, not opened" {
    skip_unless "only root can do this" is_root
    # A run cannot make one; somebody else with the right can put it there.
    submit --id "kept-$$" -i gate -- sh -c "mkdir outputs; echo ready; $(gated)"
    patiently grep -q ready "$(of "$id" .logs.stdout)"
    mknod "$work/scidex-analysis-kept-$$/work/outputs/null" c 1 3
    mknod "$work/scidex-analysis-kept-$$/work/outputs/block" b 7 250
    open_gate
    finished "$id"
    [ "$(field .status)" = succeeded ]
    [ "$(skipped outputs/null)" = "a character device" ]
    [ "$(skipped outputs/block)" = "a block device" ]
}

@test "odd names are kept as they are, and shown without harm" {
    forge_run -- python3 -c '
import os
os.mkdir("outputs")
for name in ["new\nline", "-rf", " ", "*", "\x1b[31m", "ü", "q\"uote", "back\\slash", "x" * 255]:
    open("outputs/" + name, "w").write(name)
open(b"outputs/latin\xe4", "w").write("l")'
    [ "$status" -eq 0 ]
    [ "$(field '.outputs | length')" -eq 10 ]
    [ "$(field '[.outputs[].path] | map(select(. == "outputs/new\nline")) | length')" -eq 1 ]
    "$FORGE" outputs "$(field .run_id)" >list
    [ "$(wc -l <list)" -eq 11 ]
    run ! grep -q "$(printf '\033')" list
    # Given back as well, also the one whose name no text can hold.
    "$FORGE" outputs --copy got "$(field .run_id)"
    [ "$(cat $'got/outputs/latin\xe4')" = l ]
    [ "$(cat "$(printf 'got/outputs/new\nline')")" = $'new\nline' ]
    [ "$(cat got/outputs/-rf)" = -rf ]
}

@test "names that are no UTF-8 are told apart, here and in the store" {
    forge_run --post-process 'echo "{}"' -- python3 -c '
import os
os.mkdir("outputs")
for name in [b"caf\xe8", b"caf\xe9", b"zz"]:
    open(b"outputs/" + name, "wb").write(name)'
    [ "$(field .post_process.status)" = succeeded ]
    "$FORGE" outputs --copy got "$(field .run_id)"
    [ "$(ls got/outputs | wc -l)" -eq 3 ]
    [ "$(od -An -tx1 $'got/outputs/caf\xe9')" = " 63 61 66 e9" ]
}

@test "directories and files without permissions are collected" {
    forge_run -- sh -c 'mkdir -p outputs/locked; echo x >outputs/locked/f; chmod 0 outputs/locked/f outputs/locked outputs .'
    [ "$status" -eq 0 ]
    [ "$(outputs)" = outputs/locked/f ]
    [ "$(output outputs/locked/f sha256)" = "$(digest_of <(echo x))" ]
}

@test "a deep tree is collected as far as paths go; deeper is said, not missed" {
    forge_run -- sh -c 'd=outputs; for i in $(seq 100); do d=$d/d; done; mkdir -p $d; echo x >$d/f'
    [ "$status" -eq 0 ]
    [ "$(field '.outputs | length')" -eq 1 ]
    forge_run -- python3 -c '
import os
os.mkdir("outputs")
os.chdir("outputs")
open("near", "w").write("x")
for i in range(1000):
    os.mkdir("d" * 20)
    os.chdir("d" * 20)
open("far", "w").write("x")'
    [ "$status" -eq 1 ]
    [ "$(field .reason)" = missing_output ]
    [[ "$(field .completion_notes)" == *"too deep"* ]]
    # Half of it would look like all; all of it is in the workdir.
    [ -z "$(outputs)" ]
    [ "$(field .workdir_kept)" = true ]
    [ -e "$(field .workdir)/outputs/near" ]
}

@test "a directory that cannot be opened is no success" {
    sub=$(printf 'd/%.0s' {1..100})
    forge_run -- sh -c "mkdir -p outputs/$sub; echo 1 >outputs/${sub}x; echo 1 >outputs/a"
    [ "$status" -eq 0 ]
    [ "$(field '.outputs | length')" -eq 2 ]
    # Each level is a descriptor. Removing it needs them too: the next one repairs.
    (ulimit -n 64 && forge_run -- sh -c "mkdir -p outputs/$sub; echo 1 >outputs/${sub}x; echo 1 >outputs/a")
    "$FORGE" gc
    [ "$(field .reason)" = missing_output ]
    [[ "$(field .completion_notes)" == *"Too many open files"* ]]
}

@test "a sparse file of a terabyte is refused by its size, at once" {
    budget '  allow_unlimited: true' 'outputs:' '  max_size: 1G'
    begin=$(now_ms)
    forge_run --disk 2T -- sh -c 'mkdir outputs; truncate -s 1T outputs/huge; echo x >outputs/small'
    in_time "$begin" 20000
    [ "$(field .status)" = failed ]
    [[ "$(field .completion_notes)" == *"1.00 TiB"* ]]
    [ "$(field '.outputs | length')" -eq 0 ]
    [ "$(objects | wc -l)" -eq 0 ]
}

@test "a sparse file within the limit is stored whole" {
    forge_run -- sh -c 'mkdir outputs; truncate -s 50M outputs/sparse; echo end >>outputs/sparse'
    [ "$status" -eq 0 ]
    truncate -s 50M same
    echo end >>same
    [ "$(output outputs/sparse sha256)" = "$(digest_of same)" ]
}

@test "holes are counted: a file that is all hole cannot keep forge busy for hours" {
    budget '  allow_unlimited: true'
    begin=$(now_ms)
    forge_run --disk unlimited -- sh -c 'mkdir outputs; truncate -s 65G outputs/hole'
    in_time "$begin" 20000
    [ "$(field .reason)" = missing_output ]
    [[ "$(field .completion_notes)" == *"holes of 65"*outputs.max_size* ]]
    [ "$(objects | wc -l)" -eq 0 ]
}

@test "what is copied keeps its holes" {
    forge_run --keep --id "kept-$$" -o x -- sh -c 'truncate -s 300M x; echo end >>x'
    [ "$status" -eq 0 ]
    object=$(objects)
    [ "$(digest_of "$object")" = "$(output x sha256)" ]
    [ "$(stat -c %s "$object")" -eq $((300 * 1048576 + 4)) ]
    [ "$(stat -c %b "$object")" -lt 4096 ]
}

@test "kill while outputs are collected ends it: cancelled, what is stored is partial" {
    # One small file first; the other would take a minute, or more.
    budget
    submit --disk 63G -- sh -c 'mkdir outputs; echo one >outputs/a; truncate -s 62G outputs/z'
    patiently sh -c 'test -n "$(find "$FORGE_HOME/objects" -type f)"'
    begin=$(now_ms)
    "$FORGE" kill "$id"
    in_time "$begin" 5000
    finished "$id"
    [ "$status" -eq 130 ]
    [ "$(field .status) $(field .reason)" = "cancelled cancelled" ]
    [[ "$(field .completion_notes)" == *"after 1 file."* ]]
    [ "$(outputs)" = outputs/a ]
    [ "$(output outputs/a partial)" = true ]
    [ "$(field .exit_code)" -eq 0 ]
    [ ! -e "$(field .workdir)" ]
    "$FORGE" logs --events "$id" | grep -q collect_cancelled
}

@test "kill while a sweep keeps collectors out ends the run too" {
    submit -o x -- sh -c 'echo one >x; sleep 0.3'
    exec {sweep}<>"$FORGE_HOME/objects.lock"
    flock "$sweep"
    is_in "$id" running
    patiently sh -c "grep -q collecting '$FORGE_HOME/runs/$id/events.jsonl'"
    "$FORGE" kill "$id"
    exec {sweep}>&-
    finished "$id"
    [ "$(field .status)" = cancelled ]
    [ "$(field '.outputs | length')" -eq 0 ]
}

@test "outputs.max_size and outputs.max_files are kept" {
    budget 'outputs:' '  max_size: 100K' '  max_files: 5'
    forge_run -- sh -c 'mkdir outputs; head -c 102401 /dev/zero >outputs/x'
    [ "$status" -eq 1 ]
    [[ "$(field .completion_notes)" == *outputs.max_size* ]]
    forge_run -- sh -c 'mkdir outputs; head -c 102400 /dev/zero >outputs/x'
    [ "$status" -eq 0 ]
    forge_run -- sh -c 'mkdir outputs; touch outputs/1 outputs/2 outputs/3 outputs/4 outputs/5 outputs/6'
    [ "$status" -eq 1 ]
    [[ "$(field .completion_notes)" == *outputs.max_files* ]]
}

@test "a thousand files are all stored" {
    forge_run -- sh -c 'mkdir outputs; i=0; while [ $i -lt 1000 ]; do echo $i >outputs/$i; i=$((i + 1)); done'
    [ "$status" -eq 0 ]
    [ "$(field '.outputs | length')" -eq 1000 ]
    [ "$(objects | wc -l)" -eq 1000 ]
    "$FORGE" outputs --copy got "$(field .run_id)"
    for i in 0 499 999; do [ "$(cat got/outputs/$i)" = "$i" ]; done
    [ "$(ls got/outputs | wc -l)" -eq 1000 ]
}

@test "outputs --copy gives back and refuses to overwrite" {
    forge_run -o '**' -- sh -c 'mkdir d; echo 1 >d/x; echo 2 >y'
    id=$(field .run_id)
    run "$FORGE" outputs --copy got "$id"
    [ "$status" -eq 0 ]
    [[ "$output" == "2 files copied to got" ]]
    [ "$(cat got/d/x got/y | xargs)" = "1 2" ]
    echo mine >got/y
    run "$FORGE" outputs --copy got "$id"
    [ "$status" -eq 1 ]
    [[ "$output" == *"got/d/x exists"*"--force replaces it"* ]]
    [ "$(cat got/y)" = mine ]
    [ -z "$(find got -name '.*' ! -name got)" ]
    # nor through a link that waits there
    mkdir trap outside
    ln -s "$T/outside" trap/d
    run "$FORGE" outputs --copy trap "$id"
    [ "$status" -eq 1 ]
    [ -z "$(ls outside)" ]
    # and the copy is not the object: it can be written
    echo more >>got/d/x
    run "$FORGE" outputs --copy again "$id"
    [ "$(cat again/d/x)" = 1 ]
}

@test "outputs --copy tells a damaged object from a good one" {
    forge_run -o '*' -- sh -c 'echo good >x'
    stored=$FORGE_HOME/$(output x stored_as)
    chmod 600 "$stored"
    echo evil >"$stored"
    run "$FORGE" outputs --copy got "$(field .run_id)"
    [ "$status" -eq 1 ]
    [[ "$output" == *"x is damaged"* ]]
    [ ! -e got/x ]
    rm "$stored"
    run "$FORGE" outputs --copy got "$(field .run_id)"
    [ "$status" -eq 1 ]
    [ ! -e got/x ]
}

@test "a torn object is replaced by the next good one" {
    forge_run -o '*' -- sh -c 'echo good >x'
    stored=$FORGE_HOME/$(output x stored_as)
    chmod 600 "$stored"
    : >"$stored"
    forge_run -o '*' -- sh -c 'echo good >x'
    [ "$status" -eq 0 ]
    [ "$(cat "$stored")" = good ]
}

@test "with --keep the object is not the file in the workdir" {
    forge_run --keep --id "kept-$$" -o x -- sh -c 'echo good >x'
    [ "$status" -eq 0 ]
    stored=$FORGE_HOME/$(output x stored_as)
    [ "$(stat -c %i "$stored")" != "$(stat -c %i "$work/scidex-analysis-kept-$$/x")" ]
    echo changed >"$work/scidex-analysis-kept-$$/x"
    [ "$(cat "$stored")" = good ]
    [ "$(of "$(field .run_id)" .workdir_kept)" = true ]
}

@test "an object cannot be reached by the process that made it" {
    # It is gone before its file is taken; and what it can reach belongs to us by then.
    forge_run -o x -- sh -c 'echo good >x; exec 9>>x; (while :; do echo evil >&9; done) & sleep 0.05'
    stored=$FORGE_HOME/$(output x stored_as)
    [ "$(digest_of "$stored")" = "$(output x sha256)" ]
    [ "$(stat -c %u "$stored")" -eq "$(id -u)" ]
}

@test "an immutable or half-written object directory is no reason to lose the verdict" {
    mkdir -p "$FORGE_HOME"
    chmod 700 "$FORGE_HOME"
    touch "$FORGE_HOME/objects"
    forge_run -o x -- touch x
    [ "$status" -eq 1 ]
    [ "$(field .reason)" = missing_output ]
    [[ "$(field .completion_notes)" == *"cannot be stored"* ]]
    [ "$(of "$(field .run_id)" .status)" = failed ]
}

# ---- inputs

@test "inputs are hashed: files as sha256sum does, directories as a list" {
    seq 1000 >file
    mkdir -p dir/sub
    echo a >dir/a
    echo b >dir/sub/b
    ln -s a dir/link
    forge_run -i file -i dir -- true
    [ "$status" -eq 0 ]
    [ "$(field '.inputs[0].sha256')" = "$(digest_of file)" ]
    [ "$(field '.inputs[0].size')" -eq "$(stat -c %s file)" ]
    [ "$(field '.inputs[0].path')" = "$(realpath file)" ]
    [ "$(field '.inputs[1].files')" -eq 3 ]
    list() {
        printf 'sha256:%s  %s\0' "$(sha256sum <dir/a | cut -c-64)" a
        printf 'sha256:%s  %s\0' "$(printf link:a | sha256sum | cut -c-64)" link
        printf 'sha256:%s  %s\0' "$(sha256sum <dir/sub/b | cut -c-64)" sub/b
    }
    [ "$(field '.inputs[1].sha256')" = "$(digest_of <(list))" ]
    before=$(field '.inputs[1].sha256')
    echo c >dir/sub/b
    forge_run -i dir -- true
    [ "$(field '.inputs[0].sha256')" != "$before" ]
    mv dir/a dir/z
    now=$(field '.inputs[0].sha256')
    forge_run -i dir -- true
    [ "$(field '.inputs[0].sha256')" != "$now" ]
}

@test "the digest of a big input is remembered, and forgotten when the file changes" {
    head -c 2000000 /dev/zero >big
    touch -d '1 hour ago' big # mtime; the grain is of the ctime
    good=$(digest_of big)
    remembered() { forge_run -i big -- true && [ -n "$(ls "$FORGE_HOME/cache" 2>/dev/null)" ]; }
    patiently remembered
    cache=$(find "$FORGE_HOME/cache" -type f)
    grep -q "$good" "$cache"
    # It is used: a lie in it is believed, as long as the file is the same.
    sed -i 's/sha256:....../sha256:aaaaaa/' "$cache"
    forge_run -i big -- true
    [[ "$(field '.inputs[0].sha256')" == sha256:aaaaaa* ]]
    # The same size and mtime, other content: the ctime tells.
    mtime=$(stat -c %y big)
    printf x | dd of=big conv=notrunc status=none
    touch -d "$mtime" big
    forge_run -i big -- true
    [ "$(field '.inputs[0].sha256')" = "$(digest_of big)" ]
    [ "$(field '.inputs[0].sha256')" != "$good" ]
}

@test "an input that changes while it is read is no input with a digest" {
    head -c 200000000 /dev/zero >growing
    background bash -c 'while :; do echo x >>growing; done'
    forge_run -i growing -- true
    kill "$pid"
    [ "$status" -eq 0 ]
    [ "$(field '.inputs[0].sha256')" = null ]
    [[ "$(field '.inputs[0].error')" == *busy* ]]
}

@test "the store has the digests too" {
    echo x >in
    submit -i in -o out -- cp in out
    finished "$id"
    [ "$(field .status)" = succeeded ]
    [ "$(of "$id" '.inputs[0].sha256')" = "$(digest_of in)" ]
    [ "$(of "$id" '.outputs[0].sha256')" = "$(digest_of in)" ]
}

# ---- forge outputs --cat

@test "outputs --cat prints one output, by the name of the list or its own" {
    forge_run -- sh -c 'head -c 300000 /dev/urandom >big; : >empty; echo 1 >"$(printf "n\351")"; echo 2 >"a\\xe9"'
    id=$(field .run_id)
    [ "sha256:$("$FORGE" outputs --cat big "$id" | sha256sum | cut -d' ' -f1)" = "$(output big sha256)" ]
    [ -z "$("$FORGE" outputs --cat empty "$id")" ]
    [ "$("$FORGE" outputs --cat "$(printf 'n\351')" "$id")" = 1 ]
    [ "$("$FORGE" outputs --cat 'n\xe9' "$id")" = 1 ]
    [ "$("$FORGE" outputs --cat 'a\\xe9' "$id")" = 2 ]
    run "$FORGE" outputs --cat none "$id"
    [ "$status" -eq 1 ]
    [[ "$output" == *"left no output none"* ]]
    run "$FORGE" outputs --cat big --json "$id"
    [ "$status" -eq 1 ]
    [[ "$output" == *"--cat goes with neither --copy nor --json"* ]]
    run "$FORGE" outputs --cat big "$id" "$id" nope
    [ "$status" -eq 1 ]
}

@test "outputs --cat prints nothing of a damaged output" {
    forge_run -- sh -c 'head -c 300000 /dev/zero >big'
    stored=$FORGE_HOME/$(output big stored_as)
    chmod u+w "$stored"
    printf x | dd of="$stored" bs=1 seek=299999 conv=notrunc status=none
    run --separate-stderr "$FORGE" outputs --cat big "$(field .run_id)"
    [ "$status" -eq 1 ]
    [ -z "$output" ]
    [[ "$stderr" == *"output big is damaged"* ]]
}
