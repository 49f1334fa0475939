#!/usr/bin/env python3
"""check-contrib.py METRICS DASHBOARD RULES: checks the dashboard and the rules against `forge metrics`.

METRICS is a page of OpenMetrics. Each metric that an expression names is in it, with labels that it has;
the dashboard has the structure that Grafana reads; each of its expressions is one for promtool.
"""
# SPDX-License-Identifier: Apache-2.0
import json
import re
import subprocess
import sys
import tempfile

SUFFIXES = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"],
            "summary": ["_count", "_sum"], "gauge": [""], "info": ["_info"]}
# Of the scrape, or added by it, and not of forge.
SCRAPE_METRICS = {"up"}
SCRAPE_LABELS = {"job", "instance", "le"}
NAME = re.compile(r"\b(forge_[a-z0-9_]+|up)\b(\{[^}]*\})?")
problems = []


def problem(text):
    problems.append(text)


def samples_of(path):
    """The name of each sample that the page can have -> the labels of those that it has."""
    names = {}
    with open(path) as page:
        for line in page:
            if line.startswith("# TYPE "):
                _, _, family, kind = line.split()
                names.update({family + suffix: set() for suffix in SUFFIXES[kind]})
            elif not line.startswith("#"):
                name = re.match(r"[a-zA-Z0-9_]+", line).group()
                if name not in names:
                    problem(f"a sample without a family: {line.strip()}")
                names.setdefault(name, set()).update(re.findall(r'[{,]([a-z_]+)="', line))
    return names


def check_expression(names, where, expression):
    found = NAME.findall(expression)
    if not found:
        problem(f"{where}: names no metric: {expression}")
    for name, selector in found:
        if name in SCRAPE_METRICS:
            continue
        if name not in names:
            problem(f"{where}: forge metrics has no {name}")
            continue
        for label in re.findall(r"([a-z_]+)\s*(?:=~|!~|!=|=)", selector):
            # Without a sample nothing is known of its labels.
            if names[name] and label not in names[name] | SCRAPE_LABELS:
                problem(f"{where}: {name} has no label {label}")


def plain(expression):
    """As Grafana would send it."""
    return expression.replace("$__rate_interval", "5m").replace("$instance", ".*")


def promtool_takes(expressions):
    rules = [{"record": f"x:{i}", "expr": plain(e)} for i, e in enumerate(expressions)]
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        # JSON is YAML.
        json.dump({"groups": [{"name": "x", "rules": rules}]}, file)
        file.flush()
        done = subprocess.run(["promtool", "check", "rules", file.name],
                              capture_output=True, text=True, check=False)
    if done.returncode:
        problem("promtool: " + done.stdout + done.stderr)


def overlap(a, b):
    return (a["x"] < b["x"] + b["w"] and b["x"] < a["x"] + a["w"]
            and a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"])


def check_panel(panel, seen):
    where = f"panel '{panel.get('title')}'"
    grid = panel.get("gridPos", {})
    for key in "hwxy":
        if not isinstance(grid.get(key), int):
            problem(f"{where}: gridPos has no {key}")
            return []
    if grid["x"] + grid["w"] > 24 or min(grid["h"], grid["w"]) < 1:
        problem(f"{where} is wider than the page, or has no size")
    for title, other in seen:
        if overlap(grid, other):
            problem(f"{where} covers '{title}'")
    seen.append((panel.get("title"), grid))
    if panel.get("type") == "row":
        return []
    if panel.get("datasource", {}).get("uid") != "${datasource}":
        problem(f"{where}: the data source is not the one that is chosen")
    targets = panel.get("targets", [])
    references = [t.get("refId") for t in targets]
    if not targets or len(set(references)) != len(references) or None in references:
        problem(f"{where}: targets without different refIds")
    return [(where, t.get("expr", "")) for t in targets]


def check_dashboard(path):
    """Returns its expressions, with where they are."""
    with open(path) as file:
        board = json.load(file)
    for key in "title", "uid", "schemaVersion", "panels", "templating", "time":
        if key not in board:
            problem(f"the dashboard has no {key}")
    variables = {v["name"]: v for v in board["templating"]["list"]}
    if variables["datasource"]["type"] != "datasource":
        problem("no data source can be chosen")
    identities = [p.get("id") for p in board["panels"]]
    if len(set(identities)) != len(identities) or not all(isinstance(i, int) for i in identities):
        problem("panels without different ids")
    seen, found = [], []
    for panel in board["panels"]:
        found += check_panel(panel, seen)
    for where, expression in found:
        for variable in re.findall(r"\$\{?([a-z_]+)", expression):
            if variable not in variables and not variable.startswith("__"):
                problem(f"{where}: there is no variable {variable}")
    return found


def check_rules(path):
    with open(path) as file:
        text = file.read()
    # The value of "expr:", on its line or as a block below it.
    found = re.findall(r"- alert: (\w+)\n(?:\s+#.*\n)?(\s+)expr:(.*(?:\n\2  .*)*)", text)
    if len(found) != text.count("- alert:"):
        problem(f"{path}: {text.count('- alert:')} alerts, {len(found)} expressions")
    return [(f"alert {name}", expression) for name, _, expression in found]


def main():
    metrics, dashboard, rules = sys.argv[1:]
    names = samples_of(metrics)
    in_board, in_rules = check_dashboard(dashboard), check_rules(rules)
    if len(in_board) < 10 or len(in_rules) < 5:
        problem(f"only {len(in_board)} and {len(in_rules)} expressions found")
    for where, expression in in_board + in_rules:
        check_expression(names, where, expression)
    promtool_takes([e for _, e in in_board])
    for text in problems:
        print(text)
    return 1 if problems else 0


sys.exit(main())
