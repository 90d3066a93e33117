"""The processes that an engine cannot do without, and whether one of them is gone.

SGLang 0.5.9 does not notice that a scheduler was killed: its parent answers /health with 200 and
generates nothing for ever (sglang#6624). The host can see it at once. Engines title such children
``sglang::scheduler_TP3`` or ``VLLM::Worker_TP3``; helpers that come and go have no such title.
"""

from __future__ import annotations

import os
import time
from typing import Optional

from infra.agent import processes

TITLES = ("sglang::", "VLLM::")
LOOK_EVERY_S = 1.0
LOOK_SOON_S = 0.1
"""While they are still being started: one that dies before it was met is never missed."""
SETTLE_S = 0.4
"""An engine that notices by itself says why, and ends; so long it is left to do so."""


class Kin:
    """The titled children of one engine, as far as they were seen."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._known: dict[int, processes.Process] = {}
        self._look_at = 0.0
        self._gone_since: Optional[float] = None

    def lost(self) -> Optional[str]:
        """Which needed child is gone while the engine lives on, in words; None while all live."""
        now = time.monotonic()
        if now >= self._look_at:
            starting = self._meet() or not self._known
            self._look_at = now + (LOOK_SOON_S if starting else LOOK_EVERY_S)
        gone = [process for process in self._known.values() if not _lives(process)]
        if not gone:
            self._gone_since = None
            return None
        if self._gone_since is None:
            self._gone_since = now
        if now - self._gone_since < SETTLE_S:
            return None
        return "; ".join(f"{p.comm} (pid {p.pid}) {how_ended(p.pid)}" for p in gone)

    def _meet(self) -> bool:
        """Looks who is there; whether somebody new is."""
        before = len(self._known)
        for pid in children(self._pid):
            process = processes.look(pid)
            if process is not None and process.comm.startswith(TITLES):
                self._known[pid] = process
        return len(self._known) > before


def _lives(process: processes.Process) -> bool:
    now = processes.look(process.pid)
    return now is not None and now.key == process.key and now.state not in processes.GONE


def children(pid: int) -> list[int]:
    """The children of a process; none where the kernel does not tell (CONFIG_PROC_CHILDREN)."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                found += [int(word) for word in file.read().split()]
    except OSError:
        return found
    return found


def how_ended(pid: int) -> str:
    """How a zombie came to its end: field 52 of its stat is what its parent would be told."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            status = int(processes.parse_stat(file.read())[3][48])
    except (OSError, IndexError):
        return "is gone"
    if status & 0x7F:
        return f"was ended by signal {status & 0x7F}"
    return f"ended with exit code {status >> 8}"
