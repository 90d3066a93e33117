"""What stands behind the ratios: absolute figures, step-time accounts, break-even, crossovers."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import fmean, median
from typing import TYPE_CHECKING

from tasks.comparison import Cell, Crossover, SameOutputs, SpeedAccount, Standing
from tasks.metrics import BY_NAME
from tasks.record import KindAcceptance

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tasks.record import Measurement, TrialRecord

Setting = tuple[str, dict[str, str]]
_StandingKey = tuple[str, int, bool, str, tuple[tuple[str, str], ...]]
Pair = tuple[str, int, Setting, dict[str, str]]
"""Probe, concurrency, (arm, levels), levels of the baseline it is compared with."""


def standings(records: Sequence[TrialRecord]) -> tuple[Standing, ...]:
    """Absolute figures of every setting, by probe and concurrency."""
    groups: dict[_StandingKey, list[tuple[TrialRecord, Measurement]]] = {}
    for record in records:
        for m in record.measurements:
            key = (m.probe, m.concurrency, not record.baseline, record.arm, _key(record.levels))
            groups.setdefault(key, []).append((record, m))
    return tuple(_standing(groups[key]) for key in sorted(groups))


def speed_accounts(
    records: Sequence[TrialRecord], baseline: str | None, pairs: Iterable[Pair]
) -> tuple[SpeedAccount, ...]:
    """Split each user-speed ratio into what acceptance gave and what longer steps took.

    step_s = accept_length / user_tok_s by definition, so the split is exact:
    log(speed ratio) = log(accept ratio) - log(step ratio). The accept length that breaks even is
    the one at which this step time gives the reference's speed: reference accept length (1
    without speculation) * own step / reference step. Pairs that lack a figure are left out.
    """
    if baseline is None:
        return ()
    found = []
    for probe, concurrency, (arm, levels), reference_levels in pairs:
        ours = _by_block(records, arm, levels, probe, concurrency)
        theirs = _by_block(records, baseline, reference_levels, probe, concurrency)
        both = [
            (ours[b], theirs[b])
            for b in ours
            if b in theirs and _has_account(ours[b]) and _has_account(theirs[b])
        ]
        if not both:
            continue
        step, reference_step = (
            _geometric([m.step_s for m in side]) for side in zip(*both, strict=True)
        )
        accept, reference_accept = (
            _geometric([m.accept_length for m in side]) for side in zip(*both, strict=True)
        )
        found.append(
            SpeedAccount(
                probe=probe,
                concurrency=concurrency,
                arm=arm,
                levels=levels,
                reference_arm=baseline,
                reference_levels=reference_levels,
                blocks=len(both),
                user_ratio=(accept / step) / (reference_accept / reference_step),
                accept_ratio=accept / reference_accept,
                step_ratio=step / reference_step,
                step_s=step,
                reference_step_s=reference_step,
                accept_length=accept,
                break_even_accept_length=reference_accept * step / reference_step,
            )
        )
    return tuple(found)


def crossovers(cells: Sequence[Cell]) -> tuple[Crossover, ...]:
    """Where ratios to the baseline pass 1 along the ladder, if they do.

    Noise passes 1 all the time: a crossing counts only if the setting is decidedly better or
    worse somewhere on the fitting side. ``firm`` means on both sides.
    """
    ladders: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        if cell.contrast == "arm":
            key = (cell.metric, cell.probe, cell.arm, *_key(cell.levels))
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
                found.append(_crossover(a, b, firm=first in before and then in after))
    return tuple(found)


def same_outputs(
    records: Sequence[TrialRecord], baseline: str | None, pairs: Iterable[Pair]
) -> tuple[SameOutputs, ...]:
    """Answers that equal the baseline's, inside each block, blocks added up."""
    found = []
    for probe, concurrency, (arm, levels), reference_levels in pairs:
        ours = _by_block(records, arm, levels, probe, concurrency)
        theirs = _by_block(records, baseline or "", reference_levels, probe, concurrency)
        equal = compared = 0
        for block in ours.keys() & theirs.keys():
            a, b = ours[block].output_shas, theirs[block].output_shas
            compared += len(a.keys() & b.keys())
            equal += sum(a[name] == b[name] for name in a.keys() & b.keys())
        if compared:
            found.append(
                SameOutputs(
                    probe=probe,
                    concurrency=concurrency,
                    arm=arm,
                    levels=levels,
                    equal=equal,
                    compared=compared,
                )
            )
    return tuple(found)


def _standing(group: Sequence[tuple[TrialRecord, Measurement]]) -> Standing:
    record, first = group[0]
    ms = [m for _, m in group]
    steps = sum(m.verify_steps or 0 for m in ms)
    accepted = sum(m.accepted or 0 for m in ms if m.verify_steps)
    lengths = _median([m.accept_length for m in ms])
    return Standing(
        probe=first.probe,
        concurrency=first.concurrency,
        arm=record.arm,
        levels=record.levels,
        baseline=record.baseline,
        blocks=len(group),
        output_tok_s=_median([m.output_tok_s for m in ms]),
        user_tok_s=_median([m.user_tok_s for m in ms]),
        ttft_p50_s=_median([m.ttft_s.p50 for m in ms if m.ttft_s]),
        ttft_p99_s=_median([m.ttft_s.p99 for m in ms if m.ttft_s]),
        tpot_p50_s=_median([m.tpot_s.p50 for m in ms if m.tpot_s]),
        step_s=_median([m.step_s for m in ms]),
        accept_length=1 + accepted / steps if steps else lengths,
        accept_at_k=_mean_shares([m.accept_at_k for m in ms if m.accept_at_k]),
        parts=_add_parts([part for m in ms for part in m.by_kind]),
    )


def _by_block(
    records: Sequence[TrialRecord], arm: str, levels: dict[str, str], probe: str, concurrency: int
) -> dict[tuple[str, str, int], Measurement]:
    return {
        (r.sweep_run, r.host, r.block): m
        for r in records
        if r.arm == arm and r.levels == levels
        for m in r.measurements
        if (m.probe, m.concurrency) == (probe, concurrency)
    }


def _crossover(a: Cell, b: Cell, *, firm: bool) -> Crossover:
    share = math.log(a.ratio) / (math.log(a.ratio) - math.log(b.ratio))
    at = math.log(a.concurrency) + share * (math.log(b.concurrency) - math.log(a.concurrency))
    return Crossover(
        metric=a.metric,
        probe=a.probe,
        arm=a.arm,
        levels=a.levels,
        concurrency=math.exp(at),
        below=a.concurrency,
        above=b.concurrency,
        direction="falls" if _gain(b) < _gain(a) else "rises",
        firm=firm,
    )


def _gain(cell: Cell) -> float:
    """Log ratio, positive when it is the good direction."""
    return math.log(cell.ratio) * (-1 if BY_NAME[cell.metric].better == "lower" else 1)


def _has_account(m: Measurement) -> bool:
    return bool(m.step_s) and bool(m.accept_length)


def _geometric(values: Sequence[float | None]) -> float:
    return math.exp(fmean(math.log(v) for v in values if v))


def _median(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return median(known) if known else None


def _mean_shares(all_shares: Sequence[tuple[float, ...]]) -> tuple[float, ...] | None:
    if not all_shares:
        return None
    depth = max(map(len, all_shares))
    padded = [(*shares, *(0.0,) * (depth - len(shares))) for shares in all_shares]
    return tuple(fmean(column) for column in zip(*padded, strict=True))


def _add_parts(parts: Sequence[KindAcceptance]) -> tuple[KindAcceptance, ...]:
    groups: dict[str, list[KindAcceptance]] = {}
    for part in parts:
        groups.setdefault(part.name, []).append(part)
    return tuple(
        KindAcceptance(
            name=name,
            requests=sum(p.requests for p in group),
            verify_steps=(steps := sum(p.verify_steps for p in group)),
            accepted=(accepted := sum(p.accepted for p in group)),
            accept_length=1 + accepted / steps,
        )
        for name, group in groups.items()
    )


def _key(levels: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(levels.items()))
