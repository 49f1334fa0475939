# SPDX-License-Identifier: Apache-2.0
"""Names of an earlier system, with the same signatures; docs/MIGRATING.md says what is different."""
from __future__ import annotations

import abc
import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import stat
import tempfile
import threading
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Union

from . import _binary, _run
from ._request import Command, Many, Path, many, words_of
from .errors import UsageError

# What forge sets itself in a run.
_OWN = frozenset(["HOME", "TMPDIR", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "_", "SHLVL"])
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_PREFIX, _INNER = "forge-analysis-", "work"


@dataclasses.dataclass
class RuntimeResult:
    """How a run ended, and what it printed and left."""

    returncode: int
    stdout: str
    stderr: str
    status: str
    reason: Optional[str]
    completion_notes: str
    run_id: str
    duration: float
    outputs: List[_run.Output]

    @property
    def success(self) -> bool:
        return self.status == "succeeded"


def _result(run: _run.Run) -> RuntimeResult:
    logs = run.logs()
    return RuntimeResult(
        returncode=int(run.returncode if run.returncode is not None else 1),
        stdout=_binary.text(logs.stdout),
        stderr=_binary.text(logs.stderr),
        status=run.status,
        reason=run.reason,
        completion_notes=run.completion_notes or "",
        run_id=run.run_id,
        duration=float(run.usage.get("wall_seconds") or 0.0),
        outputs=run.outputs,
    )


# ---- one run


def _changed(env: Optional[Mapping[str, str]]) -> Dict[str, str]:
    """What the caller has set: callers pass a changed copy of os.environ, most of which is no business of a run."""
    return {
        name: value
        for name, value in (env or {}).items()
        if os.environ.get(name) != value and name not in _OWN and not name.startswith("FORGE_")
    }


def _named_files(cmd: Command, cwd: Optional[Path]) -> List[bytes]:
    """The files that the arguments of a command name: it was started to read them."""
    at = os.fsencode(cwd) if cwd is not None else b"."
    found = []
    for word in words_of(cmd)[1:]:
        name = os.fsencode(word)
        path = os.path.join(at, name)
        # Not what every run sees anyway.
        if name and b"\0" not in name and os.path.isfile(path) and not os.path.abspath(path).startswith(b"/usr/"):
            found.append(name)
    return found


def _run_in(
    cmd: Command,
    cwd: Optional[Path],
    env: Optional[Mapping[str, str]],
    timeout_seconds: Optional[float],
    analysis_id: Optional[str],
    inputs: Many = (),
    **options: Any,
) -> RuntimeResult:
    wanted: List[Any] = [*many(inputs, "inputs"), *_named_files(cmd, cwd)]
    if cwd is not None and os.path.isdir(cwd) and os.listdir(cwd):
        wanted.append(".")
    run = _run.run(
        cmd, cwd=cwd, env=_changed(env), timeout=timeout_seconds, id=analysis_id, inputs=wanted, **options
    )
    # Callers find the files where the command was started, also those of a run that failed.
    if cwd is not None and run.outputs:
        run.copy_outputs(cwd, force=True)
    return _result(run)


def isolated_run(
    cmd: Command,
    cwd: Optional[Path] = None,
    env: Optional[Mapping[str, str]] = None,
    timeout_seconds: Optional[float] = None,
    analysis_id: Optional[str] = None,
) -> RuntimeResult:
    """Runs a command in a sandbox; does not raise when it fails.

    It sees the files in ``cwd``, read-only, and those that its arguments name. The files that it
    leaves are copied into ``cwd``. Without ``cwd`` they are in ``outputs`` of the result only, and
    nothing is left in the current directory.
    """
    return _run_in(cmd, cwd, env, timeout_seconds, analysis_id)


def run_python_script(
    script: Path,
    args: Sequence[str] = (),
    cwd: Optional[Path] = None,
    env: Optional[Mapping[str, str]] = None,
    timeout_seconds: Optional[float] = None,
    analysis_id: Optional[str] = None,
    runtime: Optional[str] = None,
) -> RuntimeResult:
    """Runs a Python script with arguments; ``cwd="."`` for one that reads and writes beside itself."""
    cmd: List[Any] = ["python3", script, *args]
    return _run_in(cmd, cwd, env, timeout_seconds, analysis_id, runtime=runtime)


def run_notebook_isolated(
    notebook: Path,
    parameters: Optional[Mapping[str, Any]] = None,
    cwd: Optional[Path] = None,
    env: Optional[Mapping[str, str]] = None,
    timeout_seconds: Optional[float] = None,
    analysis_id: Optional[str] = None,
    runtime: Optional[str] = "notebook",
) -> RuntimeResult:
    """Executes a notebook under the profile ``notebook``; the executed copy is an output."""
    return _run_in([notebook], cwd, env, timeout_seconds, analysis_id, runtime=runtime, params=parameters)


def run_post_process_isolated(
    cmd: Command,
    cwd: Optional[Path] = None,
    env: Optional[Mapping[str, str]] = None,
    timeout_seconds: Optional[float] = None,
    analysis_id: Optional[str] = None,
) -> RuntimeResult:
    """Runs a command under the profile ``post_process``."""
    return _run_in(cmd, cwd, env, timeout_seconds, analysis_id, profile="post_process")


def run_tool_isolated(
    cmd: Command,
    cwd: Optional[Path] = None,
    env: Optional[Mapping[str, str]] = None,
    timeout_seconds: Optional[float] = None,
    analysis_id: Optional[str] = None,
) -> RuntimeResult:
    """Runs a command under the profile ``tool``."""
    return _run_in(cmd, cwd, env, timeout_seconds, analysis_id, profile="tool")


# ---- limits


class _Limits(Mapping[str, Mapping[str, Optional[float]]]):
    """Asks forge when it is first read; None is no limit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._profiles: Optional[Dict[str, Dict[str, Optional[float]]]] = None

    def _load(self) -> Dict[str, Dict[str, Optional[float]]]:
        with self._lock:
            if self._profiles is None:
                profiles = _binary.read_json(["config", "show", "--json"])["profiles"]
                self._profiles = {
                    name: {key: None if value == "unlimited" else value for key, value in limits.items()}
                    for name, limits in profiles.items()
                }
            return self._profiles

    def __getitem__(self, name: str) -> Mapping[str, Optional[float]]:
        return self._load()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._load())

    def __len__(self) -> int:
        return len(self._load())

    def __repr__(self) -> str:
        return repr(self._load())


#: The profiles of the configuration and their limits.
RESOURCE_LIMITS: Mapping[str, Mapping[str, Optional[float]]] = _Limits()


# ---- directories


def create_analysis_temp_dir(analysis_id: str) -> pathlib.Path:
    """Makes a new directory that only this user can enter."""
    if not _ID.match(analysis_id):
        raise UsageError(f"analysis_id: {analysis_id!r} is no id", "Letters, digits, '.', '_' and '-', at most 64", 2)
    # Only this user enters the outer one. A run of root has another user id and reads the inner one.
    inner = pathlib.Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{analysis_id}."), _INNER)
    inner.mkdir()
    inner.chmod(0o755)
    return inner


def _is_ours(path: str) -> bool:
    """Made by create_analysis_temp_dir(), by this user, and no link to something else."""
    if os.path.dirname(path) != os.path.abspath(tempfile.gettempdir()):
        return False
    if not os.path.basename(path).startswith(_PREFIX):
        return False
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def cleanup_analysis_temp_dir(path_or_id: Union[str, "os.PathLike[str]"]) -> bool:
    """Removes a directory of create_analysis_temp_dir(), or all of an analysis; whether there was one."""
    word = os.fspath(path_or_id)
    if isinstance(path_or_id, str) and os.sep not in word:
        if not _ID.match(word):
            raise UsageError(f"{word!r} is neither a directory nor an id", None, 2)
        top = os.path.abspath(tempfile.gettempdir())
        # What mkdtemp() adds has no dot: "a" must not remove what belongs to "a.b".
        name = re.compile(re.escape(f"{_PREFIX}{word}.") + r"[^.]+\Z")
        paths = [os.path.join(top, entry) for entry in os.listdir(top) if name.match(entry)]
        paths = [path for path in paths if _is_ours(path)]
    else:
        path = os.path.abspath(word)
        path = os.path.dirname(path) if os.path.basename(path) == _INNER else path
        if not os.path.lexists(path):
            return False
        if not _is_ours(path):
            raise UsageError(f"{path} is no directory of create_analysis_temp_dir()", None, 2)
        paths = [path]
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)
    return bool(paths)


# ---- executors


class Executor(abc.ABC):
    """Where analyses run."""

    @abc.abstractmethod
    def run_analysis(self, spec: Mapping[str, Any]) -> str:
        """Starts it in the background and returns its run id."""

    @abc.abstractmethod
    def check_status(self, run_id: str) -> str:
        """``queued``, ``running`` ..., and at the end ``succeeded``, ``failed``, ``killed`` ..."""

    @abc.abstractmethod
    def kill(self, run_id: str) -> bool:
        """Ends it; whether it was not over before."""

    @abc.abstractmethod
    def get_logs(self, run_id: str) -> str:
        """What it printed: standard output, then standard error."""


_NAMES = {"cmd": "command", "analysis_id": "id", "timeout_seconds": "timeout"}


class ForgeExecutor(Executor):
    """An executor of forge, by its name in ``forge executor list``."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def run_analysis(self, spec: Mapping[str, Any]) -> str:
        """``spec`` has ``command`` and, under their names, the arguments of forge.submit()."""
        options = {_NAMES.get(name, name): value for name, value in spec.items()}
        if "command" not in options:
            raise UsageError("the spec has no command", None, 2)
        command = options.pop("command")
        options.setdefault("executor", self.name)
        return _run.submit(command, **options).run_id

    def check_status(self, run_id: str) -> str:
        return _run.get(run_id).status

    def kill(self, run_id: str) -> bool:
        run = _run.get(run_id)
        if run.is_over:
            return False
        run.kill()
        return True

    def get_logs(self, run_id: str) -> str:
        logs = _run.get(run_id).logs()
        return _binary.text(logs.stdout + logs.stderr)


class LocalExecutor(ForgeExecutor):
    """On this machine."""

    def __init__(self) -> None:
        super().__init__("local")


class ContainerExecutor(ForgeExecutor):
    """In Docker or Podman."""

    def __init__(self, name: str = "docker") -> None:
        super().__init__(name)


class SlurmExecutor(ForgeExecutor):
    """On a Slurm cluster."""

    def __init__(self, name: str = "slurm") -> None:
        super().__init__(name)


def get_executor(name: Optional[str] = None) -> Executor:
    """The executor of this name in ``forge executor list``; without one, this machine."""
    if name is None or name == "local":
        return LocalExecutor()
    rows = _binary.read_json(["executor", "list", "--json"])
    kinds = {row["name"]: row.get("kind", row["name"]) for row in rows}
    if name not in kinds:
        raise UsageError(f"unknown executor '{name}' (have: {', '.join(kinds)})", None, 2)
    if kinds[name] in ("docker", "podman", "container"):
        return ContainerExecutor(name)
    return SlurmExecutor(name) if kinds[name] == "slurm" else ForgeExecutor(name)
