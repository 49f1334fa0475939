#!/usr/bin/env python3
"""Checks the chains of attempts in a FORGE_HOME whose runs are all over.

check-retries.py HOME: every attempt that was decided on is there, once, with the counters that follow from the
attempt before; no chain ends while its last verdict still had a retry left; no file waits for an attempt; no
command was started twice. Prints what is wrong, and the number of chains and attempts.
"""
# SPDX-License-Identifier: Apache-2.0
import collections
import glob
import json
import os
import sys

HOME = sys.argv[1]
wrong = []


def check(run_id, fact, text):
    if not fact:
        wrong.append(f"{run_id}: {text}")


def load(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


runs = {r["run_id"]: r for r in map(load, glob.glob(HOME + "/runs/*/record.json"))}
children = collections.defaultdict(list)
for r in runs.values():
    if r["attempt"] > 1:
        children[r["parent_run"]].append(r["run_id"])

for directory in os.listdir(HOME + "/runs"):
    check(directory, directory in runs, "has no record")
for run_id, r in runs.items():
    rules = r.get("retry", {})
    rule = rules.get(r["reason"])
    check(run_id, r["status"] in ("succeeded", "failed", "killed", "cancelled", "lost", "rejected"), f"is {r['status']}")
    with open(f"{HOME}/runs/{run_id}/events.jsonl", encoding="utf-8") as f:
        started = sum(1 for line in f if '"event":"started"' in line.replace(" ", ""))
    check(run_id, started <= 1, f"was started {started} times")
    check(run_id, len(children[run_id]) <= 1, f"has the attempts {children[run_id]}")
    if r.get("retried_by"):
        check(run_id, children[run_id] == [r["retried_by"]], f"retried_by {r['retried_by']}, but it has {children[run_id]}")
    else:
        check(run_id, not children[run_id], f"was not retried, but has {children[run_id]}")
        check(run_id, not rule or rule["used"] >= rule["times"] or r["status"] in ("succeeded", "cancelled"),
              f"{r['reason']} had a retry left: {r['completion_notes']}")
    if r["attempt"] == 1:
        check(run_id, all(x["used"] == 0 for x in rules.values()), "the first attempt has used a retry")
        continue
    parent = runs.get(r["parent_run"])
    if not parent:
        wrong.append(f"{run_id}: its parent {r['parent_run']} is gone")
        continue
    check(run_id, r["attempt"] == parent["attempt"] + 1, "has the wrong number")
    check(run_id, run_id > parent["run_id"], "is older than the attempt before")
    for reason, x in rules.items():
        before = parent["retry"][reason]
        want = before["used"] + (reason == parent["reason"])
        check(run_id, x["used"] == want and x["rule"] == before["rule"], f"{reason} is {x}, before it was {before}")
    limits = dict(parent["limits"], **parent.get("retried_with", {}))
    check(run_id, r["limits"] == limits, f"has the limits {r['limits']}, not {limits}")
    for key in ("command", "cwd", "env", "id", "retry"):
        check(run_id, r["asked"].get(key) == parent["asked"].get(key), f"was asked for another {key}")

for name in glob.glob(HOME + "/retries/*"):
    wrong.append(f"{name} is left")
print(f"{sum(r['attempt'] == 1 for r in runs.values())} chains, {len(runs)} attempts, "
      f"{sum(r['status'] == 'lost' for r in runs.values())} lost")
for line in wrong:
    print(line)
sys.exit(bool(wrong))
