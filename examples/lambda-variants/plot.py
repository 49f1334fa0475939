"""plot.py: depth.png shows how many reads cover the genome and where variants are; summary.json has the numbers.

Reads the files named by $vcf and $depth; variants below $min_quality are counted apart.
"""
# SPDX-License-Identifier: Apache-2.0
import json
import os

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

WINDOW = 100
MIN_QUALITY = float(os.environ["min_quality"])


def read_variants(path):
    """(position, kind, quality) of each line."""
    variants = []
    with open(path) as lines:
        for line in lines:
            if line.startswith("#"):
                continue
            _, position, _, ref, alt, quality = line.split("\t")[:6]
            kind = "snp" if len(ref) == len(alt) == 1 else "deletion" if len(alt) < len(ref) else "insertion"
            variants.append((int(position), kind, float(quality)))
    return variants


def plot(depth, good):
    windows = depth[:len(depth) // WINDOW * WINDOW].reshape(-1, WINDOW).mean(axis=1)
    figure, axes = plt.subplots(figsize=(10, 4))
    axes.fill_between(np.arange(len(windows)) * WINDOW / 1000, windows, color="#c9d7e8", label=f"depth, mean of {WINDOW} bp")
    for kind, colour, height in (("snp", "#b3403a", 6), ("deletion", "#35608f", 3), ("insertion", "#4d8a3f", 0)):
        places = [p / 1000 for p, k, _ in good if k == kind]
        axes.plot(places, [height] * len(places), "|", color=colour, markersize=8, label=f"{len(places)} {kind}s")
    axes.set(xlabel="position (kb)", ylabel="reads", xlim=(0, len(depth) / 1000), ylim=(-4, 1.2 * windows.max()),
             title="Phage lambda: reads and variants")
    axes.legend(loc="upper right", ncol=4, fontsize="small")
    figure.tight_layout()
    # Without the version of the library, the same data is the same file.
    figure.savefig("depth.png", dpi=100, metadata={"Software": None})


def main():
    variants = read_variants(os.environ["vcf"])
    depth = np.loadtxt(os.environ["depth"], usecols=2, dtype=int)
    good = [v for v in variants if v[2] >= MIN_QUALITY]
    summary = {
        "genome_length": int(len(depth)),
        "covered": int((depth > 0).sum()),
        "mean_depth": round(float(depth.mean()), 3),
        "min_quality": MIN_QUALITY,
        "below_quality": len(variants) - len(good),
        "variants": {kind: sum(v[1] == kind for v in good) for kind in ("snp", "deletion", "insertion")},
        "snp_positions": [v[0] for v in good if v[1] == "snp"],
    }
    with open("summary.json", "w") as out:
        json.dump(summary, out, indent=2)
        out.write("\n")
    plot(depth, good)


main()
