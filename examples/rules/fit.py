"""Fits a line to points.csv: fit.json has slope and intercept."""
import csv
import json
import sys

with open(sys.argv[1]) as f:
    points = [(float(r["x"]), float(r["y"])) for r in csv.DictReader(f)]
n = len(points)
mean_x = sum(x for x, _ in points) / n
mean_y = sum(y for _, y in points) / n
slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
with open("fit.json", "w") as f:
    json.dump({"points": n, "slope": round(slope, 6), "intercept": round(mean_y - slope * mean_x, 6)}, f)
