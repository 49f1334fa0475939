#!/usr/bin/env python3
"""Kills processes of forge at random moments while runs are on a Slurm cluster.

crash-slurm.py FORGE N DIR: N runs, some of forge submit and some of forge run, eight at a time. Meanwhile one process
of forge after the other gets SIGKILL, more of them than there are runs: a supervisor, the watcher, one of its children,
forge on a node; a forge command follows each time. DIR is executors.slurm.dir. Every run then has one verdict. A command
that was started was started once; it ended with its own exit code, its whole log and its output, unless forge on its
node was killed: then the run is lost or was refused, as is one whose supervisor was killed before it had submitted. Nothing is left
but the cgroups of forge on a node. FORGE_HOME and FORGE_CONFIG are the caller's, and FORGE_HOME has no runs yet.
"""
# SPDX-License-Identifier: Apache-2.0
import collections
import glob
import json
import os
import random
import select
import subprocess
import sys
import time

SCRIPT = "for i in $(seq 5); do echo line $i; sleep 0.1; done; echo done >r.txt; exit 3"
FORGE, N, SHARED = sys.argv[1], int(sys.argv[2]), sys.argv[3]
HOME = os.environ["FORGE_HOME"]
AT_ONCE = 8
KILLS_OF_EACH = 1.5
WEIGHTS = {"submit": 6, "run": 2, "__attend": 6, "__node": 3, "__watch": 2}


def pause(seconds):
    select.select([], [], [], seconds)


def forge(*words):
    return subprocess.run([FORGE, *words], capture_output=True, text=True, timeout=120, check=False).stdout


def read(path):
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return b""


def ours():
    """(what it is, pid, run id or None) of every process of this FORGE_HOME, and of forge on the nodes."""
    home = b"FORGE_HOME=" + HOME.encode()
    for path in glob.glob("/proc/[0-9]*"):
        words = read(path + "/cmdline").split(b"\0")[:-1]
        if len(words) < 2 or os.path.basename(words[0]) != b"forge":
            continue
        what, pid = words[1].decode(errors="replace"), int(path[6:])
        if what == "__node" and words[-1].startswith(SHARED.encode()):
            yield what, pid, os.path.basename(words[-1]).decode()[:-len(".job")]
        elif what in ("__watch", "__attend", "run", "submit") and home in read(path + "/environ").split(b"\0"):
            yield what, pid, None


def run_ids():
    return {os.path.basename(p) for p in glob.glob(HOME + "/runs/*")}


def lines(path):
    for line in read(path).split(b"\n"):
        try:
            yield json.loads(line)
        except ValueError:
            continue  # blank, or torn by a kill


def kill_one(kills, on_node):
    """SIGKILL to one of them. Some are there for a moment only, and the watcher always."""
    by_kind = collections.defaultdict(list)
    for what, pid, run_id in ours():
        by_kind[what].append((pid, run_id))
    if not by_kind:
        return
    what = random.choices(sorted(by_kind), [WEIGHTS[w] for w in sorted(by_kind)])[0]
    pid, run_id = random.choice(by_kind[what])
    if run_id:
        on_node.add(run_id)  # whatever comes of it
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        return
    kills[what] += 1


def start(mode):
    return subprocess.Popen([FORGE, mode, "--executor", "slurm", "--", "sh", "-c", SCRIPT], start_new_session=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def check(run_id, on_node):
    """What is wrong with how it ended, or None; and whether it was started."""
    forge("wait", run_id)
    record = json.loads(forge("show", "--json", run_id))
    log = forge("logs", "--stdout", run_id).split("\n")[:-1]
    events = collections.Counter(e.get("event") for e in lines(f"{HOME}/runs/{run_id}/events.jsonl"))
    starts, ended = events["started"], (record["status"], record["reason"], record["exit_code"])
    wrong = f"{run_id}: {starts} starts, {ended}, {len(log)} lines: {record['completion_notes']}"
    if starts > 1 or log != [f"line {i}" for i in range(1, len(log) + 1)]:
        return wrong, True
    if ended == ("failed", "exit", 3) and starts == 1 and len(log) == 5 and len(record["outputs"] or []) == 1:
        return None, True
    if record["status"] == "lost" and (run_id in on_node or starts == 0):
        return None, starts == 1
    # Killed before it had claimed the run, as when forge cannot start there.
    if record["status"] == "rejected" and run_id in on_node and starts == 0:
        return None, False
    return wrong, starts == 1


def kept():
    """Workdirs that lost runs had written into: each is recorded, and there is a file in it."""
    for path in glob.glob(HOME + "/runs/*/kept.json"):
        workdir = json.loads(read(path))["path"]
        record = json.loads(read(os.path.dirname(path) + "/record.json"))
        if record["status"] == "lost" and record["workdir_kept"] and record["workdir"] == workdir and \
                any(files for _, _, files in os.walk(workdir)):
            yield workdir


def left():
    found = [p for p in glob.glob(HOME + "/active/*") if os.path.getsize(p)]
    return found + sorted(set(glob.glob(SHARED + "/[0-9a-z]*")) - set(kept()))


def main():
    seed = int(os.environ.get("FORGE_CRASH_SEED", random.randrange(1 << 32)))
    print(f"# seed {seed}", flush=True)
    random.seed(seed)
    kills, on_node, children, begun = collections.Counter(), set(), [], 0
    deadline = time.monotonic() + 30 + 2 * N
    while time.monotonic() < deadline:
        children = [c for c in children if c.poll() is None]
        active = sum(os.path.getsize(p) > 0 for p in glob.glob(HOME + "/active/*"))
        if begun == N and active == 0 and not children:
            break
        while begun < N and max(active, len(children)) < AT_ONCE:
            children.append(start(random.choice(["submit", "submit", "run"])))
            begun += 1
            active += 1
        pause(random.random() * 0.4)
        if sum(kills.values()) < KILLS_OF_EACH * N:
            kill_one(kills, on_node)
        # A child of a watcher that was killed may leave a run to nobody: any command sees to that.
        forge("ps")
    print("kills:", dict(kills))
    wrong, started = [], 0
    for run_id in sorted(run_ids()):
        what, is_started = check(run_id, on_node)
        started += is_started
        if what:
            wrong.append(what)
    for what in wrong + ["left: " + path for path in left()]:
        print(what)
    print(f"{len(run_ids())} of {N} were recorded, {started} started, {len(wrong)} ended wrong")
    return 1 if wrong or left() or not started or sum(kills.values()) < N else 0


sys.exit(main())
