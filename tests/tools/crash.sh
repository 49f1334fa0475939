#!/bin/bash
# crash.sh FORGE [N]: kills N (200) supervisors with SIGKILL at random moments, then checks
# that nothing is left once one more forge command has run. TAP.
# SPDX-License-Identifier: Apache-2.0
here=$(dirname "$(realpath "$0")")
# In cgroups of our own everything that is left is ours.
if [ -z "${CRASH_INSIDE:-}" ] && [ "$(id -u)" -eq 0 ]; then
    CRASH_INSIDE=1 exec "$here/delegate.sh" "$here/$(basename "$0")" "$@"
fi
. "$here/tap.sh"
. "$here/../lib/cgroups.bash"

forge=$(realpath "$1")
rounds=${2:-200}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# A variable of every process that comes of these runs: the supervisor has it from us, the
# command by --env.
export CRASH_MARK=$dir FORGE_HOME=$dir/home
mkdir -m 700 "$dir/home" "$dir/work"
printf 'workdir: %s/work/{run_id}\n' "$dir" >"$dir/forge.yaml"
export FORGE_CONFIG=$dir/forge.yaml

payload='mkdir -p a/b/c; for i in 1 2 3 4; do (echo $i >f$i; sleep 60) & done; echo started'
long=$payload'; wait'

# Ours apart from us and the shells that look.
processes() {
    local proc pid
    for proc in /proc/[0-9]*; do
        pid=${proc#/proc/}
        [ "$pid" = $$ ] || [ "$pid" = "$BASHPID" ] && continue
        [ "$(cat "$proc/comm" 2>/dev/null)" != crash.sh ] || continue
        grep -qzx "CRASH_MARK=$dir" "$proc/environ" 2>/dev/null &&
            echo "$pid $(tr '\0' ' ' <"$proc/cmdline")"
    done
}

no_process() {
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        [ -n "$(processes)" ] || return 0
        pause 0.1
    done
    processes
    return 1
}

# Sleeps without a process.
exec {nothing}<> <(:)
pause() { read -rt "$1" -u "$nothing" || true; }

# Groups of runs below our own, in every hierarchy that forge uses.
groups() {
    own_cgroups | while read -r own; do
        find "$own" -mindepth 1 -type d -name 'forge-*' ! -name forge-supervisors
    done | if [ -d /sys/fs/cgroup/memory ]; then cat; else
        grep -F "$(ls "$dir/home/runs")"
    fi
}

mounts_before=$(cut -d' ' -f5 /proc/self/mountinfo | sort)
note "$rounds rounds, seed ${CRASH_SEED:=$RANDOM}"
RANDOM=$CRASH_SEED
killed=0
for ((i = 0; i < rounds; i++)); do
    # Every fourth ends by itself, so that cleaning up is hit too.
    script=$long
    ((i % 4)) || script=${payload//sleep 60/:}
    "$forge" run -q --env CRASH_MARK="$dir" -- sh -c "$script" >/dev/null 2>&1 &
    pid=$!
    printf -v moment '0.0%02d%03d' $((RANDOM % 30)) $((RANDOM % 1000))
    pause "$moment"
    kill -KILL "$pid" 2>/dev/null && killed=$((killed + 1))
    wait "$pid" 2>/dev/null
done
note "$killed supervisors were still there to kill"

ok "with the supervisors dead, nothing of their runs lives on" no_process
ok "gc repairs" "$forge" gc
is "gc then finds nothing to repair" "$("$forge" gc 2>&1)" "nothing to repair"
is "no process is left" "$(processes)" ""
is "no cgroup is left" "$(groups)" ""
# A lost run keeps its files: these workdirs, and no others, are recorded and have something in them.
kept=$(find "$dir/home/runs" -name kept.json -exec jq -r .path {} + | sort)
is "no workdir is left but those that a record keeps" "$(find "$dir/work" -mindepth 1 -maxdepth 1 | sort)" "$kept"
is "only lost runs keep a workdir, and say so" \
    "$(find "$dir/home/runs" -name kept.json | while read -r f; do
        jq -r '[.status, .workdir_kept, (.workdir as $w | .completion_notes | endswith("The workdir is kept: \($w)."))] | join(" ")' "${f%/*}/record.json"
    done | grep -vx 'lost true true')" ""
is "every workdir that is kept has a file in it" \
    "$(while read -r d; do [ -z "$d" ] || [ -n "$(find "$d" -type f -print -quit)" ] || echo "$d"; done <<<"$kept")" ""
note "$(grep -c . <<<"$kept") workdirs are kept"
is "no mount is left" "$(cut -d' ' -f5 /proc/self/mountinfo | sort)" "$mounts_before"
is "no run directory is without a record" \
    "$(find "$dir/home/runs" -mindepth 1 -type d '!' -exec test -e {}/record.json ';' -print)" ""
is "no run is active" "$(find "$dir/home/active" -type f -size +0)" ""
is "every record has a verdict" \
    "$(find "$dir/home/runs" -name record.json -exec jq -r .status {} + |
        grep -vxE 'succeeded|failed|killed|cancelled|lost|rejected')" ""
is "no record is cut short" \
    "$(find "$dir/home/runs" -name record.json | while read -r f; do [ -n "$(jq -r .status "$f")" ] || echo "$f"; done)" ""
note "$(find "$dir/home/runs" -name record.json -exec jq -r .status {} + | sort | uniq -c | xargs)"
ok "at least half of the kills came in time to hurt" test "$killed" -ge $((rounds / 2))
ok "a run still works" "$forge" run -q -- true
done_testing
