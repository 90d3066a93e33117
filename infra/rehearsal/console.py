"""The engine's log on stderr: one write per line, so that the lines of nine processes stay whole."""

from __future__ import annotations

import os
import time
from typing import Protocol

_QUIET = {"warning": 1, "error": 2, "critical": 2}
_LEVELS = {"info": 0, "warning": 1, "error": 2}


class Says(Protocol):
    """Whoever writes a log."""

    def say(self, message: str, level: str = "info") -> None:
        """One message."""


class Console:
    """Writes ``[time ranks] message`` lines, as SGLang's logging does.

    Args:
        log_level: as given to the server; lines below it are not printed.
        suffix: ranks behind the time, such as `` TP3``; the main process has none.
    """

    def __init__(self, log_level: str, suffix: str = "") -> None:
        self._least = _QUIET.get(log_level.lower(), 0)
        self.suffix = suffix

    def say(self, message: str, level: str = "info") -> None:
        """One message, with the time of now."""
        if _LEVELS[level] >= self._least:
            now = time.strftime("%Y-%m-%d %H:%M:%S")
            raw(f"[{now}{self.suffix}] {message}\n")


def raw(text: str) -> None:
    """Bytes as they are, such as progress bars and tracebacks."""
    os.write(2, text.encode())
