"""Whether a screen's ranking of levels is the one that the trials found."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from configs.values import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.comparison import Comparison
    from tasks.screen import Screen


class Agreement(Value):
    """Two rankings of the same levels, in one arm."""

    arm: str
    by_nccl: bool
    """Whether the arm's all-reduces go through NCCL; if not, no agreement is to be expected."""
    screen: tuple[tuple[str, float], ...]
    """Level, and mean ratio of its all-reduce time to the reference's; the fastest first."""
    trials: tuple[tuple[str, float], ...]
    """Level, and mean ratio of its step time to the reference's; the fastest first."""
    kendall: float | None
    """Share of pairs in the same order minus share of those in the other (tau-b); None with
    fewer than two levels that both know."""
    spearman: float | None
    """None with fewer than three."""


def agreements(screen: Screen, comparison: Comparison) -> tuple[Agreement, ...]:
    """The screen's ranking against the trials', for every arm with at least two levels in both."""
    timed = dict(screen.ranking()) if screen.timed_by == "nccl" else {}
    found = []
    for arm in dict.fromkeys(s.arm for s in comparison.standings):
        steps = step_ratios(comparison, arm, screen.factor, screen.reference)
        both = [level for level in timed if level in steps]
        if len(both) < 2:
            continue
        mine, theirs = [timed[level] for level in both], [steps[level] for level in both]
        path = screen.paths.get(arm)
        kinds = path.kinds(screen.sizes.bytes) if path else ()
        found.append(
            Agreement(
                arm=arm,
                by_nccl=any(kind.startswith("nccl") for kind in kinds),
                screen=tuple(sorted(((n, timed[n]) for n in both), key=lambda item: item[1])),
                trials=tuple(sorted(((n, steps[n]) for n in both), key=lambda item: item[1])),
                kendall=_kendall(mine, theirs),
                spearman=_spearman(mine, theirs) if len(both) > 2 else None,
            )
        )
    return tuple(found)


def step_ratios(comparison: Comparison, arm: str, factor: str, reference: str) -> dict[str, float]:
    """Level -> step time over that of the reference, mean over probes, users and other factors."""
    cells: dict[tuple[object, ...], dict[str, float]] = {}
    for s in comparison.standings:
        step = s.step_s
        if s.arm != arm or factor not in s.levels or not step:
            continue
        others = tuple(sorted((k, v) for k, v in s.levels.items() if k != factor))
        cells.setdefault((s.probe, s.concurrency, others), {})[s.levels[factor]] = step
    logs: dict[str, list[float]] = {}
    for steps in cells.values():
        if reference in steps:
            for level, step in steps.items():
                logs.setdefault(level, []).append(math.log(step / steps[reference]))
    return {level: math.exp(sum(many) / len(many)) for level, many in logs.items()}


def _kendall(mine: Sequence[float], theirs: Sequence[float]) -> float | None:
    from scipy.stats import kendalltau  # half a second, and only where both rankings exist

    return _known(kendalltau(mine, theirs).statistic)


def _spearman(mine: Sequence[float], theirs: Sequence[float]) -> float | None:
    from scipy.stats import spearmanr  # as above

    return _known(spearmanr(mine, theirs).statistic)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
