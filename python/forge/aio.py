# SPDX-License-Identifier: Apache-2.0
"""The same for asyncio. Cancelling a task that is in ``run()`` cancels the run."""
from __future__ import annotations

import asyncio
import os
import subprocess
from typing import Any, AsyncIterator, Iterable, List, Mapping, Optional, Sequence, Tuple

from . import _binary, _run
from ._binary import Word
from ._request import Command, Duration, Path, _duration, place_words, request_words, words_of
from ._run import LINE_MAX, OVER, STILL_RUNNING, LogLine, Logs, Output, Stdin
from .errors import NotOver, UsageError


async def _start(words: Sequence[Word], cwd: Optional[str], stdin: Any) -> asyncio.subprocess.Process:
    argv = _binary.argv_of(words)
    if cwd is not None and not os.path.isdir(cwd):
        raise UsageError(f"cwd: {cwd} is no directory", None, 2)
    try:
        return await asyncio.create_subprocess_exec(
            *argv, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd
        )
    except ValueError as error:
        raise UsageError(str(error), None, 2) from error
    except OSError as error:
        raise _binary.not_executable(error) from error


async def _start_shielded(words: Sequence[Word], cwd: Optional[str], stdin: Any) -> asyncio.subprocess.Process:
    """asyncio would kill a process whose start is cancelled, and forge could not end its run."""
    starting = asyncio.ensure_future(_start(words, cwd, stdin))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        process = await starting
        await _end(process)
        raise


async def _end(process: asyncio.subprocess.Process) -> None:
    """Cancels the run and waits for the verdict; being cancelled again ends the grace period."""

    def ask() -> None:
        try:
            process.terminate()
        except ProcessLookupError:
            pass  # it has ended

    ask()
    ended = asyncio.ensure_future(process.communicate())
    while not ended.done():
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            ask()


async def _communicate(
    words: Sequence[Word],
    cwd: Optional[str],
    *,
    stdin: Any = subprocess.DEVNULL,
    feed: Optional[bytes] = None,
) -> Tuple[int, bytes, bytes]:
    process = await _start_shielded(words, cwd, stdin)
    try:
        out, err = await process.communicate(feed)
    except BaseException:
        await _end(process)
        raise
    assert process.returncode is not None
    return process.returncode, out, err


class Run:
    """A run. ``sync`` is the same run for code that is not asynchronous."""

    def __init__(self, run: _run.Run) -> None:
        self.sync = run

    def __repr__(self) -> str:
        return repr(self.sync).replace("forge.Run", "forge.aio.Run")

    # These do not ask forge: they are as of the last wait(), refresh() or kill().

    @property
    def run_id(self) -> str:
        return self.sync.run_id

    @property
    def record(self) -> Mapping[str, Any]:
        return self.sync._record

    @property
    def status(self) -> Optional[str]:
        return self.sync._record.get("status")

    @property
    def reason(self) -> Optional[str]:
        return self.sync._record.get("reason")

    @property
    def completion_notes(self) -> Optional[str]:
        return self.sync._record.get("completion_notes")

    @property
    def exit_code(self) -> Optional[int]:
        return self.sync._record.get("exit_code")

    @property
    def usage(self) -> Mapping[str, Any]:
        return self.sync._record.get("usage") or {}

    @property
    def outputs(self) -> List[Output]:
        return [Output(self.sync, entry) for entry in self.sync._record.get("outputs") or []]

    # These do.

    async def _ask(self, *words: Word, changes: Iterable[str] = ()) -> Tuple[int, bytes, bytes]:
        return await _communicate([*words, *self.sync._place, "--", self.run_id], self.sync._there(changes))

    async def refresh(self) -> "Run":
        await asyncio.to_thread(self.sync.refresh)
        return self

    async def wait(self, timeout: Optional[Duration] = None, *, check: bool = False) -> "Run":
        """Waits until it is over. Cancelling this does not cancel the run."""
        if self.status not in OVER:
            words: List[Word] = ["wait", "--json"]
            if timeout is not None:
                words += ["--timeout", _duration(timeout, "timeout") if timeout != 0 else "1ms"]
            status, out, err = await self._ask(*words)
            if status == STILL_RUNNING and not out.strip():
                await self.refresh()
                if self.status not in OVER:
                    raise NotOver(self.sync)
            else:
                self.sync._record = dict(_binary.record_of(status, out, err))
                self.sync._is_complete = True
        if check:
            self.sync.check()
        return self

    async def kill(self, now: bool = False) -> "Run":
        await asyncio.to_thread(self.sync.kill, now)
        return self

    async def logs(self, lines: Optional[int] = None) -> Logs:
        return await asyncio.to_thread(self.sync.logs, lines)

    async def stdout(self) -> str:
        return await asyncio.to_thread(lambda: self.sync.stdout)

    async def stderr(self) -> str:
        return await asyncio.to_thread(lambda: self.sync.stderr)

    async def rerun(self, *, check: bool = False, **changes: Any) -> "Run":
        """The same again, with changes; cancelling this cancels the new run."""
        words: List[Word] = ["rerun", "--json", "--until-closed", *request_words(**changes)]
        status, out, err = await self._ask(*words, changes=changes)
        return Run(_run.finished(status, out, err, self.sync._place, self.sync._cwd, check))

    async def follow(self, stream: Optional[str] = None) -> AsyncIterator[LogLine]:
        """The lines of its log, those that are there and those that come, until it is over."""
        if stream not in (None, "stdout", "stderr"):
            raise ValueError(f"stream: {stream!r} is neither 'stdout' nor 'stderr'")
        queue: "asyncio.Queue[Optional[LogLine]]" = asyncio.Queue(1000)
        names = [stream] if stream else ["stdout", "stderr"]
        readers = [asyncio.ensure_future(self._read_log(name, queue)) for name in names]
        try:
            left = len(readers)
            while left:
                line = await queue.get()
                if line is None:
                    left -= 1
                else:
                    yield line
            await asyncio.gather(*readers)
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)

    async def _read_log(self, stream: str, queue: "asyncio.Queue[Optional[LogLine]]") -> None:
        words: List[Word] = ["logs", "--follow", f"--{stream}", *self.sync._place, "--", self.run_id]
        try:
            process = await _start_shielded(words, None, subprocess.DEVNULL)
            assert process.stdout is not None and process.stderr is not None
            error = asyncio.ensure_future(process.stderr.read())
            rest = b""
            try:
                while True:
                    data = await process.stdout.read(LINE_MAX)
                    lines = (rest + data).split(b"\n")
                    rest = lines.pop()
                    for line in lines:
                        await queue.put(LogLine(line, stream))
                    if len(rest) >= LINE_MAX or (not data and rest):
                        await queue.put(LogLine(rest, stream, False))
                        rest = b""
                    if not data:
                        break
                status, said = await process.wait(), await error
            except BaseException:
                await _end(process)
                raise
            if status != 0:
                raise _binary.failure(status, said)
        finally:
            # A full queue that nobody reads any more must not hold the end up.
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(None)


async def run(
    cmd: Command,
    *,
    cwd: Optional[Path] = None,
    stdin: Stdin = None,
    check: bool = False,
    store: Optional[str] = None,
    config: Optional[Path] = None,
    **options: Any,
) -> Run:
    """As forge.run(), with the same arguments. Cancelling the task cancels the run and waits for its end."""
    place = place_words(store, config)
    words = _run.run_words(cmd, stdin, request_words(**options), place)
    source, feed = _run.input_of(stdin)
    where = _run.cwd_of(cwd)
    status, out, err = await _communicate(words, None if cwd is None else where, stdin=source, feed=feed)
    record = _binary.record_of(status, out, err)
    if record.get("existing"):
        other = Run(_run.Run({"run_id": record["run_id"]}, place=place, cwd=where))
        return await other.wait(check=check)
    return Run(_run.finished(status, out, err, place, where, check))


async def submit(
    cmd: Command,
    *,
    cwd: Optional[Path] = None,
    store: Optional[str] = None,
    config: Optional[Path] = None,
    **options: Any,
) -> Run:
    """As forge.submit(). Cancelling the task in here cancels the run, later it does not."""
    place = place_words(store, config)
    words: List[Word] = ["submit", "--json", *request_words(**options), *place, "--", *words_of(cmd)]
    where = _run.cwd_of(cwd)
    asking = asyncio.ensure_future(_communicate(words, None if cwd is None else where))
    try:
        status, out, err = await asyncio.shield(asking)
    except asyncio.CancelledError:
        # The id of its run would be lost.
        status, out, err = await asking
        if status == 0:
            await asyncio.to_thread(_run.Run(_binary.parse(out), place=place, cwd=where).kill)
        raise
    if status != 0:
        raise _binary.failure(status, err)
    messages = _binary.text(err)
    _run.warn(messages)
    return Run(_run.Run(_binary.parse(out), place=place, cwd=where, messages=messages))


async def get(word: str, *, store: Optional[str] = None, config: Optional[Path] = None) -> Run:
    """As forge.get()."""
    return Run(await asyncio.to_thread(lambda: _run.get(word, store=store, config=config)))


async def runs(**filters: Any) -> List[Run]:
    """As forge.runs()."""
    return [Run(run) for run in await asyncio.to_thread(lambda: _run.runs(**filters))]
