"""From figures to verdicts: which ratios are asked for, and what each comes to."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple

from tasks import intervals
from tasks.comparable import host_of
from tasks.comparison import Cell
from tasks.host_effect import between_hosts, further_hosts, over_hosts
from tasks.metrics import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Setting = tuple[str, tuple[tuple[str, str], ...]]
Block = tuple[str, str, int]
Series = dict[Setting, dict[Block, float]]

NEUTRAL_LEVELS = ("default", "none", "off")


class _Question(NamedTuple):
    """One ratio that is asked for."""

    metric: str
    probe: str
    concurrency: int
    ours: Setting
    reference: Setting
    factor: str | None
    """None: arm against arm."""


class Terms(NamedTuple):
    """On which terms a comparison is made."""

    same_margin: float
    """Within this ratio either way two figures are the same."""
    confidence: float
    """Of all verdicts together."""
    factors: Mapping[str, Sequence[str]]
    """Factor -> its levels, the first its reference."""
    copies: Mapping[str, str]
    """Arm -> the arm that it replicates."""


def judge(
    all_series: Mapping[tuple[str, str, int], Series], baseline: str | None, terms: Terms
) -> tuple[Cell, ...]:
    """Every ratio that can be asked for, with its verdict.

    Args:
        all_series: (metric, probe, concurrency) -> setting -> block -> log of the figure.
        baseline: the baseline arm's name.
        terms: margin, confidence, what the references are.
    """
    asked: list[tuple[_Question, intervals.Estimate]] = []
    for (metric, probe, concurrency), series in all_series.items():
        spread, hosts = intervals.noise(series), between_hosts(series, host_of)
        for ours in sorted(series):
            for reference, factor in _references(ours, series, baseline, terms):
                estimate = over_hosts(
                    intervals.contrast(series, ours, reference, spread),
                    (ours, reference),
                    [host_of(block) for block in series[ours] if block in series[reference]],
                    hosts,
                )
                if estimate is not None:
                    question = _Question(metric, probe, concurrency, ours, reference, factor)
                    asked.append((question, estimate))
    judged = intervals.holm([estimate for _, estimate in asked], terms.confidence)
    return tuple(
        _cell(question, result, all_series, terms)
        for (question, _), result in zip(asked, judged, strict=True)
    )


def _references(
    ours: Setting,
    series: Series,
    baseline: str | None,
    terms: Terms,
) -> list[tuple[Setting, str | None]]:
    """What a setting is compared with: the baseline at its levels, then each factor's first level.

    A baseline that is not crossed with the factors at all stands for every level. A copy is
    compared with its original alone: what they differ in is noise.
    """
    arm, levels = ours
    found: list[tuple[Setting, str | None]] = []
    if arm in terms.copies:
        original = (terms.copies[arm], levels)
        return [(original, None)] if original in series else []
    if baseline is not None and arm != baseline:
        crossed = any(a == baseline and ls for a, ls in series)
        found.append(((baseline, levels if crossed else ()), None))
    for factor, level in levels:
        first = first_level(factor, series, terms.factors)
        if level != first:
            other = tuple((f, first if f == factor else lv) for f, lv in levels)
            found.append(((arm, other), factor))
    return [(reference, factor) for reference, factor in found if reference in series]


def first_level(factor: str, series: Series, factors: Mapping[str, Sequence[str]]) -> str:
    """A factor's reference: the sweep's first level, else the one with a neutral name."""
    if factors.get(factor):
        return factors[factor][0]
    levels = sorted({level for _, ls in series for f, level in ls if f == factor})
    return next((level for level in levels if level in NEUTRAL_LEVELS), levels[0])


def _cell(
    question: _Question,
    judged: intervals.Judged,
    all_series: Mapping[tuple[str, str, int], Series],
    terms: Terms,
) -> Cell:
    margin = terms.same_margin
    series = all_series[question.metric, question.probe, question.concurrency]
    ours, theirs = series[question.ours], series[question.reference]
    shared = [block for block in ours if block in theirs]
    higher = BY_NAME[question.metric].better != "lower"
    verdict = intervals.verdict(judged, margin, higher_is_better=higher)
    further = 0 if verdict != "undecided" else intervals.further_blocks(judged, margin)
    hosts = further_hosts(judged, margin) if verdict == "undecided" else 0
    smallest = intervals.detectable(judged, margin)
    estimate = judged.estimate
    alone = intervals.alone(estimate, terms.confidence)
    return Cell(
        contrast=_contrast(question, terms.copies),
        factor=question.factor,
        metric=question.metric,
        probe=question.probe,
        concurrency=question.concurrency,
        arm=question.ours[0],
        levels=dict(question.ours[1]),
        reference_arm=question.reference[0],
        reference_levels=dict(question.reference[1]),
        blocks=estimate.blocks,
        value=math.exp(sum(ours[b] for b in shared) / len(shared)),
        reference_value=math.exp(sum(theirs[b] for b in shared) / len(shared)),
        ratio=math.exp(estimate.effect),
        low=_exp(judged.low),
        high=_exp(judged.high),
        alone_low=_exp(alone[0]),
        alone_high=_exp(alone[1]),
        confidence=judged.confidence,
        p=judged.p,
        verdict=verdict,
        why=_why(verdict, judged, ahead(further, hosts), margin),
        further_blocks=further,
        further_hosts=hosts,
        hosts=estimate.hosts,
        detectable=_exp(smallest),
        own_noise=estimate.own_noise,
    )


def _contrast(question: _Question, copies: Mapping[str, str]) -> Literal["arm", "factor", "copy"]:
    if question.factor is not None:
        return "factor"
    return "copy" if question.ours[0] in copies else "arm"


def _exp(value: float | None) -> float | None:
    return None if value is None else math.exp(value)


def ahead(blocks: int | None, hosts: int | None) -> str | None:
    """What would decide, in words; None where nothing within fifty blocks would."""
    if blocks is not None:
        return f"about {blocks} further block{'s'[: blocks != 1]}"
    if hosts is not None:
        return f"about {hosts} further host{'s'[: hosts != 1]} with as many blocks each"
    return None


def _why(verdict: str, judged: intervals.Judged, would: str | None, margin: float) -> str:
    same = f"{margin:.0%}"
    match verdict:
        case "better" | "worse":
            return f"the interval excludes 1 and the estimate is beyond {same}"
        case "same":
            return f"the whole interval lies within {same} either way"
    if judged.estimate.sd is None:
        return "a single block says nothing about the noise: run at least two"
    to_do = "" if would is None else f"; {would}"
    if judged.low is None:
        return f"too noisy for an interval{to_do}"
    if judged.low <= 0 <= (judged.high or 0.0):
        return f"the interval holds 1 and reaches beyond {same}{to_do}"
    return f"differs from 1, but perhaps by less than {same}{to_do}"
