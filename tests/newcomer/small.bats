#!/usr/bin/env bats
# Small things that somebody meets in the first week.
# SPDX-License-Identifier: Apache-2.0

load ../lib/newcomer.bash

setup() {
    setup_newcomer
    elsewhere=
}

teardown() {
    forge kill -f --now '*' >/dev/null 2>&1 || true
    [ -z "$elsewhere" ] || rm -rf "$elsewhere"
    teardown_forge
}

# siblings: in the current directory, a script that imports what lies beside it.
siblings() {
    mkdir -p pkg
    echo 'def f(): return "helped"' >helper.py
    echo 'from helper import f' >pkg/__init__.py
    printf 'import helper\nprint(helper.f())\n' >fit.py
    printf 'import pkg\nprint(pkg.f())\n' >packed.py
    chmod -R go+rX .
    run forge run -i helper.py fit.py
    [ "$status" -eq 0 ]
    says helped
    run forge run -i . fit.py
    [ "$status" -eq 0 ]
    says helped
    run forge run -i helper.py -i pkg packed.py
    [ "$status" -eq 0 ]
    says helped
    run forge run -i helper.py -i pkg/__init__.py packed.py
    [ "$status" -eq 0 ]
    says helped
    run forge run fit.py
    [ "$status" -eq 1 ]
    says "No module named 'helper'"
}

@test "a script imports its sibling, below /tmp" {
    elsewhere=$(mktemp -d /tmp/forge-siblings-XXXXXX)
    cd "$elsewhere"
    siblings
    # From another directory too.
    cd "$T"
    run forge run -i "$elsewhere/helper.py" "$elsewhere/fit.py"
    [ "$status" -eq 0 ]
    says helped
}

@test "a script imports its sibling, in /var/tmp" {
    elsewhere=$(mktemp -d /var/tmp/forge-siblings-XXXXXX)
    cd "$elsewhere"
    siblings
}

@test "a script imports its sibling, in a directory of no such kind" {
    skip_unless "only root can do this" is_root
    elsewhere=$(mktemp -d /srv/forge-siblings-XXXXXX)
    cd "$elsewhere"
    siblings
}

@test "an input of a run that never started was not hashed, and says so" {
    echo 'host: {budget: {cpus: 1, memory: 4G}}' >forge.yaml
    echo 1 >data
    forge submit --id holds -- sleep 300
    forge submit --id waits -i data -- cat data
    patiently sh -c '[ "$(forge ps -q --status queued | wc -l)" -eq 1 ]'
    forge kill --now waits
    run forge show waits
    says "not hashed: never started"
    forge kill --now holds
}

@test "every example of a manual page keeps its lines" {
    skip_unless "needs scdoc and man" command -v scdoc man
    man=$BATS_TEST_DIRNAME/../../man
    for page in "$man"/*.scd; do
        # Without the options that forge would print into it; they are no examples.
        grep -v '^@[A-Z]*@$' "$page" | scdoc >"$T/page"
        MANWIDTH=100 man -l "$T/page" | col -bx >"$T/shown"
        sed -n '/^# EXAMPLES/,/^# [^E]/p' "$page" | awk '/^```/ { is = !is; next } is' >"$T/lines"
        [ -s "$T/lines" ] || grep -L '^# EXAMPLES' "$page"
        while IFS= read -r line; do
            grep -qxF -- "${line#"${line%%[! ]*}"}" <(sed 's/^ *//' "$T/shown") ||
                { echo "${page##*/}: $line"; false; }
        done <"$T/lines"
        # Whatever is indented there in another way would be joined.
        run ! grep -P '^\t' <(sed -n '/^# EXAMPLES/,/^# [^E]/p' "$page")
    done
}

# offered WORD...: what bash offers for the last word.
offered() {
    bash -c 'source <(forge completion bash)
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _forge
        printf "%s\n" "${COMPREPLY[@]}" | sort | xargs' bash "$@"
}

@test "bash completes runs, analyses and runtimes" {
    mkdir -p "$XDG_CONFIG_HOME/forge/runtimes.d"
    printf 'runtimes:\n  toy: {kind: system, commands: [sh]}\n' >"$XDG_CONFIG_HOME/forge/runtimes.d/toy.yaml"
    # Before the first run there is nothing, nothing is said, and nothing is made.
    run offered forge show ''
    [ -z "$output" ]
    [ ! -e "$FORGE_HOME" ]
    forge run -q --id fit-one -- true
    id=$(forge ps -q)
    [ "$(offered forge show '')" = "$(printf '%s\n' "$id" fit-one last | sort | xargs)" ]
    [ "$(offered forge logs -f "${id:0:8}")" = "$id" ]
    [ "$(offered forge diff last 'fi')" = fit-one ]
    [ "$(offered forge ps --analysis '')" = fit-one ]
    [ "$(offered forge run -r to)" = toy ]
    [ "$(offered forge run --runtime to)" = toy ]
    [ "$(offered forge runtime show to)" = toy ]
    # A store that is away, or a mistake in the configuration, is not told at the prompt.
    FORGE_STORE=postgresql://nobody@127.0.0.1:1/x run offered forge show ''
    [ -z "$output" ]
    echo 'nonsense: 1' >forge.yaml
    run offered forge show ''
    [ -z "$output" ]
}

@test "zsh completes them too" {
    skip_unless "needs zsh" command -v zsh
    forge run -q --id fit-one -- true
    run zsh -fc 'compdef() { }; compadd() { print -l -- "${(@P)2}" }; source <(forge completion zsh)
        service=forge; _forge_names runs'
    [ "$status" -eq 0 ]
    says fit-one
    says "$(forge ps -q)"
    run zsh -fc 'forge completion zsh'
    says "_forge_names runtimes"
    says "_forge_names analyses"
}
