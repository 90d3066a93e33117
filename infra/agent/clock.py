"""How late the client's own loop runs: whether it, and not the engine, was the bottleneck."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Optional

TICK_S = 0.05
"""Often enough for a 99th percentile after five seconds; each tick wakes an idle client."""


class Lag:
    """Is to be woken every 50 ms, and notes how late that happens.

    An idle loop wakes up to a millisecond late by itself: epoll counts in whole milliseconds.
    """

    def __init__(self) -> None:
        self.late = array("d")
        self.due = 0.0

    def start(self, now: float) -> None:
        """Begins to measure."""
        self.due = now + TICK_S

    def tick(self, now: float) -> None:
        """Notes that the loop came round to a tick that was due."""
        self.late.append(max(0.0, now - self.due))
        self.due = now + TICK_S

    def stop(self, now: float) -> None:
        """Ends the measuring; a run shorter than a tick has its own lateness as the only one."""
        if not self.late:
            self.late.append(max(0.0, now - self.due))

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
