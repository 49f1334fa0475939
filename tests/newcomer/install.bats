#!/usr/bin/env bats
# What `meson install` puts where, from the build that is tested, and that the installed program finds it there.
# SPDX-License-Identifier: Apache-2.0

load ../lib/newcomer.bash

setup() {
    setup_newcomer
    top=$(realpath "$BATS_TEST_DIRNAME/../..")
    # In a build tree the program lies three directories below its top.
    build=${FORGE_BUILD:-$(dirname "$FORGE")/../../..}
    skip_unless "meson is not installed" command -v meson
    skip_unless "FORGE_BUILD is no build directory" test -e "$build/build.ninja"
    # Whatever prefix the build has; nothing is compiled.
    run meson install --no-rebuild --quiet -C "$build" --destdir "$T/dest"
    echo "$output"
    [ "$status" -eq 0 ]
    program=$(find "$T/dest" -path '*/bin/forge')
    [ -x "$program" ]
    prefix=${program%/bin/forge}
}

teardown() { teardown_forge; }

@test "installed: the documents, and all that they link to" {
    run "$top/tests/tools/docs.py" "$prefix/share/doc/forge"
    echo "$output"
    [ "$status" -eq 0 ]
    (cd "$top" && ls README.md docs/*.md) >want
    (cd "$prefix/share/doc/forge" && ls README.md docs/*.md) | diff want -
    # Somebody else than root reads them.
    [ -z "$(find "$prefix/share" ! -perm -o+r)" ]
}

@test "installed: every manual page, where man looks" {
    skip_unless "needs scdoc and man" command -v scdoc man
    for page in "$top"/man/*.scd; do
        name=$(basename "$page" .scd)
        run man -M "$prefix/share/man" -w "${name##*.}" "${name%.*}"
        [ "$status" -eq 0 ]
        [ "$output" = "$prefix/share/man/man${name##*.}/$name" ]
        run ! grep -q '@[A-Z]*@' "$output"
    done
}

@test "installed: completions, where the shells look" {
    file=$prefix/share/bash-completion/completions/forge.bash
    [[ "$(bash -c 'source "$1" && complete -p forge' bash "$file")" == *"-F _forge forge" ]]
    "$program" completion bash | diff "$file" -
    [ "$(head -n 1 "$prefix/share/zsh/site-functions/_forge")" = "#compdef forge" ]
}

@test "installed: forge finds its runtimes, its probe and what runs notebooks" {
    unset FORGE_DATADIR
    run "$program" runtime list --json
    [ "$status" -eq 0 ]
    for file in "$top"/examples/runtimes/*.yaml; do
        from=$(jq -r --arg name "$(basename "$file" .yaml)" '.[] | select(.name == $name) | .declared_in' <<<"$output")
        [ "$(realpath "$from")" = "$prefix/share/forge/runtimes.d/${file##*/}" ]
    done
    run "$program" doctor
    says_not "not installed"
    says memory
    echo '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}' >fit.ipynb
    run "$program" run --dry-run fit.ipynb
    [ "$status" -eq 0 ]
    says "$prefix/libexec/forge/run_notebook.py"
}
