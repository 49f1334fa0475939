# guard.bash: runs in a sandbox with a hole, and what the guard says of them. Loaded by tests/health/guard*.bats.
# shellcheck shell=bash disable=SC2034,SC2154 # variables are for the tests, and of forge.bash
# SPDX-License-Identifier: Apache-2.0

. "$(dirname "${BASH_SOURCE[0]}")/forge.bash"

# $rw is writable inside: $rw/guard is guarded, $rw/beside is not. Root watches, users compare.
setup_guard() {
    setup_forge
    plain=$FORGE
    FORGE=$(realpath "${FORGE_WEAK:-$(dirname "$FORGE")/../../tests/tools/forge-weak}")
    rw=$T/rw guard=$T/rw/guard beside=$T/rw/beside
    export FORGE_TEST_WRITABLE=$rw
    mkdir -p "$guard/dir/deep" "$beside"
    echo one >"$guard/file"
    echo two >"$guard/dir/two"
    echo three >"$guard/dir/deep/three"
    ln -s file "$guard/link"
    seen=watch by=run
    is_root || seen=snapshot by=unknown
    uid=$(id -u)
    # All runs of root have this uid, which no other test has.
    ! is_root || uid=$((1900000000 + BASHPID % 1000000))
    own "$rw"
    guard_config "paths: [$guard]"
}

# own PATH...: files that the processes inside may change.
own() { chown -hR "$uid:$uid" "$@"; }

# guard_config LINE... [-- LINE...]: what the section guard has, and other sections.
guard_config() {
    local lines=("guard:")
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        lines+=("  $1")
        shift
    done
    [ $# -eq 0 ] || shift
    ! is_root || lines+=("sandbox: {uid_base: $uid, uid_count: 1}")
    configure "${lines[@]}" "$@"
}

teardown_guard() {
    local pid
    teardown_forge || return
    # The watcher would go by itself, after two seconds.
    for pid in $(watchers); do kill -KILL "$pid" 2>/dev/null || true; done
}

# Pids of the watchers of this test's FORGE_HOME.
watchers() {
    local pid
    for pid in $(pgrep -f 'forge __guard' || true); do
        ! tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "FORGE_HOME=$FORGE_HOME" || echo "$pid"
    done
}
no_watcher() { [ -z "$(watchers)" ]; }

# inside SCRIPT: runs it in the sandbox, in $rw.
inside() { forge_run "${with[@]}" -- sh -c "cd $rw && { $1; }"; }

# python SCRIPT: inside, too.
python() { forge_run "${with[@]}" -- /usr/bin/python3 -c "import mmap, os, time; os.chdir('$rw')
$1"; }

# begin SCRIPT [NAME [LATER]]: the same, in the background; returns when the script has run. At finish it runs the
# second one, and ends.
begin() {
    local name=${2:-1}
    "$FORGE" run --json "${with[@]}" -- sh -c "cd $rw && { $1; touch beside/began-$name
        until [ -e beside/go-$name ]; do sleep 0.01; done; ${3:-true}; }" >"$T/record-$name" 2>"$T/err-$name" </dev/null 3>&- &
    started+=($!)
    pids[name]=$!
    wait_for test -e "$beside/began-$name"
}

# finish [NAME]: $record is its record.
finish() {
    local name=${1:-1}
    touch "$beside/go-$name"
    status=0
    wait "${pids[name]}" || status=$?
    record=$T/record-$name
    told
}

told() { echo "$status $(field .status) $(field .reason): $(field .completion_notes) $(field '.health.post.guard | tojson')"; }

# guard_field PATH: of what the guard found.
guard_field() { field ".health.post.guard$1"; }

# blamed: the run is corrupted; it, or unknown, did it.
blamed() {
    told
    [ "$(field .status)" = corrupted ]
    [ "$(field .reason)" = health_post ]
    [ "$(guard_field .mode)" = "$seen" ]
}

# named PATH WHAT [BY]: it is in the list. PATH is below $rw.
named_as() {
    [ -n "$(guard_field ".files[] | select(.path == \"$rw/$1\" and .what == \"$2\" and .by == \"${3:-$by}\") | .path")" ]
}

# caught PATH WHAT [WHAT IN A SNAPSHOT]
caught() {
    local what=$2
    [ "$seen" = watch ] || what=${3:-$2}
    blamed
    named_as "$1" "$what"
}

# unblamed: the run succeeded; $by_others changes were noted.
unblamed() {
    told
    [ "$(field .status)" = succeeded ]
    [ "$(guard_field .by_run)" -eq 0 ]
    by_others=$(guard_field .by_others)
}
