# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, as exceptions: one for each reason of a verdict."""
from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Optional, Tuple, Type

if TYPE_CHECKING:
    from ._run import Run


class ForgeError(Exception):
    """Base of all exceptions of this package."""


class ForgeWarning(UserWarning):
    """What forge warns of: a limit that was lowered, an environment that is not used."""


class NotInstalled(ForgeError):
    """The program ``forge`` was not found, or cannot be executed."""


class CliError(ForgeError):
    """``forge`` said no: its sentence, its hint, and its exit status."""

    def __init__(self, message: str, hint: Optional[str] = None, status: int = 1) -> None:
        super().__init__(message, hint, status)
        self.message = message
        self.hint = hint
        self.status = status

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(CliError):
    """The request is wrong or cannot be carried out here; nothing was run."""


class NotOver(ForgeError, TimeoutError):
    """``Run.wait(timeout=...)`` gave up; the run goes on."""

    def __init__(self, run: "Run") -> None:
        super().__init__(run)
        self.run = run

    def __str__(self) -> str:
        return f"run {self.run.run_id} is still {self.run.status}"


class RunError(ForgeError):
    """A run did not succeed. ``run`` is the run, the text is the verdict's sentence."""

    def __init__(self, run: "Run") -> None:
        # The run is the only argument: so the exception can be pickled.
        super().__init__(run)
        self.run = run

    def __str__(self) -> str:
        notes = self.run.completion_notes or f"{self.run.status}: {self.run.reason}"
        return f"{notes} (run {self.run.run_id})"


class CommandFailed(RunError):
    """The command exited with a status that is not 0, or died of a signal."""


class NotExecuted(CommandFailed):
    """The command was not found or is not executable (exit status 127 or 126)."""


class ProcessLimit(CommandFailed):
    """The command failed after it could not start another process."""


class OutOfMemory(RunError):
    """Killed over its memory limit."""


class TimedOut(RunError):
    """Killed over its wall time or CPU time."""


class DiskFull(RunError):
    """Killed over its disk limit."""


class OutputLimit(RunError):
    """Killed because it printed more than its output limit."""


class MissingOutput(RunError):
    """The command succeeded, but a declared output is missing or could not be kept."""


class Cancelled(RunError):
    """Cancelled by a signal, by ``forge kill``, or after too long in the queue."""


class Rejected(RunError):
    """Refused: it can never fit this host, or the host was not healthy."""


class NotStarted(RunError):
    """The sandbox, the runtime or an input was not usable; nothing of the command ran."""


class Corrupted(RunError):
    """The run changed files that no run may change."""


class Lost(RunError):
    """forge or the host went away during the run."""


_BY_REASON: Dict[str, Type[RunError]] = {
    "exit": CommandFailed,
    "signal": CommandFailed,
    "exec": NotExecuted,
    "pids": ProcessLimit,
    "memory": OutOfMemory,
    "wall_time": TimedOut,
    "cpu_time": TimedOut,
    "disk": DiskFull,
    "output": OutputLimit,
    "missing_output": MissingOutput,
    "cancelled": Cancelled,
    "admission": Rejected,
    "health_pre": Rejected,
    "health_post": Corrupted,
    "sandbox": NotStarted,
    "runtime": NotStarted,
    "input": NotStarted,
    "host_lost": Lost,
}

# These say more than the reason.
_BY_STATUS: Dict[str, Type[RunError]] = {
    "rejected": Rejected,
    "cancelled": Cancelled,
    "corrupted": Corrupted,
    "lost": Lost,
}


def error_class(status: Optional[str], reason: Optional[str]) -> Type[RunError]:
    """The exception for a verdict that is not ``succeeded``."""
    return _BY_STATUS.get(status or "") or _BY_REASON.get(reason or "") or RunError


def split_message(text: str) -> Tuple[str, Optional[str]]:
    """The sentence and the hint of what forge printed on standard error."""
    message, hint = [], None
    for line in text.splitlines():
        if line.startswith("  hint: "):
            hint = line[len("  hint: "):]
        elif line.startswith("forge: warning: ") or line.startswith("usage: "):
            continue
        elif line.strip():
            message.append(line[len("forge: "):] if line.startswith("forge: ") else line)
    return "\n".join(message), hint
