#!/usr/bin/env python3
"""Kills what works on a pipeline at random moments, and resumes it.

crash-pipeline.py FORGE N [PG]: at least N kills in all. Each round is a pipeline with new keys: heads, launchers,
supervisors and what belongs to them are killed with SIGKILL, one or all at once, and the pipeline is started again
until it ends. With PG, a command that kills ("--kill") and starts ("--start") the PostgreSQL server of the store,
the server is among the victims. Afterwards the result must be that of an undisturbed run, no step may have succeeded
twice, and no process, workdir or staging directory may be left. TAP. FORGE_HOME and FORGE_CONFIG are the caller's;
$FORGE_STORE may name a store.
"""
# SPDX-License-Identifier: Apache-2.0
import hashlib
import json
import os
import pathlib
import random
import select
import signal
import subprocess
import sys
import tempfile

FORGE, KILLS = sys.argv[1], int(sys.argv[2])
PG = sys.argv[3] if len(sys.argv) > 3 else None
HOME = pathlib.Path(os.environ["FORGE_HOME"])
PIPELINE = """
name: crash
params: {round: 0}
steps:
  split: {run: 'for i in 1 2 3; do echo $round $i >part$i; done', outputs: ["part*"]}
  work:
    foreach: {i: [1, 2, 3]}
    inputs: {parts: "split/part*"}
    checkpoint: state
    run: |
      for n in 1 2 3 4; do [ -e state/$n ] || { sleep 0.02; echo $n >state/tmp; mv state/tmp state/$n; }; done
      { cat $parts/part$i; cat state/[1-4]; } >out
    outputs: [out]
  join: {inputs: {outs: work/out}, run: 'cat $outs/*/out >all', outputs: [all]}
  sum: {inputs: {all: join/all}, run: 'sha256sum <$all | cut -c 1-64 >sum', outputs: [sum]}
"""


def pause(seconds):
    select.select([], [], [], seconds)


def processes():
    """Every process of ours that runs forge: {pid: name}. The marker is in the environment of each."""
    found = {}
    mark = b"FORGE_HOME=" + os.fsencode(str(HOME))
    for path in pathlib.Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            if mark in (path / "environ").read_bytes().split(b"\0") and \
                    os.readlink(path / "exe").split(" ")[0] == os.path.realpath(FORGE):
                found[int(path.name)] = (path / "comm").read_text().strip()
        except OSError:
            continue
    return found


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def start(number, directory):
    return subprocess.Popen([FORGE, "pipeline", "run", "--json", "-p", f"round={number}", directory],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def expected(number):
    text = "".join(f"{number} {i}\n1\n2\n3\n4\n" for i in (1, 2, 3))
    return hashlib.sha256(text.encode()).hexdigest() + "\n"


class Victims:
    """How often each kind of process was killed."""

    def __init__(self):
        self.counts = {}

    def add(self, name):
        self.counts[name] = self.counts.get(name, 0) + 1

    def total(self):
        return sum(self.counts.values())

    def strike(self, head):
        """Kills one process, all of them, or the server of the store."""
        choice = random.random()
        if PG and choice < 0.1:
            subprocess.run([PG, "--kill"], check=True)
            self.add("server")
            pause(random.random() * 0.3)
            subprocess.run([PG, "--start"], check=True)
            return
        if choice < 0.3:
            kill(head.pid)
            self.add("head")
            return
        alive = processes()
        alive.pop(os.getpid(), None)
        if not alive:
            return
        if choice < 0.45:
            for pid in alive:
                kill(pid)
            self.add("all")
        else:
            pid = random.choice(list(alive))
            kill(pid)
            self.add("head" if pid == head.pid else alive[pid])


def round_of(number, directory, victims):
    """One pipeline, up to four strikes, and then until it ends. What is wrong, or None."""
    for _ in range(random.choice([1, 2, 3, 4])):
        head = start(number, directory)
        pause(random.random() * 0.35)
        victims.strike(head)
        if random.random() < 0.7:
            kill(head.pid)
        head.communicate()
    for attempt in range(10):
        head = start(number, directory)
        out, err = head.communicate(timeout=120)
        if head.returncode == 0:
            break
    else:
        return f"round {number} did not end: {err[-300:]} {out[-600:]}"
    runs = [json.loads(line) for line in out.splitlines()]
    last = [e["run_id"] for e in runs if e.get("task") == "sum" and e.get("run_id")]
    with tempfile.TemporaryDirectory() as to:
        subprocess.run([FORGE, "outputs", "--copy", to + "/o", last[-1]], check=True, capture_output=True)
        result = pathlib.Path(to, "o", "sum").read_text()
    if result != expected(number):
        return f"round {number}: the result is {result!r}"
    return None


def succeeded_twice():
    """Keys of steps that have more than one successful run."""
    out = subprocess.run([FORGE, "ps", "-a", "--status", "succeeded", "--json"], capture_output=True, text=True,
                         check=True).stdout
    keys = {}
    for line in out.splitlines():
        run_id = json.loads(line)["run_id"]
        record = json.loads((HOME / "runs" / run_id / "record.json").read_text())
        keys.setdefault(record["step"]["key"], []).append(run_id)
    return [(key, ids) for key, ids in keys.items() if len(ids) > 1], len(keys)


def main():
    victims, problems, number = Victims(), [], 0
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        pathlib.Path(directory, "pipeline.yaml").write_text(PIPELINE)
        while victims.total() < KILLS and len(problems) < 3:
            number += 1
            problem = round_of(number, directory, victims)
            if problem:
                problems.append(problem)
    print(f"# {number} pipelines, killed: {victims.counts}")
    for problem in problems:
        print(f"# {problem}")
    results = [(not problems, "every pipeline ends with the result of an undisturbed one")]
    twice, n_keys = succeeded_twice()
    for key, ids in twice:
        print(f"# {key}: {ids}")
    results.append((not twice, f"none of {n_keys} steps succeeded twice"))
    for _ in range(3):
        subprocess.run([FORGE, "gc"], capture_output=True, check=False)
    staging = list((HOME / "staging").iterdir())
    print(f"# {staging}" if staging else "# no staging directory is left")
    results.append((not staging, "no staging directory is left"))
    left = [name for name in processes().values() if name != "python3"]
    results.append((not left, f"no process is left {left or ''}"))
    slots = [p.name for p in (HOME / "active").iterdir() if p.stat().st_size]
    results.append((not slots, f"no slot is left {slots or ''}"))
    for i, (good, name) in enumerate(results, 1):
        print(f"{'ok' if good else 'not ok'} {i} {name}")
    print(f"1..{len(results)}")
    return 0 if all(good for good, _ in results) else 1


sys.exit(main())
