"""How late the client's own event loop runs: whether it, and not the engine, was the bottleneck."""

from __future__ import annotations

import asyncio
import math
import time
from array import array
from collections.abc import Sequence
from typing import Optional

TICK_S = 0.01


class Lag:
    """Asks to be woken every 10 ms and notes how late that happens.

    An idle loop wakes up to a millisecond late by itself: epoll counts in whole milliseconds.
    """

    def __init__(self) -> None:
        self.late = array("d")
        self._expected = 0.0
        self._loop: Optional[asyncio.AbstractEventLoop] = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begins to measure."""
        self._loop = loop
        self._plan()

    def stop(self) -> None:
        """Ends the measuring; a run shorter than a tick has its own lateness as the only one."""
        self._loop = None
        if not self.late:
            self.late.append(max(0.0, time.monotonic() - self._expected))

    def _plan(self) -> None:
        if self._loop is not None:
            self._expected = time.monotonic() + TICK_S
            self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self.late.append(max(0.0, time.monotonic() - self._expected))
        self._plan()

    def summary(self) -> dict[str, Optional[float]]:
        """Median, 99th percentile and maximum, in seconds; None where nothing was measured."""
        return {
            "loop_lag_p50_s": percentile(self.late, 0.5),
            "loop_lag_p99_s": percentile(self.late, 0.99),
            "loop_lag_max_s": percentile(self.late, 1.0),
        }


def percentile(values: Sequence[float], share: float) -> Optional[float]:
    """The smallest value that is not exceeded by ``share`` of all (nearest rank)."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
