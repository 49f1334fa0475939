#!/usr/bin/env bats
# The profile in contrib/snakemake: Snakefiles that know nothing of forge, with Debian's Snakemake 7.21.
# shellcheck disable=SC2016,SC2103,SC2154 # text of scripts, and variables of the helpers
# SPDX-License-Identifier: Apache-2.0

load ../lib/newcomer.bash
setup() {
    setup_newcomer
    skip_unless "snakemake is not installed" command -v snakemake
    CONTRIB=$(realpath "$BATS_TEST_DIRNAME/../../contrib/snakemake")
    mkdir -p "$T/data" "$T/.config/snakemake"
    ln -s "$EXAMPLES/runtimes" "$T/data/runtimes.d"
    export FORGE_DATADIR=$T/data
    # As a user installs it.
    cp -r "$CONTRIB/forge" "$T/.config/snakemake/forge"
    # Snakemake asks for the status of jobs once in 10 s, and with this once in 1 s.
    export CI=true
    # Room for the jobs of a test on a small host.
    echo 'host: {budget: {cpus: 64, memory: 64G}}' >"$T/forge.yaml"
    export FORGE_CONFIG=$T/forge.yaml
}
teardown() {
    touch "$T/project/gate/open" 2>/dev/null || true
    teardown_forge
}

with_profile() { snakemake --profile forge "$@"; }

# started_run NAME: a run of this rule is running. $run_id is its id.
started_run() {
    is_in "$1" running
    run_id=$(of "$1" .run_id)
    [ -n "$run_id" ]
}

# A rule that waits for the file gate/open.
gated_workflow() {
    mkdir gate
    cat >Snakefile <<'EOF'
rule slow:
    input: ancient("gate")
    output: "slow.txt"
    shell: "until [ -e gate/open ]; do sleep 0.02; done; echo done >{output}"
EOF
}

@test "phage lambda: an unchanged workflow has the same results with and without forge" {
    skip_unless "the example data of bowtie2 is not installed" test -e /usr/share/doc/bowtie2/examples/reads/reads_1.fq.gz
    cp -r "$CONTRIB/example" plain
    cp -r "$CONTRIB/example" forge
    run snakemake -d plain -s plain/Snakefile -c2
    [ "$status" -eq 0 ]
    cd forge
    run with_profile --set-resources align:forge_runtime=genomics
    [ "$status" -eq 0 ]
    says "7 of 7 steps (100%) done"
    cd ..
    # Bytes, not only numbers. The temporary file is gone in both.
    run diff -r plain/results forge/results
    [ "$status" -eq 0 ]
    [ "$(find plain/results -type f -printf "%f\n" | sort | xargs)" = "calls.vcf coverage.json depth.tsv sorted.bam" ]
    [ "$(jq .bases forge/results/coverage.json)" -eq 48502 ]
    [ "$(jq .covered forge/results/coverage.json)" -eq 48500 ]
    run diff -r plain/index forge/index
    [ "$status" -eq 0 ]
    # Each rule is a run with a record of what it read, wrote and was allowed.
    forge show --json align >align.json
    [ "$(field '.inputs | length' align.json)" -eq 8 ]
    [ "$(field '[.outputs[].path] | sort | join(" ")' align.json)" = "logs/align.log results/unsorted.bam" ]
    [ "$(field .limits.memory_bytes align.json)" -eq $((512 << 20)) ]
    [ "$(field .limits.wall_seconds align.json)" -eq 300 ]
    [ "$(field .limits.cpus align.json)" -eq 2 ]
    [ "$(field .runtime.name align.json)" = genomics ]
    [ "$(field .isolation.level align.json)" = full ]
    # What forge measured, in Snakemake's columns.
    [ "$(head -1 forge/logs/align.tsv)" = "$(head -1 plain/logs/align.tsv)" ]
    [ "$(awk -F '\t' 'NR == 2 && $1 > 0 && $3 > 1' forge/logs/align.tsv | wc -l)" -eq 1 ]
    [ -z "$(ls forge/.snakemake/forge)" ]
    # Nothing is left to do, whichever way it is asked.
    cd forge
    run with_profile
    says "Nothing to be done"
    run snakemake -c2
    says "Nothing to be done"
}

@test "a rule that runs out of memory fails with forge's sentence; others go on" {
    cat >Snakefile <<'EOF'
rule all:
    input: "hog.txt", "fine.txt"
rule hog:
    output: "hog.txt"
    log: "logs/hog.log"
    resources: mem_mb=64
    shell: "echo before >{log}; echo begin >{output}; python3 -c 'x = bytearray(300 << 20)'"
rule fine:
    output: "fine.txt"
    shell: "echo fine >{output}"
EOF
    run with_profile --keep-going
    [ "$status" -eq 1 ]
    says "forge: rule hog: Killed: memory 64.00 MiB of 64.00 MiB"
    says "resources: mem_mb=128"
    says "Error in rule hog"
    [ ! -e hog.txt ]
    [ "$(cat fine.txt)" = fine ]
    # Its log is there, as Snakemake's users expect.
    [ "$(cat logs/hog.log)" = before ]
    [ "$(forge show --json hog | jq -r .reason)" = memory ]
    [ -z "$(ls .snakemake/forge)" ]
}

@test "memory by attempt: Snakemake's retries ask for more, and the second run succeeds" {
    cat >Snakefile <<'EOF'
rule hog:
    output: "hog.txt"
    retries: 2
    resources: mem_mb=lambda wildcards, attempt: 64 if attempt == 1 else 512
    shell: "python3 -c 'x = bytearray(300 << 20)'; echo {resources.mem_mb} >{output}"
EOF
    run with_profile
    [ "$status" -eq 0 ]
    says "Killed: memory 64.00 MiB"
    says "Trying to restart job"
    [ "$(cat hog.txt)" = 512 ]
    [ "$(forge ps -qa --analysis hog | wc -l)" -eq 2 ]
}

@test "time and disk: limits from resources, with their sentences" {
    cat >Snakefile <<'EOF'
rule all:
    input: "late.txt", "large.txt"
rule late:
    output: "late.txt"
    resources: forge_options="--timeout 1s"
    shell: "sleep 60; echo 1 >{output}"
rule large:
    output: "large.txt"
    resources: disk_mb=4
    shell: "head -c 20M /dev/zero >{output}; sleep 60"
EOF
    run with_profile --keep-going
    [ "$status" -eq 1 ]
    says "forge: rule late: Killed: ran 1"
    says " of 1 s. Retry with --timeout 2s."
    says "with the disk limit of 4.00 MiB used up"
    says "resources: disk_mb=8"
    [ ! -e late.txt ]
    [ ! -e large.txt ]
}

@test "a rule writes its outputs and nothing else" {
    mkdir data
    echo mine >data/in.txt
    echo secret >data/other.txt
    echo old >neighbour.txt
    cat >Snakefile <<'EOF'
rule all:
    input: "extra.done", "changes.done", "reads.done"
rule extra:
    input: "data/in.txt"
    output: "extra.done"
    shell: "echo 1 >{output}; echo changed >neighbour.txt; echo 1 >undeclared.txt; echo 1 >data/new.txt"
rule changes:
    input: "data/in.txt"
    output: "changes.done"
    shell: "echo 1 >{output}; echo changed >{input}"
rule reads:
    input: "data/in.txt"
    output: "reads.done"
    shell: "cat data/other.txt >{output}"
EOF
    run with_profile --keep-going
    [ "$status" -eq 1 ]
    says "forge: rule changes: Failed: exit code 1"
    says "data/in.txt: "
    says "forge: rule reads: Failed: exit code 1"
    says "cat: data/other.txt: No such file or directory"
    # The first wrote into its own directory, which is gone.
    [ "$(cat extra.done)" = 1 ]
    [ "$(cat neighbour.txt)" = old ]
    [ "$(cat data/in.txt)" = mine ]
    [ "$(find data -type f -printf "%f\n" | sort | xargs)" = "in.txt other.txt" ]
    [ ! -e undeclared.txt ]
    [ ! -e changes.done ]
    [ ! -e reads.done ]
}

@test "an output that is missing fails the rule, and an old one is no success" {
    echo old >second.txt
    cat >Snakefile <<'EOF'
rule both:
    output: "first.txt", "second.txt"
    shell: "echo 1 >first.txt"
EOF
    run with_profile --force
    [ "$status" -eq 1 ]
    says "second.txt"
    [ "$(forge show --json both | jq -r .reason)" = missing_output ]
    [ ! -e first.txt ]
}

@test "^C ends the runs" {
    gated_workflow
    background env --default-signal=INT snakemake --profile forge >snakemake.log 2>&1
    snakemake=$pid
    started_run slow
    kill -INT "$snakemake"
    patiently gone "$snakemake"
    is_in "$run_id" cancelled
    [ ! -e slow.txt ]
}

@test "a main process that was killed finds its run again, or what it has left" {
    gated_workflow
    background snakemake --profile forge >snakemake.log 2>&1
    snakemake=$pid
    started_run slow
    # Until Snakemake has written down which run it is.
    patiently grep -rq "$run_id" .snakemake/incomplete
    kill -KILL "$snakemake"
    patiently gone "$snakemake"
    snakemake --unlock
    background snakemake --profile forge >second.log 2>&1
    second=$pid
    patiently grep -q "Resuming incomplete job 0 with external jobid '$run_id'" second.log
    kill -KILL "$second"
    patiently gone "$second"
    # Nobody waits; the output comes all the same, complete.
    touch gate/open
    patiently test -e slow.txt
    [ "$(cat slow.txt)" = "done" ]
    snakemake --unlock
    run with_profile --ignore-incomplete
    [ "$status" -eq 0 ]
    says "Nothing to be done"
    [ "$(forge ps -qa --analysis slow | wc -l)" -eq 1 ]
}

@test "a run that is found again ends the job" {
    gated_workflow
    background snakemake --profile forge >snakemake.log 2>&1
    snakemake=$pid
    started_run slow
    patiently grep -rq "$run_id" .snakemake/incomplete
    kill -KILL "$snakemake"
    patiently gone "$snakemake"
    snakemake --unlock
    background snakemake --profile forge >second.log 2>&1
    second=$pid
    patiently grep -q "Resuming incomplete job" second.log
    touch gate/open
    patiently gone "$second"
    wait "$second"
    grep -q "1 of 1 steps (100%) done" second.log
    [ "$(cat slow.txt)" = "done" ]
    [ "$(forge ps -qa --analysis slow | wc -l)" -eq 1 ]
}

@test "forge is not there" {
    printf 'rule one:\n    output: "one.txt"\n    shell: "echo 1 >{output}"\n' >Snakefile
    FORGE=$T/nosuch run with_profile
    [ "$status" -eq 1 ]
    says "there is no program $T/nosuch; put forge into the PATH"
}

@test "script: in Python with a module beside it, in R and in Bash" {
    mkdir scripts data
    seq 10 >data/numbers.txt
    echo 'def double(x): return 2 * x' >scripts/helper.py
    cat >scripts/sum.py <<'EOF'
import helper
total = sum(int(line) for line in open(snakemake.input.numbers))
with open(snakemake.output[0], "w") as out:
    out.write(f"{helper.double(total)} {snakemake.params.unit} {snakemake.wildcards.kind} {snakemake.config['k']}\n")
EOF
    cat >scripts/mean.R <<'EOF'
numbers <- scan(snakemake@input[["numbers"]], quiet = TRUE)
writeLines(format(mean(numbers)), snakemake@output[[1]])
EOF
    echo 'wc -l <"${snakemake_input[numbers]}" >"${snakemake_output[0]}"' >scripts/count.sh
    cat >Snakefile <<'EOF'
config["k"] = 5
rule all:
    input: "out/deep/sum.plain.txt", "out/mean.txt", "out/count.txt"
rule sum:
    input: numbers="data/numbers.txt"
    output: "out/deep/sum.{kind}.txt"
    params: unit="apples"
    resources: forge_runtime="data-ml"
    script: "scripts/sum.py"
rule mean:
    input: numbers="data/numbers.txt"
    output: "out/mean.txt"
    resources: forge_runtime="r-base"
    script: "scripts/mean.R"
rule count:
    input: numbers="data/numbers.txt"
    output: "out/count.txt"
    script: "scripts/count.sh"
EOF
    run with_profile
    [ "$status" -eq 0 ]
    [ "$(cat out/deep/sum.plain.txt)" = "110 apples plain 5" ]
    [ "$(cat out/mean.txt)" = 5.5 ]
    [ "$(cat out/count.txt)" = 10 ]
    [ "$(forge show --json sum.plain | jq -r .runtime.name)" = data-ml ]
    mv out with
    snakemake -c1 --quiet
    run diff -r with out
    [ "$status" -eq 0 ]
}

@test "directories, touch(), temp(), protected(), hidden names, a shell prefix, variables and forge_options" {
    cat >Snakefile <<'EOF'
envvars: "COLOUR"
shell.prefix("set -eu; MODE=strict; ")
rule all:
    input: "parts", "flag", ".hidden", "kept.txt", "last.txt"
rule parts:
    output: directory("parts")
    shell: "mkdir -p {output}/deep; echo 1 >{output}/one; echo 2 >{output}/deep/two"
rule first:
    output: temp("first.txt")
    shell: "echo $MODE $COLOUR >{output}"
rule last:
    input: "first.txt", "parts"
    output: "last.txt"
    shell: "cat first.txt parts/one parts/deep/two >{output}"
rule flag:
    output: touch("flag")
    shell: "true"
rule hidden:
    output: ".hidden"
    shell: "echo 1 >{output}"
rule kept:
    output: protected("kept.txt")
    resources: forge_options="--pids 50 --env SHAPE=round"
    shell: "echo $SHAPE >{output}"
EOF
    COLOUR="dark blue" run with_profile
    [ "$status" -eq 0 ]
    [ "$(xargs <last.txt)" = "strict dark blue 1 2" ]
    [ ! -e first.txt ]
    [ -e flag ]
    [ -e .hidden ]
    [ "$(cat kept.txt)" = round ]
    [ "$(stat -c %A kept.txt)" = "-r--r--r--" ]
    [ "$(forge show --json kept | jq .limits.pids)" -eq 50 ]
}

@test "a gather rule has what the main process found with glob_wildcards" {
    mkdir data
    touch data/a.txt data/b.txt data/c.txt
    cat >Snakefile <<'EOF'
SAMPLES = sorted(glob_wildcards("data/{s}.txt").s)
rule gather:
    input: expand("made/{s}.txt", s=SAMPLES)
    output: "all.txt"
    shell: "cat {input} >{output}"
rule make:
    input: "data/{s}.txt"
    output: "made/{s}.txt"
    shell: "echo {wildcards.s} >{output}"
EOF
    run with_profile
    [ "$status" -eq 0 ]
    [ "$(xargs <all.txt)" = "a b c" ]
}

@test "a checkpoint, an included file, --config, quotes, and a directory with a space in its name" {
    mkdir -p "a b/rules"
    cd "a b"
    cat >Snakefile <<'EOF'
include: "rules/make.smk"
def parts(wildcards):
    found = checkpoints.split.get().output[0]
    return expand("made/{i}.txt", i=sorted(glob_wildcards(os.path.join(found, "{i}.txt")).i))
rule all:
    input: "all.txt"
checkpoint split:
    output: directory("parts")
    params: n=config["n"]
    shell: "mkdir {output}; for i in $(seq {params.n}); do echo $i >{output}/$i.txt; done"
rule gather:
    input: parts
    output: "all.txt"
    shell: "cat {input} >{output}"
EOF
    cat >rules/make.smk <<'EOF'
rule make:
    input: "parts/{i}.txt"
    output: "made/{i}.txt"
    params: quoted="it's $HOME \"q\" *"
    shell: "cat {input} >{output}; echo {params.quoted:q} >>{output}; printf '%s\\n' 'a{{b}}' >>{output}"
EOF
    cp -r . ../plain
    run with_profile --config n=3
    [ "$status" -eq 0 ]
    [ "$(grep -c "it's \$HOME \"q\" \*" all.txt)" -eq 3 ]
    [ "$(grep -cx 'a{b}' all.txt)" -eq 3 ]
    cd ../plain
    snakemake -c1 -q --config n=3
    run cmp all.txt "../a b/all.txt"
    [ "$status" -eq 0 ]
}

@test "a job that can never run here is no job that runs for ever" {
    configure 'host: {budget: {cpus: 1, memory: 1G}}'
    cat >Snakefile <<'EOF'
rule wide:
    output: "wide.txt"
    threads: 8
    shell: "echo {threads} >{output}"
EOF
    run with_profile --set-resources wide:mem_mb=128
    [ "$status" -eq 1 ]
    says "8"
    [ ! -e wide.txt ]
    run with_profile --set-resources wide:mem_mb=128 --max-threads 1
    [ "$status" -eq 0 ]
    [ "$(cat wide.txt)" = 1 ]
}

@test "group jobs are refused, and a run that was removed is a failure" {
    gated_workflow
    cat >>Snakefile <<'EOF'
rule one:
    output: temp("one.txt")
    group: "both"
    shell: "echo 1 >{output}"
rule two:
    input: "one.txt"
    output: "two.txt"
    group: "both"
    shell: "cat {input} >{output}"
EOF
    run with_profile two.txt
    [ "$status" -eq 1 ]
    says "group jobs are not supported"
    [ -z "$(forge ps -qa)" ]
    background snakemake --profile forge slow.txt >snakemake.log 2>&1
    snakemake=$pid
    started_run slow
    forge kill --now "$run_id"
    forge rm -f "$run_id"
    patiently gone "$snakemake"
    run wait "$snakemake"
    [ "$status" -eq 1 ]
    grep -Eq "rule slow: Cancelled|there is no run $run_id any more" snakemake.log
}

@test "what cannot be in the sandbox is refused, and nothing of it runs" {
    mkdir in
    cat >Snakefile <<'EOF'
rule all:
    input: "run.txt", "/tmp/absolute.txt", "in/out.txt", "never.txt"
rule python:
    output: "run.txt"
    run: open("escaped.txt", "w").close(); open(output[0], "w").close()
rule absolute:
    output: "/tmp/absolute.txt"
    shell: "echo 1 >{output}"
rule inside:
    input: "in"
    output: "in/out.txt"
    shell: "echo 1 >{output}"
rule environment:
    output: "never.txt"
    resources: forge_runtime="nosuch"
    shell: "echo 1 >{output}"
EOF
    run with_profile --keep-going
    [ "$status" -eq 1 ]
    says 'rule python has `run:`, which Snakemake executes itself and not in a sandbox'
    says "output /tmp/absolute.txt is not below the working directory"
    says "output in/out.txt is below the input in, which a run can only read"
    says "nosuch"
    [ ! -e escaped.txt ]
    [ ! -e run.txt ]
    [ ! -e never.txt ]
    [ -z "$(forge ps -qa)" ]
}
