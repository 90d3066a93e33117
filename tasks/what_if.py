"""From pretended acceptance to answers: how good a drafter must be here, and what one would give.

At a given batch the time per token is affine in 1 / accept length: a verify step takes the same
time whatever it accepts, and what is not decoding (waiting, prefill) does not depend on it. So two
pretended accept lengths of one shape fix the line, and more of them check it. The line is drawn
inside each block against that block's own reference; intervals are over blocks.
"""

from __future__ import annotations

import math
from statistics import fmean, median
from typing import TYPE_CHECKING, Final, NamedTuple

from tasks.comparable import acceptance, block_of, engine_of, facts, select
from tasks.comparison import levels_key
from tasks.paired import paired
from tasks.step_cost import Step, step_cost
from tasks.what_if_answers import Expected, Needed, Shape, WhatIf

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tasks.record import Measurement, TrialRecord
    from tasks.step_cost import StepCost

METRICS: Final = ("output_tok_s", "user_tok_s")
_CROOKED: Final = 0.02
"""Points further from their line than this say that a step does depend on what it accepts."""


class _Line(NamedTuple):
    """Time per token = rest + step / accept length, in seconds."""

    rest: float
    step: float
    worst: float

    def at(self, length: float) -> float:
        return self.rest + self.step / length

    def reaches(self, time: float) -> float | None:
        """The accept length at which a token takes this time; None where none does."""
        return self.step / (time - self.rest) if time > self.rest else None


_Block = tuple[str, str, int]
_Key = tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]


class _Rung(NamedTuple):
    """One shape on one rung of the ladder: its line and its reference's time, block by block."""

    shape: Shape
    probe: str
    concurrency: int
    metric: str
    pairs: Mapping[_Block, tuple[_Line, float]]


def what_if(
    records: Sequence[TrialRecord], drafters: Mapping[str, float], confidence: float = 0.95
) -> WhatIf | None:
    """All answers; None where nothing was pretended.

    Args:
        records: A sweep's trials.
        drafters: Name -> accept length, as printed on a model card.
        confidence: Of each interval alone.
    """
    pretending = [r for r in records if acceptance(r) == "simulated"]
    if not pretending:
        return None
    reference = _reference(records)
    if reference is None:
        return WhatIf(needed=(), expected=(), costs=(), notes=("no arm decodes plainly",))
    kept = select([*(r for r in records if r.arm == reference), *pretending]).kept
    rungs = list(_rungs(kept, reference))
    notes = sorted({note for rung in rungs for note in _notes(rung)})
    if not rungs:
        notes = ["no block holds the reference and two pretended accept lengths of one shape"]
    return WhatIf(
        needed=tuple(_needed(rungs, reference, confidence)),
        expected=tuple(_expected(rungs, reference, drafters, confidence)),
        costs=tuple(_costs(kept, reference)),
        notes=tuple(notes),
    )


def _reference(records: Sequence[TrialRecord]) -> str | None:
    """The baseline if it decodes plainly, else an arm that does; on the engine that pretends."""
    engines = {engine_of(facts(r)) for r in records if acceptance(r) == "simulated"}
    plain = [r for r in records if acceptance(r) == "none" and engine_of(facts(r)) in engines]
    plain.sort(key=lambda r: (not r.baseline, r.order))
    return plain[0].arm if plain else None


def _rungs(records: Sequence[TrialRecord], reference: str) -> Iterator[_Rung]:
    for key, members in _shapes(records).items():
        shape = _shape(members)
        theirs = [r for r in records if r.arm == reference and levels_key(r.levels) == key[0]]
        ladder = dict.fromkeys((m.probe, m.concurrency) for r in members for m in r.measurements)
        for probe, concurrency in ladder:
            for metric in METRICS:
                pairs = dict(_pairs(members, theirs, probe, concurrency, metric))
                if pairs:
                    yield _Rung(shape, probe, concurrency, metric, pairs)


def _shapes(records: Sequence[TrialRecord]) -> dict[_Key, list[TrialRecord]]:
    """Pretending trials by levels and flags: what is left to differ is what they pretend."""
    found: dict[_Key, list[TrialRecord]] = {}
    for record in records:
        if acceptance(record) == "simulated":
            key = (levels_key(record.levels), tuple(sorted(record.asked.items())))
            found.setdefault(key, []).append(record)
    return found


def _shape(members: Sequence[TrialRecord]) -> Shape:
    first = members[0]
    tokens = _number(first, "speculative-num-draft-tokens")
    steps = _number(first, "speculative-num-steps")
    known = [n for n in (steps, tokens - 1 if tokens else None) if n is not None]
    lengths = {r.synthetic.accept_length for r in members if r.synthetic}
    return Shape(
        arms=tuple(dict.fromkeys(r.arm for r in members)),
        levels=first.levels,
        drafts=min(known) if known else None,
        tokens=tokens,
        lengths=tuple(sorted(length for length in lengths if length is not None)),
    )


def _number(record: TrialRecord, flag: str) -> int | None:
    """A number as it was asked, else as the engine chose it."""
    text = record.asked.get(flag, record.effective.get(flag, ""))
    return int(text) if text.isdecimal() else None


def _pairs(
    members: Sequence[TrialRecord],
    theirs: Sequence[TrialRecord],
    probe: str,
    concurrency: int,
    metric: str,
) -> Iterator[tuple[_Block, tuple[_Line, float]]]:
    """Line and reference of each block that holds both."""
    plain = {block_of(r): m for r in theirs if (m := _measured(r, probe, concurrency))}
    for block, reference in plain.items():
        speed = getattr(reference, metric)
        points = [
            (m.accept_length, getattr(m, metric))
            for r in members
            if block_of(r) == block and (m := _measured(r, probe, concurrency))
        ]
        line = _line([(length, 1 / figure) for length, figure in points if length and figure])
        if line is not None and speed:
            yield block, (line, 1 / speed)


def _measured(record: TrialRecord, probe: str, concurrency: int) -> Measurement | None:
    wanted = (probe, concurrency)
    return next((m for m in record.measurements if (m.probe, m.concurrency) == wanted), None)


def _line(points: Sequence[tuple[float, float]]) -> _Line | None:
    """The straight line through (accept length, time), nearest in relative distance."""
    if len({round(length, 3) for length, _ in points}) < 2:
        return None
    weights = [1 / time**2 for _, time in points]
    whole = math.fsum(weights)
    x = math.fsum(w / length for w, (length, _) in zip(weights, points, strict=True)) / whole
    y = math.fsum(w * time for w, (_, time) in zip(weights, points, strict=True)) / whole
    spread = math.fsum(w * (1 / p[0] - x) ** 2 for w, p in zip(weights, points, strict=True))
    both = math.fsum(w * (1 / p[0] - x) * (p[1] - y) for w, p in zip(weights, points, strict=True))
    step = both / spread
    if step <= 0:
        return None
    rest = y - step * x
    worst = max(abs((rest + step / length) / time - 1) for length, time in points)
    return _Line(rest, step, worst)


def _notes(rung: _Rung) -> Iterator[str]:
    worst = max(line.worst for line, _ in rung.pairs.values())
    if worst > _CROOKED:
        yield (
            f"{rung.probe}, {rung.metric} at {rung.concurrency}: {worst:.1%} off the straight line: "
            "a step there does depend on what it accepts, so take these answers as a hint"
        )


def _needed(rungs: Sequence[_Rung], reference: str, confidence: float) -> Iterator[Needed]:
    logs: dict[int, dict[_Block, float]] = {}
    for number, rung in enumerate(rungs):
        reached = {block: line.reaches(time) for block, (line, time) in rung.pairs.items()}
        known = {block: math.log(length) for block, length in reached.items() if length is not None}
        if len(known) == len(reached):
            logs[number] = known
    intervals = paired(logs, confidence)
    for number, rung in enumerate(rungs):
        found = intervals.get(number)
        yield Needed(
            probe=rung.probe,
            concurrency=rung.concurrency,
            metric=rung.metric,
            shape=rung.shape,
            reference=reference,
            blocks=len(rung.pairs),
            accept_length=found.ratio if found else None,
            low=found.low if found else None,
            high=found.high if found else None,
        )


def _expected(
    rungs: Sequence[_Rung], reference: str, drafters: Mapping[str, float], confidence: float
) -> Iterator[Expected]:
    for name, length in drafters.items():
        able = [r for r in rungs if r.shape.drafts is None or length <= r.shape.drafts + 1]
        logs = {
            number: {
                block: math.log(time / line.at(length))
                for block, (line, time) in rung.pairs.items()
            }
            for number, rung in enumerate(able)
        }
        intervals = paired(logs, confidence)
        for number, rung in enumerate(able):
            found = intervals[number]
            times = [math.log(line.at(length)) for line, _ in rung.pairs.values()]
            yield Expected(
                name=name,
                accept_length=length,
                probe=rung.probe,
                concurrency=rung.concurrency,
                metric=rung.metric,
                shape=rung.shape,
                reference=reference,
                blocks=len(rung.pairs),
                value=math.exp(-fmean(times)),
                ratio=found.ratio,
                low=found.low,
                high=found.high,
            )


def _costs(records: Sequence[TrialRecord], reference: str) -> Iterator[StepCost]:
    """One plane for each probe and combination of levels."""
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], dict[tuple[int, int], list[float]]] = {}
    for record in records:
        tokens = 1 if record.arm == reference else _number(record, "speculative-num-draft-tokens")
        for m in record.measurements if tokens else ():
            if m.step_s:
                group = groups.setdefault((m.probe, levels_key(record.levels)), {})
                group.setdefault(((tokens or 1) - 1, m.concurrency), []).append(m.step_s)
    for (probe, levels), steps in groups.items():
        points = [Step(drafts, users, median(seen)) for (drafts, users), seen in steps.items()]
        found = step_cost(probe, dict(levels), points)
        if found is not None:
            yield found
