#!/usr/bin/env bats
# What the documents show to type: it exists, it is executed here, and it prints what is shown.
# SPDX-License-Identifier: Apache-2.0

load ../lib/newcomer.bash
. "$BATS_TEST_DIRNAME/../lib/postgres.bash"

setup() {
    setup_newcomer
    top=$(realpath "$BATS_TEST_DIRNAME/../..")
    commands=$top/tests/tools/doc-commands.py
}

teardown() {
    forge kill -f --now '*' >/dev/null 2>&1 || true
    patiently nothing_active
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
    # Of a manual page in section 5 every example is one.
    awk -v to="$T/block-man" '/^# EXAMPLES/ { on = 1 } /^```/ { is = on && !is; n += is; next } is { print >(to n ".yaml") }' \
        "$top"/man/*.5.scd
    [ -e "$T/block1.yaml" ]
    [ -e "$T/block-man1.yaml" ]
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

# What cannot be typed here as it stands: "FILE: COMMAND", then "+ words" that it leaves out, or "- why it is not executed".
exceptions() {
    sed 's/^ *//' <<'EOF'
        README.md: cd examples/lambda
        - both blocks that begin so have a test of their own above
        README.md: make demo
        - the stage demo of `make test`
        README.md: make && sudo make install
        - writes to this host; install.bats installs into a directory
        README.md: forge token revoke
        - needs the id of a token; tests/server/serve.bats has one
        docs/RECORDS.md: forge show --chart
        + RUN
        README.md: forge runtime show
        + data-ml
        README.md: forge runtime lock
        + data-ml
        README.md: forge runtime history
        + data-ml
        docs/ARCHITECTURE.md: forge run --dry-run
        + true
        docs/BENCH.md: forge run --dry-run
        + true
        docs/BENCH.md: forge run --executor docker
        - needs a container engine; tests/executor has them
        docs/BENCH.md: forge run --executor slurm
        - needs a Slurm cluster; tests/executor has one
        docs/EXECUTORS.md: forge kill --now
        + RUN
        docs/EXECUTORS.md: forge executor list
        - needs a container engine; tests/executor has them
        docs/EXECUTORS.md: forge executor check docker
        - needs a container engine; tests/executor has them
        docs/EXECUTORS.md: forge submit --executor slurm --memory 4G --cpus 2 --timeout 2h -- sh -c 'sort -u words > sorted'
        - needs a Slurm cluster; tests/executor has one
        docs/SECURITY.md: forge executor check docker
        - needs a container engine; tests/executor has them
        README.md: forge run --executor docker ...
        - needs a container engine; tests/executor has them
        docs/HACKING.md: make
        - builds and tests the tree that this test belongs to
        docs/HOSTS.md: sysctl user.max_user_namespaces
        - asks for settings that this kernel may not have
        docs/HOSTS.md: loginctl enable-linger "$USER"
        - needs systemd as process 1
        docs/HOSTS.md: mkdir -p /etc/systemd/system/user@.service.d
        - changes this host; setup.bats checks the same file, made by forge setup
        docs/HOSTS.md: systemd-run --user --scope -p Delegate=yes forge run ...
        - needs systemd as process 1; tests/guest/systemd-test.sh does it
        docs/HOSTS.md: cd /sys/fs/cgroup
        - needs a unified hierarchy that is ours alone; tests/guest/places-test.sh has one
        docs/HOSTS.md: user=alice
        - moves the shell into groups of this host; tests/tools/delegate.sh does it below its own
        docs/HOSTS.md: forge setup --user alice
        - changes this host; tests/guest/setup-test.sh does it in a guest
        docs/HOSTS.md: forge setup --user NAME
        - changes this host; tests/guest/setup-test.sh does it in a guest
        docs/HOSTS.md: forge setup --workdir-quota 100G
        - changes this host; tests/guest/setup-test.sh does it in a guest
        docs/MIGRATING.md: pip install ./python
        - tests/python/test_package.py does it
        docs/RECORDS.md: forge outputs --copy
        + copies RUN
        docs/RUNTIMES.md: forge run --explain-limits
        + true
        docs/SERVER.md: forge serve
        - goes on until it is ended; tests/server/serve.bats does it
        docs/TEAM.md: install -d /srv/forge
        - team.bats executes it
        docs/TEAM.md: export FORGE_HOME=/srv/forge/alice
        - team.bats executes it
        man/forge-serve.1.scd: forge serve --listen 127.0.0.1:9000
        - goes on until it is ended; tests/server/serve.bats does it
        man/forge-setup.1.scd: forge setup --user alice --workdir-quota 100G && forge doctor
        - changes this host; tests/guest/setup-test.sh does it in a guest
EOF
}

# units FILE...: everything in them that can be typed; $T/units/index lists it.
units() {
    mkdir "$T/units"
    # shellcheck disable=SC2068 # patterns of names in there
    (cd "$top" && "$commands" units "$T/units" $@)
    [ -s "$T/units/index" ]
}

# make_project DIR: with the files that the documents speak of; the current directory is it.
make_project() {
    mkdir -p "$1/data" "$1/image/etc"
    cd "$1"
    printf 'x,y\n1,2\n2,4\n' >data/x.csv
    echo 'print("warned", file=__import__("sys").stderr); open("fit.json", "w").write("{}")' >fit.py
    echo 'import os; os.mkdir("outputs"); open("outputs/model", "w").write("1")' >train.py
    echo 'print("{}")' >summarise.py
    printf '#!/bin/sh\nexit 0\n' >step.sh
    # It has what the page says that it is given: a pipe, a variable, and one that is passed on.
    printf '#!/bin/sh\n[ "$MODE$LICENSE_KEY $(wc -l)" = "fastsecret 2" ]\n' >count
    chmod 755 step.sh count
    printf 'a\nb\n' | gzip >reads.gz
    echo 'print(1)' >model.R
    echo 'profiles: {align: {memory: 1G}}' >new.yaml
    echo 'analyst:x:1000:1000::/home/analyst:/bin/sh' >image/etc/passwd
    jq -n '{nbformat: 4, nbformat_minor: 4, metadata: {kernelspec: {name: "python3", display_name: "Python 3"}},
        cells: [{cell_type: "code", execution_count: null, outputs: [], source: "alpha = 1", metadata: {tags: ["parameters"]}}]}' \
        >analysis.ipynb
    printf 'params: {min_quality: 20}\nsteps: {STEP: {run: "echo $min_quality >o", outputs: [o]}}\n' >pipeline.yaml
    ln -s "$top/examples" examples
    chmod -R go+rX .
}

# The runtimes that they name: the one of RUNTIMES.md as it stands there, and the one for notebooks that comes with forge.
make_runtimes() {
    skip_unless "needs the Python packages of docs/RUNTIMES.md and of notebooks" \
        /usr/bin/python3 -c 'import numpy, pandas, scipy, sklearn, matplotlib, nbclient, nbformat, ipykernel'
    export PATH=$T/bin:/usr/bin:/bin:/usr/sbin:/sbin FORGE_DATADIR=$T/data
    mkdir -p "$XDG_CONFIG_HOME/forge/runtimes.d" "$T/data/runtimes.d"
    awk '/^```/ { if (is) exit; is = $0 == "```yaml"; next } is' "$top/docs/RUNTIMES.md" \
        >"$XDG_CONFIG_HOME/forge/runtimes.d/data-ml.yaml"
    cp "$top"/examples/runtimes/{genomics,notebook,r-base}.yaml "$T/data/runtimes.d/"
}

# make_runs SCRIPT: those that it is about. The last is the one that it means.
make_runs() {
    local post=()
    if grep -q 'forge post-process' "$1"; then
        post=(-i summarise.py --post-process 'python3 summarise.py')
    fi
    forge run -q --id sweep-1 -- sh -c 'echo 1 >x' || return
    forge run -q --id fit -i data "${post[@]}" fit.py data/x.csv || return
    if grep -q 'forge health clear' "$1"; then
        mkdir -p "$FORGE_HOME/quarantine"
        touch "$FORGE_HOME/quarantine/$(of last .run_id)"
    fi
    if grep -q 'forge resume' "$1"; then
        forge run -q --id fit --memory 32M -- python3 -c 'x = bytearray(64 << 20)' || [ "$?" -eq 137 ] || return
    fi
    if grep -q 'forge kill' "$1"; then
        forge submit --id goes -- sleep 300 >/dev/null || return
    fi
}

# filled SCRIPT WORDS: with a run, a runtime, a user and places of this test instead of those that a page invents.
filled() {
    sed "\$ s|\$|${2:+ $2}|" "$1" | sed -E "s/\[OPTIONS\] //; s/\[(--|-f)\]/\1/; s/\[COMMAND\]/run/; s/COMMAND\.\.\./true/
        s/\b(RUN|01m7f)\b/$id/g; s/\b(RUNTIME|NAME)\b/data-ml/; s/\bDIR\b/copies/; s/\bFILE\b/pipeline.yaml/; s/'exit N'/'exit 0'/
        s/ \.\.\.\$/ python3 --version/; s/\balice\b/nobody/; s|/etc/forge/|$T/etc/|; s/^watch -n 60 //"
}

# did COMMAND: what its status does not say.
did() {
    case $1 in
    *'forge kill'*) [ "$(of "$id" .status)" = cancelled ] ;;
    'forge rm --outputs-only'*) [ -z "$(forge outputs sweep-1 --copy freed >&2; ls freed)" ] ;;
    'forge rm '*) ! forge show "$id" ;;
    'forge outputs --copy'*'sweep-*'*) [ -n "$(find results -mindepth 2 -name x)" ] ;;
    'forge outputs --copy'*) [ -e results/fit.json ] || [ -e copies/fit.json ] ;;
    *train.py*) [ -e results/outputs/model ] ;;
    *'install -m 644'*) [ -e "$T/etc/forge.yaml" ] ;;
    *'--root ./image'*) [ -e image/etc/forge/setup.json ] ;;
    make*) [ -e results/fit.json ] ;;
    esac
}

# execute N FILE COMMAND WORDS: one unit, in a project of its own.
execute() {
    local rc=0 unit=$T/units/$1
    make_project "$T/project-$1"
    make_runs "$unit.sh" || return
    # An example's page is about the directory that it lies in.
    [[ "$2" != examples/* ]] || cp -rT "$top/${2%/*}" .
    id=$(forge show --json last | jq -r .run_id)
    filled "$unit.sh" "$4" >"$T/typed"
    # What asks before it removes something is typed at a terminal.
    if grep -q 'forge rm' "$T/typed"; then
        script -qec "bash -e -o pipefail $T/typed" /dev/null <<<y >"$T/said" 2>&1 || rc=$?
    else
        bash -e -o pipefail "$T/typed" >"$T/said" 2>&1 </dev/null || rc=$?
    fi
    # On a host that lacks something this is the status, as the page says.
    if [ "$rc" -eq 1 ] && grep -q 'forge doctor' "$T/typed" && ! forge doctor >/dev/null; then
        rc=0
    fi
    [ "$rc" != 0 ] || did "$3" >>"$T/said" 2>&1 || rc="it did not do that"
    if [ "$rc" = 0 ] && [ -e "$unit.shown" ]; then
        diff <(as_shown <"$unit.shown") <(as_shown <"$T/said") || rc="it prints something else"
    fi
    [ "$rc" = 0 ] || { echo "$2: $3: $rc"; cat "$T/typed" "$T/said"; return 1; }
}

# execute_units FILE...: all of them, whatever becomes of the others.
execute_units() {
    local n file command row failed=0 count=0
    make_runtimes
    mkdir -p "$T/etc"
    export LICENSE_KEY=secret
    units "$@"
    while IFS=$'\t' read -r n file command <&9; do
        row=$(exceptions | grep -FxA1 -- "$file: $command" | tail -n 1) || true
        [ "${row:0:1}" != - ] || continue
        execute "$n" "$file" "$command" "${row:2}" || failed=$((failed + 1))
        count=$((count + 1))
    done 9<"$T/units/index"
    echo "$count executed, $failed failed"
    [ "$failed" -eq 0 ]
    [ "$count" -ge 20 ]
}

@test "every command in a document is executed" {
    execute_units README.md 'docs/*.md' 'examples/*/README.md'
}

@test "every example of a manual page is executed" {
    execute_units 'man/*.scd'
}

@test "what is not executed as it stands is still in the documents" {
    units README.md 'docs/*.md' 'examples/*/README.md' 'man/*.scd'
    cut -f2,3 "$T/units/index" | sed 's/\t/: /' >known
    exceptions | grep -v '^[-+] ' >rows
    run ! grep -vxFf known rows
    # Each has a reason, or the words that it leaves out.
    [ "$(exceptions | grep -c '^[-+] [^ ]')" -eq "$(wc -l <rows)" ]
}
