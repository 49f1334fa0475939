#!/usr/bin/env bats
# Real analyses in the runtimes that come with forge, as somebody would try them first.
# SPDX-License-Identifier: Apache-2.0

load ../lib/newcomer.bash
setup() {
    setup_newcomer
    # Where runtimes that come with forge lie in this tree.
    mkdir -p "$T/data"
    ln -s "$EXAMPLES/runtimes" "$T/data/runtimes.d"
    export FORGE_DATADIR=$T/data
}
teardown() { teardown_forge; }

@test "R: a survival curve, its plot and its table" {
    cat >survival.R <<'EOF'
library(survival)
fit <- survfit(Surv(time, status) ~ sex, data = lung)
write.csv(summary(fit)$table, "table.csv")
pdf("curve.pdf"); plot(fit); invisible(dev.off())
EOF
    run forge run -r r-base survival.R
    [ "$status" -eq 0 ]
    forge outputs last --copy got
    grep -q 'sex=1' got/table.csv
    head -c 4 got/curve.pdf | grep -q '%PDF'
}

@test "bowtie2 and samtools: a directory as input, two CPUs, a sorted alignment" {
    reads=/usr/share/doc/bowtie2/examples/reads
    reference=/usr/share/doc/bowtie2/examples/reference/lambda_virus.fa.gz
    mkdir data
    gunzip -c "$reference" >data/ref.fa
    cp "$reads"/reads_1.fq.gz data/
    cat >align.sh <<'EOF'
set -e
bowtie2-build -q data/ref.fa idx
bowtie2 -p 2 -x idx -U data/reads_1.fq.gz 2>align.log | samtools sort -o aln.bam
samtools flagstat aln.bam >flagstat.txt
EOF
    run forge run -r genomics --cpus 2 -i data -o '*.bam' -o flagstat.txt align.sh
    [ "$status" -eq 0 ]
    says "not kept, e.g."
    forge outputs last --copy got
    grep -q 'mapped' got/flagstat.txt
    [ -s got/aln.bam ]
    [ "$(forge show --json last | jq -r .runtime.name)" = genomics ]
}

@test "a program that the runtime lacks" {
    run -127 forge run -r python3 Rscript -e 1
    says "runtime python3 has no Rscript (it has python3)."
    python3 -m venv --without-pip venv
    run -127 forge run -r ./venv nosuchprogram
    says " has no nosuchprogram (it has python3, python"
}

@test "a venv and a conda prefix, by their paths" {
    python3 -m venv --without-pip venv
    run forge run -r ./venv python3 -c 'import sys; print(sys.prefix)'
    [ "$status" -eq 0 ]
    says "$PWD/venv"
    mkdir -p condaenv/conda-meta condaenv/bin
    echo '{"name": "tool", "version": "1", "build": "0", "files": ["bin/tool"]}' >condaenv/conda-meta/tool-1-0.json
    printf '#!/bin/sh\necho "from $CONDA_PREFIX"\n' >condaenv/bin/tool
    chmod 755 condaenv/bin/tool
    run forge run -r condaenv tool
    [ "$status" -ne 0 ]
    says "write ./condaenv for the directory here"
    run forge run -r ./condaenv tool
    [ "$status" -eq 0 ]
    says "from $PWD/condaenv"
}

@test "an active environment that is not used is one line" {
    python3 -m venv --without-pip venv
    VIRTUAL_ENV=$PWD/venv run forge run true
    [ "$status" -eq 0 ]
    says "is not used"
    [ "$(grep -c 'is not used' <<<"$output")" -eq 1 ]
    VIRTUAL_ENV=$PWD/venv run forge run -r ./venv true
    says_not "is not used"
}

@test "a directory of the host that is not there inside: the program says so, and nothing is lost" {
    run forge run -- sh -c 'echo 1 >kept; echo 2 >/data/out/x'
    [ "$status" -ne 0 ]
    says "/data/out/x"
    [ "$(forge outputs --json last | jq -r '.[].path')" = kept ]
}

@test "doctor and completion as an ordinary user" {
    skip_unless "only root can do this" is_root
    command -v setpriv >/dev/null
    theirs=$(mktemp -d)
    mkdir -p "$theirs/libexec/forge" "$theirs/bin"
    cp "$FORGE" "$theirs/bin/forge"
    cp "$PROBE" "$theirs/libexec/forge/forge-probe"
    chown -R 4321:4321 "$theirs"
    as() { (cd / && setpriv --reuid 4321 --regid 4321 --clear-groups env HOME="$theirs" FORGE_HOME="$theirs/home" "$@"); }
    run as "$theirs/bin/forge" doctor
    # Whatever the host allows them: a table, and a fix where one is needed.
    [ "$status" -eq 0 ] || says "To fix"
    says memory
    run as "$theirs/bin/forge" completion bash
    [ "$status" -eq 0 ]
    says "complete -F"
    rm -rf "$theirs"
}
