#!/usr/bin/env python3
"""check.py DIRECTORY: are the results right? Looks for metrics.json, predictions.csv, model.json and the executed report.ipynb
in and below DIRECTORY. Computes accuracy and area under the curve again from the predictions. Standard library only.
"""
# SPDX-License-Identifier: Apache-2.0
import csv
import json
import pathlib
import sys


def find(directory, name):
    found = sorted(pathlib.Path(directory).rglob(name))
    if len(found) != 1:
        sys.exit(f"check: {len(found)} files {name} in {directory}, one is expected")
    return found[0]


def read_json(directory, name):
    with open(find(directory, name), encoding="utf-8") as f:
        return json.load(f)


def expect(what, got, wanted, tolerance=0.0):
    if abs(got - wanted) > tolerance:
        sys.exit(f"check: {what}: {got}, expected {wanted}" + (f" within {tolerance}" if tolerance else ""))


def check_report(notebook):
    """Every cell ran, none failed, and it shows the curve."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    outputs = [output for cell in cells for output in cell["outputs"]]
    if any(cell["execution_count"] is None for cell in cells):
        sys.exit("check: report.ipynb has cells that did not run")
    if any(output["output_type"] == "error" for output in outputs):
        sys.exit("check: a cell of report.ipynb failed")
    if not any("image/png" in output.get("data", {}) for output in outputs):
        sys.exit("check: report.ipynb shows no plot")
    return "".join("".join(output.get("text", "")) for output in outputs)


def main():
    directory = sys.argv[1]
    metrics = read_json(directory, "metrics.json")
    with open(find(directory, "predictions.csv"), newline="", encoding="ascii") as f:
        rows = [(int(row["malignant"]), float(row["probability"])) for row in csv.DictReader(f)]
    # 30 % of 357 benign and 212 malignant cases.
    expect("cases", len(rows), 171)
    expect("malignant cases", sum(label for label, _ in rows), 64)
    threshold = metrics["threshold"]
    right = sum((probability >= threshold) == bool(label) for label, probability in rows)
    expect("accuracy, computed again", metrics["accuracy"], right / len(rows), 1e-6)
    # The chance that a malignant case has a higher probability than a benign one.
    malignant = [p for label, p in rows if label]
    benign = [p for label, p in rows if not label]
    wins = sum((a > b) + 0.5 * (a == b) for a in malignant for b in benign)
    expect("area under the curve, computed again", metrics["auc"], wins / len(malignant) / len(benign), 1e-6)
    # 97.5 % is the accuracy that the authors of the data published (Wolberg, Street and Mangasarian 1995).
    if threshold == 0.5:
        expect("accuracy", metrics["accuracy"], 0.975, 0.015)
    expect("area under the curve", metrics["auc"], 0.995, 0.005)
    loss = read_json(directory, "model.json")["loss"]
    expect("last loss", loss[-1], 0.01, 0.01)
    if not loss[0] > 5 * loss[-1]:
        sys.exit(f"check: the loss goes from {loss[0]} to {loss[-1]} only")
    text = check_report(read_json(directory, "report.ipynb"))
    sentence = f"171 cases, 64 malignant: accuracy {metrics['accuracy']:.4f}, area under the curve {metrics['auc']:.4f}"
    if sentence not in text:
        sys.exit(f"check: report.ipynb does not say: {sentence}")
    print(f"check: accuracy {metrics['accuracy']:.4f}, area under the curve {metrics['auc']:.4f}, {len(loss)} iterations")


main()
