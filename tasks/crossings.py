"""Where, along the ladder of concurrencies, a gain begins or ends."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from tasks.comparison import Cell, Crossover, levels_key
from tasks.metrics import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence


def crossovers(cells: Sequence[Cell]) -> tuple[Crossover, ...]:
    """Where ratios to the baseline pass 1 along the ladder, if they do.

    Noise passes 1 all the time: a crossing counts only if the setting is decidedly better or
    worse somewhere on the fitting side. ``firm`` means on both sides. The interval of the place
    is read off the ladder too: from where the ratio's own interval begins to hold 1 to where it
    ceases to.
    """
    ladders: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        if cell.contrast == "arm":
            key = (cell.metric, cell.probe, cell.arm, *levels_key(cell.levels))
            ladders.setdefault(key, []).append(cell)
    found = []
    for ladder in ladders.values():
        ladder.sort(key=lambda cell: cell.concurrency)
        for i, (a, b) in enumerate(pairwise(ladder), start=1):
            if (a.ratio >= 1) == (b.ratio >= 1):
                continue
            before = {cell.verdict for cell in ladder[:i]}
            after = {cell.verdict for cell in ladder[i:]}
            first, then = ("better", "worse") if _gain(b) < _gain(a) else ("worse", "better")
            if first in before or then in after:
                found.append(_crossover(a, b, ladder, firm=first in before and then in after))
    return tuple(found)


def _crossover(a: Cell, b: Cell, ladder: Sequence[Cell], *, firm: bool) -> Crossover:
    at = _passes_one(a, b, a.ratio, b.ratio)
    low, high = _between(ladder, at)
    return Crossover(
        metric=a.metric,
        probe=a.probe,
        arm=a.arm,
        levels=a.levels,
        concurrency=at,
        below=a.concurrency,
        above=b.concurrency,
        direction="falls" if _gain(b) < _gain(a) else "rises",
        firm=firm,
        low=low,
        high=high,
    )


def _passes_one(a: Cell, b: Cell, before: float, after: float) -> float:
    """Concurrency at which a straight line in log ratio over log concurrency passes 1."""
    share = math.log(before) / (math.log(before) - math.log(after))
    start, end = math.log(a.concurrency), math.log(b.concurrency)
    return math.exp(start + share * (end - start))


def _between(ladder: Sequence[Cell], at: float) -> tuple[float | None, float | None]:
    """The stretch around a crossing in which the ratio's own interval holds 1.

    The interval's ends are drawn straight between the rungs, like the ratio; whichever of them
    passes 1 last before the crossing and first after it bounds the stretch.
    """
    crossings = [
        _passes_one(a, b, before, after)
        for a, b in pairwise(ladder)
        for before, after in ((a.alone_low, b.alone_low), (a.alone_high, b.alone_high))
        if before and after and (before >= 1) != (after >= 1)
    ]
    below = [place for place in crossings if place <= at]
    above = [place for place in crossings if place >= at]
    return max(below, default=None), min(above, default=None)


def _gain(cell: Cell) -> float:
    """Log ratio, positive when it is the good direction."""
    return math.log(cell.ratio) * (-1 if BY_NAME[cell.metric].better == "lower" else 1)
