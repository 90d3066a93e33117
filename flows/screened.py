"""A question whose factor is screened: the latest screen that fits, or a new one, and what it leaves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from configs.plan import hash_of
from configs.screening import without_levels
from flows.question import pose
from flows.screen_key import screen_key, screen_name
from tasks.screen import Screen, choose, effect_words, kept_words
from tasks.screen_kept import read_screen

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from configs.plan import Plan
    from configs.screening import Screening
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
    return question if screen is None else without_dropped(question, screen, asked, host)


def without_dropped(
    question: Question, screen: Screen, asked: Screening, host: str | None = None
) -> Question:
    """The question without what a screen drops, and with its words among the warnings."""
    kept, dropped = choose(screen.levels, screen.reference, asked.keep, timed_by=screen.timed_by)
    screen = screen.model_copy(update={"kept": kept, "dropped": dropped, "keep": asked.keep})
    sweep = without_levels(question.sweep, screen.factor, dropped)
    reduced = pose(sweep, host) if dropped else question
    words = kept_words(screen)
    if asked.where_it_matters:
        useless = useless_pairs(screen)
        reduced = reduced._replace(plan=_without_pairs(reduced.plan, screen.factor, useless))
        words += tuple(
            f"{screen.factor}={level} is left out in {arm}: {why}"
            for (arm, level), why in useless.items()
        )
    else:
        words += finding_words(screen)
    return reduced._replace(screen=screen, warnings=(*reduced.warnings, *words))


def useless_pairs(screen: Screen) -> dict[tuple[str, str], str]:
    """Arm and level that stays, where nothing that the level sets can matter -> why."""
    return {
        (arm, one.level): effect_words(one.effects[arm])
        for one in screen.levels
        if one.level in screen.kept and one.level != screen.reference
        for arm in one.useless_in()
    }


def _without_pairs(plan: Plan, factor: str, useless: Collection[tuple[str, str]]) -> Plan:
    """A plan without these trials; another plan than the whole one, by its digest."""
    trials = [trial for trial in plan.trials if (trial.arm, trial.levels[factor]) not in useless]
    if len(trials) == len(plan.trials):
        return plan
    renumbered = tuple(t.model_copy(update={"order": n}) for n, t in enumerate(trials))
    digest = hash_of([plan.digest, sorted(useless)])
    return plan.model_copy(update={"trials": renumbered, "digest": digest})


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
