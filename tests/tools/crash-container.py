#!/usr/bin/env python3
"""Kills the supervisors of runs in containers at random moments.

crash-container.py FORGE EXECUTOR N: N runs, each with up to three kills, and a forge command after each of them,
which starts the next supervisor. A command that was started ends with its own verdict, its whole log and its
output; one that was not is lost; none is started twice. FORGE_HOME and FORGE_CONFIG are the caller's.
"""
# SPDX-License-Identifier: Apache-2.0
import glob
import json
import os
import random
import select
import subprocess
import sys

SCRIPT = "for i in $(seq 5); do echo line $i; sleep 0.05; done; echo done >r.txt; exit 3"
HOME = os.environ["FORGE_HOME"]


def forge(*words):
    return subprocess.run([sys.argv[1], *words], capture_output=True, text=True, timeout=120,
                          check=False).stdout


def lines(path):
    with open(path, encoding="utf-8") as f:
        for line in f:
            try:
                yield json.loads(line)
            except ValueError:
                continue  # blank, or torn by a kill


def supervisor(run_id):
    """The pid in the slot of the run; None: no slot has it."""
    for path in glob.glob(HOME + "/active/*"):
        slot = {}
        for line in lines(path):
            slot.update(line)
        if slot.get("run_id") == run_id:
            return slot.get("pid")
    return None


def crash(executor):
    """One run. What is wrong with how it ended, or None, and whether it was started."""
    run_id = forge("submit", "--executor", executor, "--", "sh", "-c", SCRIPT).strip()
    for _ in range(random.choice([1, 1, 2, 3])):
        select.select([], [], [], random.random() * 0.6)
        pid = supervisor(run_id)
        try:
            if pid:
                os.kill(pid, 9)
        except ProcessLookupError:
            pass
        forge("ps")
    forge("wait", run_id)
    record = json.loads(forge("show", "--json", run_id))
    log = forge("logs", run_id).split("\n")[:-1]
    starts = sum(e.get("event") == "started" for e in lines(f"{HOME}/runs/{run_id}/events.jsonl"))
    ended = (record["status"], record["reason"], record["exit_code"], len(log), len(record["outputs"] or []))
    if starts == 0 and record["status"] == "lost":
        return None, False
    if starts == 1 and ended == ("failed", "exit", 3, 5, 1):
        return None, True
    return f"{run_id}: {starts} starts, {ended}: {record['completion_notes']}", True


def main():
    seed = random.randrange(1 << 32)
    print(f"# seed {seed}")
    random.seed(seed)
    wrong, started = [], 0
    for _ in range(int(sys.argv[3])):
        what, is_started = crash(sys.argv[2])
        started += is_started
        if what:
            wrong.append(what)
    for what in wrong:
        print(what)
    left = [p for p in glob.glob(HOME + "/active/*") if os.path.getsize(p)] + glob.glob(HOME + "/containers/*")
    for path in left:
        print("left:", path)
    print(f"{started} of {sys.argv[3]} were started, {len(wrong)} ended wrong")
    return 1 if wrong or left or not started else 0


sys.exit(main())
