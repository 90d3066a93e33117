"""The nights of one setting: what it did in each, as far as it is the same setting on the same host."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from tasks.comparable import setting
from tasks.comparison import levels_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tasks.record import TrialRecord

Figure = Literal["accept_length", "step_s"]
FIGURES: Final[tuple[Figure, ...]] = ("accept_length", "step_s")
"""What is watched: the two whose quotient is a user's speed (docs/statistics.md)."""

_PAUSE: Final = timedelta(hours=4)  # a run that goes on after so long goes on in another night


class Rung(NamedTuple):
    """One measurement of every boot."""

    probe: str
    concurrency: int

    def __str__(self) -> str:
        return f"{self.probe} c{self.concurrency}"


class Night(NamedTuple):
    """What a setting did in one night on one host."""

    run: str
    """Sweep run."""
    began: str
    """ISO 8601, of its first boot."""
    boots: int
    figures: dict[Figure, dict[Rung, float]]
    """Figure -> measurement -> geometric mean over the night's boots; tokens and seconds."""


class Stretch(NamedTuple):
    """Nights in which nothing differed that is known: one setting, one host, one fingerprint."""

    arm: str
    levels: dict[str, str]
    host: str
    rehearsal: bool
    fingerprint: str
    facts: dict[str, str]
    """What is known of the host, the engine and the traffic, for the difference to others."""
    nights: tuple[Night, ...]
    """In their order."""


def stretches(records: Iterable[TrialRecord]) -> list[Stretch]:
    """All stretches of nights in records of any runs, each setting's in the order of time.

    Only ``ok`` trials have a speed; a night without one is none.
    """
    groups: dict[tuple[object, ...], list[TrialRecord]] = {}
    for record in records:
        if record.status == "ok":
            key = (setting(record), record.host, record.fingerprint)
            groups.setdefault(key, []).append(record)
    found = [_stretch(sorted(group, key=_began)) for group in groups.values()]
    return sorted(found, key=lambda s: (s.arm, levels_key(s.levels), s.host, s.nights[0].began))


def series(stretch: Stretch, figure: Figure) -> list[float | None] | None:
    """A figure over the nights: mean deviation of its logarithm from each measurement's own mean.

    So a ladder is one series, and a measurement that a night lacks shifts nothing. None where the
    figure is nowhere known or is one by definition (accept length without speculation).
    """
    known: dict[Rung, list[float]] = {}
    for night in stretch.nights:
        for rung, value in night.figures.get(figure, {}).items():
            known.setdefault(rung, []).append(math.log(value))
    if not known or (figure == "accept_length" and not any(map(any, known.values()))):
        return None
    means = {rung: fmean(values) for rung, values in known.items()}
    return [_deviation(night.figures.get(figure, {}), means) for night in stretch.nights]


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """What changed between two stretches, one line a fact."""
    return [
        f"{name}: {before.get(name, 'absent')} -> {after.get(name, 'absent')}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]


def _deviation(here: Mapping[Rung, float], means: Mapping[Rung, float]) -> float | None:
    return fmean(math.log(v) - means[rung] for rung, v in here.items()) if here else None


def _stretch(records: Sequence[TrialRecord]) -> Stretch:
    last = records[-1]
    asked = {f"flag {name}": value for name, value in last.asked.items()}
    variables = {f"variable {name}": value for name, value in last.environment.items()}
    models = {f"content of {name}": value for name, value in last.models.items()}
    versions = {f"version of {name}": value for name, value in last.versions.items()}
    return Stretch(
        arm=last.arm,
        levels=last.levels,
        host=last.host,
        rehearsal=last.rehearsal,
        fingerprint=last.fingerprint,
        facts={**last.must_match, **asked, **variables, **models, **versions},
        nights=tuple(_night(group) for group in _by_night(records)),
    )


def _by_night(records: Sequence[TrialRecord]) -> list[list[TrialRecord]]:
    """Boots in the order of time, cut where another run begins or a long pause ends."""
    found = [[records[0]]]
    for before, after in pairwise(records):
        pause = _began(after) - datetime.fromisoformat(before.ended_at)
        if after.sweep_run != before.sweep_run or pause > _PAUSE:
            found.append([])
        found[-1].append(after)
    return found


def _night(records: Sequence[TrialRecord]) -> Night:
    logs: dict[Figure, dict[Rung, list[float]]] = {figure: {} for figure in FIGURES}
    for record in records:
        for measured in record.measurements:
            rung = Rung(measured.probe, measured.concurrency)
            for figure in FIGURES:
                value = getattr(measured, figure)
                if value:
                    logs[figure].setdefault(rung, []).append(math.log(value))
    means = {
        figure: {rung: math.exp(fmean(values)) for rung, values in of.items()}
        for figure, of in logs.items()
    }
    return Night(records[0].sweep_run, records[0].started_at, len(records), means)


def _began(record: TrialRecord) -> datetime:
    return datetime.fromisoformat(record.started_at)
