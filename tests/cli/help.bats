#!/usr/bin/env bats
# What every user meets first: help, version, near misses, usage errors, and that the tables,
# the manual pages and the completions say the same.

setup() {
    : "${FORGE:?set FORGE to the program under test}"
    bats_require_minimum_version 1.5.0
    man=$(realpath "$BATS_TEST_DIRNAME/../../man")
    # No configuration of the caller's.
    FORGE=$(realpath "$FORGE") HOME=$BATS_TEST_TMPDIR
    export FORGE HOME
    unset FORGE_CONFIG
    cd "$BATS_TEST_TMPDIR"
}

# The commands of `forge --help`, one a line.
commands() {
    "$FORGE" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'
}

# The long options of a command, one a line, from its help.
options() {
    "$FORGE" help "$1" | sed -nE 's/^ +(-., )?(--[a-z][a-z-]*).*/\2/p'
}

@test "forge alone shows the help on standard error and exits 2" {
    run --separate-stderr "$FORGE"
    [ "$status" -eq 2 ]
    [ -z "$output" ]
    [[ "$stderr" == "usage: forge COMMAND"* ]]
}

@test "--help, -h and help show the same on standard output" {
    run --separate-stderr "$FORGE" --help
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    help=$output
    [[ "$help" == "usage: forge COMMAND"* ]]
    run "$FORGE" -h
    [ "$output" = "$help" ]
    run "$FORGE" help
    [ "$output" = "$help" ]
}

@test "--version prints the name and a version" {
    run "$FORGE" --version
    [ "$status" -eq 0 ]
    [[ "$output" =~ ^forge\ [0-9]+\.[0-9]+\.[0-9]+ ]]
}

@test "hidden commands are not listed" {
    [ -n "$(commands)" ]
    run "$FORGE" --help
    [[ "$output" != *__man* ]]
}

@test "every command: NAME --help is help NAME" {
    for cmd in $(commands); do
        run "$FORGE" help "$cmd"
        [ "$status" -eq 0 ]
        help=$output
        [[ "$help" == "usage: forge $cmd"* ]]
        run "$FORGE" "$cmd" --help
        [ "$status" -eq 0 ]
        [ "$output" = "$help" ]
    done
}

@test "an unknown command names the nearest" {
    run "$FORGE" docter
    [ "$status" -eq 2 ]
    [ "${lines[0]}" = "forge: unknown command 'docter' (did you mean doctor?)" ]
}

@test "an unknown command far from all names none" {
    run "$FORGE" zzzzzzzz
    [ "$status" -eq 2 ]
    [ "${lines[0]}" = "forge: unknown command 'zzzzzzzz'" ]
}

@test "help of an unknown command exits 2" {
    run "$FORGE" help frobnicate
    [ "$status" -eq 2 ]
    [ "${lines[0]}" = "forge: unknown command 'frobnicate'" ]
}

@test "an unknown option names the nearest" {
    run "$FORGE" run --memry 2G true
    [ "$status" -eq 2 ]
    [ "${lines[0]}" = "forge: unknown option '--memry' (did you mean --memory?)" ]
    [ "${lines[1]}" = "usage: forge run [OPTIONS] [--] COMMAND [ARG...]" ]
}

@test "a long option with one dash is recognised" {
    run "$FORGE" run -memory 2G true
    [ "$status" -eq 2 ]
    [ "${lines[0]}" = "forge: unknown option '-memory' (did you mean --memory?)" ]
}

@test "an abbreviated option is unknown" {
    run "$FORGE" run --mem 2G true
    [ "$status" -eq 2 ]
    [[ "${lines[0]}" == "forge: unknown option '--mem'"* ]]
}

@test "an unknown letter is named, also inside a cluster" {
    run "$FORGE" run -qx true
    [ "$status" -eq 2 ]
    [ "${lines[0]}" = "forge: unknown option '-x'" ]
}

@test "a missing value is an error that says what is missing" {
    run "$FORGE" run --memory
    [ "$status" -eq 2 ]
    [ "${lines[0]}" = "forge: option '--memory' needs a value (SIZE)" ]
}

@test "a flag takes no value" {
    run "$FORGE" run --keep=yes true
    [ "$status" -eq 2 ]
    [ "${lines[0]}" = "forge: option '--keep' takes no value" ]
}

@test "an option given twice is an error" {
    run "$FORGE" run --memory 1G --memory=2G true
    [ "$status" -eq 2 ]
    [ "${lines[0]}" = "forge: option '--memory' is given twice" ]
}

@test "run without a command is wrong use" {
    for args in "" "--" "-q" "--memory 2G"; do
        # shellcheck disable=SC2086 # words on purpose
        run "$FORGE" run $args
        [ "$status" -eq 2 ]
        [[ "$output" == *"usage: forge run [OPTIONS] [--] COMMAND [ARG...]"* ]]
    done
}

@test "a word too many is wrong use" {
    for cmd in doctor gc "help run" "completion bash" "config show"; do
        # shellcheck disable=SC2086 # words on purpose
        run "$FORGE" $cmd surplus
        [ "$status" -eq 2 ]
        [[ "${lines[0]}" == *"unexpected argument 'surplus'" ]]
    done
}

@test "run: a bad value exits 125 and names the option" {
    while read -r option value; do
        run "$FORGE" run "--$option" "$value" true
        [ "$status" -eq 125 ]
        [[ "${lines[0]}" == "forge: --$option: "* ]]
    done <<-'END'
	memory 2X
	memory 0
	cpus -1
	timeout soon
	pids 1.5
	id ../x
	env 1A=2
	network lan
	profile nope
	END
}

@test "run: a bad size is explained" {
    run "$FORGE" run --memory 2X true
    [[ "${lines[0]}" == "forge: --memory: '2X' is not a size ("* ]]
}

@test "options may follow the words of config" {
    run "$FORGE" config keys --json
    [ "$status" -eq 0 ]
    [[ "$output" == "["* ]]
}

@test "config without a word, or with an unknown one, is wrong use" {
    run "$FORGE" config
    [ "$status" -eq 2 ]
    run "$FORGE" config shwo
    [ "$status" -eq 2 ]
    [ "${lines[0]}" = "forge: config: unknown word 'shwo' (have: check, show, keys); did you mean 'show'?" ]
}

@test "config check: a missing file exits 1" {
    run "$FORGE" config check "$BATS_TEST_TMPDIR/none.yaml"
    [ "$status" -eq 1 ]
    [[ "${lines[0]}" == "forge: "*"none.yaml"* ]]
}

@test "config check: a good file is ok, a bad one has a place" {
    echo 'read_only: []' >"$BATS_TEST_TMPDIR/good.yaml"
    run "$FORGE" config check "$BATS_TEST_TMPDIR/good.yaml"
    [ "$status" -eq 0 ]
    [ "$output" = "ok: $BATS_TEST_TMPDIR/good.yaml" ]
    printf 'host:\n  maxx: 1\n' >"$BATS_TEST_TMPDIR/bad.yaml"
    run "$FORGE" config check "$BATS_TEST_TMPDIR/bad.yaml"
    [ "$status" -eq 1 ]
    [[ "${lines[0]}" == "forge: $BATS_TEST_TMPDIR/bad.yaml:2:3: "* ]]
}

@test "control characters in an argument do not reach the terminal" {
    run "$FORGE" $'\033[31mred'
    [ "$status" -eq 2 ]
    [ "${lines[0]}" = "forge: unknown command '?[31mred'" ]
}

@test "a full disk under standard output is noticed" {
    [ -c /dev/full ] || skip "no /dev/full here"
    run sh -c '"$FORGE" --help >/dev/full'
    [ "$status" -eq 1 ]
    [[ "$output" == "forge: write to standard output: "* ]]
}

@test "every option is in the manual page's list" {
    for cmd in $(commands); do
        text=$("$FORGE" __man-options "$cmd")
        [ -n "$(options "$cmd")" ]
        for option in $(options "$cmd"); do
            [[ "$text" == *"*$option*"* ]] || { echo "$cmd $option"; false; }
        done
    done
}

@test "every option of a manual page's list is in the help" {
    for cmd in $(commands); do
        listed=$("$FORGE" __man-options "$cmd" | grep -o '^\*.*' | grep -o -e '--[a-z-]*' | sort)
        [ "$listed" = "$(options "$cmd" | sort)" ]
    done
}

@test "every option is in both completion scripts" {
    bash=$("$FORGE" completion bash) zsh=$("$FORGE" completion zsh)
    for cmd in $(commands); do
        row=$(grep "^	'$cmd') REPLY='.*--" <<<"$bash")
        body=$(sed -n "/^_forge_$cmd()/,/^}/p" <<<"$zsh")
        for option in $(options "$cmd"); do
            [[ "$row" == *" $option "* || "$row" == *"'$option "* ]] ||
                { echo "bash: $cmd $option"; false; }
            [[ "$body" == *"$option"[\'=,\}]* ]] || { echo "zsh: $cmd $option"; false; }
        done
    done
}

@test "every command has its page, or is named in forge(1)" {
    listed=$("$FORGE" __man-commands)
    for cmd in $(commands); do
        [[ "$listed" == *"*$cmd*"* ]]
    done
    for page in run doctor gc config; do
        [ -f "$man/forge-$page.1.scd" ]
    done
}

@test "every manual page takes its list from the tables and has its sections" {
    for page in "$man"/*.scd; do
        grep -q -x -e '@OPTIONS@' -e '@CONFIG@' "$page"
        for section in NAME SYNOPSIS DESCRIPTION OPTIONS 'EXIT STATUS' EXAMPLES 'SEE ALSO'; do
            grep -q -x "# $section" "$page" || { echo "$page: no $section"; false; }
        done
    done
}

@test "every configuration key is in the manual page's list" {
    listed=$("$FORGE" __man-config | tr -d '\\')
    for key in $("$FORGE" config keys | awk 'NR > 1 { print $1 }'); do
        [[ "$listed" == *"*$key*"* ]] || { echo "$key"; false; }
    done
}
