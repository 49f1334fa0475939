# SPDX-License-Identifier: Apache-2.0
"""Processes of forge for asyncio: one that is not needed any more is asked to end, and waited for."""
from __future__ import annotations

import asyncio
import os
import subprocess
from typing import Any, Optional, Sequence, Tuple

from . import _binary
from ._binary import Word
from .errors import UsageError


async def start(words: Sequence[Word], cwd: Optional[str], stdin: Any) -> asyncio.subprocess.Process:
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


async def start_shielded(words: Sequence[Word], cwd: Optional[str], stdin: Any) -> asyncio.subprocess.Process:
    """asyncio would kill a process whose start is cancelled, and forge could not end its run."""
    starting = asyncio.ensure_future(start(words, cwd, stdin))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        process = await starting
        await end(process)
        raise


async def end(process: asyncio.subprocess.Process) -> None:
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


async def communicate(
    words: Sequence[Word],
    cwd: Optional[str],
    *,
    stdin: Any = subprocess.DEVNULL,
    feed: Optional[bytes] = None,
) -> Tuple[int, bytes, bytes]:
    process = await start_shielded(words, cwd, stdin)
    try:
        out, err = await process.communicate(feed)
    except BaseException:
        await end(process)
        raise
    assert process.returncode is not None
    return process.returncode, out, err
