"""What each factor level does, and whether it does the same for every arm: within the blocks."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from tasks.judge import first_level
from tasks.level_values import Interaction, LevelEffect
from tasks.paired import paired

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tasks.judge import Block, Series, Terms
    from tasks.paired import Interval

    Rung = tuple[str, str, int]
    """Metric, probe, concurrency."""

STEP = "step_s"
"""Beside the comparison's own figures: a level that is worth its place makes steps quicker, ..."""
ACCEPT = "accept_length"
"""... and leaves acceptance alone."""


class Contrast(NamedTuple):
    """One level of one factor in one arm."""

    arm: str
    factor: str
    level: str
    reference: str


class Differences(NamedTuple):
    """Log ratios of a level to its factor's first level."""

    blocks: dict[Block, dict[tuple[tuple[str, str], ...], float]]
    """Block -> levels of the other factors -> log ratio."""

    def by_block(self) -> dict[Block, float]:
        """One figure for each block: the mean over the other factors' levels."""
        return {block: fmean(values.values()) for block, values in self.blocks.items()}

    def over(self) -> int:
        """Combinations of the other factors' levels that occur."""
        return len({others for values in self.blocks.values() for others in values})

    def less(self, other: Differences) -> Differences:
        """What is left when another arm's is taken away, where both are there."""
        shared = {
            block: {
                others: value - other.blocks[block][others]
                for others, value in values.items()
                if others in other.blocks[block]
            }
            for block, values in self.blocks.items()
            if block in other.blocks
        }
        return Differences({block: values for block, values in shared.items() if values})


def level_effects(
    all_series: Mapping[Rung, Series], baseline: str | None, terms: Terms
) -> tuple[tuple[LevelEffect, ...], tuple[Interaction, ...]]:
    """Main effects of all levels, and their interactions with the arms.

    The statistics are those of the account of speed (tasks/paired): log ratios inside the blocks,
    their spread pooled over what stands at the same figure, probe and concurrency.

    Args:
        all_series: (metric, probe, concurrency) -> setting -> block -> log of the figure.
        baseline: the arm that the interactions are taken against.
        terms: confidence of each interval alone, order of the levels, and which arms are copies:
            an interaction of a copy would be noise.
    """
    effects: list[LevelEffect] = []
    interactions: list[Interaction] = []
    for (metric, probe, concurrency), series in all_series.items():
        place = {"metric": metric, "probe": probe, "concurrency": concurrency}
        found = differences(series, terms)
        for contrast, interval in _paired(found, terms.confidence).items():
            effects.append(
                LevelEffect(**contrast._asdict(), **place, **_sizes(found[contrast], interval))
            )
        if baseline is None or metric == ACCEPT:
            continue
        apart = _against(found, baseline, terms)
        for contrast, interval in _paired(apart, terms.confidence).items():
            sizes = _sizes(apart[contrast], interval)
            interactions.append(
                Interaction(**contrast._asdict(), against=baseline, **place, **sizes)
            )
    return tuple(effects), tuple(interactions)


def differences(series: Series, terms: Terms) -> dict[Contrast, Differences]:
    """Every level against its factor's first level, within its arm, in each block that has both."""
    found: dict[Contrast, Differences] = {}
    for (arm, levels), ours in sorted(series.items()):
        for factor, level in levels:
            first = first_level(factor, series, terms.factors)
            others = tuple(pair for pair in levels if pair[0] != factor)
            partner = tuple((f, first if f == factor else lv) for f, lv in levels)
            if level == first or (arm, partner) not in series:
                continue
            held = found.setdefault(Contrast(arm, factor, level, first), Differences({}))
            theirs = series[arm, partner]
            for block in ours:
                if block in theirs:
                    held.blocks.setdefault(block, {})[others] = ours[block] - theirs[block]
    return {contrast: one for contrast, one in found.items() if one.blocks}


def speculating(series: Series) -> Series:
    """Accept lengths without those that are 1 by definition: they would make the noise look small."""
    return {setting: blocks for setting, blocks in series.items() if any(blocks.values())}


def _against(
    found: Mapping[Contrast, Differences], baseline: str, terms: Terms
) -> dict[Contrast, Differences]:
    apart = {}
    for contrast, ours in found.items():
        theirs = found.get(contrast._replace(arm=baseline))
        if contrast.arm == baseline or contrast.arm in terms.copies or theirs is None:
            continue
        left = ours.less(theirs)
        if left.blocks:
            apart[contrast] = left
    return apart


def _paired(found: Mapping[Contrast, Differences], confidence: float) -> dict[Contrast, Interval]:
    return paired({contrast: one.by_block() for contrast, one in found.items()}, confidence)


def _sizes(found: Differences, interval: Interval) -> dict[str, int | float | None]:
    return {"blocks": len(found.blocks), "over": found.over(), **interval._asdict()}
