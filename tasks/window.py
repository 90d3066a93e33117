"""The steady window of a probe: where the load was what was asked, and what arrived in it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tasks.record import Sample

STEADY_SHARE = 0.9
"""In-flight requests at or above this share of the asked concurrency count as steady."""
HELD_SHARE = 0.9
"""The load must stand at that level for this share of the window, or there was no steady state."""


class Window(NamedTuple):
    """A stretch of a probe, in seconds since its start."""

    start_s: float
    end_s: float
    held: float
    """Share of the window with in-flight requests at the steady level or above."""

    @property
    def length_s(self) -> float:
        """Length in seconds."""
        return self.end_s - self.start_s


def steady_window(samples: Sequence[Sample], concurrency: int) -> Window | None:
    """From the first to the last moment with in-flight requests >= 90 % of the concurrency.

    A request is in flight from being sent to its end, whether it succeeds or not. A closed loop
    is below its level for the blink between one request's end and the next one's start; with
    one user that is below 90 % each time. So the window is not cut there; it must be at its
    level for 90 % of its length instead. Ramp-up and drain stay outside.

    Returns:
        None when the level was never reached or not held: then there is no steady state to
        speak of, and no rate.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency must be at least 1, is {concurrency}")
    level = math.ceil(STEADY_SHARE * concurrency - 1e-9)
    stretches = _at_level(samples, level)
    if not stretches:
        return None
    start, end = stretches[0][0], stretches[-1][1]
    if not end > start:
        return None
    held = sum(b - a for a, b in stretches) / (end - start)
    return Window(start, end, held) if held >= HELD_SHARE else None


def tokens_in(samples: Iterable[Sample], window: Window) -> float:
    """Tokens that were generated inside the window.

    The tokens of a chunk were made since the chunk before, so a chunk across an edge counts by
    the share of that time which lies inside; a stream whose engine sends every fourth token
    would otherwise lose three at the end of the window, and streams that end together lose them
    all at once. A first chunk counts where it arrives: the time before it is queue and prefill.
    """
    total = 0.0
    for sample in samples:
        before, since = 0, None
        for at, count in sample.chunks:
            total += (count - before) * _share_inside(since, at, window)
            before, since = count, at
    return total


def _share_inside(since: float | None, at: float, window: Window) -> float:
    """The share of a chunk's time that lies in the window."""
    if since is None or at <= since:
        return 1.0 if window.start_s < at <= window.end_s else 0.0
    inside = min(at, window.end_s) - max(since, window.start_s)
    return max(0.0, inside) / (at - since)


def _at_level(samples: Sequence[Sample], level: int) -> list[tuple[float, float]]:
    """Stretches of time with at least ``level`` requests in flight."""
    # At equal times ends come first: a request sent at the moment another ends does not overlap.
    events = sorted(
        [(s.sent_s, 1) for s in samples] + [(s.done_s, -1) for s in samples],
    )
    stretches: list[tuple[float, float]] = []
    in_flight, since = 0, None
    for at, change in events:
        in_flight += change
        if in_flight >= level and since is None:
            since = at
        elif in_flight < level and since is not None:
            stretches.append((since, at))
            since = None
    return [(a, b) for a, b in stretches if b > a]
