#!/usr/bin/env bats
# What the documents say that somebody can type: it can be typed, and README.md's own does what it shows.
# SPDX-License-Identifier: Apache-2.0

load ../lib/newcomer.bash
. "$BATS_TEST_DIRNAME/../lib/postgres.bash"

setup() {
    setup_newcomer
    top=$(realpath "$BATS_TEST_DIRNAME/../..")
    commands=$top/tests/tools/doc-commands.py
}

teardown() {
    pg_remove
    teardown_forge
}

@test "every command in a document exists, with its options" {
    run "$commands" check "$FORGE" "$top"/README.md "$top"/docs/*.md "$top"/man/*.scd "$top"/examples/*/README.md
    echo "$output"
    [ "$status" -eq 0 ]
    # And the check itself finds what does not.
    printf '```sh\nforge run --memry 1G x\nforge docter\nid=$(forge submit --nope -- x)\n```\nas `forge ps --al` says\n' >wrong.md
    run "$commands" check "$FORGE" wrong.md
    [ "$status" -eq 1 ]
    says "wrong.md:2: 'forge run' has no option --memry"
    says "wrong.md:3: no command 'docter'"
    says "wrong.md:4: 'forge submit' has no option --nope"
    says "wrong.md:6: 'forge ps' has no option --al"
}

@test "every configuration in a document is one" {
    awk -v to="$T/block" '/^```/ { is = !is && $0 == "```yaml"; n += is; next } is { print >(to n ".yaml") }' \
        "$top"/README.md "$top"/docs/*.md
    [ -e "$T/block1.yaml" ]
    for file in "$T"/block*.yaml; do
        run forge config check "$file"
        cat "$file"
        echo "$output"
        [ "$status" -eq 0 ]
    done
}

# as_shown: without what is different each time: times, sizes, ids, who was seen to be the largest.
as_shown() {
    sed -E 's/ \(largest: [^)]*\)//; s/[0-9.]+ (ms|s|B|KiB|MiB)\b/#/g; s/[0-9a-z]{26}/ID/g' | grep -v '^$'
}

@test "README.md: the first example prints what is shown" {
    genome=/usr/share/doc/bowtie2/examples/reference/lambda_virus.fa.gz
    skip_unless "needs Debian's bowtie2-examples" test -e "$genome"
    cp -r "$top/examples" .
    "$commands" shell "$top/README.md" 1 >typed
    # One after the other, as at a prompt: the status of each is that of the next line's $?.
    bash typed >said 2>&1
    "$commands" shown "$top/README.md" 1 | as_shown >"$T/want"
    as_shown <said | diff "$T/want" -
}

@test "README.md: submit, follow, wait, show, list, and a team's database" {
    genome=/usr/share/doc/bowtie2/examples/reference/lambda_virus.fa.gz
    skip_unless "needs Debian's bowtie2-examples" test -e "$genome"
    skip_unless "no PostgreSQL server" pg_bin
    pg_make
    cp -r "$top/examples" .
    "$commands" shell "$top/README.md" 2 >typed
    PGHOST=$FORGE_PG_DIR PGUSER=forge run bash -e typed
    echo "$output"
    [ "$status" -eq 0 ]
    says "GC content"
    says "Succeeded"
    says "OUTPUT"
}
