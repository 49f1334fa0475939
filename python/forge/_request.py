# SPDX-License-Identifier: Apache-2.0
"""Turns the keyword arguments of run() and submit() into options of the command line."""
from __future__ import annotations

import datetime
import json
import math
import os
from typing import Any, Iterable, List, Mapping, Optional, Sequence, Union

from ._binary import Word
from .errors import UsageError

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
Command = Union[Path, Sequence[Path]]
Size = Union[str, int, float]
Duration = Union[str, int, float, datetime.timedelta]
Env = Union[Mapping[str, Optional[str]], Iterable[str]]
Many = Union[Path, Iterable[Path]]


def _one(path: Any, what: str) -> Word:
    if isinstance(path, (str, bytes)):
        return path
    if isinstance(path, os.PathLike):
        word: Word = os.fspath(path)
        return word
    raise TypeError(f"{what}: {path!r} is neither text nor a path")


def words_of(command: Command) -> List[Word]:
    """The words of a command. A text alone is one word, as for subprocess.run()."""
    if isinstance(command, (str, bytes, os.PathLike)):
        word = _one(command, "command")
        if isinstance(word, str) and len(word.split()) > 1 and not os.path.exists(word):
            raise UsageError(
                f"the command {word!r} is one word, and no such file exists",
                f"Give a list, {word.split()!r}, or for a shell ['sh', '-c', {word!r}]",
                2,
            )
        return [word]
    words = [_one(word, "command") for word in command]
    if not words:
        raise UsageError("no command given", None, 2)
    return words


def many(value: Optional[Many], what: str) -> List[Word]:
    if value is None:
        return []
    if isinstance(value, (str, bytes, os.PathLike)):
        return [_one(value, what)]
    return [_one(item, what) for item in value]


def _number(value: float) -> str:
    return format(value, "f").rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _size(value: Any, what: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise TypeError(f"{what}: {value!r} is no size")
    if isinstance(value, float):
        return "unlimited" if math.isinf(value) and value > 0 else _number(float(value))
    return str(value)


def _duration(value: Any, what: str) -> str:
    if isinstance(value, datetime.timedelta):
        value = value.total_seconds()
    return _size(value, what)


def _env(env: Optional[Env]) -> List[Word]:
    if env is None:
        return []
    if isinstance(env, str):
        return [env]
    if isinstance(env, Mapping):
        return [name if value is None else f"{name}={value}" for name, value in env.items()]
    return list(env)


def _network(network: Union[None, bool, str]) -> Optional[str]:
    if isinstance(network, bool):
        return "host" if network else "none"
    return network


def _retry(retry: Union[None, str, Iterable[str], Mapping[str, Union[int, str]]]) -> List[Word]:
    if retry is None:
        return []
    if isinstance(retry, str):
        return [retry]
    if isinstance(retry, Mapping):
        return [f"{reason}={rule}" for reason, rule in retry.items()]
    return list(retry)


def place_words(store: Optional[str], config: Optional[Path]) -> List[Word]:
    """Where the records are: every later command about the run needs it too."""
    words: List[Word] = []
    if store is not None:
        words += ["--store", store]
    if config is not None:
        words += ["--config", os.path.abspath(_one(config, "config"))]
    return words


def request_words(
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
) -> List[Word]:
    """The options of ``forge run``, ``submit``, ``rerun`` and ``resume``."""
    words: List[Word] = []

    def option(name: str, value: Optional[Word]) -> None:
        if value is not None:
            words.extend([name, value])

    option("--runtime", None if runtime is None else _one(runtime, "runtime"))
    option("--profile", profile)
    for path in many(inputs, "inputs"):
        option("--input", path)
    patterns = many(outputs, "outputs")
    if outputs is not None and not patterns:
        patterns = ["none"]
    for pattern in patterns:
        option("--output", pattern)
    option("--copy", None if copy is None else os.path.abspath(_one(copy, "copy")))
    for name, value in (params or {}).items():
        option("--param", f"{name}={value if isinstance(value, str) else json.dumps(value)}")
    for name, value in (
        ("--memory", memory),
        ("--cpus", cpus),
        ("--pids", pids),
        ("--disk", disk),
        ("--inodes", inodes),
        ("--output-limit", output_limit),
        ("--open-files", open_files),
        ("--sockets", sockets),
        ("--io-rate", io_rate),
    ):
        option(name, None if value is None else _size(value, name[2:]))
    for name, value in (("--timeout", timeout), ("--cpu-time", cpu_time), ("--grace", grace)):
        option(name, None if value is None else _duration(value, name[2:]))
    option("--network", _network(network))
    for variable in _env(env):
        option("--env", variable)
    option("--env-file", None if env_file is None else _one(env_file, "env_file"))
    option("--executor", executor)
    option("--id", id)
    option("--priority", None if priority is None else str(priority))
    option("--idempotency-key", key)
    for rule in _retry(retry):
        option("--retry", rule)
    option("--post-process", post_process)
    if force:
        words.append("--force")
    if keep:
        words.append("--keep")
    return words
