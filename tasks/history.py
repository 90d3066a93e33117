"""What became of a setting over the nights: which figure moved, since when; in words."""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from tasks.change_point import FIRST_LOOK, Change, changes, spread
from tasks.comparison import setting_label
from tasks.decision import percent
from tasks.nights import FIGURES, series, stretches

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tasks.nights import Figure, Night, Stretch
    from tasks.record import TrialRecord

NAMES: Final[dict[Figure, str]] = {"accept_length": "accept length", "step_s": "step time"}


class Watched(NamedTuple):
    """One figure over the nights of a stretch."""

    figure: Figure
    places: tuple[int, ...]
    """Which nights have it, by their place in the stretch."""
    values: tuple[float, ...]
    """Their deviations on the log scale."""
    changes: tuple[Change, ...]
    """By place among those nights."""
    spread: float | None
    """From night to night around the levels (log scale, so a share); None: too few nights."""

    def night(self, place: int) -> int:
        """The place in the stretch of one of these nights."""
        return self.places[place]


class History(NamedTuple):
    """One stretch, and what was watched in it."""

    stretch: Stretch
    watched: tuple[Watched, ...]


def histories(records: Iterable[TrialRecord]) -> list[History]:
    """What every setting did, from records of any runs."""
    return [History(stretch, tuple(_watch(stretch))) for stretch in stretches(records)]


def change_lines(history: History) -> list[str]:
    """What moved and what did not, a line for each change or figure."""
    nights = len(history.stretch.nights)
    if nights < FIRST_LOOK:
        return [f"{nights} of the {FIRST_LOOK} nights after which there is a first look at changes"]
    lines = []
    for watched in history.watched:
        lines += [_change_line(history, watched, change) for change in watched.changes]
        name, varies = NAMES[watched.figure], watched.spread
        if not watched.changes:
            often = f"varies by {varies:.2%} from night to night" if varies is not None else ""
            lines.append(f"{name} has not moved: {often}")
    return lines


def regression_sentences(found: Iterable[History]) -> list[str]:
    """What became worse and is known since the latest night alone: for the morning's message.

    A change that was known the morning before is not told again; `eagle3-sweep history` shows it.
    """
    return [
        f"{_who(history)}: {_change_line(history, watched, change)}"
        for history in found
        for watched in history.watched
        for change in watched.changes
        if _worse(watched.figure, change)
        and watched.night(change.seen) == len(history.stretch.nights) - 1
    ]


def date_of(night: Night) -> str:
    """When a night began: 2026-11-28 22:04."""
    return f"{datetime.fromisoformat(night.began):%Y-%m-%d %H:%M}"


def _watch(stretch: Stretch) -> Iterable[Watched]:
    for figure in FIGURES:
        found = series(stretch, figure)
        if found is None:
            continue
        places = tuple(place for place, value in enumerate(found) if value is not None)
        values = tuple(value for value in found if value is not None)
        moved = tuple(changes(values))
        yield Watched(figure, places, values, moved, spread(values, moved))


def _change_line(history: History, watched: Watched, change: Change) -> str:
    """One change: how far, since when, whether the other figure moved too, what users see of it."""
    nights = history.stretch.nights
    first = nights[watched.night(change.first)]
    ends = next((c.first for c in watched.changes if c.first > change.first), len(watched.values))
    since = ends - change.first
    others = [w for w in history.watched if w.figure != watched.figure]
    text = (
        f"{NAMES[watched.figure]} {percent(math.exp(change.step))} since the night of "
        f"{date_of(first)} ({first.run})"
    )
    for other in others:
        both = any(_overlap(watched, change, other, theirs) for theirs in other.changes)
        text += f"; {NAMES[other.figure]} {'moved too' if both else 'has not moved'}"
    sign = 1.0 if watched.figure == "accept_length" else -1.0
    text += f"; alone it makes a user's speed {percent(math.exp(sign * change.step))}"
    if since == 1:
        text += "; one night so far: another one will tell whether it stays"
    return text


def _overlap(one: Watched, mine: Change, other: Watched, theirs: Change) -> bool:
    """Whether two changes may be one: neither began after the other was known."""
    return one.night(mine.first) <= other.night(theirs.seen) and other.night(
        theirs.first
    ) <= one.night(mine.seen)


def _worse(figure: Figure, change: Change) -> bool:
    return (change.step < 0) if figure == "accept_length" else (change.step > 0)


def _who(history: History) -> str:
    stretch = history.stretch
    where = f"{stretch.host} (rehearsal)" if stretch.rehearsal else stretch.host
    return f"{setting_label(stretch.arm, stretch.levels)} on {where}"


def of_arms(found: Sequence[History], arm: str) -> list[History]:
    """The histories of an arm, or of one of its settings: ``ours``, ``ours+ll``."""
    return [
        history
        for history in found
        if arm
        in {history.stretch.arm, "+".join([history.stretch.arm, *history.stretch.levels.values()])}
    ]
