#!/bin/bash
# demo.sh: a real analysis in the sandbox, its verdict, logs and outputs, three attacks, and a pipeline that is killed and
# goes on. Needs FORGE; about a minute.
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
mkdir "$dir/runtimes.d"
cp ../runtimes/python3.yaml "$dir/runtimes.d/"
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
    local word
    printf '$ forge'
    for word; do
        [[ $word =~ [^A-Za-z0-9_./:=,@%+-] ]] && word=${word@Q}
        printf ' %s' "$word"
    done
    printf '\n'
    "$FORGE" "$@" 2>&1 || true
}

title "A named runtime, probed in a sandbox"
show runtime check python3
show runtime list

title "An analysis in the background: the genome of phage lambda"
command=(submit -r python3 --memory 256M --timeout 30s -i gc_skew.py -i "$genome" -o 'outputs/**'
    --post-process "python3 -c 'import json; print(json.dumps(json.load(open(\"outputs/summary.json\"))))'"
    -- python3 gc_skew.py "$genome")
show "${command[@]}" | tee "$dir/id"
id=$(tail -1 "$dir/id")
title "What it prints"
show logs -f "$id"
show wait "$id"
title "How it ended, what it used, what it left"
show show "$id"
title "Its outputs, brought back and checked"
show outputs --copy "$dir/results" "$id"
(cd "$dir/results" && sha256sum outputs/*)
title "What the post-process put in the store"
show post-process --records "$id"

title "Attack 1: eat all memory"
show run --memory 128M --timeout 20s -i hog.py -- python3 hog.py
title "Attack 2: read passwords and the home directory"
show run -i snoop.py -- python3 snoop.py "$HOME" "$PWD/gc_skew.py" "$FORGE_HOME"
title "Attack 3: call out over the network"
show run --timeout 20s -i phone_home.py -- python3 phone_home.py

title "All runs"
show ps

title "A pipeline: from the reads of phage lambda to its variants. Its process is killed in the middle"
cp ../runtimes/{genomics,data-ml}.yaml "$dir/runtimes.d/"
# It has at least two CPUs in one of its steps, also on a small host.
printf 'host: {budget: {cpus: 4}}\n' >>"$dir/forge.yaml"
pipeline=$(realpath ../lambda-variants)
data=${genome%/reference/*}
show pipeline graph "$pipeline"
printf '$ forge pipeline run %s &\n' "$pipeline"
"$FORGE" pipeline run --json -p data="$data" "$pipeline" >"$dir/events" 2>&1 &
head=$!
until grep -q '"started","task":"align"' "$dir/events"; do
    kill -0 "$head" 2>/dev/null || { cat "$dir/events"; exit 1; }
    read -rt 0.05 <> <(:) || true
done
kill -KILL "$head"
wait "$head" 2>/dev/null || true
echo "killed: pid $head"
title "The same command goes on"
show pipeline run -p data="$data" "$pipeline"
title "And again"
show pipeline run -p data="$data" "$pipeline"
show pipeline run -n -p data="$data" -p min_quality=30 "$pipeline"
show pipeline outputs -p data="$data" "$pipeline" --copy "$dir/variants"
jq -c .variants "$dir/variants/plot/summary.json"
echo
