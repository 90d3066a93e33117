"""A sweep from its plan to its report, one trial after another; knows neither Prefect nor MLflow.

What is done already is skipped by fingerprint; what was interrupted is recorded as such and run
again as another attempt. The run folder is the truth; MLflow is written along the way, and if it
is down the night goes on.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from configs.layers import engine_of
from flows.arrival import claim_place, look_again, look_around
from flows.noting import NotingRunner
from flows.run_trial import Orders, run_trial
from flows.runs import read_records
from flows.sites import leave, site_of
from flows.skips import Skip, SkipLines, reconcile, why_skip
from infra.store import write_value
from infra.tracking import TrackingDown
from tasks.check_table import PASSING
from tasks.launch import read_secrets
from tasks.publish import publish_missing, publish_trial
from tasks.record_trial import bare_record, fingerprint
from tasks.reporting import compare_classes, write_report
from tasks.screen import kept_words
from tasks.screen_kept import keep_screen
from tasks.stopping import enough_everywhere

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from configs.host import Host
    from configs.plan import Trial
    from flows.arrival import Ground
    from flows.budget import Budget
    from flows.question import Question
    from flows.stages import Runner
    from infra.host_agent import HostAgent
    from infra.store import RunFolder, TrialFolder
    from infra.tracking import Tracker
    from tasks.prepare import Survey
    from tasks.record import TrialRecord
    from tasks.reporting import Report
    from tasks.seen_files import FilesSeen
    from tasks.venue import Site

_ATTEMPTS = 2  # a failure that says of itself that once more may help gets one more


class Hands(NamedTuple):
    """What a conductor works with; each is replaceable."""

    connect: Callable[[Host], HostAgent]
    runner: Callable[[str], Runner]
    """Trial id -> the runner of its stages."""
    tracker: Tracker | None
    say: Callable[[str], None]


class Outcome(NamedTuple):
    """What became of a sweep."""

    run: RunFolder
    records: tuple[TrialRecord, ...]
    skipped: tuple[Skip, ...]
    report: Report
    unpublished: int
    """Attempts that MLflow does not have."""

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


def once_more(record: TrialRecord) -> bool:
    """Whether another attempt may help: the failure says so, or the machine alone was in the way."""
    if record.failure is not None:
        return record.failure.retry == "same_once"
    found = {finding.name for finding in record.findings if finding.tolerated is None}
    return bool(found) and found <= PASSING


class Conductor:
    """Runs what is missing of one sweep."""

    def __init__(
        self, question: Question, run: RunFolder, hands: Hands, budget: Budget | None = None
    ) -> None:
        self._question = question
        self._run = run
        self._hands = hands
        self._budget = budget
        self._secrets = {
            name: read_secrets(question.sweep, host) for name, host in question.hosts.items()
        }
        self._grounds: dict[str, Ground] = {}
        self._held: list[HostAgent] = []
        """Hands on hosts that are claimed: for the whole sweep, or another one would slip in
        between two trials."""
        self._records: dict[str, TrialRecord] = {}
        self._began = time.monotonic()
        self._stopped: str | None = None
        self._looked = 0
        self._seen: FilesSeen = {}
        self._skipped = SkipLines(hands.say)
        self._cut_off: list[str] = []
        """Markers of attempts whose process was killed before they could tear down."""

    def conduct(self) -> Outcome:
        """Runs the plan, then compares and reports all of it.

        Raises:
            StageFailedError: A host is held by another sweep, or cannot be surveyed.
        """
        run, hands, plan = self._run, self._hands, self._question.plan
        hands.say(f"run {run.id}: {len(plan.trials)} trials, folder {run.path}")
        if self._budget is not None:
            hands.say(self._budget.text)
        keep_screen(self._run, self._question.screen)
        self._cut_off = [run.marker(folder) for folder in run.trials() if not folder.finished]
        for text in reconcile(run) if self._cut_off else ():
            hands.say(text)
        self._records = {record.trial: record for record in read_records(run)}
        try:
            skips = [skip for trial in plan.trials if (skip := self._one(trial)) is not None]
        finally:
            self._skipped.flush()
            for agent in self._held:
                leave(agent, run.holder, hands.say)
        unpublished = 0
        if hands.tracker is not None:
            hands.tracker.ask_again()
            unpublished = publish_missing(run, hands.tracker, hands.say)
        records = sorted(self._records.values(), key=lambda record: record.order)
        report = write_report(run, self._question.sweep, records, hands.tracker, hands.say)
        return Outcome(run, tuple(records), tuple(skips), report, unpublished)

    def _one(self, trial: Trial) -> Skip | None:
        """One trial with its attempts; or why it is not run."""
        ground = self._grounds.get(trial.host) or self._arrive(trial)
        wanted = fingerprint(trial, self._surveyed(trial, ground))
        skip = why_skip(trial, wanted, self._records) or self._stop_before(trial)
        if skip is not None:
            self._skipped.add(trial.id, skip.reason)
            if skip.leaves_record:
                self._record_skip(trial, ground, skip)
            return skip
        self._skipped.flush()
        for _number in range(_ATTEMPTS):
            record = self._records[trial.id] = self._attempt(trial, ground)
            if not once_more(record) or (
                self._budget is not None and self._budget.why_not(trial, self._records)
            ):
                break
        return None

    def _stop_before(self, trial: Trial) -> Skip | None:
        reason = self._why_stop(trial)
        if reason is None and self._budget is not None:
            reason = self._budget.why_not(trial, self._records)
        return Skip(trial.id, reason, leaves_record=True) if reason is not None else None

    def _why_stop(self, trial: Trial) -> str | None:
        """Why the sweep ends before this trial, as its ``until`` says; looks once a block."""
        until, block = self._question.sweep.until, trial.block - 1
        if until is None or self._stopped is not None:
            return self._stopped
        if until.hours is not None and time.monotonic() - self._began > until.hours * 3600:
            self._stopped = f"the {until.hours:g} hours are over"
        elif until.half_width and block >= until.min_blocks and block > self._looked:
            self._looked = block
            so_far = [r for r in self._records.values() if r.block <= block]
            known = enough_everywhere(
                compare_classes(self._question.sweep, so_far), until.half_width
            )
            self._stopped = known and f"enough is known after {block} blocks: {known}"
        return self._stopped

    def _arrive(self, trial: Trial) -> Ground:
        """Claims the trial's place, and asks each of its hosts what it is."""
        question, hands = self._question, self._hands
        agents = claim_place(
            question.nodes(trial.host),
            hands.connect,
            self._held.append,
            holder=self._run.holder,
            note=f"{self._run.id} arrives",
            patience_s=question.sweep.patience.claim_s,
        )
        site = self._site(trial, agents, hands.runner("arrival"), None)
        ground = look_around(site, question, self._cut_off, hands.say)
        self._grounds[trial.host] = ground
        return ground

    def _surveyed(self, trial: Trial, ground: Ground) -> Survey:
        """What the place is to the trial's engine."""
        kind = engine_of(self._question.sweep, trial.arm).kind
        if kind not in ground.surveys:
            runner = self._hands.runner("arrival")
            found = look_again(self._site(trial, ground.agents, runner, None))
            ground.surveys[kind] = found
            version = found.versions.get(kind, "unknown")
            self._hands.say(f"host {trial.host}: {kind} {version}")
        return ground.surveys[kind]

    def _attempt(self, trial: Trial, ground: Ground) -> TrialRecord:
        hands, run = self._hands, self._run
        keep = run.next_attempt(trial.id)
        runner = NotingRunner(hands.runner(trial.id), keep)
        site = replace(self._site(trial, ground.agents, runner, keep), topology=ground.topology)
        notes = kept_words(screen) if (screen := self._question.screen) else ()
        orders = Orders(
            self._question.patches,
            ground.texts,
            self._secrets[ground.host.name],
            run.holder,
            self._seen,
            notes=notes,
            peer_secrets={node.host.name: self._secrets[node.host.name] for node in site.peers},
        )
        record = run_trial(site, orders, runner)
        failure = record.failure
        detail = f" ({failure.stage}: {failure.failure_class})" if failure else ""
        hands.say(f"{trial.id}: {record.status}{detail}")
        if hands.tracker is not None:
            self._publish(keep, hands.tracker, runner)
        return record

    def _publish(self, keep: TrialFolder, tracker: Tracker, runner: Runner) -> None:
        try:
            runner.run("publish", lambda: publish_trial(keep, tracker))
        except TrackingDown as error:
            self._hands.say(f"{keep.path.name} is not in MLflow yet: {error}")

    def _record_skip(self, trial: Trial, ground: Ground, skip: Skip) -> None:
        known = self._records.get(trial.id)
        if known is not None and known.status == "skipped" and known.notes == (skip.reason,):
            return
        keep = self._run.next_attempt(trial.id)
        record = bare_record(
            self._question.sweep, trial, self._run.holder, keep.attempt, datetime.now(UTC)
        )
        host = ground.host
        update = {
            "notes": (skip.reason,),
            "host_class": host.host_class,
            "rehearsal": host.rehearsal,
            "fingerprint": fingerprint(trial, self._surveyed(trial, ground)),
        }
        self._records[trial.id] = record.model_copy(update=update)
        write_value(keep.record, self._records[trial.id])

    def _site(
        self,
        trial: Trial,
        agents: Sequence[HostAgent],
        runner: Runner,
        keep: TrialFolder | None,
    ) -> Site:
        return site_of(
            self._question,
            self._run,
            trial,
            agents,
            secrets=self._secrets,
            say=runner.say,
            keep=keep,
        )
