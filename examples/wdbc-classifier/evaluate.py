"""evaluate.py: what the network of $model says about the cases of $test: predictions.csv, metrics.json."""
# SPDX-License-Identifier: Apache-2.0
import json
import os

import numpy as np
from sklearn.metrics import confusion_matrix, roc_auc_score


def main():
    threshold = float(os.environ["threshold"])
    with open(os.environ["model"]) as f:
        weights = {k: np.array(v) for k, v in json.load(f)["weights"].items()}
    table = np.loadtxt(os.environ["test"], delimiter=",")
    cases, labels = table[:, :-1], table[:, -1].astype(int)
    hidden = np.tanh((cases[:, None, :] * weights["w1"]).sum(axis=2) + weights["b1"])
    malignant = 1 / (1 + np.exp(-(hidden * weights["w2"]).sum(axis=1) - weights["b2"][0]))
    with open("predictions.csv", "w") as out:
        out.write("malignant,probability\n")
        out.writelines(f"{label},{probability:.9f}\n" for label, probability in zip(labels, malignant))
    (true_negative, false_positive), (false_negative, true_positive) = confusion_matrix(labels, malignant >= threshold).tolist()
    metrics = {
        "cases": len(labels),
        "malignant": int(labels.sum()),
        "threshold": threshold,
        "accuracy": round((true_positive + true_negative) / len(labels), 6),
        "sensitivity": round(true_positive / (true_positive + false_negative), 6),
        "specificity": round(true_negative / (true_negative + false_positive), 6),
        "auc": round(float(roc_auc_score(labels, malignant)), 6),
        "confusion": {"true_positive": true_positive, "false_negative": false_negative,
                      "false_positive": false_positive, "true_negative": true_negative},
    }
    with open("metrics.json", "w") as out:
        json.dump(metrics, out, indent=2)
        out.write("\n")


main()
