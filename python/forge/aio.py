# SPDX-License-Identifier: Apache-2.0
"""The same for asyncio. Cancelling a task that is in ``run()`` cancels the run."""
from __future__ import annotations

import asyncio
import subprocess
from typing import Any, AsyncIterator, Iterable, List, Mapping, Optional, Tuple

from . import _binary, _run
from . import _pipelines_aio as pipelines
from ._binary import Word
from ._process_aio import communicate, end, start_shielded
from ._request import Command, Duration, Path, _duration, place_words, request_words, words_of
from ._run import LINE_MAX, OVER, STILL_RUNNING, HealthCheck, LogLine, Logs, Output, Runtime, Stdin
from .errors import NotOver

__all__ = ["Run", "get", "health", "pipelines", "run", "runs", "runtimes", "submit"]


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
        return await communicate([*words, *self.sync._place, "--", self.run_id], self.sync._there(changes))

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

    async def resume(self, *, check: bool = False, **changes: Any) -> "Run":
        """Goes on after a kill, a crash or a limit; cancelling this cancels the new run."""
        words: List[Word] = ["resume", "--json", "--until-closed", *request_words(**changes)]
        step = await asyncio.to_thread(lambda: self.sync.record.get("step"))
        status, out, err = await self._ask(*words, changes=changes)
        if not step:
            return Run(_run.finished(status, out, err, self.sync._place, self.sync._cwd, check))
        run = await asyncio.to_thread(self.sync._step_after, step, status, out, err)
        return Run(run.check() if check else run)

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
            process = await start_shielded(words, None, subprocess.DEVNULL)
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
                await end(process)
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
    status, out, err = await communicate(words, None if cwd is None else where, stdin=source, feed=feed)
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
    asking = asyncio.ensure_future(communicate(words, None if cwd is None else where))
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


async def runtimes(*, config: Optional[Path] = None) -> List[Runtime]:
    """As forge.runtimes()."""
    return await asyncio.to_thread(lambda: _run.runtimes(config=config))


async def health(*, config: Optional[Path] = None) -> List[HealthCheck]:
    """As forge.health(). Cancelling the task ends the checks."""
    status, out, err = await communicate(_run.health_words(config), None)
    return _run.health_of(status, out, err)
