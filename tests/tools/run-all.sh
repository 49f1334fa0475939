#!/bin/bash
# run-all.sh [STAGE...]: everything that `make test` promises, or only the named stages. Goes
# on after a failure, keeps each stage's output in build/test-logs/, and ends with one line:
# N passed, M failed, K skipped.
# FORGE_MUST_WORK=1 counts a skip that is not in tests/tools/expected-skips as a failure.
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail
cd "$(dirname "$(realpath "$0")")/../.." || exit 1
root=$PWD
logs=$root/build/test-logs

# Whose environment this is must not matter: an active one is warned about.
unset VIRTUAL_ENV CONDA_PREFIX
PATH=$(tr : '\n' <<<"$PATH" | grep -v '/\.\{0,1\}pyenv/shims' | paste -sd:)

# name, seconds it may take, what it is. The function stage_<name> (- is _) prints TAP.
stages='
build           600 gcc, warnings are errors
clang           600 clang, warnings are errors
asan            600 gcc with AddressSanitizer and UBSan
static          120 layers, documents, shell scripts
unit            300 units (those of the store on both), fuzz corpora, sanitized
cli             300 command line, sanitized
store-sqlite    900 runs on a store, SQLite, sanitized
store-postgres  900 ... PostgreSQL
sandbox-root    900 the sandbox attacked as root, sanitized
sandbox-user    900 ... as an ordinary user
sandbox-nested  900 ... in a user namespace
health          900 checks of the host and guarded files, as root (sanitized) and as an ordinary user
runtime         600 named runtimes and notebooks, sanitized
executors       600 the contract of an executor on local, Docker and Podman; engines that fail
slurm           900 ... on a Slurm cluster; clusters that fail
pipeline        900 pipelines: keys, resume, crashes, on both stores, as root (sanitized) and as an ordinary user
server          600 the HTTP interface: who may ask, live logs, hostile clients; on SQLite (sanitized) and PostgreSQL
metrics         600 metrics with a real Prometheus, on both stores; points of runs, as root (sanitized) and as an ordinary user
python          600 the Python package, as root and as an ordinary user
mcp             600 forge mcp with the clients of its protocol from npm, sanitized
web             900 the dashboard in a browser, on real runs
newcomer        600 what a new user types first
demo            120 what `make demo` shows
shim            300 kernels that lack system calls
hosts           300 hosts that refuse something, or whose file servers are dead
crash           300 200 SIGKILLs
crash-store     300 700 more, of all that keep the records, and of the PostgreSQL server
full-disk       300 full and read-only disks, stores that are away, clocks that jump
power-cut       300 12 power cuts, in a guest with a disk of its own
uml             600 unified cgroup v2, in guests, and a container there
quota           300 project quotas on XFS, in a guest
systemd         600 cgroups by systemd, in a guest
'

# one NAME COMMAND...: a command as a test.
one() {
    local name=$1 rc=0
    shift
    "$@" 2>&1 | sed 's/^/# /'
    rc=${PIPESTATUS[0]}
    [ "$rc" -eq 0 ] && echo "ok 1 $name" || echo "not ok 1 $name (status $rc)"
    echo 1..1
    return "$rc"
}

# compile DIR OPTION...: sets up and builds.
compile() {
    local dir=$1
    shift
    [ -e "$dir/build.ninja" ] || meson setup "$dir" "$@" || return
    meson configure "$dir" -Dwerror=true && ninja -C "$dir"
}

stage_build() { one "gcc builds without a warning" compile build --werror; }
stage_clang() { CC=clang one "clang builds without a warning" compile build-clang --werror; }
stage_asan() {
    one "the sanitized build is clean" compile build-asan --werror \
        -Db_sanitize=address,undefined -Db_lundef=false
}

stage_static() {
    tests/layers.py
    tests/bats-forms.py
    tests/tools/docs.py
    # Each @test is a subshell that ends at the first command that fails; its variables are the helpers'.
    one "shellcheck finds nothing in the bats files" shellcheck -x \
        -e SC2016,SC1091,SC2317,SC2030,SC2031,SC2034,SC2154,SC2164,SC2012,SC2174,SC2119,SC2120,SC2206,SC1003 tests/*/*.bats
    one "shellcheck finds nothing" shellcheck -x -e SC2016,SC1091,SC2317 .ci/run scripts/*.sh \
        examples/*.sh man/*.sh tests/*/*.sh tests/guest/uml-init tests/guest/linux-uml
}

stage_unit() { tests/tools/with-postgres.sh tests/tools/meson-tap.py build-asan unit fuzz; }

fatal_sanitizers() {
    ASAN_OPTIONS=exitcode=99 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 "$@"
}

# with_forge DIR COMMAND...: with the programs of a build in the environment.
with_forge() {
    local dir=$root/$1
    shift
    FORGE=$dir/src/cli/forge FORGE_PROBE=$dir/src/probe/forge-probe NOSYS=$dir/tests/tools/nosys \
        STEP_CLOCK=$dir/tests/tools/step-clock.so fatal_sanitizers "$@"
}

# with_copy DIR COMMAND...: in a copy that every user can reach, wherever the checkout is. $FORGE_BUILD is DIR.
with_copy() {
    local dir=$1 rc=0
    shift
    copy=$(mktemp -d)
    trap 'rm -rf "$copy"' EXIT
    chmod 755 "$copy"
    cp "$dir/src/cli/forge" "$dir/src/executor/container/forge-shim" "$dir/src/probe/forge-probe" \
        "$dir/tests/tools/nosys" "$dir/tests/tools/fuse-stuck" "$dir/tests/tools/forge-weak" "$copy/"
    mkdir "$copy/r"
    cp -r tests man examples contrib docs python README.md "$copy/r/"
    cp -r share "$copy/"
    chmod -R a+rX "$copy"
    (cd "$copy/r" && FORGE=$copy/forge FORGE_PROBE=$copy/forge-probe NOSYS=$copy/nosys \
        FUSE_STUCK=$copy/fuse-stuck FORGE_WEAK=$copy/forge-weak FORGE_BUILD=$root/$dir fatal_sanitizers "$@") || rc=$?
    return "$rc"
}

needs_root() {
    [ "$(id -u)" -eq 0 ] && return 0
    printf 'ok 1 %s # skip needs root\n1..1\n' "$1"
    return 1
}

stage_cli() { with_forge build-asan bats --tap tests/cli; }

stage_health() {
    local rc=0
    needs_root "checks of the host" || return 0
    (with_copy build-asan tests/tools/delegate.sh bats --tap tests/health) || rc=1
    # initdb wants a user with a name.
    (FORGE_TEST_UID=$(id -u postgres 2>/dev/null || id -u nobody) with_copy build tests/sandbox/as-user.sh bats --tap tests/health) | sed -E "s/^((not )?ok [0-9]+ )/\\1user: /"
    [ "${PIPESTATUS[0]}" -eq 0 ] || rc=1
    return "$rc"
}

# The same suite on each store, like git's on each kind of refs.
stage_runtime() {
    needs_root "named runtimes" || return 0
    with_copy build-asan tests/tools/delegate.sh bats --tap tests/runtime
}

stage_store_sqlite() {
    needs_root "runs on SQLite" || return 0
    FORGE_PLAIN=$root/build/src/cli/forge FORGE_TEST_STORE=sqlite with_copy build-asan \
        tests/tools/delegate.sh bats --tap tests/store
}

stage_store_postgres() {
    needs_root "runs on PostgreSQL" || return 0
    FORGE_TEST_STORE=postgres with_copy build tests/tools/with-postgres.sh \
        tests/tools/delegate.sh bats --tap tests/store
}

stage_sandbox_root() {
    needs_root "the sandbox as root" || return 0
    with_copy build-asan tests/tools/delegate.sh bats --tap tests/sandbox
}

stage_sandbox_user() {
    if [ "$(id -u)" -ne 0 ]; then
        with_forge build bats --tap tests/sandbox
        return
    fi
    with_copy build tests/sandbox/as-user.sh bats --tap tests/sandbox
}

# Root of a user namespace that is an ordinary user outside.
stage_sandbox_nested() {
    needs_root "the sandbox in a user namespace" || return 0
    with_copy build tests/sandbox/as-user.sh --nested bats --tap tests/sandbox
}

# One contract for all executors; engines of our own in a temporary directory.
stage_executors() {
    local name rc=0
    needs_root "runs in containers" || return 0
    # An interrupt is part of the contract; who started us in the background may ignore it.
    for name in local docker podman; do
        FORGE_EXECUTOR_UNDER_TEST=$name with_copy build env --default-signal=INT,HUP,TERM \
            tests/tools/delegate.sh bats --tap tests/executor/contract.bats | sed -E "s/^((not )?ok [0-9]+ )/\\1$name: /"
        [ "${PIPESTATUS[0]}" -eq 0 ] || rc=1
    done
    with_copy build-asan env --default-signal=INT,HUP,TERM tests/tools/delegate.sh \
        bats --tap tests/executor/{command,container,crash,pipeline,review}.bats || rc=1
    return "$rc"
}

# Two clusters at once: most of the time both suites wait for a scheduler. Not sanitized: on a node a sanitizer
# would take memory of the job.
stage_slurm() {
    local rc=0 contract
    needs_root "runs on a cluster" || return 0
    (
        FORGE_EXECUTOR_UNDER_TEST=slurm with_copy build env --default-signal=INT,HUP,TERM \
            tests/tools/delegate.sh bats --tap tests/executor/contract.bats | sed -E 's/^((not )?ok [0-9]+ )/\1slurm: /'
        exit "${PIPESTATUS[0]}"
    ) >"$logs/slurm-contract.tap" 2>&1 &
    contract=$!
    (with_copy build env --default-signal=INT,HUP,TERM tests/tools/delegate.sh bats --tap tests/executor/slurm{,-review,-health,-pipeline}.bats) || rc=1
    wait "$contract" || rc=1
    cat "$logs/slurm-contract.tap"
    return "$rc"
}

# The suite on SQLite, sanitized; beside it what the store decides on PostgreSQL, and as an ordinary user, because Snakemake
# mostly waits; then kills.
stage_pipeline() {
    local rc=0 others
    needs_root "pipelines" || return 0
    (
        (FORGE_TEST_STORE=postgres with_copy build env --default-signal=INT,HUP,TERM tests/tools/with-postgres.sh tests/tools/delegate.sh \
            bats --tap tests/pipeline/{run,resume,review}.bats) | sed -E 's/^((not )?ok [0-9]+ )/\1postgres: /'
        postgres=${PIPESTATUS[0]}
        (with_copy build env --default-signal=INT,HUP,TERM tests/sandbox/as-user.sh bats --tap tests/pipeline/{run,resume}.bats) |
            sed -E 's/^((not )?ok [0-9]+ )/\1user: /'
        exit $((postgres + PIPESTATUS[0]))
    ) >"$logs/pipeline-others.tap" 2>&1 &
    others=$!
    (FORGE_TEST_STORE=sqlite with_copy build-asan env --default-signal=INT,HUP,TERM tests/tools/delegate.sh bats --tap tests/pipeline) || rc=1
    wait "$others" || rc=1
    cat "$logs/pipeline-others.tap"
    (with_forge build tests/tools/crash-pipeline.sh build/src/cli/forge 120) || rc=1
    return "$rc"
}

# Both mostly wait: for clients that are slow on purpose, and for repairs.
stage_server() {
    local rc=0 others
    needs_root "the HTTP interface" || return 0
    (
        (FORGE_TEST_STORE=postgres with_copy build tests/tools/with-postgres.sh tests/tools/delegate.sh bats --tap tests/server/serve.bats) |
            sed -E 's/^((not )?ok [0-9]+ )/\1postgres: /'
        exit "${PIPESTATUS[0]}"
    ) >"$logs/server-others.tap" 2>&1 &
    others=$!
    (FORGE_PLAIN=$root/build/src/cli/forge FORGE_TEST_STORE=sqlite with_copy build-asan tests/tools/delegate.sh \
        bats --tap tests/server/{serve,hostile}.bats) || rc=1
    wait "$others" || rc=1
    cat "$logs/server-others.tap"
    return "$rc"
}

stage_metrics() {
    local rc=0
    needs_root "metrics" || return 0
    (FORGE_TEST_STORE=sqlite with_copy build-asan tests/tools/delegate.sh bats --tap tests/server/{metrics,samples}.bats) || rc=1
    (FORGE_TEST_STORE=postgres with_copy build tests/tools/with-postgres.sh tests/tools/delegate.sh bats --tap tests/server/metrics.bats) |
        sed -E 's/^((not )?ok [0-9]+ )/\1postgres: /'
    [ "${PIPESTATUS[0]}" -eq 0 ] || rc=1
    (FORGE_TEST_STORE=sqlite with_copy build tests/sandbox/as-user.sh bats --tap tests/server/samples.bats) |
        sed -E 's/^((not )?ok [0-9]+ )/\1user: /'
    [ "${PIPESTATUS[0]}" -eq 0 ] || rc=1
    return "$rc"
}

# Not sanitized: a thousand runs at once. Debian's Python, whatever the PATH has.
stage_python() {
    local rc=0
    needs_root "the Python package" || return 0
    (with_copy build env --default-signal=INT,HUP,TERM tests/tools/delegate.sh /usr/bin/python3 tests/python/tap.py) || rc=1
    (with_copy build env --default-signal=INT,HUP,TERM tests/sandbox/as-user.sh /usr/bin/python3 tests/python/tap.py \
        test_run.Interrupts test_errors test_aio test_compat test_pipelines) | sed -E 's/^((not )?ok [0-9]+ )/\1user: /'
    [ "${PIPESTATUS[0]}" -eq 0 ] || rc=1
    return "$rc"
}

stage_mcp() {
    needs_root "an agent's runs" || return 0
    with_copy build-asan env --default-signal=INT,HUP,TERM tests/tools/delegate.sh tests/mcp/run.sh
}

# Beside a PostgreSQL server, which goes away while a page shows it. Screenshots are left in build/web-shots.
stage_web() {
    needs_root "the dashboard" || return 0
    WEB_SOURCE=$root/web with_copy build tests/tools/with-postgres.sh tests/tools/delegate.sh tests/web/run.sh
}

# The probe, the analysis and its post-process succeed, the attacks do not; the newest first.
stage_newcomer() {
    needs_root "what a new user types" || return 0
    # Who started us in the background may ignore what a terminal sends.
    with_copy build env --default-signal=INT,HUP,TERM tests/tools/delegate.sh bats --tap tests/newcomer
}

stage_demo() {
    FORGE=$root/build/src/cli/forge examples/demo.sh >"$logs/demo.out" 2>&1
    one "the demo runs" test $? -eq 0
    one "... an analysis and three attacks, judged" test "$(sed -n '/^== All runs/,$p' \
        "$logs/demo.out" | awk '$1 ~ /^01/ { print }' | grep -oE ' (succeeded|failed|killed: memory) ' | xargs)" = "failed failed killed: memory succeeded"
    one "... with its outputs and its records" grep -q '"orfs"\|"length"' <(sed -n \
        '/^== What the post-process/,/^== Attack/p' "$logs/demo.out")
    one "... a pipeline that is killed and goes on" grep -qE '^[3-6] ran, [0-3] up to date' <(sed -n \
        '/^== The same command goes on/,/^== And again/p' "$logs/demo.out")
    one "... and is up to date then" grep -q '^6 steps up to date' <(sed -n '/^== And again/,$p' "$logs/demo.out")
}

stage_shim() { with_forge build bats --tap tests/tools/shim.bats; }
# Not sanitized: a sanitizer cannot start where a system call is refused.
stage_hosts() {
    needs_root "hosts that refuse something" || return 0
    with_copy build tests/tools/delegate.sh bats --tap tests/tools/{hosts,fuse,btrfs}.bats
}
stage_crash() { with_forge build tests/tools/crash.sh build/src/cli/forge; }
stage_crash_store() { with_forge build tests/tools/crash-store.sh build/src/cli/forge; }
stage_full_disk() {
    needs_root "full disks" || return 0
    with_forge build tests/tools/delegate.sh bats --tap tests/tools/full-disk.bats
}
# ext4 forgets what nobody waited for; Btrfs also what came before that.
stage_power_cut() {
    local rc=0
    tests/guest/power-cut.sh build/src/cli/forge 8 ext4 || rc=1
    tests/guest/power-cut.sh build/src/cli/forge 4 btrfs || rc=1
    return $rc
}
stage_uml() { tests/guest/uml.sh build/src/cli/forge build/src/probe/forge-probe; }
stage_quota() { tests/guest/quota.sh build/src/cli/forge build/src/probe/forge-probe; }
stage_systemd() { tests/guest/systemd.sh build/src/cli/forge; }

# unexpected_skips STAGE LOG
unexpected_skips() {
    local patterns
    patterns=$(awk -v s="$1" '!/^#/ && $1 == s { sub(/^[^ ]+ +/, ""); print }' \
        tests/tools/expected-skips)
    grep -E '^ok .*# [Ss][Kk][Ii][Pp]' "$2" | grep -vE "${patterns:-^$}"
}

count() { grep -cE "$1" "$2"; }

# judge STAGE LOG STATUS: adds the stage to the sums, shows what is wrong.
total_passed=0 total_failed=0 total_skipped=0
judge() {
    local failed skipped passed planned unexpected=
    failed=$(count '^not ok' "$2")
    skipped=$(count '^ok .*# [Ss][Kk][Ii][Pp]' "$2")
    passed=$(($(count '^ok' "$2") - skipped))
    planned=$(sed -n 's/^1\.\.\([0-9]*\).*/\1/p' "$2" | awk '{ n += $1 } END { print n + 0 }')
    if [ "$failed" -eq 0 ] && [ "$3" -ne 0 ]; then
        echo "not ok the stage ended with status $3" >>"$2"
        failed=$((failed + 1))
    elif [ "$planned" -ne $((passed + failed + skipped)) ] || [ "$planned" -eq 0 ]; then
        echo "not ok $planned results were planned" >>"$2"
        failed=$((failed + 1))
    fi
    if [ "${FORGE_MUST_WORK:-}" = 1 ]; then
        unexpected=$(unexpected_skips "$1" "$2")
        if [ -n "$unexpected" ]; then
            skipped=$((skipped - $(wc -l <<<"$unexpected")))
            failed=$((failed + $(wc -l <<<"$unexpected")))
        fi
    fi
    total_passed=$((total_passed + passed))
    total_failed=$((total_failed + failed))
    total_skipped=$((total_skipped + skipped))
    printf '%-15s %4d passed %3d failed %3d skipped %5d s\n' "$1" "$passed" "$failed" "$skipped" "$SECONDS"
    grep -E '^ok .*# [Ss][Kk][Ii][Pp]' "$2" | sed 's/^/    /'
    [ -z "$unexpected" ] || echo "    skips that must not be here are counted as failed"
    [ "$failed" -eq 0 ] || show_failures "$2"
}

show_failures() {
    echo "    ---- failed; all of it is in ${1#"$root"/}"
    awk '/^not ok/ { show = 1 } /^ok/ { show = 0 } show { if (n++ < 60) print "    " $0 }' "$1"
    echo "    ---- the end of it"
    tail -n 15 "$1" | sed 's/^/    /'
    echo "    ----"
}

run_stage() {
    local name=$1 limit=$2 log=$logs/$1.log rc=0
    SECONDS=0
    # A shell of its own, so that the time limit ends all of it.
    timeout -k 10 "$limit" "$0" --stage "$name" >"$log" 2>&1 </dev/null || rc=$?
    judge "$name" "$log" "$rc"
}

if [ "${1:-}" = --stage ]; then
    "stage_${2//-/_}"
    exit
fi

known=$(awk 'NF { print $1 }' <<<"$stages")
for name; do
    grep -qx -- "$name" <<<"$known" || {
        echo "run-all.sh: unknown stage '$name' (have: $(xargs <<<"$known"))" >&2
        exit 2
    }
done
mkdir -p "$logs"
rm -f "$logs"/*.log
unset FORGE_HOME FORGE_CONFIG
while read -r name limit about; do
    [ -n "$name" ] || continue
    [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
    echo "== $name: $about"
    run_stage "$name" "$limit"
done <<<"$stages"
echo
echo "$total_passed passed, $total_failed failed, $total_skipped skipped"
[ "$total_failed" -eq 0 ]
