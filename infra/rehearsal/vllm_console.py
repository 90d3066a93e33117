"""vLLM's log: who writes, the level, the time without a year, the place in the source."""

from __future__ import annotations

import os
import time

from infra.rehearsal.console import raw


class VllmConsole:
    """Writes ``(EngineCore pid=7) INFO 05-02 08:00:01 [core.py:140] message`` lines on stderr.

    Args:
        who: name of the process, such as ``Worker_TP3``.
    """

    def __init__(self, who: str) -> None:
        self._who = who

    def say(self, message: str, place: str = "core.py:140", level: str = "INFO") -> None:
        """One message, with the time of now; every line of it gets the prefix."""
        now = time.strftime("%m-%d %H:%M:%S")
        head = f"({self._who} pid={os.getpid()}) {level} {now} [{place}] "
        raw("".join(f"{head}{line}\n" for line in message.split("\n")))

    def plain(self, text: str) -> None:
        """A line of uvicorn or of Python: it has the process before it, and no time."""
        raw("".join(f"(APIServer pid={os.getpid()}) {line}\n" for line in text.split("\n")))
