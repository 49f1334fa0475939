# SPDX-License-Identifier: Apache-2.0
"""One line that says how long a run has taken: in a terminal, or in a notebook."""
from __future__ import annotations

import importlib
import sys
import threading
import time
from typing import Any, Callable, Optional

PERIOD = 0.5
FIRST = 1.0  # a run that is over before this shows nothing


def _kernel() -> Optional[Any]:
    """IPython's shell if this process is a Jupyter kernel. It is loaded then."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    return shell if shell is not None and getattr(shell, "kernel", None) is not None else None


def _terminal() -> bool:
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except (ValueError, AttributeError):
        return False


def duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class Progress:
    """Shows one line and removes it again. ``show`` and ``clear`` are where it is shown."""

    def __init__(self, label: str, show: Callable[[str], None], clear: Callable[[], None]) -> None:
        self._label = label
        self._show = show
        self._clear = clear
        self._began = time.monotonic()
        self._is_shown = False

    def update(self, status: Optional[str] = None) -> None:
        spent = time.monotonic() - self._began
        if spent < FIRST:
            return
        self._is_shown = True
        self._show(f"forge: {self._label}: {status or 'running'} {duration(spent)}")

    def close(self) -> None:
        if self._is_shown:
            self._clear()
            self._is_shown = False


def _in_terminal(label: str) -> Progress:
    def show(text: str) -> None:
        sys.stderr.write(f"\r{text}\x1b[K")
        sys.stderr.flush()

    def clear() -> None:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()

    return Progress(label, show, clear)


def _in_notebook(label: str) -> Progress:
    display: Any = importlib.import_module("IPython.display").display

    handle: Any = None

    def show(text: str) -> None:
        nonlocal handle
        data = {"text/plain": text}
        if handle is None:
            handle = display(data, raw=True, display_id=True)
        else:
            handle.update(data, raw=True)

    def clear() -> None:
        # A display cannot be removed; an empty one takes no room.
        handle.update({"text/plain": ""}, raw=True)

    return Progress(label, show, clear)


def printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)[:60]


def progress_for(wanted: Optional[bool], label: str) -> Optional[Progress]:
    """None where there is nothing to show it on, and, unless wanted, outside the main thread."""
    if wanted is False:
        return None
    if wanted is None and threading.current_thread() is not threading.main_thread():
        return None
    if _kernel() is not None:
        return _in_notebook(printable(label))
    return _in_terminal(printable(label)) if _terminal() else None
