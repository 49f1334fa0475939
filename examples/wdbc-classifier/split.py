"""split.py: 70 % of the cases of $data to train.csv, the rest to test.csv, with the same share of malignant ones.

Features are scaled by mean and deviation of the training cases (scaling.json); the last column is 1 for malignant.
"""
# SPDX-License-Identifier: Apache-2.0
import csv
import json
import os

import numpy as np


def write(path, rows):
    with open(path, "w", newline="") as out:
        csv.writer(out, lineterminator="\n").writerows([*map(repr, map(float, row[:-1])), int(row[-1])] for row in rows)


def main():
    rng = np.random.default_rng(int(os.environ["seed"]))
    with open(os.environ["data"], newline="") as f:
        # The first line has numbers and names: 569,30,malignant,benign.
        rows = np.array([[float(x) for x in row] for row in list(csv.reader(f))[1:]])
    # In the file 0 is malignant.
    rows[:, -1] = 1 - rows[:, -1]
    chosen = []
    for label in (0, 1):
        cases = rng.permutation(np.flatnonzero(rows[:, -1] == label))
        chosen.extend(cases[:round(0.7 * len(cases))])
    is_train = np.zeros(len(rows), bool)
    is_train[chosen] = True
    mean, deviation = rows[is_train, :-1].mean(axis=0), rows[is_train, :-1].std(axis=0)
    rows[:, :-1] = (rows[:, :-1] - mean) / deviation
    write("train.csv", rows[is_train])
    write("test.csv", rows[~is_train])
    with open("scaling.json", "w") as out:
        json.dump({"mean": mean.tolist(), "deviation": deviation.tolist()}, out)


main()
