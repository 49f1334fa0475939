#!/usr/bin/env bats
# What new users met after the first hour: labels, broken files, several runs at once, typing errors.
# SPDX-License-Identifier: Apache-2.0

load ../lib/newcomer.bash
setup() { setup_newcomer; }
teardown() {
    forge kill -f --now '*' >/dev/null 2>&1 || true
    teardown_forge
}

@test "kill and wait name a run by its label and its id" {
    id=$(forge submit --id fit -- sleep 300)
    run forge wait --timeout 1ms fit
    [ "$status" -eq 124 ]
    says "forge: run fit ($id) is still"
    run forge kill --now fit
    [ "$status" -eq 0 ]
    [ "$output" = "fit ($id): cancelled" ]
    run forge kill fit
    [ "$output" = "fit ($id): already finished, cancelled" ]
    run forge wait fit
    [ "$status" -eq 130 ]
    says "forge: fit ($id): Cancelled"
    # The record has both already; a run without a label has its id.
    [ "$(forge wait --json fit | jq -r .analysis_id,.run_id | xargs)" = "fit $id" ]
    id=$(forge submit -- true)
    run forge wait "$id"
    [ "$status" -eq 0 ]
    says "(run $id)"
    run forge kill "$id"
    [ "$output" = "$id: already finished, succeeded" ]
}

@test "diff says which runs it compares, and writes limits as they are written elsewhere" {
    forge run -q --id one --memory 2G --timeout 2h -- sh -c 'exit 0'
    run forge run -q --id two --memory 64M --timeout 90s --cpus 0.5 --pids 20 -- sh -c 'exit 3'
    one=$(forge show --json one | jq -r .run_id) two=$(forge show --json two | jq -r .run_id)
    run forge diff one two
    [ "$status" -eq 1 ]
    [ "${lines[0]}" = "--- one ($one): succeeded" ]
    [ "${lines[1]}" = "+++ two ($two): failed" ]
    says "limit     memory  2.00 GiB -> 64.00 MiB"
    says "limit     timeout  2 h -> 1 min 30 s"
    says "limit     cpus  1 -> 0.5"
    run forge diff --json one two
    [ "$(jq -r '.[] | select(.name == "memory_bytes") | .a, .b' <<<"$output" | xargs)" = "2147483648 67108864" ]
    # Equal runs have no lines at all.
    run forge diff one one
    [ "$status" -eq 0 ]
    [ -z "$output" ]
}

@test "submit --explain-limits prints what run prints, and submits nothing" {
    printf '# forge: timeout=90s\nprint(1)\n' >fit.py
    run forge submit --explain-limits --memory 64M fit.py
    [ "$status" -eq 0 ]
    grep -Eq "^memory +64.00 MiB +command line" <<<"$output"
    grep -Eq "^timeout +1 min 30 s +script +fit.py" <<<"$output"
    submitted=$output
    run forge run --explain-limits --memory 64M fit.py
    [ "$output" = "$submitted" ]
    [ "$(forge submit --explain-limits --json fit.py | jq -r '.[] | select(.limit == "timeout") | .from')" = script ]
    [ -z "$(forge ps -qa)" ]
}

@test "a limit that is not in limits: is said to belong there" {
    printf 'analysis:\n  memory: 4G\n' >forge.yaml
    run forge run -- true
    [ "$status" -eq 125 ]
    says "./forge.yaml:2:3: analysis: unknown key 'memory'"
    says "memory is a limit: write limits: {memory: ...} in analysis"
    printf 'analysis: {cpu-time: 4h}\n' >forge.yaml
    run forge config check ./forge.yaml
    [ "$status" -eq 1 ]
    says "write limits: {cpu_time: ...} in analysis"
    printf 'memory: 4G\n' >forge.yaml
    run forge config check ./forge.yaml
    [ "$status" -eq 1 ]
    says "profiles: {default: {memory: ...}}"
    says "analysis: {limits: {memory: ...}}"
    # Other mistakes are what they were.
    printf 'analysis: {inptus: [a]}\n' >forge.yaml
    run forge config check ./forge.yaml
    says "did you mean 'inputs'?"
    says_not "is a limit"
}

@test "forge.yaml(5): every example is a configuration, and analysis: is shown whole" {
    page=$BATS_TEST_DIRNAME/../../man/forge.yaml.5.scd
    awk -v to="$T/block" '/^```/ { is = !is; n += is; next } is { print >(to n ".yaml") }' "$page"
    for file in "$T"/block*.yaml; do
        cat "$file"
        run forge config check "$file"
        echo "$output"
        [ "$status" -eq 0 ]
    done
    example=$(grep -l '^analysis:' "$T"/block*.yaml)
    for key in runtime profile limits inputs outputs network env; do
        grep -q "^  $key:" "$example"
    done
    # It does what it says to a script beside it.
    mkdir data config tables
    touch data/x config/model.json
    grep -v 'runtime:' "$example" >forge.yaml
    cat >fit.py <<'PY'
import os
open("data/x").close()
open("config/model.json").close()
os.mkdir("tables")
open("a.png", "w").close()
open("tables/t", "w").write(os.environ["SEED"] + os.environ["OMP_NUM_THREADS"])
PY
    run forge run fit.py
    [ "$status" -eq 0 ]
    [ "$(forge outputs --json last | jq -r '[.[].path] | sort | join(" ")')" = "a.png tables/t" ]
    [ "$(forge show --json last | jq .limits.memory_bytes,.limits.cpu_seconds | xargs)" = "4294967296 10800" ]
}

@test "a mistake in ./forge.yaml does not stop who only looks, and stops who runs" {
    forge run -q --id fit -- sh -c 'echo said; echo 1 >x'
    printf 'analysis:\n  memroy: 4G\n' >forge.yaml
    for look in "ps" "show fit" "logs fit" "outputs fit" "wait fit" "top --once" "diff fit fit"; do
        # shellcheck disable=SC2086 # words
        run --separate-stderr forge $look
        echo "$look: $status $output $stderr"
        [ "$status" -eq 0 ]
        [[ "$stderr" == *"warning: ./forge.yaml:2:3: analysis: unknown key 'memroy'"* ]]
        [ "$(grep -c 'warning: ' <<<"$stderr")" -eq 1 ]
        [[ "$stderr" == *"./forge.yaml was not used; the runs are those of sqlite:$FORGE_HOME/forge.db"* ]]
    done
    [ "$(forge ps -q 2>/dev/null | wc -l)" -eq 1 ]
    for run in "run true" "submit true" "rerun fit"; do
        # shellcheck disable=SC2086
        run forge $run
        [ "$status" -eq 125 ]
        says "./forge.yaml:2:3"
    done
    run forge rm -f fit
    [ "$status" -eq 1 ]
    # No YAML at all is no better and no worse.
    echo '{' >forge.yaml
    run forge ps
    [ "$status" -eq 0 ]
    says "warning: ./forge.yaml:"
    says fit
    # The user's own file is not left out: it may have the store.
    rm forge.yaml
    mkdir -p "$HOME/.config/forge"
    echo 'x: 1' >"$HOME/.config/forge/forge.yaml"
    run forge ps
    [ "$status" -eq 1 ]
}

@test "a mistake in a ./forge.yaml that names the store shows no other store's runs" {
    forge run -q --id elsewhere -- true
    echo "store: sqlite:$T/project.db" >forge.yaml
    forge run -q --id here -- true
    echo 'x: 1' >>forge.yaml
    run forge ps
    [ "$status" -eq 1 ]
    says_not elsewhere
    says "./forge.yaml:2:1: unknown key 'x'"
    says "--store URL says where to look"
    run forge ps --store "sqlite:$T/project.db"
    [ "$status" -eq 0 ]
    says "the runs are those of sqlite:$T/project.db"
    says here
    says_not elsewhere
    FORGE_STORE=sqlite:$T/project.db run forge show here
    [ "$status" -eq 0 ]
    # A file that others could have written is refused as ever.
    echo 'x: 1' >forge.yaml
    chmod o+w forge.yaml
    run forge ps
    [ "$status" -eq 1 ]
    rm forge.yaml
}

@test "outputs --copy of several runs: a directory for each, by its label" {
    for i in 1 2; do forge run -q --id "fit-$i" -- sh -c "mkdir d; echo $i >d/x"; done
    run forge outputs fit-1 fit-2 --copy got
    [ "$status" -eq 0 ]
    says "1 file copied to got/fit-1"
    says "1 file copied to got/fit-2"
    [ "$(cat got/fit-1/d/x got/fit-2/d/x | xargs)" = "1 2" ]
    [ "$(find got -type f | wc -l)" -eq 2 ]
    # A pattern, also one that means a single run today.
    forge outputs 'fit-*' --copy by-pattern
    [ "$(find by-pattern -type f | sort | xargs)" = "by-pattern/fit-1/d/x by-pattern/fit-2/d/x" ]
    forge outputs 'fit-1*' --copy one
    [ "$(cat one/fit-1/d/x)" = 1 ]
    # One run goes where it went.
    forge outputs fit-1 --copy plain
    [ "$(cat plain/d/x)" = 1 ]
    # Equal labels, or none: by id.
    forge run -q --id fit-1 -- sh -c 'echo again >y'
    forge run -q -- sh -c 'echo nameless >z'
    mapfile -t ids < <(forge ps -q)
    forge outputs "${ids[@]}" --copy all
    [ "$(cat "all/${ids[0]}/z" "all/${ids[1]}/y" "all/${ids[3]}/d/x" all/fit-2/d/x | xargs)" = "nameless again 1 2" ]
    [ "$(find all -type f | wc -l)" -eq 4 ]
    [ "$(forge outputs fit-1 fit-2 --copy json --json | jq -s 'map(length) | add')" -eq 2 ]
}

@test "outputs --copy of several runs: all or none, and nothing is replaced without --force" {
    for i in 1 2; do forge run -q --id "fit-$i" -- sh -c "echo $i >x"; done
    mkdir -p got/fit-2
    echo mine >got/fit-2/x
    run forge outputs fit-1 fit-2 --copy got
    [ "$status" -eq 1 ]
    says "got/fit-2/x exists"
    says "--force replaces it"
    [ "$(find got -type f)" = got/fit-2/x ]
    [ "$(cat got/fit-2/x)" = mine ]
    run forge outputs fit-1 fit-2 --copy got --force
    [ "$status" -eq 0 ]
    [ "$(cat got/fit-1/x got/fit-2/x | xargs)" = "1 2" ]
    # One that is damaged: none.
    digest=$(forge outputs --json fit-2 | jq -r '.[0].sha256' | cut -d: -f2)
    object=$(find "$FORGE_HOME/objects" -type f -name "*${digest:2}*")
    chmod u+w "$object"
    echo 3 >"$object"
    run forge outputs fit-1 fit-2 --copy new
    [ "$status" -eq 1 ]
    says "output fit-2/x is damaged"
    [ ! -e new ]
    # A link is not followed.
    mkdir to "$T/outside"
    ln -s "$T/outside" to/fit-1
    run forge outputs fit-1 fit-1 'fit-1*' --copy to
    [ "$status" -eq 1 ]
    [ -z "$(ls -A "$T/outside")" ]
}

# killed_copy DIR: forge outputs --copy that is killed when it would give the first file, or DIR, its name.
killed_copy() {
    run strace -o /dev/null -qq -f -e trace=renameat2 -e inject=renameat2:signal=KILL:when=1 \
        "$FORGE" outputs fit --copy "$1"
    [ "$status" -ne 0 ]
}

@test "what a killed --copy left is removed by the next one, and nothing else" {
    skip_unless "strace is not installed" command -v strace
    forge run -q --id fit -- sh -c 'mkdir d; echo 1 >d/x; echo 2 >y'
    mkdir there
    killed_copy there
    stale=$(find there -maxdepth 1 -name '.forge-copy-??????')
    [ -n "$stale" ]
    # One that a process has locked, one that is not like ours, and one of another user.
    mkdir -m 700 there/.forge-copy-locked there/.forge-copy-toolong
    echo 1 >there/.forge-copy-locked/x
    ln -s "$T" there/.forge-copy-link00
    echo 1 >there/.forge-copy-file00
    others=()
    if is_root; then
        mkdir -m 700 there/.forge-copy-others
        chown 12345 there/.forge-copy-others
        others=(there/.forge-copy-others)
    fi
    exec {lock}<there/.forge-copy-locked
    flock -n "$lock"
    run forge outputs fit --copy there
    [ "$status" -eq 0 ]
    [ "$(cat there/d/x there/y | xargs)" = "1 2" ]
    [ ! -e "$stale" ]
    for name in locked/x toolong link00 file00; do
        [ -e "there/.forge-copy-$name" ]
    done
    for name in "${others[@]}"; do [ -e "$name" ]; done
    # Its process is gone now.
    exec {lock}<&-
    run forge outputs fit --copy there --force
    [ "$status" -eq 0 ]
    [ ! -e there/.forge-copy-locked ]
    [ -e there/.forge-copy-toolong ]
}

@test "what a killed --copy left beside a directory that was not there yet is removed too" {
    skip_unless "strace is not installed" command -v strace
    forge run -q --id fit -- sh -c 'echo 2 >y'
    mkdir place
    killed_copy place/new
    [ ! -e place/new ]
    [ "$(find place -name '.forge-copy-*' | wc -l)" -ge 1 ]
    forge outputs fit --copy place/new
    [ "$(find place | sort | xargs)" = "place place/new place/new/y" ]
    # And by a run, relative to where one is.
    cd place
    killed_copy other
    [ "$(find . -maxdepth 1 -name '.forge-copy-*' | wc -l)" -eq 1 ]
    forge run -q --copy other -- sh -c 'echo 3 >z'
    [ "$(find . | sort | xargs)" = ". ./new ./new/y ./other ./other/z" ]
}

@test "a file that a script opens by itself, and was not given, is named" {
    mkdir -p data/deep
    touch data/x.csv data/deep/y.rds plain.csv
    echo 'open("data/x.csv")' >fit.py
    run forge run fit.py
    [ "$status" -eq 1 ]
    says "data/x.csv exists here but was not given to the run: add -i data."
    echo 'open("./plain.csv")' >fit.py
    run forge run fit.py
    says "plain.csv exists here but was not given to the run: add -i plain.csv."
    run forge run -i plain.csv fit.py
    [ "$status" -eq 0 ]
    # The last one ended it.
    printf 'try: open("plain.csv")\nexcept OSError as e: print(e, file=__import__("sys").stderr)\nopen("data/x.csv")\n' >fit.py
    run forge run fit.py
    says "add -i data."
    says_not "plain.csv exists"
    skip_unless "R is not installed" command -v Rscript
    echo 'x <- read.csv("data/x.csv")' >fit.R
    run forge run fit.R
    [ "$status" -eq 1 ]
    says "data/x.csv exists here but was not given to the run: add -i data."
    echo 'x <- readRDS("data/deep/y.rds")' >fit.R
    run forge run fit.R
    says "data/deep/y.rds exists here but was not given to the run: add -i data/deep."
}

@test "no such hint where it is not certain, whatever a command writes" {
    mkdir -p data "$T/outside" given
    touch data/x.csv "$T/outside/secret" given/x $'bad\e[31mname' 'sp ace' '$(date)'
    ln -s "$T/outside" link
    ln -s data/x.csv alias.csv
    complain() { run forge run "${OPTS[@]}" -- sh -c 'printf "%s\n" "$1" >&2; exit 1' sh "$1"; [ "$status" -eq 1 ]; }
    for name in "'/etc/passwd'" "'../outside/secret'" "'link/secret'" "'alias.csv'" "'data/../data/x.csv'" \
        "'nothing.csv'" "''" "'" "'data/x.csv" "data/x.csv" "'-i'" "'~'" $'\'bad\e[31mname\'' "'sp ace'" "'\$(date)'" "'.'" \
        "'data/x.csv/'" "'data//x.csv'"; do
        complain "FileNotFoundError: [Errno 2] No such file or directory: $name"
        says_not "add -i"
    done
    # In quotes, but not as something missing.
    complain "read 'data/x.csv'"
    says_not "add -i"
    # Given, or the run succeeded.
    OPTS=(-i given)
    complain "No such file or directory: 'given/x'"
    says_not "add -i"
    OPTS=()
    run forge run -- sh -c 'echo "No such file or directory: '"'data/x.csv'"'" >&2'
    [ "$status" -eq 0 ]
    says_not "add -i"
    # Only the end of the log counts; one line without an end is no line.
    run forge run -q -- sh -c 'echo "No such file or directory: '"'data/x.csv'"'" >&2; yes | head -c 5000 >&2; exit 1'
    [[ "$(forge show --json last | jq -r .completion_notes)" != *"add -i"* ]]
    run forge run -q -- sh -c 'yes | tr -d "\n" | head -c 9000 >&2; printf "No such file or directory: '"'data/x.csv'"'" >&2; exit 1'
    [[ "$(forge show --json last | jq -r .completion_notes)" != *"add -i"* ]]
    complain "No such file or directory: 'data/x.csv'"
    says "add -i data."
}

# pyenv_first PROGRAM...: pyenv is installed, with these programs besides its Python.
pyenv_first() {
    local name
    mkdir -p "$HOME/.pyenv/shims"
    for name in python3 "$@"; do
        printf '#!/bin/sh\n' >"$HOME/.pyenv/shims/$name"
        chmod +x "$HOME/.pyenv/shims/$name"
    done
    PATH=$HOME/.pyenv/shims:$PATH
}

@test "pyenv is spoken of where its Python would have been used, and nowhere else" {
    pyenv_first snakemake pip3
    echo 'print(1)' >fit.py
    for command in "python3 -c 1" "fit.py" "./fit.py" "snakemake" "pip3 list" "python3.99"; do
        # Whether there is such a program in the sandbox is another matter.
        run sh -c "forge run $command; true"
        says "warning: pyenv's Python"
    done
    for command in true "sh -c true" "ls /usr/bin/python3"; do
        # shellcheck disable=SC2086 # words
        run forge run $command
        [ "$status" -eq 0 ]
        says_not pyenv
    done
    # What was activated by hand is spoken of with every command.
    mkdir -p env/bin
    VIRTUAL_ENV=$PWD/env run forge run true
    says "the active environment $PWD/env is not used"
}

@test "an option behind a script that fails: it went to the script" {
    echo 'raise SystemExit(3)' >fit.py
    run forge run fit.py --memory 4G
    [ "$status" -eq 3 ]
    says "--memory 4G after fit.py was given to fit.py; options of forge run come before it."
    run forge run fit.py data.csv --timeout=2h
    says "--timeout=2h after fit.py was given to fit.py"
    run forge run "$PWD/fit.py" --dry-run x
    says "--dry-run after $PWD/fit.py was given"
    mkdir data
    run forge run fit.py -i data
    says "-i data after fit.py was given to fit.py"
    id=$(forge submit fit.py --memory 4G)
    run forge wait "$id"
    says "--memory 4G after fit.py was given"
}

@test "an option behind a script: no word where the script may have it, or nothing failed" {
    echo 'raise SystemExit(3)' >fit.py
    for words in "--memry 4G" "--memory4 G" "-- --memory 4G" "--help" "-x" "memory"; do
        # shellcheck disable=SC2086 # words
        run forge run fit.py $words
        [ "$status" -eq 3 ]
        says_not "come before it"
    done
    run forge run --memory 64M fit.py
    says_not "come before it"
    run forge run -- sh -c 'exit 3' sh --memory 4G
    says_not "come before it"
    printf 'import argparse\np = argparse.ArgumentParser()\np.add_argument("--memory")\np.parse_args()\nraise SystemExit(3)\n' >own.py
    run forge run own.py --memory 4G
    [ "$status" -eq 3 ]
    says_not "come before it"
    # shellcheck disable=SC2016 # the script's
    echo 'while getopts i: name; do :; done; exit 3' >own.sh
    run forge run own.sh -i data
    [ "$status" -eq 3 ]
    says_not "come before it"
    echo 'print(1)' >fit.py
    run forge run fit.py --memory 4G
    [ "$status" -eq 0 ]
    says_not "come before it"
}

@test "forge run jupyter: how a notebook is run" {
    echo '{}' >fit.ipynb
    mkdir -p prefix/bin
    printf '#!/bin/sh\n' >prefix/bin/tool
    chmod 755 prefix/bin/tool
    run -127 forge run jupyter-not-installed lab
    says "Not started: jupyter-not-installed cannot be executed in the sandbox, and a notebook is run without it: \`forge run NOTEBOOK.ipynb\`."
    says_not "interpreter"
    run -127 forge run jupyter-not-installed nbconvert --execute fit.ipynb
    says "a notebook is run without it: \`forge run fit.ipynb\`."
    says_not "add -i"
    run -127 forge run -r ./prefix jupyter-not-installed
    says "jupyter-not-installed cannot be executed in runtime $PWD/prefix"
}

@test "post-process of another's run says whose it is" {
    export FORGE_STORE=sqlite:$T/shared.db
    FORGE_HOME=$T/other forge run -q --id fit --post-process 'echo "{}"' -- sh -c 'echo 1 >x'
    run forge post-process fit
    [ "$status" -eq 1 ]
    says "is not of this FORGE_HOME, but of another of yours, $T/other"
    says "FORGE_HOME=$T/other"
    FORGE_HOME=$T/other run forge post-process fit
    [ "$status" -eq 0 ]
    python3 - "$T/shared.db" <<'PY'
import json, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
for run_id, record in db.execute("SELECT run_id, record FROM runs").fetchall():
    db.execute("UPDATE runs SET record = ?, username = 'alice' WHERE run_id = ?",
               (json.dumps(dict(json.loads(record), user="alice")), run_id))
db.commit()
PY
    id=$(forge ps -qa --user alice | tail -1)
    run forge post-process "$id"
    [ "$status" -eq 1 ]
    says "run $id is alice's: kept in the owner's FORGE_HOME, $T/other"
    says "Only its owner can repeat its post-processing"
}
