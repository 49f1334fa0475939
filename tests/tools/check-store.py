#!/usr/bin/env python3
"""Whether a state directory and its store tell one true story.

    check-store.py HOME URL CHECK [FILE]

Prints what is wrong with CHECK, a line each; nothing when all is well. FILE has what the submitters
were told, a line "KEY RUN_ID" each; KEY is - where there was none.
"""
# SPDX-License-Identifier: Apache-2.0
import collections
import hashlib
import json
import pathlib
import sqlite3
import subprocess
import sys

OPEN = {"queued", "preparing", "running", "collecting"}
TERMINAL = {"succeeded", "failed", "killed", "cancelled", "corrupted", "lost", "rejected"}
# Said once more here, apart from src/store/state.c.
BROKEN = {"failed", "killed", "cancelled", "corrupted", "lost"}
NEXT = {
    "": {"queued", "preparing", "rejected"},
    "queued": {"preparing", "cancelled", "rejected", "lost"},
    "preparing": {"running", "rejected"} | BROKEN,
    "running": {"collecting"} | BROKEN,
    "collecting": {"succeeded"} | BROKEN,
}


def select(url, sql):
    """The rows of a statement, as tuples of text or numbers."""
    if url.startswith("sqlite:"):
        with sqlite3.connect(f"file:{url[7:]}?mode=ro", uri=True) as db:
            return db.execute(sql).fetchall()
    out = subprocess.run(["psql", "-XAtq", "-F", "\x1f", "-R", "\x1e", "-c", sql, url], check=True,
                         capture_output=True, text=True).stdout
    return [tuple(row.split("\x1f")) for row in out.rstrip("\n").split("\x1e") if row]


def wrong_object(file, size, digest, known={}):
    """What is wrong with a stored output, or None. Each file is read once."""
    if not file.exists():
        return f"is not at {file}"
    if file not in known:
        known[file] = "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest()
    return None if known[file] == digest and file.stat().st_size == size else "is not what its digest says"


class Story:
    """Without a url the story of the directory alone."""

    def __init__(self, home, url, told):
        self.home = pathlib.Path(home)
        self.records, self.torn = {}, []
        for path in self.home.glob("runs/*"):
            try:
                self.records[path.name] = json.loads((path / "record.json").read_text())
            except (OSError, ValueError) as error:
                self.torn.append(f"{path.name}: {error}")
        self.told = [line.split() for line in pathlib.Path(told).read_text().splitlines()] if told else []
        if url:
            self.read_store(url)

    def read_store(self, url):
        self.stored = {row[0]: row[1:] for row in
                       select(url, "SELECT run_id, status, idempotency_key, record FROM runs")}
        self.events = collections.defaultdict(list)
        for run_id, seq, status in select(url, "SELECT run_id, seq, status FROM run_events "
                                               "ORDER BY run_id, seq"):
            self.events[run_id].append((int(seq), status))
        self.outputs = collections.defaultdict(list)
        for run_id, path, size, digest, stored_as in select(
                url, "SELECT run_id, path, size, sha256, stored_as FROM outputs"):
            self.outputs[run_id].append((path, int(size), digest, stored_as))

    def check_told(self):
        """Every run that somebody was told of is there, under its key."""
        for key, run_id in self.told:
            if run_id not in self.stored:
                yield f"{run_id} ({key}) is not in the store"
            elif key != "-" and self.stored[run_id][1] != key:
                yield f"{run_id} has the key {self.stored[run_id][1]}, not {key}"

    def check_over(self):
        """Everything has ended."""
        for run_id, (status, _, _) in self.stored.items():
            if status not in TERMINAL:
                yield f"{run_id} is {status} in the store"
        for run_id, record in self.records.items():
            if record["status"] not in TERMINAL:
                yield f"{run_id} is {record['status']} in its record"
        yield from self.torn

    def check_agree(self):
        """record.json, the row and the record in it say the same."""
        for run_id, record in self.records.items():
            if run_id not in self.stored:
                yield f"{run_id} ({record['status']}) is not in the store"
                continue
            status, _, text = self.stored[run_id]
            row = json.loads(text)
            if len({status, row["status"], record["status"]}) != 1:
                yield f"{run_id}: {status} in the row, {row['status']} in its text, {record['status']} here"
            elif row["outputs"] != record["outputs"]:
                yield f"{run_id}: other outputs in the store"

    def check_chain(self):
        """The events of a run are a way through the states, to the one it is in."""
        for run_id, (status, _, _) in self.stored.items():
            at = ""
            for seq, to in self.events[run_id]:
                if not to or to == at:
                    continue
                if to not in NEXT.get(at, ()):
                    yield f"{run_id}: {at or 'nothing'} became {to} (event {seq})"
                at = to
            if at != status:
                yield f"{run_id}: is {status}, its events end with {at}"
            ends = [to for _, to in self.events[run_id] if to in TERMINAL]
            if len(ends) != 1:
                yield f"{run_id}: ended {len(ends)} times: {ends}"

    def check_outputs(self):
        """What a record points to is there, and is what it says; success has all of it."""
        for run_id, (status, _, text) in self.stored.items():
            rows = sorted(self.outputs[run_id])
            record = json.loads(text)
            named = sorted((o["path"], o["size"], o["sha256"], o["stored_as"]) for o in record["outputs"])
            if rows != named:
                yield f"{run_id}: {len(rows)} outputs in the table, {len(named)} in the record"
            paths = [row[0] for row in rows if not row[0].startswith("outputs/many/")]
            if status == "succeeded" and record.get("idempotency_key") and paths != WANTED:
                yield f"{run_id}: succeeded with {paths}"
            for path, size, digest, stored_as in rows:
                wrong = wrong_object(self.home / stored_as, size, digest)
                if wrong:
                    yield f"{run_id}: {path} {wrong}"

    def check_once(self):
        """One run a key: in the store, and with a directory that shows that it ran."""
        keys = collections.Counter(key for _, key, _ in self.stored.values() if key)
        started = collections.Counter()
        for run_id, record in self.records.items():
            file = self.home / "runs" / run_id / "events.jsonl"
            text = file.read_text() if file.exists() else ""
            started[record.get("idempotency_key")] += '"started"' in text
        for key in {key for key, _ in self.told} - {"-"}:
            if keys[key] != 1:
                yield f"{key} has {keys[key]} runs"
            if started[key] > 1:
                yield f"{key} was started {started[key]} times"

    def check_logs(self):
        """Logs are there, or the record says that they were removed."""
        for run_id, record in self.records.items():
            there = (self.home / "runs" / run_id / "stdout").exists()
            if there == bool(record.get("logs_removed")):
                yield f"{run_id}: logs {'there' if there else 'gone'}, and the record says otherwise"

    def check_late(self):
        """`sleep 60` for 300 ms was ended when its time was up."""
        for run_id, record in self.records.items():
            if record["command"] != ["sleep", "60"] or record["status"] == "lost":
                continue
            wall = record["usage"].get("wall_seconds") or 99
            if record["reason"] != "wall_time" or wall > 0.8:
                yield f"{run_id}: {record['status']} {record['reason']} after {wall} s"

    def check_verdicts(self):
        """How many of each; nothing is wrong with that."""
        count = collections.Counter(status for status, _, _ in self.stored.values())
        yield ", ".join(f"{n} {status}" for status, n in count.most_common())


WANTED = ["outputs/a", "outputs/b", "outputs/big", "outputs/key"]


def main():
    home, url, check = sys.argv[1:4]
    story = Story(home, url, sys.argv[4] if len(sys.argv) > 4 else None)
    for line in getattr(story, f"check_{check}")():
        print(line)


if __name__ == "__main__":
    main()
