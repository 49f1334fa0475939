# forge.bash: what the sandbox suites share. Loaded by each of them, used through
# setup/teardown below; helpers leave $status, $record (a file), $out and $err (files).
# shellcheck shell=bash disable=SC2034 # variables are for the tests
# SPDX-License-Identifier: Apache-2.0

. "$(dirname "${BASH_SOURCE[0]}")/cgroups.bash"
. "$(dirname "${BASH_SOURCE[0]}")/time.bash"

# The only reasons for which a test may be skipped although FORGE_MUST_WORK=1.
allowed_skips=(
    "only root can do this"
    "only for root of the host"
    "an ordinary user cannot mount"
    "sanitizers take memory of their own"
)

# skip_unless REASON COMMAND...: skips when the command fails; never silently.
skip_unless() {
    local reason=$1 allowed
    shift
    if "$@" >/dev/null 2>&1; then
        return 0
    fi
    if [ "${FORGE_MUST_WORK:-}" = 1 ]; then
        for allowed in "${allowed_skips[@]}"; do
            [ "$reason" != "$allowed" ] || skip "$reason"
        done
        echo "must work here, and would be skipped: $reason"
        return 1
    fi
    skip "$reason"
}

# root: uid 0 of the host; user: an ordinary one; nested: uid 0 of a user namespace.
test_mode() {
    if [ -n "${FORGE_TEST_MODE:-}" ]; then
        echo "$FORGE_TEST_MODE"
    elif [ -n "${FORGE_TEST_NESTED:-}" ]; then
        echo nested
    elif [ "$(id -u)" -ne 0 ]; then
        echo user
    elif grep -q ' 4294967295$' /proc/self/uid_map; then
        echo root
    else
        echo nested
    fi
}

is_root() { [ "$mode" = root ]; }

setup_forge() {
    : "${FORGE:?set FORGE to the program under test}"
    : "${FORGE_PROBE:?set FORGE_PROBE to the attacker}"
    bats_require_minimum_version 1.5.0
    mode=$(test_mode)
    FORGE=$(realpath "$FORGE")
    PROBE=$(realpath "$FORGE_PROBE")
    T=$BATS_TEST_TMPDIR
    mapfile -t cgroup_dirs < <(own_cgroups)
    # What runs of root read must be readable for others.
    umask 022
    # What the caller of the tests has active is none of theirs.
    unset VIRTUAL_ENV CONDA_PREFIX
    PATH=$(tr : '\n' <<<"$PATH" | grep -v '/shims$' | paste -sd :)
    # Of the runtimes that come with forge a test has those that it asks for.
    export FORGE_DATADIR=$T/no-data
    export FORGE FORGE_HOME=$T/home FORGE_CONFIG=$T/forge.yaml HOME=$T
    work=/tmp
    configure
    record=$T/record.json out=$T/out err=$T/err
    OPTS=() started=()
    cd "$T" || return
    skip_unless "no cgroup of ours to make runs in" can_run
}

# configure [LINE...]: the configuration of this test's runs.
configure() {
    printf '%s\n' "version: 1" "$@" >"$FORGE_CONFIG"
    [ "$work" = /tmp ] || [[ "$*" == *workdir:* ]] ||
        echo "workdir: $work/scidex-analysis-{id}" >>"$FORGE_CONFIG"
}

# Once a suite: a host without delegation cannot run anything, and says so.
can_run() {
    local mark=$BATS_FILE_TMPDIR/can-run
    [ -e "$mark" ] && return
    "$FORGE" run -q true || [ $? -ne 125 ] || ! "$FORGE" run true 2>&1 | grep -q cgroup || return 1
    touch "$mark"
}

# Everything a test may leave is looked for by the ids of its own runs.
teardown_forge() {
    local pid run id dir left=0
    for pid in "${started[@]}"; do
        # A stopped one does not end before it goes on.
        kill "$pid" 2>/dev/null || continue
        kill -CONT "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    for run in "$FORGE_HOME"/runs/*/; do
        id=$(basename "$run")
        for dir in "${cgroup_dirs[@]}"; do
            [ ! -e "$dir/forge-$id" ] || { echo "left: $dir/forge-$id"; left=1; }
        done
        # What a run kept is no leak; the next test shall not find it.
        [ ! -e "$run/kept.json" ] || rm -rf "$(jq -r .path "$run/kept.json")"
        [ ! -e "$work/scidex-analysis-$id" ] || { echo "left: $work/scidex-analysis-$id"; left=1; }
    done
    [ -z "$(find "$FORGE_HOME/active" -type f -size +0 2>/dev/null)" ] || { echo "left: active runs"; left=1; }
    chmod -R u+rwX "$T" 2>/dev/null || true
    return "$left"
}

# forge_run OPTION... -- COMMAND...: with --json. $record is the record, $out what it printed.
forge_run() {
    status=0
    "$FORGE" run --json "${OPTS[@]}" "$@" >"$record" 2>"$err" </dev/null || status=$?
    out=$(field .logs.stdout)
    # What a failed test shows.
    echo "$* -> $status $(field .status) $(field .reason): $(field .completion_notes)"
    head -c 1000 "$err"
    [ ! -s "$out" ] || head -c 1000 "$out" | tr -d '\0'
}

# field PATH [FILE]: one value of the record, as jq writes it.
field() {
    if command -v jq >/dev/null; then
        jq -r "$1" "${2:-$record}" 2>/dev/null
    else
        python3 -c 'import json, sys
value = json.load(open(sys.argv[2]))
for key in sys.argv[1].strip(".").split("."):
    value = value.get(key) if isinstance(value, dict) else None
print("null" if value is None else str(value).lower() if isinstance(value, bool) else value)' \
            "$1" "${2:-$record}"
    fi
}

# probe NAME ARG...: attacks from inside, with OPTS. $answer is its line.
probe() {
    forge_run -- "$PROBE" "$@"
    answer=$(grep -aE '^(held|broke|skip): ' "$out" | tail -n 1)
}

holds() {
    probe "$@"
    [ "$status" -eq 0 ] && [[ "$answer" == "held: "* ]]
}

# breaks NAME ARG...: the same attack here, outside, works: so the test can tell.
breaks() {
    run env -u FORGE_RUN_ID "$PROBE" "$@"
    echo "$output"
    [ "$status" -eq 1 ] && [[ "$output" == *"broke: "* ]]
}

# verdict STATUS REASON EXIT: of the last run, with a number in its sentence.
verdict() {
    [ "$(field .status)" = "$1" ]
    [ "$(field .reason)" = "$2" ]
    [ "$status" -eq "$3" ]
    [[ "$(field .completion_notes)" == *[0-9]* ]]
}

# wait_for COMMAND...: until it succeeds; fails after half a minute, for a machine that has much else to do.
wait_for() {
    local deadline=$((SECONDS + 30))
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        pause 0.02
    done
}

# Sleeps without a process.
pause() { read -rt "$1" <> <(:) || true; }

# Processes called NAME, of any namespace.
named() { grep -lx -- "$1" /proc/[0-9]*/comm 2>/dev/null; }
no_process_named() { [ -z "$(named "$1")" ]; }

# lasted LEAST MOST: the wall time of the last run, in seconds; the most with the machine's slack.
lasted() {
    local wall
    wall=$(field .usage.wall_seconds)
    awk -v l="$1" -v v="$wall" 'BEGIN { exit !(l <= v) }' || return 1
    awk -v v="$wall" -v h="$2" 'BEGIN { exit !(v <= h) }' || awk -v v="$wall" -v h="$2" -v slack="$(slack_ms)" \
        'BEGIN { print v " s of " h ", slack " slack " ms"; exit !(v <= h + slack / 1000) }'
}

# hash_of PATH...: contents, modes, owners and times.
hash_of() {
    find "$@" -printf '%p %y %m %U %G %T@ %s %l\n' | sort
    find "$@" -type f -exec sha256sum {} + | sort
}

# background COMMAND...: without the runner's descriptors; ended by teardown. $pid is its own.
background() {
    "$@" </dev/null 3>&- 4>&- &
    pid=$!
    started+=("$pid")
}

# listen: a service of the host on loopback, an abstract socket and a path; see listener.py.
# $port, $abstract, $socket; what reaches it stands in $heard.
listen() {
    abstract=forge-test-$$-$BATS_TEST_NUMBER socket=$T/service heard=$T/heard
    : >"$heard"
    background /usr/bin/env python3 "$BATS_TEST_DIRNAME/listener.py" "$abstract" "$socket" "$heard" "$T/port"
    wait_for test -s "$T/port"
    port=$(<"$T/port")
}
