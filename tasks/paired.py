"""Intervals of paired log ratios, for the account of where a speed comes from."""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from tasks.comparable import host_of
from tasks.host_effect import Square, between_differences, widened
from tasks.intervals import NOISE_FLOOR, PRIOR_DF, WIDEST, moderated, t_quantile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Block = tuple[str, str, int]
    """Run, host, number."""


class Interval(NamedTuple):
    """A ratio with the ends of its interval; None where the spread is not known."""

    ratio: float
    low: float | None
    high: float | None

    def times(self, factor: float) -> Interval:
        """The interval of a figure that is this ratio times a known factor."""
        ends = (None if end is None else end * factor for end in (self.low, self.high))
        return Interval(self.ratio * factor, *ends)


def paired(
    differences: Mapping[Any, Mapping[Block, float]], confidence: float
) -> dict[Any, Interval]:
    """Ratios from log differences inside blocks, each with an interval of its own.

    The spread is that of the differences themselves, pooled over all that are given, since a
    single arm has few blocks; an arm's own spread is mixed in where it is the larger one, as in
    :func:`tasks.intervals.contrast`. The baseline's noise is in every difference, so this needs
    no assumption about it: a baseline without speculation has accept length 1 and no noise.
    Blocks of several hosts widen it as in :func:`tasks.host_effect.over_hosts`.

    Args:
        differences: setting -> shared block -> log ratio to the reference; none empty.
        confidence: of each interval alone, such as 0.95.
    """
    df = {key: len(values) - 1 for key, values in differences.items()}
    squares = {
        key: math.fsum((value - fmean(values.values())) ** 2 for value in values.values())
        for key, values in differences.items()
    }
    all_df = sum(df.values())
    pooled = max(sum(squares.values()) / all_df, 2 * NOISE_FLOOR**2) if all_df else 0.0
    hosts = between_differences(differences, host_of)
    return {
        key: _interval(values, squares[key], Square(pooled, all_df), hosts.get(key, ()), confidence)
        for key, values in differences.items()
    }


def _interval(
    values: Mapping[Block, float],
    squares: float,
    pooled: Square,
    hosts: Sequence[Square],
    confidence: float,
) -> Interval:
    effect, own_df = fmean(values.values()), len(values) - 1
    if not pooled.df:
        return Interval(math.exp(effect), None, None)
    variance, df = pooled
    if own_df and squares / own_df > variance:
        variance = moderated(variance, squares / own_df, own_df)
        df = min(df, PRIOR_DF + own_df)
    variance, df = widened(Square(variance, df), hosts)
    half = t_quantile((1 + confidence) / 2, df) * math.sqrt(variance / len(values))
    if not half + abs(effect) < WIDEST:
        return Interval(math.exp(effect), None, None)
    return Interval(math.exp(effect), math.exp(effect - half), math.exp(effect + half))
