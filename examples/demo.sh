#!/bin/bash
# demo.sh: a real analysis in the sandbox, then three attacks on it. Needs FORGE; under a minute.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
: "${FORGE:?set FORGE to the program}"
FORGE=$(realpath "$FORGE")
cd "$(dirname "$(realpath "$0")")/lambda"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export FORGE_HOME=$dir/state
mkdir -m 700 "$FORGE_HOME"
unset FORGE_CONFIG
printf 'workdir: %s/work-{run_id}\n' "$dir" >"$dir/forge.yaml"
export FORGE_CONFIG=$dir/forge.yaml

genome=/usr/share/doc/bowtie2/examples/reference/lambda_virus.fa.gz
if [ ! -e "$genome" ]; then
    # Slim systems leave out /usr/share/doc when a package is installed.
    (cd "$dir" && apt-get -qq download bowtie2-examples && dpkg-deb -x bowtie2-examples_*.deb root)
    genome=$dir/root$genome
fi

title() { printf '\n== %s\n' "$*"; }
# Shows the command as one would type it, then runs it.
show() {
    printf '$ forge'
    printf ' %s' "$@"
    printf '\n'
    "$FORGE" "$@" 2>&1 || true
}
# The newest record: run ids sort by time.
last_record() { find "$FORGE_HOME/runs" -name record.json | sort | tail -1; }

title "An analysis: the genome of phage lambda"
show run --memory 256M --timeout 30s --keep -i gc_skew.py -i "$genome" -- \
    python3 gc_skew.py "$genome"
record=$(last_record)
title "What it left in its workdir"
(cd "$(jq -r .workdir "$record")" && find outputs -type f -printf '%8s bytes  %p\n' | sort -k3)
title "Its record"
jq -r '"status      \(.status), \(.reason)",
    "note        \(.completion_notes)",
    "used        \(.usage.wall_seconds * 1000 | floor) ms wall, \(.usage.cpu_seconds * 1000 | floor) ms CPU, \(.usage.memory_peak_bytes / 1048576 | floor) MiB memory, \(.usage.pids_peak) processes at most",
    "allowed     \(.limits.wall_seconds) s wall, \(.limits.cpus) CPU, \(.limits.memory_bytes / 1048576 | floor) MiB memory, \(.limits.pids) processes",
    "isolation   \(.isolation.level); cgroup \(.isolation.mechanisms.cgroup), Landlock \(.isolation.mechanisms.landlock), seccomp \(.isolation.mechanisms.seccomp)",
    "network     \(.network)",
    "inputs      \([.inputs[].path | split("/")[-1]] | join(", "))"' "$record"

title "Attack 1: eat all memory"
show run --memory 128M --timeout 20s -i hog.py -- python3 hog.py
title "Attack 2: read passwords and the home directory"
show run -i snoop.py -- python3 snoop.py "$HOME" "$PWD/gc_skew.py" "$FORGE_HOME"
title "Attack 3: call out over the network"
show run --timeout 20s -i phone_home.py -- python3 phone_home.py

title "All runs"
find "$FORGE_HOME/runs" -name record.json | sort | xargs jq -r '[.run_id, .status, .reason] | @tsv' |
    awk -F'\t' '{ printf "%s  %-10s %s\n", $1, $2, $3 }'
