"""From records to verdicts: ratios inside blocks, estimates over blocks, or a refusal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tasks import accounts, comparison
from tasks.across_arms import notes_across_arms
from tasks.comparable import block_of, host_of, made_up, select, setting
from tasks.comparison import Cell, Comparison, levels_key
from tasks.crossings import crossovers
from tasks.factor_effects import ACCEPT, STEP, level_effects, speculating
from tasks.hosts_apart import compare_hosts
from tasks.judge import Terms, judge
from tasks.level_findings import moved_accept_lengths
from tasks.metrics import BY_NAME
from tasks.outliers import outlier_boots
from tasks.record import Percentiles

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tasks.comparable import Selection
    from tasks.host_values import HostsCompared
    from tasks.judge import Series, Setting
    from tasks.record import Measurement, TrialRecord


DEFAULT_METRICS = ("output_tok_s", "user_tok_s")


def compare(
    records: Sequence[TrialRecord],
    *,
    metrics: Sequence[str] = DEFAULT_METRICS,
    same_margin: float = 0.02,
    confidence: float = 0.95,
    factors: Mapping[str, Sequence[str]] | None = None,
    copies: Mapping[str, str] | None = None,
    looks: int = 1,
    communication: Collection[str] | None = None,
) -> Comparison:
    """Compare every arm with the baseline, and every factor level with the first one.

    Args:
        records: a sweep's trials, in any order; several runs of a sweep may be thrown together.
        metrics: figures that get a verdict, the leading one first. All of them share one error
            budget: the more are asked for, the wider the intervals.
        same_margin: within this ratio either way two figures are the same.
        confidence: for all verdicts of the comparison together.
        copies: arm -> the arm that it replicates; it is compared with that one alone.
        looks: at how many moments the sweep might have been stopped after a comparison like this
            one; the confidence has the price in it (tasks/looks.py).
        factors: factor -> its levels in the sweep's order; the first is its reference. Without
            it, a level called default, none or off is, else the first by name.
        communication: factors whose levels change communication alone, so that acceptance must
            stay as it is; None: all of them.

    Returns:
        A comparison; its ``problem`` says why when nothing can be said.

    Raises:
        ValueError: unknown metric, impossible margin or confidence, or two baseline arms.
    """
    _check_arguments(metrics, same_margin, confidence)
    baselines = sorted({r.arm for r in records if r.baseline})
    if len(baselines) > 1:
        raise ValueError(f"one baseline arm is needed, the records name {', '.join(baselines)}")
    selection, outliers = _without_outliers(select(records), metrics[0])
    baseline = baselines[0] if baselines else None
    series = {
        (metric, probe, concurrency): table
        for metric in metrics
        for (probe, concurrency), table in log_series(selection.kept, metric).items()
    }
    terms = Terms(same_margin, confidence, factors or {}, copies or {})
    cells = judge(series, baseline, terms)
    accept = {
        rung: speculating(table) for rung, table in log_series(selection.kept, ACCEPT).items()
    }
    effects, interactions = level_effects(
        series
        | {(STEP, *rung): table for rung, table in log_series(selection.kept, STEP).items()}
        | {(ACCEPT, *rung): table for rung, table in accept.items()},
        baseline,
        terms,
    )
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
        synthetic=made_up(selection.kept),
        host_class=selection.kept[0].host_class if selection.kept else None,
        hosts=tuple(sorted({r.host for r in selection.kept})),
        baseline=baseline,
        metrics=tuple(metrics),
        same_margin=same_margin,
        confidence=confidence,
        looks=looks,
        family=sum(cell.p is not None for cell in cells),
        trials=len(selection.kept),
        problem=_problem(records, selection, baseline, cells),
        cells=cells,
        standings=standings,
        accounts=accounts.speed_accounts(selection.kept, baseline, pairs, confidence),
        crossovers=crossovers(cells),
        same_outputs=()
        if made_up(selection.kept)  # no text is meant to be equal there
        else accounts.same_outputs(selection.kept, baseline, pairs),
        refusals=selection.refused,
        excluded=selection.excluded,
        outliers=outliers,
        effects=effects,
        interactions=interactions,
        between_hosts=_hosts(cells, series, metrics[0], terms),
        findings=moved_accept_lengths(accept, terms, communication),
        notes=(
            *selection.notes,
            *notes_across_arms(
                selection.kept, baseline, pairs, margin=same_margin, confidence=confidence
            ),
        ),
    )


def _hosts(
    cells: Sequence[Cell], series: Mapping[tuple[str, str, int], Series], metric: str, terms: Terms
) -> HostsCompared | None:
    """The hosts held against one another, by the leading figure's ratios to the baseline."""
    pairs: dict[tuple[str, int], list[tuple[Setting, Setting]]] = {}
    for cell in cells:
        if cell.contrast in ("arm", "copy") and cell.metric == metric:
            ours = (cell.arm, levels_key(cell.levels))
            theirs = (cell.reference_arm, levels_key(cell.reference_levels))
            pairs.setdefault((cell.probe, cell.concurrency), []).append((ours, theirs))
    ladder = {rung[1:]: table for rung, table in series.items() if rung[0] == metric}
    return compare_hosts(ladder, pairs, metric, terms.same_margin, terms.confidence)


def _without_outliers(
    selection: Selection, metric: str
) -> tuple[Selection, tuple[comparison.Outlier, ...]]:
    """Leaves out boots that fell out of line as a whole, by the leading figure."""
    ladder = log_series(selection.kept, metric).values()
    found = {(o.setting, o.block): o for o in outlier_boots(ladder, host_of=host_of)}
    boots = {(setting(r), block_of(r)): r for r in selection.kept}
    outliers = tuple(
        comparison.Outlier(
            trial=boots[key].trial,
            arm=boots[key].arm,
            levels=boots[key].levels,
            block=boots[key].block,
            host=boots[key].host,
            effect=math.exp(o.effect),
            p=o.p,
        )
        for key, o in found.items()
    )
    kept = tuple(r for key, r in boots.items() if key not in found)
    return selection._replace(kept=kept), outliers


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


def log_series(records: Sequence[TrialRecord], metric: str) -> dict[tuple[str, int], Series]:
    """(probe, concurrency) -> setting -> block -> log of a figure, probes as they appear."""
    return {rung: _series(records, metric, *rung) for rung in _ladder(records)}


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
                series.setdefault(setting(record), {})[block_of(record)] = math.log(value)
    return series


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
    if any(cell.contrast in ("arm", "copy") for cell in cells):
        return None
    if not any(r.arm == baseline for r in selection.kept):
        return f"no trial of the baseline arm {baseline} is ok"
    if all(r.arm == baseline for r in selection.kept):
        return "no trial of another arm is ok and comparable"
    return "no block holds both an arm and the baseline with the same probe and concurrency"
