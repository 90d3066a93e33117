"""What stands behind the ratios: absolute figures, step-time accounts, break-even."""

from __future__ import annotations

import math
from statistics import fmean, median
from typing import TYPE_CHECKING, Literal, NamedTuple

from tasks.comparable import block_of
from tasks.comparison import SameOutputs, SpeedAccount, Standing, levels_key
from tasks.paired import paired
from tasks.record import KindAcceptance

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tasks.paired import Block, Interval
    from tasks.record import Measurement, TrialRecord

Setting = tuple[str, dict[str, str]]
_StandingKey = tuple[str, int, bool, str, tuple[tuple[str, str], ...]]
_Place = tuple[str, int, str, tuple[tuple[str, str], ...]]
"""Probe, concurrency, arm, levels."""
Pair = tuple[str, int, Setting, dict[str, str]]
"""Probe, concurrency, (arm, levels), levels of the baseline it is compared with."""


class _Both(NamedTuple):
    """What a setting and its reference measured in the blocks that hold both."""

    levels: dict[str, str]
    reference_levels: dict[str, str]
    pairs: Mapping[Block, tuple[Measurement, Measurement]]

    @property
    def sides(self) -> tuple[list[Measurement], list[Measurement]]:
        return [a for a, _ in self.pairs.values()], [b for _, b in self.pairs.values()]


def standings(records: Sequence[TrialRecord]) -> tuple[Standing, ...]:
    """Absolute figures of every setting, by probe and concurrency."""
    groups: dict[_StandingKey, list[tuple[TrialRecord, Measurement]]] = {}
    for record in records:
        for m in record.measurements:
            key = (
                m.probe,
                m.concurrency,
                not record.baseline,
                record.arm,
                levels_key(record.levels),
            )
            groups.setdefault(key, []).append((record, m))
    return tuple(_standing(groups[key]) for key in sorted(groups))


def speed_accounts(
    records: Sequence[TrialRecord],
    baseline: str | None,
    pairs: Iterable[Pair],
    confidence: float = 0.95,
) -> tuple[SpeedAccount, ...]:
    """Split each user-speed ratio into what acceptance gave and what longer steps took.

    step_s = accept_length / user_tok_s by definition, so the split is exact:
    log(speed ratio) = log(accept ratio) - log(step ratio). The accept length that breaks even is
    the one at which this step time gives the reference's speed: reference accept length (1
    without speculation) * own step / reference step. Pairs that lack a figure are left out.
    Intervals are of each figure alone, from the log ratios inside the blocks (tasks/paired).
    """
    if baseline is None:
        return ()
    found: dict[_Place, _Both] = {}
    for probe, concurrency, (arm, levels), reference_levels in pairs:
        ours = _by_block(records, arm, levels, probe, concurrency)
        theirs = _by_block(records, baseline, reference_levels, probe, concurrency)
        both = {
            b: (ours[b], theirs[b])
            for b in ours
            if b in theirs and _has_account(ours[b]) and _has_account(theirs[b])
        }
        if both:
            place = (probe, concurrency, arm, levels_key(levels))
            found[place] = _Both(levels, reference_levels, both)
    accepts = _ratios(found, "accept_length", confidence)
    steps = _ratios(found, "step_s", confidence)
    return tuple(
        _account(place, baseline, both, accepts[place], steps[place])
        for place, both in found.items()
    )


def _account(
    place: _Place, baseline: str, both: _Both, accept: Interval, step: Interval
) -> SpeedAccount:
    probe, concurrency, arm, _ = place
    step_s, reference_step_s = (_geometric([m.step_s for m in side]) for side in both.sides)
    length, reference = (_geometric([m.accept_length for m in side]) for side in both.sides)
    even = step.times(reference)
    return SpeedAccount(
        probe=probe,
        concurrency=concurrency,
        arm=arm,
        levels=both.levels,
        reference_arm=baseline,
        reference_levels=both.reference_levels,
        blocks=len(both.pairs),
        user_ratio=accept.ratio / step.ratio,
        accept_ratio=accept.ratio,
        accept_low=accept.low,
        accept_high=accept.high,
        step_ratio=step.ratio,
        step_low=step.low,
        step_high=step.high,
        step_s=step_s,
        reference_step_s=reference_step_s,
        accept_length=length,
        break_even_accept_length=even.ratio,
        break_even_low=even.low,
        break_even_high=even.high,
    )


def _ratios(found: Mapping[_Place, _Both], name: str, confidence: float) -> dict[_Place, Interval]:
    """Ratios of one figure with intervals, noise pooled over settings at each ladder step."""
    result: dict[_Place, Interval] = {}
    for rung in dict.fromkeys(place[:2] for place in found):
        differences = {
            place: {
                block: math.log(getattr(a, name) / getattr(b, name))
                for block, (a, b) in both.pairs.items()
            }
            for place, both in found.items()
            if place[:2] == rung
        }
        result |= paired(differences, confidence)
    return result


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
        block_of(r): m
        for r in records
        if r.arm == arm and r.levels == levels
        for m in r.measurements
        if (m.probe, m.concurrency) == (probe, concurrency)
    }


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
            low=_pooled(group, "low"),
            high=_pooled(group, "high"),
        )
        for name, group in groups.items()
    )


def _pooled(group: Sequence[KindAcceptance], end: Literal["low", "high"]) -> float | None:
    """An end of the interval over prompts, averaged: the same prompts again say nothing new."""
    ends = [(part.low if end == "low" else part.high, part.verify_steps) for part in group]
    steps = sum(n for value, n in ends if value is not None)
    return sum(value * n for value, n in ends if value is not None) / steps if steps else None
