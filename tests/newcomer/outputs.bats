#!/usr/bin/env bats
# A first analysis: where its results are afterwards. Nothing that it made is lost without a word.
# SPDX-License-Identifier: Apache-2.0

load ../lib/newcomer.bash
setup() { setup_newcomer; }
teardown() { teardown_forge; }

# A script that leaves a plot and numbers, as most do.
csv_to_plot() {
    printf 'x,y\n1,2\n2,4\n' >data.csv
    cat >plot.py <<'EOF'
import csv, json, sys
rows = list(csv.DictReader(open(sys.argv[1])))
open("plot.png", "wb").write(b"\x89PNG" + bytes(len(rows)))
json.dump({"rows": len(rows)}, open("fit.json", "w"))
EOF
}

@test "CSV to plot and JSON: both are kept without being declared" {
    csv_to_plot
    run forge run -i data.csv plot.py data.csv
    [ "$status" -eq 0 ]
    says "2 outputs"
    run forge outputs last
    says plot.png
    says fit.json
    forge outputs last --copy got
    [ "$(jq .rows got/fit.json)" -eq 2 ]
    [ -e got/plot.png ]
}

@test "hidden files and __pycache__ are not results, and are not talked about" {
    run forge run -- sh -c 'mkdir .cache __pycache__; echo x >.cache/x; echo y >__pycache__/y; echo z >.z; echo r >r'
    [ "$status" -eq 0 ]
    says_not "not kept"
    [ "$(forge outputs --json last | jq -r '.[].path' | xargs)" = r ]
}

@test "~/results is in the workdir, and kept" {
    run forge run -- sh -c 'mkdir -p ~/results && echo 1 >~/results/x'
    [ "$status" -eq 0 ]
    [ "$(forge outputs --json last | jq -r '.[].path')" = results/x ]
}

@test "what is left in /tmp is counted and told" {
    run forge run -- sh -c 'mkdir /tmp/d; echo 123 >/tmp/d/lost; echo 1 >/tmp/also; touch /tmp/.hidden'
    [ "$status" -eq 0 ]
    says "2 files (6 B) left in /tmp are gone"
    run forge run -- true
    says_not /tmp
}

@test "an input below /tmp is not taken for something left there" {
    mkdir "$T/in"
    echo 1 >"$T/in/x"
    run forge run -i "$T/in" -- ls "$T/in/x"
    [ "$status" -eq 0 ]
    says_not "left in /tmp"
}

@test "with -o the verdict names what was not kept" {
    csv_to_plot
    run forge run -i data.csv -o '*.json' plot.py data.csv
    [ "$status" -eq 0 ]
    says "1 file was not kept, e.g. plot.png (keep it with -o 'plot.png')"
    [ "$(forge outputs --json last | jq -r '.[].path')" = fit.json ]
}

@test "-o none keeps nothing and says nothing of it" {
    csv_to_plot
    run forge run -i data.csv -o none plot.py data.csv
    [ "$status" -eq 0 ]
    says_not "not kept"
    [ "$(forge outputs --json last | jq length)" -eq 0 ]
    run forge run -o none -o x -- true
    [ "$status" -eq 125 ]
    says "-o none stands alone"
}

@test "outputs.default: declared and none" {
    echo 'outputs: {default: declared}' >forge.yaml
    run forge run -- sh -c 'mkdir outputs; echo 1 >outputs/a; echo 2 >b'
    [ "$(forge outputs --json last | jq -r '.[].path')" = outputs/a ]
    says "1 file was not kept, e.g. b"
    echo 'outputs: {default: none}' >forge.yaml
    run forge run -- sh -c 'echo 2 >b'
    [ "$(forge outputs --json last | jq length)" -eq 0 ]
    echo 'outputs: {default: some}' >forge.yaml
    run forge run -- true
    [ "$status" -eq 125 ]
    says "all, declared, none"
}

@test "a typo in -o costs nothing: the workdir is kept, and the verdict says where" {
    csv_to_plot
    run forge run -i data.csv -o '*.pdf' plot.py data.csv
    [ "$status" -eq 1 ]
    says "it left no output '*.pdf'"
    says "It left 2 other files, e.g. fit.json"
    dir=$(grep -o '/tmp/scidex-analysis-[0-9a-z]*' <<<"$output" | head -1)
    [ -s "$dir/plot.png" ]
    [ -s "$dir/fit.json" ]
    # Retention applies: not yet, then it does.
    run forge gc
    [ -e "$dir/plot.png" ]
    echo 'retention: {workdirs: 1s}' >forge.yaml
    patiently sh -c "forge gc >/dev/null; [ ! -e '$dir' ]"
}

@test "a command that fails before it makes what is declared does not cost the rest" {
    run forge run -o '*.pdf' -- sh -c 'echo hours >checkpoint; exit 3'
    [ "$status" -eq 3 ]
    dir=$(forge show --json last | jq -r .workdir)
    says "exit code 3"
    says "The workdir is kept: $dir. It left 1 other file, e.g. checkpoint."
    [ "$(cat "$dir/checkpoint")" = hours ]
    forge rm -f last
    [ ! -e "$dir" ]
    # Nothing is missing, or nothing is left: nothing is kept.
    for command in 'echo 1 >a.pdf; echo 2 >other; exit 3' 'exit 3'; do
        run forge run -o '*.pdf' -- sh -c "$command"
        [ "$status" -eq 3 ]
        [ ! -e "$(forge show --json last | jq -r .workdir)" ]
    done
}

@test "what could not be stored for its size stays in the workdir, and nothing is taken half" {
    echo 'outputs: {max_size: 1K}' >forge.yaml
    run forge run -- sh -c 'echo small >small; head -c 2048 /dev/zero >large'
    [ "$status" -eq 1 ]
    says "2.01 KiB, more than the 1.00 KiB"
    says "the largest is large with 2.00 KiB"
    says "Choose with -o"
    [ "$(forge outputs --json last | jq length)" -eq 0 ]
    dir=$(forge show --json last | jq -r .workdir)
    [ "$(cat "$dir/small")" = small ]
    [ -e "$dir/large" ]
}

@test "a run that was killed at its disk limit does not keep its files for a week" {
    run forge run --disk 1M -- sh -c 'for i in 1 2 3 4; do head -c 900000 /dev/zero >part$i; done; sleep 60'
    [ "$status" -eq 137 ]
    [ ! -e "$(forge show --json last | jq -r .workdir)" ]
}

@test "--copy puts all outputs there when the run succeeded, and none otherwise" {
    run forge run --copy results/a -- sh -c 'mkdir d; echo 1 >d/one; echo 2 >two'
    [ "$status" -eq 0 ]
    says "2 outputs (4 B) copied to $PWD/results/a"
    [ "$(cat results/a/d/one results/a/two | xargs)" = "1 2" ]
    [ "$(forge show --json last | jq -r .copied_to)" = "$PWD/results/a" ]
    run forge run --copy other -- sh -c 'echo 1 >one; exit 3'
    [ "$status" -eq 3 ]
    [ ! -e other ]
    [ "$(find . -name '.forge*' | wc -l)" -eq 0 ]
}

@test "--copy replaces nothing without --force, and then all of it" {
    mkdir results
    echo mine >results/two
    run forge run --copy results -- sh -c 'echo 1 >one; echo 2 >two'
    [ "$status" -eq 1 ]
    says "results/two exists (--force replaces it)"
    says "forge outputs"
    [ "$(ls -A results)" = two ]
    [ "$(cat results/two)" = mine ]
    # The run's own outputs are safe.
    [ "$(forge outputs --json last | jq length)" -eq 2 ]
    run forge outputs last --copy results
    [ "$status" -eq 1 ]
    run forge outputs last --copy results --force
    [ "$status" -eq 0 ]
    [ "$(cat results/one results/two | xargs)" = "1 2" ]
    run forge run --copy results --force -- sh -c 'echo 3 >two'
    [ "$status" -eq 0 ]
    [ "$(cat results/one results/two | xargs)" = "1 3" ]
}

@test "a name that is taken is found out before hours of computing" {
    echo mine >two
    run forge run --copy . -o two -- sh -c 'echo 2 >two'
    [ "$status" -eq 125 ]
    says "two exists"
    echo file >results
    run forge run --copy results -- true
    [ "$status" -eq 125 ]
    says "Not a directory"
    run forge run --force -- true
    [ "$status" -eq 125 ]
    says "--force belongs to --copy"
}

@test "--copy follows no link below its directory" {
    mkdir results "$T/outside"
    ln -s "$T/outside" results/d
    run forge run --copy results -- sh -c 'mkdir d; echo 1 >d/one'
    [ "$status" -eq 1 ]
    [ -z "$(ls "$T/outside")" ]
}

@test "submit --copy: relative to where it was typed" {
    id=$(forge submit --copy results -- sh -c 'echo 1 >one')
    forge wait -q "$id"
    [ "$(cat results/one)" = 1 ]
}

@test "Make: a rule with forge before its command" {
    cp -r "$EXAMPLES/rules/." .
    run make
    [ "$status" -eq 0 ]
    [ "$(jq '.slope == 2' results/fit.json)" = true ]
    run make
    says "up to date"
    touch data/points.csv
    run make
    [ "$status" -eq 0 ]
    says "copied to"
    # A recipe that fails leaves nothing new, and make sees it.
    echo 'raise SystemExit(4)' >fit.py
    before=$(stat -c %i results/fit.json)
    run make
    [ "$status" -eq 2 ]
    [ "$(stat -c %i results/fit.json)" = "$before" ]
}

@test "Snakemake: the same rule" {
    skip_unless "snakemake is not installed" command -v snakemake
    cp -r "$EXAMPLES/rules/." .
    run snakemake --cores 1
    [ "$status" -eq 0 ]
    [ "$(jq '.intercept == 1' results/fit.json)" = true ]
    run snakemake --cores 1
    says "Nothing to be done"
    echo 'raise SystemExit(4)' >fit.py
    run snakemake --cores 1
    [ "$status" -ne 0 ]
    [ ! -e results/fit.json ]
}

@test "jq: a run's record and outputs in a pipe" {
    run sh -c "forge run --json -- sh -c 'echo 1 >one' | jq -r '.outputs[0].path, .status'"
    [ "$status" -eq 0 ]
    [ "$(xargs <<<"$output")" = "one succeeded" ]
}

@test "killed at once: what it had made is kept, however much" {
    id=$(forge submit -- sh -c 'i=0; while [ $i -lt 3000 ]; do echo $i >$i; i=$((i + 1)); done; echo made; sleep 300')
    patiently sh -c "forge logs $id | grep -q made"
    forge kill --now "$id"
    [ "$(forge show --json "$id" | jq -r .status)" = cancelled ]
    [ "$(forge outputs --json "$id" | jq length)" -eq 3000 ]
}

@test "a copy leaves no directory of its own, whatever way the path was written" {
    forge run -q -- sh -c 'mkdir d; echo 1 >d/x'
    mkdir relative "$T/real"
    ln -s "$T/real" link
    forge outputs last --copy relative
    forge outputs last --copy link/
    forge run -q --copy link --force -- sh -c 'echo 2 >y'
    [ -z "$(find . "$T/real" -name '.forge*')" ]
    [ "$(cat relative/d/x "$T/real/d/x" "$T/real/y" | xargs)" = "1 1 2" ]
}

@test "copies have the names that the run gave, also those that are no text, and long" {
    forge run -q -- python3 -c 'open(b"\xe9" * 70, "w").write("long"); open(b"a\\xe9", "w").write("text")'
    forge outputs last --copy got
    [ "$(cat got/"$(printf '\xe9%.0s' {1..70})")" = long ]
    [ "$(cat 'got/a\xe9')" = text ]
}

@test "a run that is killed while it copies has its outputs all the same" {
    skip_unless "strace is not installed" command -v strace
    run strace -o /dev/null -qq -f -P "$PWD/results" -e trace=openat,mkdir,renameat2 \
        -e inject=openat:signal=KILL:when=1 "$FORGE" run --id killed --copy results -- sh -c 'echo 1 >one'
    [ "$status" -ne 0 ]
    [ "$(forge show --json killed | jq -r .status)" = lost ]
    [ "$(forge outputs --json killed | jq -r '.[].path')" = one ]
    echo 'retention: {objects: 1ms}' >forge.yaml
    forge gc
    forge outputs killed --copy got
    [ "$(cat got/one)" = 1 ]
}

# three_outputs: the files a, d/b and z of a run, in this order.
three_outputs() {
    forge run -q -- sh -c 'mkdir d; echo 1 >a; echo 2 >d/b; echo 3 >z'
    [ "$(forge outputs --json last | jq -r '.[].path' | xargs)" = "a d/b z" ]
}

# with_mount OPTIONS COMMAND...: while results/d is another file system.
with_mount() {
    mkdir -p results/d
    run unshare -m sh -c 'mount -t tmpfs -o "$0" none results/d && exec "$@"' "$@"
}

@test "a copy that fails half way takes back what it had moved" {
    skip_unless "only root can do this" is_root
    three_outputs
    mkdir results
    # A rename does not cross file systems: the first is in its place by then.
    with_mount rw forge outputs last --copy results
    [ "$status" -eq 1 ]
    says "output d/b: Invalid cross-device link"
    [ "$(find results -mindepth 1)" = results/d ]
    # What --force had replaced is there again, whether or not the file system can exchange two names, or has links.
    for shim in "" "$NOSYS renameat2=EINVAL --" "$NOSYS renameat2=EINVAL linkat=EPERM --"; do
        echo mine >results/a
        # shellcheck disable=SC2086 # words of a command
        with_mount rw $shim "$FORGE" outputs last --copy results --force
        [ "$status" -eq 1 ]
        says "output d/b: Invalid cross-device link"
        [ "$(cat results/a)" = mine ]
        [ "$(find results -mindepth 1 | sort | xargs)" = "results/a results/d" ]
    done
}

@test "a place that cannot be written to is found out before anything is made" {
    skip_unless "only root can do this" is_root
    three_outputs
    mkdir -p results/d
    before=$(stat -c %y results)
    with_mount ro forge outputs last --copy results
    [ "$status" -eq 1 ]
    says "output d/b: Read-only file system"
    [ "$(stat -c %y results)" = "$before" ]
    # And before hours of computing.
    with_mount ro forge run --id never --copy results -o d/b -- true
    [ "$status" -eq 125 ]
    says "results/d/b: Read-only file system"
    [ -z "$(forge ps -qa --analysis never)" ]
}

@test "a file system whose renames take no flags gets copies too" {
    three_outputs
    # A new directory, one that is there, and one with such a file.
    run "$NOSYS" renameat2=EINVAL -- "$FORGE" outputs last --copy results
    [ "$status" -eq 0 ]
    [ "$(cat results/a results/d/b results/z | xargs)" = "1 2 3" ]
    mkdir -p more/d
    echo mine >more/d/b
    run "$NOSYS" renameat2=EINVAL -- "$FORGE" outputs last --copy more
    [ "$status" -eq 1 ]
    says "more/d/b exists"
    [ "$(find more -type f)" = more/d/b ]
    run "$NOSYS" renameat2=EINVAL -- "$FORGE" outputs last --copy more --force
    [ "$status" -eq 0 ]
    [ "$(cat more/a more/d/b more/z | xargs)" = "1 2 3" ]
    [ -z "$(find . -name '.forge*')" ]
}

@test "^C while outputs are copied leaves nothing of the copy" {
    skip_unless "strace is not installed" command -v strace
    three_outputs
    mkdir results
    # As soon as the directory is made that the copies are made in.
    for to in results new; do
        run strace -o trace -qq -e trace=mkdir -e inject=mkdir:signal=INT:when=1 "$FORGE" outputs last --copy $to
        grep -q '^mkdir(".*\.forge-copy-' trace
        [ "$status" -eq 130 ]
        [ -z "$(ls -A results)" ]
        [ ! -e new ]
        [ -z "$(find . -name '.forge*')" ]
    done
}
