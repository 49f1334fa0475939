#!/usr/bin/env python3
"""check.py DIRECTORY: are the results right? Looks for calls.vcf, summary.json and depth.png in and below DIRECTORY.

The reads were simulated from a genome with mutations that nobody wrote down. The check finds them without an aligner:
where the sample differs from the reference, the reads have words of 21 bases with the variant and none without it.
Standard library only; the data is Debian's bowtie2-examples.
"""
# SPDX-License-Identifier: Apache-2.0
import collections
import gzip
import json
import pathlib
import sys

DATA = pathlib.Path("/usr/share/doc/bowtie2/examples")
K = 21
COMPLEMENT = str.maketrans("ACGT", "TGCA")


def find(directory, name):
    found = sorted(pathlib.Path(directory).rglob(name))
    if len(found) != 1:
        sys.exit(f"check: {len(found)} files {name} in {directory}, one is expected")
    return found[0]


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"check: {what}: {got}, expected {wanted}")


def read_genome():
    with gzip.open(DATA / "reference/lambda_virus.fa.gz", "rt") as lines:
        return "".join(line.strip() for line in lines if not line.startswith(">")).upper()


def count_words():
    words = collections.Counter()
    for name in ("reads_1.fq.gz", "reads_2.fq.gz"):
        with gzip.open(DATA / "reads" / name, "rt") as lines:
            for number, line in enumerate(lines):
                if number % 4 == 1:
                    read = line.strip()
                    words.update(read[i:i + K] for i in range(len(read) - K + 1))
    return words


def read_calls(path):
    with open(path, encoding="ascii") as lines:
        rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return [(int(r[1]), r[3], r[4], float(r[5])) for r in rows]


def check_calls(genome, words, calls):
    """Every call that stands alone is in the reads, and the reference is not."""
    def support(word):
        return words[word] + words[word.translate(COMPLEMENT)[::-1]]

    alone = 0
    for position, ref, alt, _ in calls:
        expect(f"reference at {position}", ref, genome[position - 1:position - 1 + len(ref)])
        if any(other != position and abs(other - position) <= 15 for other, *_ in calls):
            continue
        left, right = genome[position - 11:position - 1], genome[position - 1 + len(ref):]
        with_it, without = support((left + alt + right[:K])[:K]), support((left + ref + right[:K])[:K])
        if with_it < 10 or without > 1:
            sys.exit(f"check: {position} {ref}>{alt}: {with_it} words of the reads have it and {without} do not")
        alone += 1
    expect("calls that stand alone", alone, 80)
    # The other way round: where no read agrees with the genome, a variant is called; all but three are found.
    places = []
    for start in range(1, len(genome) - K + 2):
        if support(genome[start - 1:start - 1 + K]) > 1 or any(p - K <= start <= p + len(r) for p, r, *_ in calls):
            continue
        if not places or start - places[-1][-1] > 1:
            places.append([start])
        places[-1].append(start)
    expect("places that were missed", [place[0] for place in places], [5794, 36193, 37576])


def main():
    directory = sys.argv[1]
    genome = read_genome()
    expect("length of the genome", len(genome), 48502)
    calls = read_calls(find(directory, "calls.vcf"))
    expect("calls", len(calls), 88)
    check_calls(genome, count_words(), calls)
    with open(find(directory, "summary.json"), encoding="utf-8") as f:
        summary = json.load(f)
    quality = summary["min_quality"]
    good = [c for c in calls if c[3] >= quality]
    expect("genome_length", summary["genome_length"], 48502)
    expect("covered", summary["covered"], 48500)
    expect("mean_depth", summary["mean_depth"], 42.694)
    expect("below_quality", summary["below_quality"], len(calls) - len(good))
    expect("snp_positions", summary["snp_positions"], [p for p, ref, alt, _ in good if len(ref) == len(alt) == 1])
    if quality == 20:
        expect("variants", summary["variants"], {"snp": 34, "deletion": 52, "insertion": 1})
    with open(find(directory, "depth.png"), "rb") as f:
        expect("begin of depth.png", f.read(8), b"\x89PNG\r\n\x1a\n")
    print(f"check: {len(calls)} variants, {len(good)} with quality {quality:g} or more; 80 confirmed by words of the reads, 3 missed")


main()
