# SPDX-License-Identifier: Apache-2.0
"""forge.aio.pipelines: pipelines for asyncio. Cancelling a task that is in ``run()`` ends the pipeline's runs."""
from __future__ import annotations

import asyncio
import os
import subprocess
from typing import Any, Callable, List, Mapping, Optional

from . import pipelines as _sync
from ._binary import Word
from ._process_aio import communicate, end, start_shielded
from ._request import Many, Path
from .pipelines import Event, PipelineFailed, PipelineOutput, Result, Task

__all__ = ["Event", "PipelineFailed", "PipelineOutput", "Result", "Task", "outputs", "run", "status"]

READ_MAX = 1 << 16


def _where(cwd: Optional[Path]) -> Optional[str]:
    return None if cwd is None else os.fsdecode(cwd)


async def run(
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
    """As forge.pipelines.run(). Cancelling the task ends its runs and waits for that; ``on_event`` is called in the loop."""
    words = _sync._run_words(file, params, only, force, from_, entry, given, jobs, stop, store, config)
    done = _sync._Progress(on_event)
    process = await start_shielded(words, _where(cwd), subprocess.DEVNULL)
    assert process.stdout is not None and process.stderr is not None
    said = asyncio.ensure_future(process.stderr.read())
    rest = b""
    try:
        while True:
            data = await process.stdout.read(READ_MAX)
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                done.take(line)
            if not data:
                break
        status, text = await process.wait(), await said
    except BaseException:
        said.cancel()  # end() reads it on
        await end(process)
        raise
    return done.result(status, text, check)


async def _ask(words: List[Word], cwd: Optional[Path]) -> bytes:
    return _sync._checked(*await communicate(words, _where(cwd)))


async def status(
    file: Optional[Path] = None,
    *,
    params: Optional[Mapping[str, Any]] = None,
    cwd: Optional[Path] = None,
    store: Optional[str] = None,
    config: Optional[Path] = None,
) -> List[Task]:
    """As forge.pipelines.status()."""
    return _sync._tasks_of(await _ask(_sync._words("status", file, params, (), store, config), cwd))


async def outputs(
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
    """As forge.pipelines.outputs()."""
    words = _sync._words("outputs", file, params, only, store, config)
    rows = _sync._outputs_of(await _ask(words, cwd))
    if copy is not None:
        await _ask(words + _sync._copy_words(copy, replace), cwd)
    return rows
