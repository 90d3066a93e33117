"""Findings on a whole comparison: what no single trial can show of a factor's levels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.check_table import Guard
from tasks.comparison import setting_label
from tasks.factor_effects import differences
from tasks.paired import paired
from tasks.record import Finding

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from tasks.factor_effects import Contrast, Differences
    from tasks.judge import Series, Terms
    from tasks.paired import Interval

MOVED = 0.01
"""An accept length that moves by less than this, either way, counts as unmoved."""

COMPARISON_GUARDS: tuple[Guard, ...] = (
    Guard(
        "accept_length_moved_with_level",
        "comparison",
        "A communication setting moved the accept length. It may change the order in which numbers "
        "are added up, but not the text: another text means wrong numbers, or other traffic.",
        "accept length within 1 % either way of that at the factor's first level",
        "trust no speed of this level before it is explained: compare the answers with those of the "
        "first level at temperature 0, look for settings that the platform does not support "
        "(NCCL_PROTO=LL128 can corrupt data) and for lengths of answers that differ",
    ),
)


def moved_accept_lengths(
    accept: Mapping[tuple[str, int], Series], terms: Terms, factors: Collection[str] | None
) -> tuple[Finding, ...]:
    """Levels at which the accept length is surely not what it is at the factor's first level.

    The whole interval must lie beyond 1 % either way. The intervals of all levels together keep
    the comparison's confidence (Bonferroni): among many levels chance moves one.

    Args:
        accept: (probe, concurrency) -> setting -> block -> log of the accept length, speculating
            settings alone.
        terms: confidence, and the order of the levels.
        factors: those that change communication alone; None: all of them.
    """
    asked: dict[tuple[str, int], dict[Contrast, Differences]] = {
        rung: {
            contrast: one
            for contrast, one in differences(series, terms).items()
            if factors is None or contrast.factor in factors
        }
        for rung, series in accept.items()
    }
    count = sum(map(len, asked.values()))
    return tuple(
        _finding(rung, contrast, found[contrast], interval)
        for rung, found in asked.items()
        for contrast, interval in _intervals(found, 1 - (1 - terms.confidence) / max(count, 1))
        if _moved(interval)
    )


def _intervals(
    found: Mapping[Contrast, Differences], confidence: float
) -> Iterator[tuple[Contrast, Interval]]:
    yield from paired({one: d.by_block() for one, d in found.items()}, confidence).items()


def _moved(interval: Interval) -> bool:
    if interval.low is None or interval.high is None:
        return False
    return interval.low > 1 + MOVED or interval.high < 1 / (1 + MOVED)


def _finding(
    rung: tuple[str, int], contrast: Contrast, found: Differences, interval: Interval
) -> Finding:
    guard = COMPARISON_GUARDS[0]
    probe, concurrency = rung
    setting = setting_label(contrast.arm, {contrast.factor: contrast.level})
    return Finding(
        name=guard.name,
        where=f"{setting}, {probe} c{concurrency}",
        evidence=(
            f"accept length x {interval.ratio:.3f} [{interval.low:.3f}, {interval.high:.3f}] of "
            f"that at {contrast.factor}={contrast.reference}, over {len(found.blocks)} blocks"
        ),
        limit=guard.limit,
        advice=guard.advice,
    )
