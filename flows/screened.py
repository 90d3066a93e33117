"""A question whose factor is screened: the latest screen that fits, or a new one, and what it leaves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from configs.screening import without_levels
from flows.question import pose
from flows.screen import screen_key, screen_name
from tasks.screen import Screen, choose, kept_words
from tasks.screen_kept import read_screen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flows.question import Question
    from infra.store import Store


def screened(
    question: Question,
    store: Store,
    make: Callable[[], Screen] | None = None,
    *,
    host: str | None = None,
) -> Question:
    """The question without the levels that its screen drops.

    The latest screen of the same host, engine, arms, levels and sizes counts, if it is not older
    than the sweep says. Without a ``screen`` in the sweep a fitting one drops nothing; it is kept
    beside the trials, so that its ranking can be held against theirs.

    Args:
        question: The whole question.
        store: Where screens are kept.
        make: Makes a screen if none fits; None: none is made (``plan`` touches nothing).
        host: Another host than the sweep's own, as for :func:`flows.question.pose`.
    """
    asked = question.sweep.screen
    if asked is None:
        return question._replace(
            screen=next(_fitting(question, store, tuple(question.sweep.factors)), None)
        )
    oldest = datetime.now(UTC) - timedelta(hours=asked.within_hours)
    known = next(
        (
            screen
            for screen in _fitting(question, store, (asked.factor,))
            if datetime.fromisoformat(screen.made_at) >= oldest
        ),
        None,
    )
    if known is None and make is None:
        said = (
            f"screen: {asked.factor} would be screened first; at most {asked.keep} of its "
            f"{len(question.sweep.factors[asked.factor])} levels would stay"
        )
        return question._replace(warnings=(*question.warnings, said))
    screen = known or (make() if make else None)
    return question if screen is None else without_dropped(question, screen, asked.keep, host)


def without_dropped(
    question: Question, screen: Screen, keep: int, host: str | None = None
) -> Question:
    """The question without the levels that a screen drops, and with its words among the warnings."""
    kept, dropped = choose(screen.levels, screen.reference, keep, timed_by=screen.timed_by)
    screen = screen.model_copy(update={"kept": kept, "dropped": dropped, "keep": keep})
    sweep = without_levels(question.sweep, screen.factor, dropped)
    reduced = pose(sweep, host) if dropped else question
    words = (*kept_words(screen), *finding_words(screen))
    return reduced._replace(screen=screen, warnings=(*reduced.warnings, *words))


def finding_words(screen: Screen) -> tuple[str, ...]:
    """A screen's findings of levels that stay, one line each."""
    return tuple(
        f"{finding.name}: {finding.where}: {finding.evidence}"
        for finding in screen.findings
        if finding.where.removeprefix(f"{screen.factor}=").split(" ")[0] in screen.kept
    )


def _fitting(question: Question, store: Store, factors: tuple[str, ...]) -> Iterator[Screen]:
    """Screens of this very question, the latest first."""
    keys = {screen_key(question, factor) for factor in factors}
    for run in reversed(store.runs(screen_name(question.sweep.name))):
        screen = read_screen(run.path)
        if screen is not None and screen.key in keys:
            yield screen
