# SPDX-License-Identifier: Apache-2.0
"""Runs: asked for, waited for, read and ended."""
from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import pathlib
import re
import selectors
import subprocess
import tempfile
import warnings
from typing import IO, Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Union

from . import _binary
from ._binary import Word
from ._progress import PERIOD, Progress, progress_for
from ._request import Command, Duration, Env, Many, Path, Size, _duration, place_words, request_words, words_of
from .errors import ForgeError, ForgeWarning, NotOver, error_class

OVER = frozenset(["succeeded", "failed", "killed", "cancelled", "corrupted", "lost", "rejected"])
LINE_MAX = 65536  # a longer line comes in parts
STILL_RUNNING = 124

Stdin = Union[None, str, bytes, int, IO[Any]]


class Logs(NamedTuple):
    """What a run printed."""

    stdout: bytes
    stderr: bytes


class LogLine(str):
    """A line of a log, without its end. Bytes that are not UTF-8 are surrogates."""

    stream: str
    ends_line: bool  # false: a part of a very long line, or the last without an end

    def __new__(cls, data: bytes, stream: str, ends_line: bool = True) -> "LogLine":
        self = super().__new__(cls, _binary.text(data))
        self.stream = stream
        self.ends_line = ends_line
        return self

    @property
    def data(self) -> bytes:
        return self.encode("utf-8", "surrogateescape")


_WRITTEN = re.compile(r"\\\\|\\x[0-9a-fA-F]{2}")
_ESCAPE = re.compile(rb"\\(?:\\|x([89a-f][0-9a-f]))")


def decode_name(written: str) -> bytes:
    """The name of a file as bytes, of its form in a record."""
    data = written.encode("utf-8", "surrogateescape")
    if not _WRITTEN.search(written):
        return data
    return _ESCAPE.sub(lambda m: bytes([int(m.group(1), 16)]) if m.group(1) else b"\\", data)


class Output:
    """A file that a run left and that forge keeps."""

    def __init__(self, run: "Run", entry: Mapping[str, Any]) -> None:
        self._run = run
        self.written: str = entry["path"]  # as in the record
        self.size: int = entry["size"]
        self.sha256: str = entry["sha256"]
        self.damaged: bool = bool(entry.get("damaged"))

    @property
    def name(self) -> bytes:
        """The name that the run gave it, below its working directory."""
        return decode_name(self.written)

    @property
    def path(self) -> str:
        """The same as text, as os.fsdecode() makes it."""
        return os.fsdecode(self.name)

    def __repr__(self) -> str:
        return f"<forge.Output {self.written!r} {self.size} bytes>"

    def _words(self) -> List[Word]:
        return ["outputs", f"--cat={self.written}"]

    def read_bytes(self) -> bytes:
        """The content, checked against its digest."""
        return self._run._read(self._words())

    def read_text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self.read_bytes().decode(encoding, errors)

    def copy_to(self, directory: Path, force: bool = False) -> pathlib.Path:
        """Copies it below a directory, under its own name. Returns where it is."""
        name = self.name
        if os.path.isabs(name) or b".." in name.split(b"/"):
            raise ForgeError(f"output {self.written!r} is no name below a directory")
        target = os.path.join(os.path.abspath(os.fsencode(directory)), name)
        parent = os.path.dirname(target)
        os.makedirs(parent, exist_ok=True)
        if not force and os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fsdecode(target))
        fd, part = tempfile.mkstemp(prefix=b".forge-", dir=parent)
        try:
            with os.fdopen(fd, "wb") as file:
                os.fchmod(file.fileno(), 0o666 & ~_umask())
                self._run._read_into(self._words(), file)
            _name(part, target, force)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part)
        return pathlib.Path(os.fsdecode(target))


def _umask() -> int:
    """Without changing it, which would be seen by other threads."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        with open("/proc/self/status", "rb") as status:
            return int(next(line for line in status if line.startswith(b"Umask:")).split()[1], 8)
    return 0o077


def _name(part: bytes, target: bytes, force: bool) -> None:
    if not force:
        try:
            os.link(part, target)
            return
        except OSError as error:
            # A file system without links.
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
                raise
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fsdecode(target))
    os.replace(part, target)


class Run:
    """A run of forge. What is asked of it is up to date until it is over."""

    def __init__(
        self,
        record: Mapping[str, Any],
        *,
        is_complete: bool = False,
        place: Sequence[Word] = (),
        cwd: Optional[str] = None,
        messages: str = "",
    ) -> None:
        self._record: Dict[str, Any] = dict(record)
        self._is_complete = is_complete
        # The store and the configuration of the request: later commands need the same.
        self._place = tuple(place)
        self._cwd = cwd
        self._logs: Dict[str, bytes] = {}
        self.messages = messages  # what forge itself said on standard error

    def __repr__(self) -> str:
        status = self._record.get("status", "submitted")
        reason = self._record.get("reason")
        return f"<forge.Run {self.run_id} {status}{f': {reason}' if reason and reason != 'exit' else ''}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and other.run_id == self.run_id

    def __hash__(self) -> int:
        return hash(self.run_id)

    # ---- commands about it

    def _read(self, words: Sequence[Word], *, ok: Sequence[int] = (0,)) -> bytes:
        process = self._start(words)
        out, err = _collect(process)
        if process.returncode not in ok:
            raise _binary.failure(process.returncode, err)
        return out

    def _read_into(self, words: Sequence[Word], file: IO[bytes]) -> None:
        process = self._start(words)
        assert process.stdout is not None and process.stderr is not None
        try:
            for block in iter(lambda: process.stdout.read(1 << 20), b""):  # type: ignore[union-attr]
                file.write(block)
            err = process.stderr.read()
            process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            _binary.close(process)
        if process.returncode != 0:
            raise _binary.failure(process.returncode, err)

    def _there(self, changes: Iterable[str] = ()) -> Optional[str]:
        """Where a command about it is executed: in the current directory if it is given paths."""
        if self._cwd is None or not os.path.isdir(self._cwd):
            return None
        return None if {"inputs", "env_file", "runtime"}.intersection(changes) else self._cwd

    def _start(self, words: Sequence[Word], changes: Iterable[str] = ()) -> "subprocess.Popen[bytes]":
        return _binary.popen([*words, *self._place, "--", self.run_id], cwd=self._there(changes))

    def refresh(self) -> "Run":
        """Asks forge for the record. Of a run that was tried again, for the last attempt's."""
        while True:
            self._record = dict(_binary.parse(self._read(["show", "--json"])))
            self._is_complete = True
            if not self._record.get("retried_by"):
                return self
            self._record = {"run_id": self._record["retried_by"]}

    def _now(self) -> Mapping[str, Any]:
        if self._record.get("status") not in OVER:
            self.refresh()
        return self._record

    # ---- what it is, and how it ended

    @property
    def record(self) -> Mapping[str, Any]:
        """The whole record, as ``forge show --json`` prints it."""
        if not self._is_complete or not self.is_over:
            self.refresh()
        return self._record

    @property
    def run_id(self) -> str:
        return str(self._record["run_id"])

    @property
    def analysis_id(self) -> str:
        if "analysis_id" not in self._record:
            self.refresh()
        return str(self._record["analysis_id"])

    @property
    def status(self) -> str:
        """``queued``, ``running`` ..., and at the end ``succeeded``, ``failed``, ``killed`` ..."""
        return str(self._now()["status"])

    @property
    def reason(self) -> Optional[str]:
        return self._now().get("reason")

    @property
    def completion_notes(self) -> Optional[str]:
        """One sentence that says how it ended, and what to do about it."""
        return self._now().get("completion_notes")

    @property
    def is_over(self) -> bool:
        return self._now().get("status") in OVER

    @property
    def succeeded(self) -> bool:
        return self.status == "succeeded"

    @property
    def exit_code(self) -> Optional[int]:
        """What the command exited with; None if it did not exit by itself."""
        return self.record.get("exit_code")

    @property
    def returncode(self) -> Optional[int]:
        """The exit status that ``forge run`` has for it; None while it is not over."""
        return self.record.get("exit_status") if self.is_over else None

    @property
    def usage(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.record.get("usage") or {}
        return found

    @property
    def limits(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.record.get("limits") or {}
        return found

    @property
    def command(self) -> List[str]:
        return list(self.record.get("command") or [])

    @property
    def runtime(self) -> Optional[Mapping[str, Any]]:
        return self.record.get("runtime")

    @property
    def outputs(self) -> List[Output]:
        """The files that it left."""
        return [Output(self, entry) for entry in self.record.get("outputs") or []]

    def output(self, path: Path) -> Output:
        """The output of this name."""
        wanted = os.fsencode(path)
        for found in self.outputs:
            if found.name == wanted:
                return found
        raise KeyError(os.fsdecode(wanted))

    def copy_outputs(self, directory: Path, force: bool = False) -> None:
        """Copies all outputs below a directory: all of them or none."""
        words: List[Word] = ["outputs", "--copy", os.path.abspath(os.fsencode(directory))]
        self._read(words + (["--force"] if force else []))

    # ---- its log

    def _log(self, stream: str, lines: Optional[int] = None) -> bytes:
        if stream in self._logs and lines is None:
            return self._logs[stream]
        words: List[Word] = ["logs", f"--{stream}"]
        if lines is not None:
            words += ["--lines", str(lines)]
        is_over = self.is_over
        # A run that was never started has no log.
        if is_over and self._nothing_printed(stream):
            return b""
        data = self._read(words)
        if is_over and lines is None:
            self._logs[stream] = data
        return data

    def _nothing_printed(self, stream: str) -> bool:
        return (self._record.get("usage") or {}).get(f"{stream}_bytes") == 0

    def logs(self, lines: Optional[int] = None) -> Logs:
        """What it has printed, or the last lines of it."""
        return Logs(self._log("stdout", lines), self._log("stderr", lines))

    @property
    def stdout(self) -> str:
        """What it printed on standard output, as text; see ``stdout_bytes``."""
        return _binary.text(self._log("stdout"))

    @property
    def stderr(self) -> str:
        return _binary.text(self._log("stderr"))

    @property
    def stdout_bytes(self) -> bytes:
        return self._log("stdout")

    @property
    def stderr_bytes(self) -> bytes:
        return self._log("stderr")

    def events(self) -> List[Mapping[str, Any]]:
        """What forge did with it, with times."""
        return [_binary.parse(line) for line in self._read(["logs", "--events"]).splitlines()]

    def follow(self, stream: Optional[str] = None) -> Iterator[LogLine]:
        """The lines of its log, those that are there and those that come, until it is over."""
        if stream not in (None, "stdout", "stderr"):
            raise ValueError(f"stream: {stream!r} is neither 'stdout' nor 'stderr'")
        streams = [stream] if stream else ["stdout", "stderr"]
        processes: List["subprocess.Popen[bytes]"] = []
        try:
            for name in streams:
                processes.append(self._start(["logs", "--follow", f"--{name}"]))
            yield from _merged(processes, streams)
        finally:
            for process in processes:
                if process.poll() is None:
                    process.terminate()
                process.wait()
                _binary.close(process)

    # ---- what can be done with it

    def wait(
        self, timeout: Optional[Duration] = None, *, check: bool = False, progress: Optional[bool] = None
    ) -> "Run":
        """Waits until it is over, or raises NotOver after the time-out; the run goes on then."""
        words: List[Word] = ["wait", "--json"]
        if self._record.get("status") not in OVER or not self._is_complete:
            if timeout is not None:
                # 0 is no duration for forge.
                words += ["--timeout", _duration(timeout, "timeout") if timeout != 0 else "1ms"]
            process = self._start(words)
            out, err = _collect(process, progress=progress_for(progress, self.run_id))
            if process.returncode == STILL_RUNNING and not out.strip():
                self.refresh()
                if self._record.get("status") not in OVER:
                    raise NotOver(self)
            else:
                self._record = dict(_binary.record_of(process.returncode, out, err))
                self._is_complete = True
        return self.check() if check else self

    def check(self) -> "Run":
        """Raises the exception of its reason unless it succeeded."""
        if not self.is_over:
            raise NotOver(self)
        if not self.succeeded:
            raise error_class(self.status, self.reason)(self)
        return self

    def kill(self, now: bool = False) -> "Run":
        """Ends it; returns when all of it is gone. ``now``: without time to end by itself."""
        words: List[Word] = ["kill", "--json", "--force"]
        self._read(words + (["--now"] if now else []))
        return self.refresh()

    def rerun(self, *, check: bool = False, progress: Optional[bool] = None, **changes: Any) -> "Run":
        """The same again, with changes (arguments as of run()), and waits for it."""
        return self._again("rerun", check, progress, changes)

    def resume(self, *, check: bool = False, progress: Optional[bool] = None, **changes: Any) -> "Run":
        """Goes on after a kill, a crash or a limit; a step goes on with its pipeline."""
        return self._again("resume", check, progress, changes)

    def _again(self, verb: str, check: bool, progress: Optional[bool], changes: Dict[str, Any]) -> "Run":
        words: List[Word] = [verb, "--json", "--until-closed", *request_words(**changes)]
        process = self._start(words, changes)
        out, err = _collect(process, progress=progress_for(progress, self.run_id), is_run=True)
        step = self.record.get("step")
        if verb == "resume" and step:
            run = self._step_after(step, process.returncode, out, err)
        else:
            record = _binary.record_of(process.returncode, out, err)
            run = Run(record, is_complete=True, place=self._place, cwd=self._cwd, messages=_binary.text(err))
        return run.check() if check else run

    def _step_after(self, step: Mapping[str, Any], status: int, out: bytes, err: bytes) -> "Run":
        """The last run of a step that went on with its pipeline."""
        events = [_binary.parse(line) for line in out.splitlines() if line.strip()]
        runs = [e["run_id"] for e in events if e.get("task") == step.get("task") and e.get("run_id")]
        if not runs:
            raise _binary.failure(status, err)
        return Run({"run_id": runs[-1]}, place=self._place, cwd=self._cwd).refresh()

    def remove(self) -> None:
        """Removes its record, its logs, and the outputs that no other run has."""
        self._read(["rm", "--force"])


def _merged(processes: Sequence["subprocess.Popen[bytes]"], streams: Sequence[str]) -> Iterator[LogLine]:
    errors = [b""] * len(processes)
    rest = [b""] * len(processes)
    with selectors.DefaultSelector() as selector:
        for i, process in enumerate(processes):
            assert process.stdout is not None and process.stderr is not None
            selector.register(process.stdout, selectors.EVENT_READ, (i, True))
            selector.register(process.stderr, selectors.EVENT_READ, (i, False))
        while selector.get_map():
            for key, _ in selector.select():
                i, is_log = key.data
                data = os.read(key.fd, LINE_MAX)
                if not data:
                    selector.unregister(key.fileobj)
                if not is_log:
                    errors[i] = (errors[i] + data)[-LINE_MAX:]
                    continue
                lines = (rest[i] + data).split(b"\n")
                rest[i] = lines.pop()
                for line in lines:
                    yield LogLine(line, streams[i])
                if len(rest[i]) >= LINE_MAX or (not data and rest[i]):
                    yield LogLine(rest[i], streams[i], False)
                    rest[i] = b""
    for i, process in enumerate(processes):
        if process.wait() != 0:
            raise _binary.failure(process.returncode, errors[i])


# ---- asking for runs


def cancel(process: "subprocess.Popen[bytes]") -> None:
    """
    Asks forge to cancel its run, and waits for the verdict. Further interrupts end the grace
    period of the run: nothing of it is left when this returns.
    """
    for _ in range(3):
        try:
            process.terminate()
            process.communicate()
            return
        except (KeyboardInterrupt, SystemExit):
            continue
        except ValueError:  # a pipe is closed: nobody wants what it says
            break
    process.kill()
    process.wait()


def _collect(
    process: "subprocess.Popen[bytes]",
    *,
    feed: Optional[bytes] = None,
    progress: Optional[Progress] = None,
    is_run: bool = False,
) -> "tuple[bytes, bytes]":
    """What it prints until it ends. An exception ends it."""
    try:
        if progress is None:
            return process.communicate(feed)
        while True:
            try:
                return process.communicate(feed, timeout=PERIOD)
            except subprocess.TimeoutExpired:
                feed = None  # communicate() remembers it
                progress.update()
    except BaseException:
        if is_run:
            cancel(process)
        else:
            process.kill()
            process.wait()
        raise
    finally:
        if progress is not None:
            progress.close()
        _binary.close(process)


def warn(messages: str) -> None:
    for line in messages.splitlines():
        if line.startswith("forge: warning: "):
            warnings.warn(line[len("forge: warning: "):], ForgeWarning, stacklevel=5)


def input_of(stdin: Stdin) -> "tuple[Any, Optional[bytes]]":
    """What Popen gets, and what is written there."""
    if stdin is None:
        return subprocess.DEVNULL, None
    if isinstance(stdin, str):
        return subprocess.PIPE, stdin.encode("utf-8", "surrogateescape")
    if isinstance(stdin, (bytes, bytearray)):
        return subprocess.PIPE, bytes(stdin)
    return stdin, None


def run_words(cmd: Command, stdin: Stdin, options: Sequence[Word], place: Sequence[Word]) -> List[Word]:
    words: List[Word] = ["run", "--json", "--until-closed", *options, *place]
    if stdin is not None:
        words.append("--stdin")
    return [*words, "--", *words_of(cmd)]


def finished(
    status: int, out: bytes, err: bytes, place: Sequence[Word], cwd: Optional[str], check: bool
) -> Run:
    """The run that ``forge run --json`` was."""
    record = _binary.record_of(status, out, err)
    messages = _binary.text(err)
    warn(messages)
    if record.get("existing"):
        return Run({"run_id": record["run_id"]}, place=place, cwd=cwd, messages=messages).wait(check=check)
    done = Run(record, is_complete=True, place=place, cwd=cwd, messages=messages)
    return done.check() if check else done


def cwd_of(cwd: Optional[Path]) -> str:
    """Where later commands about the run are executed: ./forge.yaml is part of the configuration."""
    return os.path.abspath(os.fsdecode(cwd)) if cwd is not None else os.getcwd()


def run(
    cmd: Command,
    *,
    runtime: Optional[Path] = None,
    profile: Optional[str] = None,
    inputs: Many = (),
    outputs: Optional[Many] = None,
    copy: Optional[Path] = None,
    force: bool = False,
    params: Optional[Mapping[str, Any]] = None,
    memory: Optional[Size] = None,
    cpus: Union[None, str, int, float] = None,
    pids: Union[None, str, int] = None,
    timeout: Optional[Duration] = None,
    cpu_time: Optional[Duration] = None,
    disk: Optional[Size] = None,
    inodes: Union[None, str, int] = None,
    output_limit: Optional[Size] = None,
    open_files: Union[None, str, int] = None,
    sockets: Union[None, str, int] = None,
    io_rate: Optional[Size] = None,
    grace: Optional[Duration] = None,
    network: Union[None, bool, str] = None,
    env: Optional[Env] = None,
    env_file: Optional[Path] = None,
    executor: Optional[str] = None,
    id: Optional[str] = None,
    priority: Optional[int] = None,
    key: Optional[str] = None,
    retry: Union[None, str, Iterable[str], Mapping[str, Union[int, str]]] = None,
    post_process: Optional[str] = None,
    keep: bool = False,
    cwd: Optional[Path] = None,
    stdin: Stdin = None,
    check: bool = False,
    progress: Optional[bool] = None,
    store: Optional[str] = None,
    config: Optional[Path] = None,
) -> Run:
    """Runs a command in a sandbox and waits for it.

    The arguments are the options of ``forge run``. Sizes and durations are texts as there ("2G",
    "30m"), or numbers of bytes and of seconds. ``cwd`` is where relative paths of inputs are;
    ``stdin`` is given to the command. With ``check`` a run that did not succeed is an exception,
    as of ``Run.check()``. An exception in here, such as an interrupt, cancels the run.
    """
    options = request_words(
        runtime=runtime, profile=profile, inputs=inputs, outputs=outputs, copy=copy, force=force,
        params=params, memory=memory, cpus=cpus, pids=pids, timeout=timeout, cpu_time=cpu_time,
        disk=disk, inodes=inodes, output_limit=output_limit, open_files=open_files, sockets=sockets,
        io_rate=io_rate, grace=grace, network=network, env=env, env_file=env_file, executor=executor,
        id=id, priority=priority, key=key, retry=retry, post_process=post_process, keep=keep,
    )
    place = place_words(store, config)
    words = run_words(cmd, stdin, options, place)
    source, feed = input_of(stdin)
    shown = progress_for(progress, id or os.fsdecode(words_of(cmd)[0]))
    process = _binary.popen(words, cwd=None if cwd is None else os.fsdecode(cwd), stdin=source)
    out, err = _collect(process, feed=feed, progress=shown, is_run=True)
    return finished(process.returncode, out, err, place, cwd_of(cwd), check)


def submit(
    cmd: Command,
    *,
    runtime: Optional[Path] = None,
    profile: Optional[str] = None,
    inputs: Many = (),
    outputs: Optional[Many] = None,
    copy: Optional[Path] = None,
    force: bool = False,
    params: Optional[Mapping[str, Any]] = None,
    memory: Optional[Size] = None,
    cpus: Union[None, str, int, float] = None,
    pids: Union[None, str, int] = None,
    timeout: Optional[Duration] = None,
    cpu_time: Optional[Duration] = None,
    disk: Optional[Size] = None,
    inodes: Union[None, str, int] = None,
    output_limit: Optional[Size] = None,
    open_files: Union[None, str, int] = None,
    sockets: Union[None, str, int] = None,
    io_rate: Optional[Size] = None,
    grace: Optional[Duration] = None,
    network: Union[None, bool, str] = None,
    env: Optional[Env] = None,
    env_file: Optional[Path] = None,
    executor: Optional[str] = None,
    id: Optional[str] = None,
    priority: Optional[int] = None,
    key: Optional[str] = None,
    retry: Union[None, str, Iterable[str], Mapping[str, Union[int, str]]] = None,
    post_process: Optional[str] = None,
    keep: bool = False,
    cwd: Optional[Path] = None,
    store: Optional[str] = None,
    config: Optional[Path] = None,
) -> Run:
    """Runs a command in the background, beyond the end of this process.

    The arguments are those of run(), without ``stdin``, ``check`` and ``progress``. With ``key``
    the same key is the same run.
    """
    options = request_words(
        runtime=runtime, profile=profile, inputs=inputs, outputs=outputs, copy=copy, force=force,
        params=params, memory=memory, cpus=cpus, pids=pids, timeout=timeout, cpu_time=cpu_time,
        disk=disk, inodes=inodes, output_limit=output_limit, open_files=open_files, sockets=sockets,
        io_rate=io_rate, grace=grace, network=network, env=env, env_file=env_file, executor=executor,
        id=id, priority=priority, key=key, retry=retry, post_process=post_process, keep=keep,
    )
    place = place_words(store, config)
    words: List[Word] = ["submit", "--json", *options, *place, "--", *words_of(cmd)]
    process = _binary.popen(words, cwd=None if cwd is None else os.fsdecode(cwd))
    out, err = _finish_submit(process)
    if process.returncode != 0:
        raise _binary.failure(process.returncode, err)
    messages = _binary.text(err)
    warn(messages)
    return Run(_binary.parse(out), place=place, cwd=cwd_of(cwd), messages=messages)


def _finish_submit(process: "subprocess.Popen[bytes]") -> "tuple[bytes, bytes]":
    """
    An interrupt waits until it is known whether there is a run, and then cancels that: its id
    would be lost with the exception.
    """
    try:
        return process.communicate()
    except BaseException:
        with contextlib.suppress(Exception):
            out, _ = process.communicate(timeout=30)
            if process.returncode == 0:
                Run(_binary.parse(out)).kill()
        raise
    finally:
        _binary.close(process)


def run_python(source: str, *args: Word, python: str = "python3", **options: Any) -> Run:
    """Runs a text as a Python program. The arguments are in its sys.argv[1:]."""
    return run([python, "-", *args], stdin=source, **options)


def get(word: str, *, store: Optional[str] = None, config: Optional[Path] = None) -> Run:
    """The run with this id or beginning of one, the newest with this analysis id, or ``last``."""
    return Run({"run_id": word}, place=place_words(store, config), cwd=os.getcwd()).refresh()


def runs(
    *,
    status: Optional[str] = None,
    reason: Optional[str] = None,
    runtime: Optional[str] = None,
    analysis: Optional[str] = None,
    user: Optional[str] = None,
    output: Optional[Path] = None,
    since: Optional[str] = None,
    until: Optional[str] = None,
    sort: Optional[str] = None,
    reverse: bool = False,
    running: bool = False,
    limit: Optional[int] = 20,
    after: Union[None, str, Run] = None,
    store: Optional[str] = None,
    config: Optional[Path] = None,
) -> List[Run]:
    """The runs of the store, the newest first. ``limit=None``: all of them."""
    place = place_words(store, config)
    words: List[Word] = ["ps", "--json", *place]
    for name, value in (
        ("--status", status),
        ("--reason", reason),
        ("--runtime", runtime),
        ("--analysis", analysis),
        ("--user", user),
        ("--output", None if output is None else os.fsencode(output)),
        ("--since", since),
        ("--until", until),
        ("--sort", sort),
        ("--limit", None if limit is None else str(limit)),
        ("--after", after.run_id if isinstance(after, Run) else after),
    ):
        if value is not None:
            words += [name, value]
    words += ["--reverse"] if reverse else []
    words += ["--running"] if running else []
    words += ["--all"] if limit is None else []
    return [Run(row, place=place, cwd=os.getcwd()) for row in _binary.read_lines(words)]


@dataclasses.dataclass(frozen=True)
class Runtime:
    """A named environment."""

    name: str
    kind: str
    health: str
    problem: str
    description: str
    digest: Optional[str]
    raw: Mapping[str, Any] = dataclasses.field(repr=False, compare=False)

    @property
    def is_healthy(self) -> bool:
        return self.health == "healthy"


def runtimes(*, config: Optional[Path] = None) -> List[Runtime]:
    """The named environments of this host."""
    rows = _binary.read_json(["runtime", "list", "--json", *place_words(None, config)])
    return [
        Runtime(
            name=row["name"],
            kind=row["kind"],
            health=row["health"],
            problem=row.get("problem") or "",
            description=row.get("description") or "",
            digest=row.get("digest"),
            raw=row,
        )
        for row in rows
    ]


@dataclasses.dataclass(frozen=True)
class HealthCheck:
    """A check of this host."""

    name: str
    kind: str
    ok: bool
    severity: str
    text: str
    raw: Mapping[str, Any] = dataclasses.field(repr=False, compare=False)


def health(*, config: Optional[Path] = None) -> List[HealthCheck]:
    """Carries out the checks of this host now."""
    process = _binary.popen(health_words(config))
    out, err = _collect(process)
    return health_of(process.returncode, out, err)


def health_words(config: Optional[Path]) -> List[Word]:
    return ["health", "check", "--json", *place_words(None, config)]


def health_of(status: int, out: bytes, err: bytes) -> List[HealthCheck]:
    # 1 is also a check that failed: then there is a list.
    if not out.strip():
        raise _binary.failure(status, err)
    return [
        HealthCheck(row["name"], row["kind"], row["ok"], row["severity"], row["text"], row)
        for row in _binary.parse(out)
    ]
