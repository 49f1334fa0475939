# SPDX-License-Identifier: Apache-2.0
"""Finds the program ``forge`` and executes it: the only door of this package."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any, List, Mapping, Optional, Sequence, Union

from .errors import CliError, ForgeError, NotInstalled, UsageError, split_message

Word = Union[str, bytes]

INSTALL = (
    "Install it with `make && sudo make install` in a checkout of Forge (see its README.md), "
    "or set FORGE_BINARY to the path of the program"
)
# What forge exits with when it refuses a request, apart from a verdict.
REFUSED = (2, 125)


def binary() -> str:
    """The path of the program: ``$FORGE_BINARY``, else ``forge`` in ``$PATH``."""
    chosen = os.environ.get("FORGE_BINARY")
    if chosen:
        # Relative to the current directory, not to the one that a run is given.
        path = shutil.which(os.path.abspath(chosen)) if os.sep in chosen else shutil.which(chosen)
        if path is None:
            raise NotInstalled(f"FORGE_BINARY={chosen} is no program. {INSTALL}.")
        return path
    path = shutil.which("forge")
    if path is None:
        raise NotInstalled(f"the program 'forge' is not in PATH. {INSTALL}.")
    return os.path.abspath(path)


def argv_of(words: Sequence[Word]) -> List[bytes]:
    """The words of a command line, as bytes: names need not be UTF-8."""
    return [os.fsencode(binary())] + [os.fsencode(word) for word in words]


def not_executable(error: OSError) -> ForgeError:
    return NotInstalled(f"forge cannot be executed: {error}. {INSTALL}.")


def popen(
    words: Sequence[Word],
    *,
    cwd: Optional[Union[str, "os.PathLike[str]"]] = None,
    stdin: Any = subprocess.DEVNULL,
    stderr: Any = subprocess.PIPE,
) -> "subprocess.Popen[bytes]":
    """Starts forge. Nothing is executed between fork and exec, so that vfork can be used."""
    argv = argv_of(words)
    if cwd is not None and not os.path.isdir(cwd):
        raise UsageError(f"cwd: {os.fspath(cwd)} is no directory", None, 2)
    try:
        return subprocess.Popen(argv, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, cwd=cwd)
    except ValueError as error:  # a NUL in a word
        raise UsageError(str(error), None, 2) from error
    except OSError as error:
        raise not_executable(error) from error


def text(data: bytes) -> str:
    """Bytes as text; those that are not UTF-8 become surrogates and can be written back."""
    return data.decode("utf-8", "surrogateescape")


def failure(status: int, stderr: bytes) -> ForgeError:
    """What forge said when it failed."""
    message, hint = split_message(text(stderr))
    if not message:
        message = f"forge was killed by signal {-status}" if status < 0 else f"forge failed with status {status}"
    return (UsageError if status in REFUSED else CliError)(message, hint, status)


def read(words: Sequence[Word], *, ok: Sequence[int] = (0,)) -> bytes:
    """The standard output of a command that does not start a run."""
    process = popen(words)
    try:
        out, err = process.communicate()
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        close(process)
    if process.returncode not in ok:
        raise failure(process.returncode, err)
    return out


def close(process: "subprocess.Popen[bytes]") -> None:
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            try:
                stream.close()
            except OSError:
                pass  # a broken pipe: forge did not read all of its input


def parse(data: bytes) -> Any:
    """JSON as forge prints it."""
    try:
        return json.loads(data)
    except ValueError as error:
        raise ForgeError(f"forge printed no JSON: {text(data[:200])!r}") from error


def read_json(words: Sequence[Word], *, ok: Sequence[int] = (0,)) -> Any:
    return parse(read(words, ok=ok))


def read_lines(words: Sequence[Word]) -> List[Any]:
    """JSON lines."""
    return [parse(line) for line in read(words).splitlines() if line.strip()]


def version() -> str:
    """The version of the program."""
    return text(read(["--version"])).strip()


def record_of(status: int, out: bytes, err: bytes) -> Mapping[str, Any]:
    """The record that ``forge run --json`` printed, or what it said instead."""
    if not out.strip():
        raise failure(status, err)
    record: Mapping[str, Any] = parse(out)
    return record


