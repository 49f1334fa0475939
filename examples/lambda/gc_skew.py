#!/usr/bin/env python3
"""gc_skew.py GENOME.fa.gz: composition, GC skew and open reading frames of a genome.

Prints a summary and writes outputs/summary.json, outputs/skew.tsv and outputs/codons.tsv.
Standard library only.
"""
# SPDX-License-Identifier: Apache-2.0
import collections
import gzip
import json
import os
import sys

WINDOW = 500
STOPS = {"TAA", "TAG", "TGA"}
COMPLEMENT = str.maketrans("ACGT", "TGCA")


def read_fasta(path):
    with gzip.open(path, "rt") as lines:
        name = next(lines)[1:].strip()
        return name, "".join(line.strip() for line in lines).upper()


def cumulative_skew(seq):
    """(position, sum of G - C so far) at the end of each window."""
    total, points = 0, []
    for start in range(0, len(seq), WINDOW):
        part = seq[start:start + WINDOW]
        total += part.count("G") - part.count("C")
        points.append((start + len(part), total))
    return points


def reading_frames(seq, least=90):
    """(start, end, strand) of every ATG...stop, 1-based on the forward strand."""
    for strand, text in (("+", seq), ("-", seq.translate(COMPLEMENT)[::-1])):
        for frame in range(3):
            start = None
            for i in range(frame, len(text) - 2, 3):
                codon = text[i:i + 3]
                if start is None and codon == "ATG":
                    start = i
                elif start is not None and codon in STOPS:
                    if i + 3 - start >= least:
                        yield ((start + 1, i + 3, "+") if strand == "+"
                               else (len(seq) - i - 2, len(seq) - start, "-"))
                    start = None


def codons_of(seq, frames):
    counts = collections.Counter()
    for start, end, strand in frames:
        text = seq[start - 1:end]
        if strand == "-":
            text = text.translate(COMPLEMENT)[::-1]
        counts.update(text[i:i + 3] for i in range(0, len(text), 3))
    return counts


def main():
    name, seq = read_fasta(sys.argv[1])
    skew = cumulative_skew(seq)
    frames = sorted(reading_frames(seq), key=lambda f: f[0] - f[1])
    long_ones = [f for f in frames if f[1] - f[0] + 1 >= 300]
    codons = codons_of(seq, long_ones)
    start, end, strand = frames[0]
    lowest = min(skew, key=lambda point: point[1])
    highest = max(skew, key=lambda point: point[1])
    summary = {
        "sequence": name,
        "length": len(seq),
        "gc_percent": round(100 * (seq.count("G") + seq.count("C")) / len(seq), 2),
        "skew_minimum": {"position": lowest[0], "value": lowest[1]},
        "skew_maximum": {"position": highest[0], "value": highest[1]},
        "orfs_over_300": len(long_ones),
        "longest_orf": {"start": start, "end": end, "strand": strand,
                        "amino_acids": (end - start + 1) // 3 - 1},
        "commonest_codons": codons.most_common(5),
    }

    os.makedirs("outputs", exist_ok=True)
    with open("outputs/summary.json", "w", encoding="utf-8") as out:
        json.dump(summary, out, indent=2)
    with open("outputs/skew.tsv", "w", encoding="utf-8") as out:
        out.writelines(f"{position}\t{value}\n" for position, value in skew)
    with open("outputs/codons.tsv", "w", encoding="utf-8") as out:
        out.writelines(f"{codon}\t{n}\n" for codon, n in sorted(codons.items()))

    print(f"{name}")
    print(f"  length           {len(seq):,} bp")
    print(f"  GC content       {summary['gc_percent']} %")
    print(f"  cumulative skew  lowest at {lowest[0]:,} bp, highest at {highest[0]:,} bp")
    print(f"  ORFs >= 300 bp   {len(long_ones)}")
    print(f"  longest ORF      {start:,}..{end:,} ({strand}), "
          f"{summary['longest_orf']['amino_acids']:,} amino acids")
    print("  commonest codons " + " ".join(f"{c} {n}" for c, n in codons.most_common(5)))


main()
