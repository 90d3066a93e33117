"""What no trial alone can show: arms that were not asked quite the same, said beside the verdicts."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from tasks import intervals
from tasks.comparable import block_of, host_of, setting
from tasks.comparison import setting_label
from tasks.host_effect import between_hosts, over_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tasks.accounts import Pair
    from tasks.record import Measurement, TrialRecord

STOPS = 0.1
"""Share of answers that ended by themselves: a larger difference than this is said."""
LENGTH = 0.1
"""The same for the mean length of an answer, as a ratio."""
KV_ROOM = 0.05
"""The same for the room in the KV cache."""
ROOM = "max-total-num-tokens"
STEADY_ROUNDS = 10
"""Requests per slot from which on ramp-up and drain are small (pitfalls 15)."""


class _Place(NamedTuple):
    """One point of one setting's ladder."""

    arm: str
    levels: tuple[tuple[str, str], ...]
    probe: str
    concurrency: int


def notes_across_arms(
    records: Sequence[TrialRecord],
    baseline: str | None,
    pairs: Sequence[Pair],
    *,
    margin: float,
    confidence: float,
) -> tuple[str, ...]:
    """One sentence for each difference between arms, or concurrencies, that colours a ratio.

    Args:
        records: comparable trials.
        baseline: the arm that the others are compared with.
        pairs: what is compared with what.
        margin: within this ratio either way two accept lengths are the same.
        confidence: for all statements on acceptance together.
    """
    if baseline is None:
        return ()
    return (
        *_rounds(records),
        *_answers(records, baseline, pairs),
        *_rooms(records, baseline),
        *_acceptance(records, margin, confidence),
    )


def _rounds(records: Sequence[TrialRecord]) -> Iterator[str]:
    """Short probes, of all arms alike: the steady window is a small part of them."""
    asked = {
        (m.probe, m.concurrency): m.requested for record in records for m in record.measurements
    }
    short = {at: sent for at, sent in asked.items() if sent < STEADY_ROUNDS * at[1]}
    for probe in dict.fromkeys(probe for probe, _ in short):
        sent = [f"{n} at {c}" for (name, c), n in sorted(short.items()) if name == probe]
        yield (
            f"{probe}: fewer than {STEADY_ROUNDS} requests per concurrent slot ({', '.join(sent)}): "
            "the steady windows are short, and a ratio rests on few requests"
        )


def _answers(records: Sequence[TrialRecord], baseline: str, pairs: Sequence[Pair]) -> Iterator[str]:
    """Other lengths, other ends: acceptance changes along an answer (sglang#34145)."""
    for probe, concurrency, (arm, levels), reference_levels in pairs:
        ours = _measurements(records, arm, levels, probe, concurrency)
        theirs = _measurements(records, baseline, reference_levels, probe, concurrency)
        if not ours or not theirs:
            continue
        where = f"{setting_label(arm, levels)}, {probe} at {concurrency}"
        stops, their_stops = _stops(ours), _stops(theirs)
        if abs(stops - their_stops) > STOPS:
            yield (
                f"{where}: {stops:.0%} of the answers ended by themselves, {their_stops:.0%} of "
                f"{baseline}'s: the ratio compares different texts"
            )
        length, their_length = _length(ours), _length(theirs)
        if abs(length - their_length) > LENGTH * their_length:
            yield (
                f"{where}: answers have {length:.0f} tokens on average, {their_length:.0f} with "
                f"{baseline}: acceptance and step time change along an answer"
            )


def _rooms(records: Sequence[TrialRecord], baseline: str) -> Iterator[str]:
    """A drafter's weights and graphs take from the KV cache what the baseline keeps."""
    rooms: dict[str, list[int]] = {}
    for record in records:
        room = record.effective.get(ROOM, "")
        if room.isdecimal():
            rooms.setdefault(record.arm, []).append(int(room))
    if baseline not in rooms:
        return
    theirs = median(rooms[baseline])
    for arm, found in rooms.items():
        ours = median(found)
        if abs(ours - theirs) > KV_ROOM * theirs:
            yield (
                f"{arm} has room for {ours:,.0f} tokens in its KV cache, {baseline} for "
                f"{theirs:,.0f}: at a load that fills the smaller one their ratio shows memory, "
                "not speed"
            )


def _acceptance(records: Sequence[TrialRecord], margin: float, confidence: float) -> Iterator[str]:
    """Acceptance that is not the same at every concurrency, tested over blocks.

    It is often taken to be; batching changes numerics (vllm#53436). A larger load has more
    prompts, so part of a difference may be the text's.
    """
    table: dict[_Place, dict[tuple[str, str, int], float]] = {}
    for record in records:
        for m in record.measurements:
            if m.verify_steps and m.accept_length is not None:
                place = _Place(*setting(record), m.probe, m.concurrency)
                table.setdefault(place, {})[block_of(record)] = math.log(m.accept_length)
    spread, hosts = intervals.noise(table), between_hosts(table, host_of)
    asked = []
    for place, ours in table.items():
        lowest = min((p for p in table if p[:3] == place[:3]), key=lambda p: p.concurrency)
        if place == lowest:
            continue
        estimate = over_hosts(
            intervals.contrast(table, place, lowest, spread),
            (place, lowest),
            [host_of(block) for block in ours if block in table[lowest]],
            hosts,
        )
        if estimate is not None:
            asked.append((place, lowest, estimate))
    judged = intervals.holm([estimate for _, _, estimate in asked], confidence)
    for (place, lowest, _), result in zip(asked, judged, strict=True):
        if intervals.verdict(result, margin) in ("better", "worse"):
            yield _acceptance_note(place, lowest.concurrency, result)


def _acceptance_note(place: _Place, lowest: int, judged: intervals.Judged) -> str:
    low, high = math.exp(judged.low or 0.0), math.exp(judged.high or 0.0)
    return (
        f"{setting_label(place.arm, dict(place.levels))}, {place.probe}: accept length at "
        f"{place.concurrency} is "
        f"{math.exp(judged.estimate.effect):.3f} [{low:.3f}, {high:.3f}] times that at {lowest}; "
        "look at the concurrency that you serve (a larger load also has more prompts)"
    )


def _measurements(
    records: Sequence[TrialRecord], arm: str, levels: dict[str, str], probe: str, concurrency: int
) -> list[Measurement]:
    return [
        m
        for record in records
        if record.arm == arm and record.levels == levels
        for m in record.measurements
        if (m.probe, m.concurrency) == (probe, concurrency) and m.completed
    ]


def _stops(found: Sequence[Measurement]) -> float:
    return sum(m.natural_stops for m in found) / sum(m.completed for m in found)


def _length(found: Sequence[Measurement]) -> float:
    return sum(m.completion_tokens for m in found) / sum(m.completed for m in found)
