#!/usr/bin/env python3
"""check.py DIRECTORY: are the results right? Looks for medians.csv, logrank.csv, cox-*.csv, report.md and curves.svg in
and below DIRECTORY, and, if they are there, for lung.csv and pbc.csv.

Compares with published numbers: of `lung` those in the documentation of R's package survival and in many textbooks, of `pbc`
those of the Mayo model (Therneau and Grambsch, Modeling Survival Data, 2000). From the data, medians and the equations of
the Cox models are computed again, without R. Standard library only.
"""
# SPDX-License-Identifier: Apache-2.0
import csv
import math
import pathlib
import sys

MEDIANS = {"all": (228, 165, 310, 285, 363), "sex=1": (138, 112, 270, 212, 310), "sex=2": (90, 53, 426, 348, 550)}
COX = {
    "sex": (228, 165, {"sex": (-0.5310, 0.1672)}),
    "clinical": (227, 164, {"age": (0.011067, 0.009267), "sex": (-0.552612, 0.167739), "ph.ecog": (0.463728, 0.113577)}),
    "mayo": (416, 160, {"age": (0.0396, 0.00767), "edema": (0.8963, 0.2714), "log(bili)": (0.8636, 0.0829),
                        "log(protime)": (2.3868, 0.7685), "log(albumin)": (-2.5069, 0.6529)}),
}


def find(directory, name):
    found = sorted(pathlib.Path(directory).rglob(name))
    if len(found) != 1:
        sys.exit(f"check: {len(found)} files {name} in {directory}, one is expected")
    return found[0]


def rows_of(directory, name):
    with open(find(directory, name), newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f))


def expect(what, got, wanted, relative=0.0):
    if abs(got - wanted) > relative * abs(wanted):
        sys.exit(f"check: {what}: {got}, expected {wanted}")


def median_of(cases):
    """Where the Kaplan-Meier curve of (time, died) first reaches one half."""
    alive = 1.0
    for time in sorted({t for t, died in cases if died}):
        deaths = sum(t == time and died for t, died in cases)
        alive *= 1 - deaths / sum(t >= time for t, _ in cases)
        if alive <= 0.5:
            return time
    return math.inf


def term_value(term, row):
    if term.startswith("log("):
        return math.log(float(row[term[4:-1]]))
    return float(row[term])


def check_equations(cases, coefficients):
    """The score of the partial likelihood (ties as Efron) is zero for these coefficients, in units of its own deviation."""
    data = []
    for row in cases:
        values = [row[t[4:-1] if t.startswith("log(") else t] for t in coefficients]
        if "NA" not in values:
            x = [term_value(t, row) for t in coefficients]
            risk = math.exp(sum(b * v for b, v in zip(coefficients.values(), x)))
            data.append((float(row["time"]), row["status"] == "1", x, risk))
    score, information = [0.0] * len(coefficients), [0.0] * len(coefficients)
    for time in sorted({t for t, died, *_ in data if died}):
        at_risk = [d for d in data if d[0] >= time]
        dead = [d for d in at_risk if d[0] == time and d[1]]
        for k in range(len(dead)):
            weights = [d[3] * (1 - k / len(dead) if d[0] == time and d[1] else 1) for d in at_risk]
            for j in range(len(score)):
                mean = sum(w * d[2][j] for w, d in zip(weights, at_risk)) / sum(weights)
                square = sum(w * d[2][j] ** 2 for w, d in zip(weights, at_risk)) / sum(weights)
                score[j] += dead[k][2][j] - mean
                information[j] += square - mean ** 2
    for term, u, i in zip(coefficients, score, information):
        if abs(u) > 1e-3 * math.sqrt(i):
            sys.exit(f"check: {term}: the partial likelihood is not at its maximum (score {u})")
    return len(data)


def main():
    directory = sys.argv[1]
    medians = {r["group"]: tuple(int(float(r[k])) for k in ("n", "events", "median", "lower", "upper"))
               for r in rows_of(directory, "medians.csv")}
    if medians != MEDIANS:
        sys.exit(f"check: medians: {medians}, expected {MEDIANS}")
    (logrank,) = rows_of(directory, "logrank.csv")
    expect("chi-square of the log-rank test", float(logrank["chisq"]), 10.3, 0.005)
    expect("p of the log-rank test", float(logrank["p"]), 0.00131, 0.005)
    found = {}
    for name, (n, events, terms) in COX.items():
        rows = rows_of(directory, f"cox-{name}.csv")
        if [r["term"] for r in rows] != list(terms):
            sys.exit(f"check: terms of model {name}: {[r['term'] for r in rows]}")
        for row in rows:
            coefficient, error = terms[row["term"]]
            expect(f"cases of {name}", int(row["n"]), n)
            expect(f"deaths of {name}", int(row["events"]), events)
            expect(f"coefficient {row['term']} of {name}", float(row["coef"]), coefficient, 1e-3)
            expect(f"error of {row['term']} of {name}", float(row["se"]), error, 1e-3)
        found[name] = {r["term"]: float(r["coef"]) for r in rows}
    report = find(directory, "report.md").read_text(encoding="utf-8")
    for sentence in ("| sex=2 | 90 | 53 | 426 | 348 | 550 |", "## Cox model clinical: 227 cases, 164 deaths",
                     "## Cox model mayo: 416 cases, 160 deaths", "| sex | 0.588 | 0.4237 | 0.816 |"):
        if sentence not in report:
            sys.exit(f"check: report.md does not have: {sentence}")
    if b"<svg" not in find(directory, "curves.svg").read_bytes()[:500]:
        sys.exit("check: curves.svg is no SVG")
    again = "numbers"
    if any(pathlib.Path(directory).rglob("lung.csv")):
        lung, pbc = rows_of(directory, "lung.csv"), rows_of(directory, "pbc.csv")
        for group, rows in (("all", lung), ("sex=1", [r for r in lung if r["sex"] == "1"]),
                            ("sex=2", [r for r in lung if r["sex"] == "2"])):
            expect(f"median of {group}, computed again", median_of([(int(r["time"]), r["status"] == "1") for r in rows]),
                   MEDIANS[group][2])
        for name, terms in found.items():
            expect(f"complete cases of {name}", check_equations(pbc if name == "mayo" else lung, terms), COX[name][0])
        again = "numbers, and the same again from the data"
    print(f"check: median survival 310 days (270 and 426 by sex), three Cox models: published {again}")


main()
