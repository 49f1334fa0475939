#!/usr/bin/env bats
# The completion scripts: they parse, and bash offers what it should.

setup() {
    : "${FORGE:?set FORGE to the program under test}"
    FORGE=$(realpath "$FORGE")
    export FORGE
}

# complete WORD...: what bash offers for the last word, sorted, on one line.
complete_words() {
    # The script's own "complete -F" and compopt need an interactive completion.
    # shellcheck disable=SC2016 # for the inner shell
    bash -c 'source <("$FORGE" completion bash)
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _forge
        printf "%s\n" "${COMPREPLY[@]}" | sort | xargs' bash "$@"
}

@test "the bash script parses" {
    "$FORGE" completion bash >"$BATS_TEST_TMPDIR/forge.bash"
    bash -n "$BATS_TEST_TMPDIR/forge.bash"
}

@test "the zsh script parses" {
    command -v zsh >/dev/null || skip "no zsh here to parse it with"
    "$FORGE" completion zsh >"$BATS_TEST_TMPDIR/_forge"
    zsh -n "$BATS_TEST_TMPDIR/_forge"
}

@test "an unknown shell is wrong use and names those there are" {
    run "$FORGE" completion fish
    [ "$status" -eq 2 ]
    [[ "${lines[0]}" == "forge: completion: unknown word 'fish' (have: bash, zsh)"* ]]
}

@test "bash offers the commands" {
    [ "$(complete_words forge doc)" = doctor ]
    [[ "$(complete_words forge '')" == *"config diff doctor executor gc health help kill logs mcp metrics outputs pipeline post-process ps rerun resume rm run runtime serve setup show submit token top verify wait"* ]]
}

@test "bash offers the options of the command at hand" {
    [ "$(complete_words forge run --mem)" = --memory ]
    [ "$(complete_words forge gc --)" = "--config --dry-run --help --store" ]
}

@test "bash offers the words of an option, in both spellings" {
    [ "$(complete_words forge run --network '')" = "host none" ]
    [ "$(complete_words forge run --network =)" = "host none" ]
    [ "$(complete_words forge run --network = h)" = host ]
}

@test "bash offers files for a file" {
    touch "$BATS_TEST_TMPDIR/one.csv"
    cd "$BATS_TEST_TMPDIR"
    [ "$(complete_words forge run -i one)" = one.csv ]
    [ "$(complete_words forge run --memory 2G --input one)" = one.csv ]
    [ "$(complete_words forge config check one)" = one.csv ]
}

@test "bash offers no options of forge after the command of run" {
    cd "$BATS_TEST_TMPDIR"
    [ -z "$(complete_words forge run ls --mem)" ]
    [ -z "$(complete_words forge run -- --mem)" ]
}

@test "bash offers the words of a command, with options around" {
    [ "$(complete_words forge config '')" = "check keys show" ]
    [ "$(complete_words forge config show --j)" = --json ]
    [ "$(complete_words forge completion z)" = zsh ]
}
