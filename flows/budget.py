"""How long a sweep will take by what the run folder knows, and what a deadline leaves of it."""

from __future__ import annotations

import heapq
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from configs.deadline import Deadline, next_deadline, split_clock
from configs.problems import ConfigError, Problem
from flows.runs import RecordUnreadable, read_records, read_run_plan, read_run_sweep
from flows.skips import is_final
from infra.store import read_json
from tasks.allotment import Allotment, allot
from tasks.durations import boots
from tasks.forecast import Forecast, Oracle, longest
from tasks.spans import span
from tasks.undone import LEFT_OUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from configs.host import Host
    from configs.plan import Trial
    from configs.sweep import Sweep
    from flows.question import Question
    from infra.store import RunFolder, Store
    from tasks.durations import Boot
    from tasks.record import TrialRecord

_RUNS = 12  # the latest; older nights tell little of tonight's


class Outlook(NamedTuple):
    """What is expected of a sweep before it starts."""

    forecast: Forecast
    """Of what is still to be run, one trial after another."""
    together: Forecast
    """The same with all places of the sweep at work at once; equal to it where there is one."""
    places: int
    done: int
    """Trials of its latest run that stand."""
    deadline: Deadline | None
    allotment: Allotment | None
    """What fits before the deadline; None without one, or where nothing is known."""


class Budget:
    """Says of each trial whether there is time for it.

    Args:
        question: The sweep.
        past: Measured trials of other runs.
        deadline: When the hosts must be free.
        clock: Tells the time, with its offset.
        together: Whether all places of the sweep are at work at once.
    """

    def __init__(
        self,
        question: Question,
        past: Sequence[Boot],
        deadline: Deadline,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        *,
        together: bool = False,
    ) -> None:
        self._question = question
        self._past = past
        self._deadline = deadline
        self._clock = clock
        places = {trial.host for trial in question.plan.trials}
        self._at_once = len(places) if together else 1

    @property
    def text(self) -> str:
        """What holds for the night, in one sentence."""
        return f"until {self._deadline.text}: no trial is begun that would not be over by then"

    def why_not(self, trial: Trial, records: Mapping[str, TrialRecord]) -> str | None:
        """Why a trial is not begun now; None: there is time for it, or nobody knows how long it is.

        Args:
            trial: The next of the plan, or one that would be tried once more.
            records: Of this run, by trial.
        """
        deadline, question = self._deadline, self._question
        left_s = (deadline.at - self._clock()).total_seconds()
        if left_s <= 0:
            return f"{LEFT_OUT} {deadline.text}, which is over"
        own = tuple(boots(question.sweep, question.plan.trials, tuple(records.values())))
        oracle = Oracle(question.sweep, question.hosts, [*self._past, *own])
        fresh = not any(r.host == trial.host and r.stages for r in records.values())
        expected = oracle.expected(trial, first=fresh)
        if expected is None:
            return None
        if expected.late_s > left_s:
            return (
                f"{LEFT_OUT} {deadline.text}: it takes up to {span(expected.late_s)} by "
                f"{expected.grounds}, and {span(left_s)} are left"
            )
        others = _undone(question.plan.trials, records)
        todo = [trial, *(other for other in others if other.order > trial.order)]
        if trial in allot(question.sweep, todo, _cost_of(oracle), left_s * self._at_once).run:
            return None
        return f"{LEFT_OUT} {deadline.text}: the time is kept for what the main question needs more"


def deadline_of(sweep: Sweep, typed: str | None, now: datetime | None = None) -> Deadline | None:
    """When the hosts must be free: as typed, else as the sweep says; None: whenever.

    Args:
        sweep: Its ``until`` may name a time.
        typed: ``06:30`` or ``06:30 Europe/Berlin``, in place of the sweep's.
        now: With its offset.

    Raises:
        ConfigError: What was typed is no time, or no zone.
    """
    now = now or datetime.now(UTC).astimezone()
    if typed is not None:
        try:
            return next_deadline(*split_clock(typed), now)
        except ValueError as error:
            raise ConfigError([Problem("--until", "", str(error))]) from error
    until = sweep.until
    return next_deadline(until.time, until.zone, now) if until and until.time else None


def budget_of(
    question: Question,
    store: Store,
    own: RunFolder,
    typed: str | None = None,
    began: datetime | None = None,
    *,
    together: bool = False,
) -> Budget | None:
    """The budget of a sweep that starts now; None where nothing limits it.

    Args:
        question: The sweep.
        store: All run folders.
        own: The folder of the run itself.
        typed: A deadline in place of the sweep's, as for :func:`deadline_of`.
        began: When it began, if that was earlier: one that was cut off and goes on has the deadline
            that it had, and not the next day's.
        together: Whether all places of the sweep are at work at once.
    """
    deadline = deadline_of(question.sweep, typed, began)
    if deadline is None:
        return None
    past = past_boots(store, question.hosts, without=own)
    return Budget(question, past, deadline, together=together)


def outlook(
    question: Question, store: Store, typed: str | None = None, now: datetime | None = None
) -> Outlook:
    """What is expected of a sweep if it started now; touches nothing."""
    now = now or datetime.now(UTC).astimezone()
    sweep, plan = question.sweep, question.plan
    run = store.latest(plan.sweep, plan.digest)
    own = {run.path: read_records(run)} if run else {}
    records = {record.trial: record for found in own.values() for record in found}
    todo = _undone(plan.trials, records)
    oracle = Oracle(sweep, question.hosts, past_boots(store, question.hosts, known=own))
    places = dict.fromkeys(trial.host for trial in plan.trials)
    shares = [[trial for trial in todo if trial.host == place] for place in places]
    together = longest([oracle.all(share) for share in shares])
    deadline = deadline_of(sweep, typed, now)
    chosen = None
    if deadline is not None and together.unknown < len(todo):
        left_s = (deadline.at - now).total_seconds() * len(places)
        chosen = allot(sweep, todo, _cost_of(oracle), left_s)
    done = len(plan.trials) - len(todo)
    return Outlook(oracle.all(todo), together, len(places), done, deadline, chosen)


def past_boots(
    store: Store,
    hosts: Mapping[str, Host],
    *,
    without: RunFolder | None = None,
    known: Mapping[Path, Sequence[TrialRecord]] | None = None,
) -> list[Boot]:
    """The measured trials of the latest runs, on pretend hosts or on real ones, as the sweep's are.

    Args:
        store: All run folders.
        hosts: Of the sweep.
        without: A run that is left out.
        known: Records of runs that were read already, by their folder: ten thousand take a second.
    """
    known = known or {}
    found: list[Boot] = []
    runs = [run for run in _of_such(store, hosts) if without is None or run.path != without.path]
    for run in heapq.nlargest(_RUNS, runs, key=_written_at):
        with suppress(RecordUnreadable):  # of another version: it is no use here, and no harm
            records = known[run.path] if run.path in known else read_records(run)
            found += boots(read_run_sweep(run), read_run_plan(run).trials, records)
    return found


def _of_such(store: Store, hosts: Mapping[str, Host]) -> Iterator[RunFolder]:
    rehearsal = {host.rehearsal for host in hosts.values()}
    for run in store.all_runs():
        known = read_json(run.path / "run.json").get("hosts", {})
        there = {bool(host.get("rehearsal")) for host in known.values()}
        if there & rehearsal and (run.path / "plan.json").is_file():
            yield run


def _written_at(run: RunFolder) -> float:
    return (run.path / "run.json").stat().st_mtime


def _cost_of(oracle: Oracle) -> Callable[[Trial], float]:
    """The slowest recorded time of a trial; an unknown one is not held against the others."""

    def cost_s(trial: Trial) -> float:
        expected = oracle.expected(trial)
        return expected.late_s if expected is not None else 0.0

    return cost_s


def _undone(trials: Sequence[Trial], records: Mapping[str, TrialRecord]) -> list[Trial]:
    """Trials that are still to be run; a setting that cannot start is not tried again."""
    broken = {r.trial for r in records.values() if r.failure is not None and is_final(r)}
    hopeless = {trial.intent for trial in trials if trial.id in broken}
    return [
        trial
        for trial in trials
        if not _stands(records.get(trial.id)) and trial.intent not in hopeless
    ]


def _stands(record: TrialRecord | None) -> bool:
    return record is not None and is_final(record)
