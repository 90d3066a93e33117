"""Whether a warmed-up server has settled: two windows of traffic that say the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tasks.acceptance import of_probe
from tasks.window import Window, steady_window, tokens_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.record import Sample


class Pace(NamedTuple):
    """What one window of traffic shows."""

    tok_s: float
    accept_length: float | None
    seconds: float = 0.0


def paces(samples: Sequence[Sample], skip: int, size: int, concurrency: int) -> list[Pace]:
    """The pace in each window of ``size`` requests after the first ``skip``, in order of sending.

    In a closed loop a window begins as its first request takes a slot, and ends as the next
    window's first one does; the last ends where the load falls off. So each holds as many tokens
    as ``size`` requests make, whether requests run in step or not.

    Args:
        samples: all requests of one closed loop.
        skip: requests before the first window.
        size: requests of one window.
        concurrency: requests that were to be in flight.

    Returns:
        Nothing where the load was never held: then nothing is known.
    """
    ordered = sorted(samples, key=lambda s: s.sent_s)
    steady = steady_window(ordered, concurrency)
    groups = [ordered[at : at + size] for at in range(skip, len(ordered), size)]
    if steady is None or not groups:
        return []
    starts = [group[0].sent_s for group in groups]
    found = []
    for group, start, end in zip(groups, starts, [*starts[1:], steady.end_s], strict=True):
        if end <= start:
            return []
        tokens = tokens_in(ordered, Window(start, end, 1.0))
        whole = [s for s in group if s.error is None]
        found.append(Pace(tokens / (end - start), of_probe(whole).accept_length, end - start))
    return found


def difference(before: Pace, after: Pace) -> float:
    """How far two windows are apart: the larger of the changes in pace and in accept length.

    Both as shares of the earlier window; an accept length that is not known is left out.
    """
    changes = [abs(after.tok_s / before.tok_s - 1)] if before.tok_s > 0 else [1.0]
    if before.accept_length is not None and after.accept_length is not None:
        changes.append(abs(after.accept_length / before.accept_length - 1))
    return max(changes)
