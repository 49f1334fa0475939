# SPDX-License-Identifier: Apache-2.0
"""Pipelines: steps that are joined by files."""
from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from typing import Any, Callable, Dict, List, Mapping, Optional

from . import _binary, _run
from ._binary import Word
from ._request import Many, Path, many, place_words
from .errors import ForgeError

Event = Mapping[str, Any]


@dataclasses.dataclass
class Task:
    """A step, or one of the tasks of a step with ``foreach``."""

    task: str
    state: str
    why: str = ""
    run_id: Optional[str] = None

    def run(self) -> "_run.Run":
        """The run that it is, or whose result it uses."""
        if self.run_id is None:
            raise ForgeError(f"task {self.task} has no run: {self.state}")
        return _run.get(self.run_id)


@dataclasses.dataclass
class Result:
    """What ``run()`` did."""

    returncode: int
    tasks: Dict[str, Task]
    counts: Mapping[str, int]  # how many tasks ended in which state
    events: List[Event] = dataclasses.field(repr=False)

    @property
    def succeeded(self) -> bool:
        return self.returncode == 0

    def check(self) -> "Result":
        if not self.succeeded:
            raise PipelineFailed(self)
        return self


class PipelineFailed(ForgeError):
    """Not all steps succeeded. ``result`` is what was done."""

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self.result = result

    def __str__(self) -> str:
        failed = [f"{t.task}: {t.why or t.state}" for t in self.result.tasks.values() if t.state == "failed"]
        return "; ".join(failed) or f"the pipeline ended with status {self.result.returncode}"


@dataclasses.dataclass(frozen=True)
class PipelineOutput:
    """A file that a pipeline's last steps, or the chosen ones, left."""

    task: str
    written: str  # as in the record
    size: int
    sha256: str
    run_id: str

    @property
    def path(self) -> str:
        return os.fsdecode(_run.decode_name(self.written))

    def read_bytes(self) -> bytes:
        found = [o for o in _run.get(self.run_id).outputs if o.written == self.written]
        if not found:
            raise ForgeError(f"run {self.run_id} has no output {self.written} any more")
        return found[0].read_bytes()


def _words(
    verb: str,
    file: Optional[Path],
    params: Optional[Mapping[str, Any]],
    only: Many = (),
    store: Optional[str] = None,
    config: Optional[Path] = None,
) -> List[Word]:
    words: List[Word] = ["pipeline", verb, "--json", *place_words(store, config)]
    for name, value in (params or {}).items():
        words += ["--param", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]
    for step in many(only, "only"):
        words += ["--only", step]
    if file is not None:
        words += ["--file", os.fsencode(file)]
    return words


_STATE = {"started": "running", "run": "running", "done": "done", "cached": "cached", "failed": "failed"}


def _take(tasks: Dict[str, Task], event: Event) -> None:
    name = event.get("task")
    if name is None:
        return
    task = tasks.setdefault(name, Task(name, "waiting"))
    task.state = _STATE.get(event["event"], event["event"])
    task.why = event.get("notes") or event.get("why") or task.why
    task.run_id = event.get("run_id") or task.run_id


def _run_words(
    file: Optional[Path],
    params: Optional[Mapping[str, Any]],
    only: Many,
    force: Many,
    from_: Many,
    entry: Optional[str],
    given: Optional[Mapping[str, Path]],
    jobs: Optional[int],
    stop: bool,
    store: Optional[str],
    config: Optional[Path],
) -> List[Word]:
    words = _words("run", file, params, only, store, config)
    for option, steps in (("--force", force), ("--from", from_)):
        for step in many(steps, option):
            words += [option, step]
    if entry is not None:
        words += ["--entry", entry]
    for step_name, directory in (given or {}).items():
        words += ["--given", os.fsencode(step_name) + b"=" + os.path.abspath(os.fsencode(directory))]
    if jobs is not None:
        words += ["--jobs", str(jobs)]
    if stop:
        words.append("--stop")
    return words


class _Progress:
    """The events of a pipeline so far, and what they say of its tasks."""

    def __init__(self, on_event: Optional[Callable[[Event], None]]) -> None:
        self._on_event = on_event
        self._tasks: Dict[str, Task] = {}
        self._events: List[Event] = []

    def take(self, line: bytes) -> None:
        event = _binary.parse(line)
        self._events.append(event)
        _take(self._tasks, event)
        if self._on_event is not None:
            self._on_event(event)

    def result(self, status: int, said: bytes, check: bool) -> Result:
        if not self._events:
            raise _binary.failure(status, said)
        last = self._events[-1]
        counts = last.get("tasks") or {} if last.get("event") == "end" else {}
        result = Result(status, self._tasks, counts, self._events)
        return result.check() if check else result


def run(
    file: Optional[Path] = None,
    *,
    params: Optional[Mapping[str, Any]] = None,
    only: Many = (),
    force: Many = (),
    from_: Many = (),
    entry: Optional[str] = None,
    given: Optional[Mapping[str, Path]] = None,
    jobs: Optional[int] = None,
    stop: bool = False,
    cwd: Optional[Path] = None,
    check: bool = False,
    on_event: Optional[Callable[[Event], None]] = None,
    store: Optional[str] = None,
    config: Optional[Path] = None,
) -> Result:
    """Runs every step that is not up to date, and waits. An exception in here ends its runs.

    ``on_event`` is called with each event as it happens: ``forge pipeline run --json`` has them.
    """
    words = _run_words(file, params, only, force, from_, entry, given, jobs, stop, store, config)
    done = _Progress(on_event)
    # Standard error goes to a file: events are read while the pipeline runs.
    with tempfile.TemporaryFile() as said:
        process = _binary.popen(words, cwd=None if cwd is None else os.fsdecode(cwd), stderr=said)
        assert process.stdout is not None
        try:
            for line in process.stdout:
                done.take(line)
            process.wait()
        except BaseException:
            _run.cancel(process)
            raise
        finally:
            _binary.close(process)
        said.seek(0)
        return done.result(process.returncode, said.read(), check)


def status(
    file: Optional[Path] = None,
    *,
    params: Optional[Mapping[str, Any]] = None,
    cwd: Optional[Path] = None,
    store: Optional[str] = None,
    config: Optional[Path] = None,
) -> List[Task]:
    """Which tasks are up to date (``cached``), and why the others are not."""
    return _tasks_of(_ask(_words("status", file, params, (), store, config), cwd))


def outputs(
    file: Optional[Path] = None,
    *,
    only: Many = (),
    params: Optional[Mapping[str, Any]] = None,
    copy: Optional[Path] = None,
    replace: bool = False,
    cwd: Optional[Path] = None,
    store: Optional[str] = None,
    config: Optional[Path] = None,
) -> List[PipelineOutput]:
    """The outputs of the last steps, or of ``only``; copied below a directory with ``copy``."""
    words = _words("outputs", file, params, only, store, config)
    rows = _outputs_of(_ask(words, cwd))
    if copy is not None:
        _ask(words + _copy_words(copy, replace), cwd)
    return rows


def _tasks_of(out: bytes) -> List[Task]:
    return [Task(r["task"], r["state"], r.get("why") or "", r.get("run_id")) for r in _binary.parse(out)]


def _outputs_of(out: bytes) -> List[PipelineOutput]:
    return [PipelineOutput(r["task"], r["path"], r["size"], r["sha256"], r["run_id"]) for r in _binary.parse(out)]


def _copy_words(copy: Path, replace: bool) -> List[Word]:
    words: List[Word] = ["--copy", os.path.abspath(os.fsencode(copy))]
    return words + ["--replace"] if replace else words


def _ask(words: List[Word], cwd: Optional[Path]) -> bytes:
    process = _binary.popen(words, cwd=None if cwd is None else os.fsdecode(cwd))
    out, err = _run._collect(process)
    return _checked(process.returncode, out, err)


def _checked(status: int, out: bytes, err: bytes) -> bytes:
    # status exits 1 when something is not up to date, and prints it.
    if status not in (0, 1) or (status == 1 and not out.strip()):
        raise _binary.failure(status, err)
    return out
