#!/usr/bin/env python3
"""What forge had confirmed before the power went is there.

    power-cut-check.py DISK TOLD HOME...

TOLD has the lines that the guest told the host, see power-cut-guest.sh. HOME is a directory of DISK; with
"here:" before it, the store is away and the run's directories must do. Prints what is wrong.
"""
# SPDX-License-Identifier: Apache-2.0
import importlib.machinery
import importlib.util
import pathlib
import stat
import sys

sys.dont_write_bytecode = True  # what is written here is on the host
HERE = pathlib.Path(__file__).resolve().parent


def load_check_store():
    loader = importlib.machinery.SourceFileLoader("check_store", str(HERE / "../tools/check-store.py"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_store", loader))
    loader.exec_module(module)
    return module


STORE = load_check_store()
LOST = 137


class Told:
    """What was confirmed of one home."""

    def __init__(self, path, home):
        self.submitted, self.verdicts = [], []
        for line in path.read_text().splitlines():
            words = line.split()
            if words[:2] == ["submitted", home] and len(words) == 4:
                self.submitted.append((words[2], words[3]))
            elif words[:2] == ["verdict", home] and len(words) == 5:
                self.verdicts.append((words[2], words[3], int(words[4])))


def wanted_logs(record):
    """Of the payload in power-cut-guest.sh."""
    name, length = record["command"][3], int(record["command"][4])
    return f"{name} says\n" * 2 ** length, f"{name} complains\n"


def check_logs(home, record):
    for stream, wanted in zip(("stdout", "stderr"), wanted_logs(record)):
        file = home / "runs" / record["run_id"] / stream
        got = file.read_text(errors="replace") if file.exists() else None
        if got != wanted:
            size = "no" if got is None else len(got)
            yield f"its {stream} has {size} bytes instead of {len(wanted)}"


def check_outputs(home, record):
    many = record["command"][6] == "yes"
    paths = [o["path"] for o in record["outputs"]]
    if [p for p in paths if "/many/" not in p] != STORE.WANTED or len(paths) != len(STORE.WANTED) + 40 * many:
        yield f"succeeded with {len(paths)} outputs"
    for output in record["outputs"]:
        file = home / output["stored_as"]
        wrong = STORE.wrong_object(file, output["size"], output["sha256"])
        if wrong:
            yield f"{output['path']} {wrong}"
            continue
        st = file.stat()
        if stat.S_IMODE(st.st_mode) != 0o444 or st.st_uid != 0:
            yield f"{output['path']} has mode {st.st_mode:o} and owner {st.st_uid}"


def check_run(home, record, status):
    """A run whose verdict was confirmed."""
    if record["exit_status"] != status or record["status"] != {0: "succeeded", 3: "failed", LOST: "lost"}.get(status):
        yield f"is {record['status']} ({record['exit_status']}) and was {status}: {record['completion_notes']}"
    elif status in (0, 3):
        yield from check_logs(home, record)
        yield from check_outputs(home, record) if status == 0 else ()


def check_submitted(told, records, has_key):
    """Where submissions are kept: in the store, or for want of one in the run's directory."""
    for name, run_id in told.submitted:
        record = records.get(run_id)
        if not record:
            yield f"{name}: {run_id} was submitted and is gone"
        elif record["status"] not in STORE.TERMINAL:
            yield f"{name}: {run_id} is {record['status']}"
        elif has_key and record.get("idempotency_key") != name:
            yield f"{name}: {run_id} has the key {record.get('idempotency_key')}"


def check_verdicts(home, told, records, is_store):
    """By the rows of the store, or what has to do for one, or by the record.json files."""
    by_name = {record["analysis_id"]: record for record in records.values()}
    for name, run_id, status in told.verdicts:
        record = records.get(run_id) or by_name.get(name)
        if not record and status == LOST and not is_store:
            continue  # the power took its directory, and the store has its end
        if not record:
            yield f"{name}: was over ({status}) and is gone"
            continue
        for line in check_run(home, record, status):
            yield f"{name}: {line}"


def check_left(home):
    """Nothing lies about."""
    for slot in home.glob("active/*"):
        if slot.stat().st_size:
            yield f"{slot} is not empty"
    for name in "queue", "staging":
        yield from (f"{path} is left" for path in home.glob(f"{name}/*"))
    yield from (f"{path} is left" for path in home.rglob(".*"))


def check_home(disk, told_path, name):
    """All that must hold of one home, and of its store if that is there."""
    is_away = name.startswith("here:")
    name = name.split(":")[-1]
    home = disk / name
    told = Told(told_path, name)
    if not home.exists():
        yield from ["all of it is gone"] if told.submitted or told.verdicts else []
        return
    url = f"sqlite:{disk}/server/forge.db" if name == "away" else f"sqlite:{home}/forge.db"
    url = None if is_away or not pathlib.Path(url[7:]).exists() else url
    has_key = name in ("sqlite", "queue")
    story = STORE.Story(home, url, None)
    story.told = [(run if has_key else "-", run_id) for run, run_id in told.submitted]
    yield from check_left(home)
    # Never delivered, so all of them still wait for that.
    if name == "postgres":
        marked = {path.name for path in (home / "undelivered").glob("*")
                  if path.read_text().startswith("postgresql:")}
        yield from (f"{run_id} is not marked for delivery" for run_id in story.records if run_id not in marked)
    yield from check_verdicts(home, told, story.records, is_store=is_away)
    if is_away:
        yield from check_submitted(told, story.records, has_key)
        return
    if not url:
        yield from ["the store is gone"] if told.submitted else []
        return
    stored = {run_id: STORE.json.loads(row[2]) for run_id, row in story.stored.items()}
    for line in (*check_submitted(told, stored, has_key), *check_verdicts(home, told, stored, is_store=True)):
        yield f"in the store: {line}"
    for check in "told", "over", "agree", "chain", "outputs", "once", "logs":
        for line in getattr(story, f"check_{check}")():
            yield f"{check}: {line}"


def main():
    disk, told = map(pathlib.Path, sys.argv[1:3])
    for name in sys.argv[3:]:
        for line in check_home(disk, told, name):
            print(f"{name}: {line}")


main()
