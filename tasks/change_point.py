"""Whether a figure that is looked at every night has moved, and since when.

The change-point model of Hawkins, Qiu & Kang ("The changepoint model for statistical process
control", Journal of Quality Technology 35(4), 2003, 355-366): after each night the largest of all
two-sample t statistics, over every way to split the nights into before and after, is held against
a limit that depends on the number of nights. The limits give every look the same chance of a false
alarm, given that there was none before, so looking each morning is paid for. Neither mean nor
spread need be known; the nights are taken as independent and about normal, with one spread.

After an alarm the nights before the change are set aside, and the model begins anew.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

FALSE_ALARM: Final = 0.00125
"""Chance of a false alarm in one look at one figure; two figures over twenty nights: 4 %."""
FIRST_LOOK: Final = 5
"""Nights before the first look."""
WINDOW: Final = 40
"""Nights that are looked at, at most: the latest."""
FLOOR: Final = 0.001
"""No spread below 0.1 % is believed, as in verdicts (tasks/intervals)."""

# fmt: off
LIMITS: Final[tuple[float, ...]] = (
    19.10, 11.79, 9.05, 7.69, 6.85, 6.33, 5.94, 5.64, 5.41, 5.22, 5.07, 4.93,
    4.82, 4.76, 4.67, 4.61, 4.54, 4.49, 4.45, 4.40, 4.36, 4.34, 4.31, 4.29,
    4.26, 4.23, 4.20, 4.18, 4.17, 4.14, 4.13, 4.11, 4.10, 4.08, 4.07, 4.06,
)
# fmt: on
"""Limit on the largest |t| after 5, 6, ... 40 nights; made by benchmarks/night_limits.py, which
simulates 1,600,000 series of standard normal nights."""


class Change(NamedTuple):
    """A figure that moved to another level."""

    first: int
    """Place of the first night at the new level, from 0."""
    seen: int
    """Place of the night after which it was known."""
    step: float
    """New level less the old one, on the scale of the values."""
    t: float
    """The t statistic of this split after that night."""


def changes(values: Sequence[float]) -> list[Change]:
    """Every change, in the order of the nights, as it would have been seen from night to night.

    Args:
        values: One a night, on a scale on which steps add (logarithms).
    """
    found: list[Change] = []
    start = 0
    for night in range(len(values)):
        begin = max(start, night + 1 - WINDOW)
        stretch = np.asarray(values[begin : night + 1], dtype=float)
        if len(stretch) < FIRST_LOOK:
            continue
        split, t, step = best_split(stretch)
        if abs(t) > LIMITS[len(stretch) - FIRST_LOOK]:
            start = begin + split
            found.append(Change(start, night, step, t))
    return found


def best_split(stretch: NDArray[np.float64]) -> tuple[int, float, float]:
    """The split with the largest |t|: how many nights lie before it, its t, and its step.

    Args:
        stretch: At least three values.
    """
    t, steps = splits(stretch[np.newaxis, :])
    place = int(np.argmax(np.abs(t[0])))
    return place + 1, float(t[0, place]), float(steps[0, place])


def splits(
    series: NDArray[np.float64], floor: float = FLOOR
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The t statistic and the step of every split of each series.

    Args:
        series: Shape (series, nights).
        floor: Least spread that is believed.

    Returns:
        Two arrays of the shape (series, nights - 1).
    """
    nights = series.shape[1]
    centred = series - series.mean(axis=1, keepdims=True)
    before = np.arange(1, nights)
    after = nights - before
    sums = np.cumsum(centred, axis=1)[:, :-1]
    # The whole sums to zero, so what lies behind a split sums to minus what lies before it.
    steps = -sums / after - sums / before
    total = np.square(centred).sum(axis=1, keepdims=True)
    between = np.square(sums) * nights / (before * after)
    within = np.maximum((total - between) / (nights - 2), floor**2)
    return steps * np.sqrt(before * after / nights / within), steps


def spread(values: Sequence[float], found: Sequence[Change]) -> float | None:
    """Standard deviation of the nights around their levels; None with too few nights."""
    edges = [0, *(change.first for change in found), len(values)]
    parts = [np.asarray(values[a:b]) for a, b in itertools.pairwise(edges)]
    free = len(values) - len(parts)
    if free < 1:
        return None
    squares = sum(float(np.square(part - part.mean()).sum()) for part in parts if len(part))
    return math.sqrt(squares / free)
