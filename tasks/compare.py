"""From records to verdicts: ratios inside blocks, estimates over blocks, or a refusal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from tasks import accounts, intervals
from tasks.across_arms import notes_across_arms
from tasks.comparable import select, setting
from tasks.comparison import Cell, Comparison
from tasks.metrics import BY_NAME
from tasks.record import Percentiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tasks.comparable import Selection
    from tasks.record import Measurement, TrialRecord

Setting = tuple[str, tuple[tuple[str, str], ...]]
Block = tuple[str, str, int]
Series = dict[Setting, dict[Block, float]]

DEFAULT_METRICS = ("output_tok_s", "user_tok_s")
NEUTRAL_LEVELS = ("default", "none", "off")


class _Question(NamedTuple):
    """One ratio that is asked for."""

    metric: str
    probe: str
    concurrency: int
    ours: Setting
    reference: Setting
    factor: str | None


def compare(
    records: Sequence[TrialRecord],
    *,
    metrics: Sequence[str] = DEFAULT_METRICS,
    same_margin: float = 0.02,
    confidence: float = 0.95,
    factors: Mapping[str, Sequence[str]] | None = None,
) -> Comparison:
    """Compare every arm with the baseline, and every factor level with the first one.

    Args:
        records: a sweep's trials, in any order; several runs of a sweep may be thrown together.
        metrics: figures that get a verdict, the leading one first. All of them share one error
            budget: the more are asked for, the wider the intervals.
        same_margin: within this ratio either way two figures are the same.
        confidence: for all verdicts of the comparison together.
        factors: factor -> its levels in the sweep's order; the first is its reference. Without
            it, a level called default, none or off is, else the first by name.

    Returns:
        A comparison; its ``problem`` says why when nothing can be said.

    Raises:
        ValueError: unknown metric, impossible margin or confidence, or two baseline arms.
    """
    _check_arguments(metrics, same_margin, confidence)
    baselines = sorted({r.arm for r in records if r.baseline})
    if len(baselines) > 1:
        raise ValueError(f"one baseline arm is needed, the records name {', '.join(baselines)}")
    selection = select(records)
    baseline = baselines[0] if baselines else None
    series = {
        (metric, probe, concurrency): _series(selection.kept, metric, probe, concurrency)
        for metric in metrics
        for probe, concurrency in _ladder(selection.kept)
    }
    cells = _judge(series, baseline, same_margin, confidence, factors or {})
    standings = accounts.standings(selection.kept)
    pairs = [
        (cell.probe, cell.concurrency, (cell.arm, cell.levels), cell.reference_levels)
        for cell in cells
        if cell.contrast == "arm" and cell.metric == metrics[0]
    ]
    return Comparison(
        sweeps=tuple(sorted({r.sweep for r in records})),
        sweep_runs=tuple(sorted({r.sweep_run for r in records})),
        rehearsal=any(r.rehearsal for r in records),
        host_class=selection.kept[0].host_class if selection.kept else None,
        hosts=tuple(sorted({r.host for r in selection.kept})),
        baseline=baseline,
        metrics=tuple(metrics),
        same_margin=same_margin,
        confidence=confidence,
        family=sum(cell.p is not None for cell in cells),
        trials=len(selection.kept),
        problem=_problem(records, selection, baseline, cells),
        cells=cells,
        standings=standings,
        accounts=accounts.speed_accounts(selection.kept, baseline, pairs),
        crossovers=accounts.crossovers(cells),
        same_outputs=accounts.same_outputs(selection.kept, baseline, pairs),
        refusals=selection.refused,
        excluded=selection.excluded,
        notes=(
            *selection.notes,
            *notes_across_arms(
                selection.kept, baseline, pairs, margin=same_margin, confidence=confidence
            ),
        ),
    )


def metric_value(measurement: Measurement, metric: str) -> float | None:
    """A figure by its name in tasks/metrics.py; of a time the median."""
    value: float | Percentiles | None = getattr(measurement, metric)
    return value.p50 if isinstance(value, Percentiles) else value


def _check_arguments(metrics: Sequence[str], same_margin: float, confidence: float) -> None:
    unknown = [name for name in metrics if name not in BY_NAME]
    if unknown or not metrics:
        raise ValueError(f"no such metric: {unknown}; there are {sorted(BY_NAME)}")
    if not 0 < same_margin < 0.5:
        raise ValueError(f"same_margin must be between 0 and 0.5, is {same_margin}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, is {confidence}")


def _ladder(records: Sequence[TrialRecord]) -> list[tuple[str, int]]:
    """Probes in order of appearance, each with its concurrencies rising."""
    probes = dict.fromkeys(m.probe for r in records for m in r.measurements)
    return [
        (probe, c)
        for probe in probes
        for c in sorted(
            {m.concurrency for r in records for m in r.measurements if m.probe == probe}
        )
    ]


def _series(records: Sequence[TrialRecord], metric: str, probe: str, concurrency: int) -> Series:
    """Setting -> block -> log of the figure; a figure that is unknown or not positive is absent."""
    series: Series = {}
    for record in records:
        for measurement in record.measurements:
            if (measurement.probe, measurement.concurrency) != (probe, concurrency):
                continue
            value = metric_value(measurement, metric)
            if value is not None and value > 0:
                block = (record.sweep_run, record.host, record.block)
                series.setdefault(setting(record), {})[block] = math.log(value)
    return series


def _judge(
    all_series: Mapping[tuple[str, str, int], Series],
    baseline: str | None,
    same_margin: float,
    confidence: float,
    factors: Mapping[str, Sequence[str]],
) -> tuple[Cell, ...]:
    asked: list[tuple[_Question, intervals.Estimate]] = []
    for (metric, probe, concurrency), series in all_series.items():
        spread = intervals.noise(series)
        for ours in sorted(series):
            for reference, factor in _references(ours, series, baseline, factors):
                estimate = intervals.contrast(series, ours, reference, spread)
                if estimate is not None:
                    question = _Question(metric, probe, concurrency, ours, reference, factor)
                    asked.append((question, estimate))
    judged = intervals.holm([estimate for _, estimate in asked], confidence)
    return tuple(
        _cell(question, result, all_series, same_margin)
        for (question, _), result in zip(asked, judged, strict=True)
    )


def _references(
    ours: Setting, series: Series, baseline: str | None, factors: Mapping[str, Sequence[str]]
) -> list[tuple[Setting, str | None]]:
    """What a setting is compared with: the baseline at its levels, then each factor's first level.

    A baseline that is not crossed with the factors at all stands for every level.
    """
    arm, levels = ours
    found: list[tuple[Setting, str | None]] = []
    if baseline is not None and arm != baseline:
        crossed = any(a == baseline and ls for a, ls in series)
        found.append(((baseline, levels if crossed else ()), None))
    for factor, level in levels:
        first = _first_level(factor, series, factors)
        if level != first:
            other = tuple((f, first if f == factor else lv) for f, lv in levels)
            found.append(((arm, other), factor))
    return [(reference, factor) for reference, factor in found if reference in series]


def _first_level(factor: str, series: Series, factors: Mapping[str, Sequence[str]]) -> str:
    if factors.get(factor):
        return factors[factor][0]
    levels = sorted({level for _, ls in series for f, level in ls if f == factor})
    return next((level for level in levels if level in NEUTRAL_LEVELS), levels[0])


def _cell(
    question: _Question,
    judged: intervals.Judged,
    all_series: Mapping[tuple[str, str, int], Series],
    margin: float,
) -> Cell:
    series = all_series[question.metric, question.probe, question.concurrency]
    ours, theirs = series[question.ours], series[question.reference]
    shared = [block for block in ours if block in theirs]
    higher = BY_NAME[question.metric].better != "lower"
    verdict = intervals.verdict(judged, margin, higher_is_better=higher)
    further = 0 if verdict != "undecided" else intervals.further_blocks(judged, margin)
    smallest = intervals.detectable(judged, margin)
    estimate = judged.estimate
    return Cell(
        contrast="arm" if question.factor is None else "factor",
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
        low=None if judged.low is None else math.exp(judged.low),
        high=None if judged.high is None else math.exp(judged.high),
        confidence=judged.confidence,
        p=judged.p,
        verdict=verdict,
        why=_why(verdict, judged, further, margin),
        further_blocks=further,
        detectable=None if smallest is None else math.exp(smallest),
        own_noise=estimate.own_noise,
    )


def _why(verdict: str, judged: intervals.Judged, further: int | None, margin: float) -> str:
    same = f"{margin:.0%}"
    match verdict:
        case "better" | "worse":
            return f"the interval excludes 1 and the estimate is beyond {same}"
        case "same":
            return f"the whole interval lies within {same} either way"
    if judged.estimate.sd is None:
        return "a single block says nothing about the noise: run at least two"
    ahead = "" if further is None else f"; about {further} further block{'s'[: further != 1]}"
    if judged.low is None:
        return f"too noisy for an interval{ahead}"
    if judged.low <= 0 <= (judged.high or 0.0):
        return f"the interval holds 1 and reaches beyond {same}{ahead}"
    return f"differs from 1, but perhaps by less than {same}{ahead}"


def _problem(
    records: Sequence[TrialRecord],
    selection: Selection,
    baseline: str | None,
    cells: Sequence[Cell],
) -> str | None:
    if not records:
        return "there are no trials"
    if baseline is None:
        return "no trial belongs to a baseline arm"
    if any(cell.contrast == "arm" for cell in cells):
        return None
    if not any(r.arm == baseline for r in selection.kept):
        return f"no trial of the baseline arm {baseline} is ok"
    if all(r.arm == baseline for r in selection.kept):
        return "no trial of another arm is ok and comparable"
    return "no block holds both an arm and the baseline with the same probe and concurrency"
