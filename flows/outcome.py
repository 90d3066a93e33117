"""How a sweep's work begins and ends, whoever does what lies between."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flows.skips import reconcile, unfinished
from tasks.publish import publish_missing
from tasks.reporting import write_report
from tasks.screen_kept import keep_screen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from configs.host import Host
    from flows.budget import Budget
    from flows.question import Question
    from flows.skips import Skip
    from flows.stages import Runner
    from infra.host_agent import HostAgent
    from infra.store import RunFolder
    from infra.tracking import Tracker
    from tasks.record import TrialRecord
    from tasks.reporting import Report


class Hands(NamedTuple):
    """What a conductor works with; each is replaceable."""

    connect: Callable[[Host], HostAgent]
    runner: Callable[[str], Runner]
    """Trial id -> the runner of its stages."""
    tracker: Tracker | None
    say: Callable[[str], None]
    shown: Callable[[], None] = lambda: None
    """Called between trials, to show how far the sweep is."""


class Outcome(NamedTuple):
    """What became of a sweep."""

    run: RunFolder
    records: tuple[TrialRecord, ...]
    skipped: tuple[Skip, ...]
    report: Report
    unpublished: int
    """Attempts that MLflow does not have."""
    notes: tuple[str, ...] = ()
    """What else is to be known of it, a sentence each."""

    def counts(self) -> Counts:
        """How many trials came to which end."""
        return Counts(*(sum(r.status == name for r in self.records) for name in Counts._fields))


class Counts(NamedTuple):
    """How many trials came to which end."""

    ok: int
    suspect: int
    failed: int
    skipped: int

    def text(self) -> str:
        """In words, without zeros."""
        said = [f"{number} {name}" for name, number in self._asdict().items() if number]
        return ", ".join(said) or "no trials"


def begin(question: Question, run: RunFolder, hands: Hands, budget: Budget | None) -> list[str]:
    """Says what is to be done, and records what an earlier process left unrecorded.

    Returns:
        Markers of attempts whose process was killed before they could tear down.
    """
    hands.say(f"run {run.id}: {len(question.plan.trials)} trials, folder {run.path}")
    if budget is not None:
        hands.say(budget.text)
    keep_screen(run, question.screen)
    cut_off = [run.marker(folder) for folder in unfinished(run)]
    for text in reconcile(run) if cut_off else ():
        hands.say(text)
    return cut_off


def conclude(
    question: Question,
    run: RunFolder,
    hands: Hands,
    records: Iterable[TrialRecord],
    skipped: Iterable[Skip] = (),
) -> Outcome:
    """Brings what is missing to MLflow, compares, reports."""
    unpublished = 0
    if hands.tracker is not None:
        hands.tracker.ask_again()
        unpublished = publish_missing(run, hands.tracker, hands.say)
    known = sorted(records, key=lambda record: record.order)
    report = write_report(run, question.sweep, known, hands.tracker, hands.say)
    return Outcome(run, tuple(known), tuple(skipped), report, unpublished)
