# SPDX-License-Identifier: Apache-2.0
"""Runs analyses in forge's sandbox.

    import forge
    run = forge.run(["python3", "fit.py"], inputs=["fit.py"], memory="2G")
    run.status, run.completion_notes, run.stdout

Everything here starts the program ``forge`` and reads the JSON that it prints.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import compat, pipelines
from ._binary import binary, version
from ._run import (
    HealthCheck,
    LogLine,
    Logs,
    Output,
    Run,
    Runtime,
    get,
    health,
    run,
    run_python,
    runs,
    runtimes,
    submit,
)
from .compat import (
    Executor,
    LocalExecutor,
    RuntimeResult,
    cleanup_analysis_temp_dir,
    create_analysis_temp_dir,
    get_executor,
    isolated_run,
    run_notebook_isolated,
    run_post_process_isolated,
    run_python_script,
    run_tool_isolated,
)
from .errors import (
    Cancelled,
    CliError,
    CommandFailed,
    Corrupted,
    DiskFull,
    ForgeError,
    ForgeWarning,
    Lost,
    MissingOutput,
    NotExecuted,
    NotInstalled,
    NotOver,
    NotStarted,
    OutOfMemory,
    OutputLimit,
    ProcessLimit,
    Rejected,
    RunError,
    TimedOut,
    UsageError,
)

__version__ = "0.1.0"

__all__ = [
    "Cancelled",
    "CliError",
    "CommandFailed",
    "Corrupted",
    "DiskFull",
    "Executor",
    "ForgeError",
    "ForgeWarning",
    "HealthCheck",
    "LocalExecutor",
    "LogLine",
    "Logs",
    "Lost",
    "MissingOutput",
    "NotExecuted",
    "NotInstalled",
    "NotOver",
    "NotStarted",
    "OutOfMemory",
    "Output",
    "OutputLimit",
    "ProcessLimit",
    "RESOURCE_LIMITS",
    "Rejected",
    "Run",
    "RunError",
    "Runtime",
    "RuntimeResult",
    "TimedOut",
    "UsageError",
    "aio",
    "binary",
    "cleanup_analysis_temp_dir",
    "compat",
    "create_analysis_temp_dir",
    "get",
    "get_executor",
    "health",
    "isolated_run",
    "pipelines",
    "run",
    "run_notebook_isolated",
    "run_post_process_isolated",
    "run_python",
    "run_python_script",
    "run_tool_isolated",
    "runs",
    "runtimes",
    "submit",
    "version",
]

RESOURCE_LIMITS = compat.RESOURCE_LIMITS

if TYPE_CHECKING:
    from . import aio


def __getattr__(name: str) -> Any:
    # asyncio takes longer to import than all of this.
    if name == "aio":
        return importlib.import_module(".aio", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
