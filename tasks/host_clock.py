"""Whether the host's clock and ours pass alike: everything is timed on the host alone."""

from __future__ import annotations

import time
from dataclasses import dataclass

# Goes on while a laptop sleeps; without it (macOS) the monotonic clock does.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def ours() -> float:
    """Seconds on the controller's clock, which nobody sets and no sleep stops."""
    return time.clock_gettime(_CLOCK)


@dataclass(frozen=True)
class Span:
    """The same stretch of time on two clocks.

    When exactly the host read its clock is not known, only between which two moments here: so
    ours is at least one figure and at most another.
    """

    host_s: float
    least_s: float
    most_s: float

    @property
    def off_s(self) -> float:
        """By how much the host's clock is surely fast (positive) or slow (negative), seconds."""
        return max(self.host_s - self.most_s, 0.0) - max(self.least_s - self.host_s, 0.0)


class HostClock:
    """Remembers the first and the last answer that told the host's time."""

    def __init__(self) -> None:
        self._first: tuple[float, float, float] | None = None
        self._last: tuple[float, float, float] | None = None

    def note(self, asked: float, answered: float, host: float) -> None:
        """Takes one answer: when it was asked for and when it came (ours), and what it says."""
        self._last = (asked, answered, host)
        self._first = self._first or self._last

    def here(self, moment: float) -> float | None:
        """A moment of the host's clock on ours, late by an answer's way at most."""
        if self._last is None:
            return None
        _, answered, host = self._last
        return answered - (host - moment)

    def span(self) -> Span | None:
        """From the first answer to the last; None before there are two."""
        if self._first is None or self._last is None or self._first == self._last:
            return None
        (asked, answered, host), (later_asked, later_answered, later_host) = self._first, self._last
        return Span(
            host_s=later_host - host,
            least_s=max(later_asked - answered, 0.0),
            most_s=later_answered - asked,
        )
