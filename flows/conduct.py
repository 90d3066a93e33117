"""A sweep from its plan to its report, one trial after another; knows neither Prefect nor MLflow.

What is done already is skipped by fingerprint; what was interrupted is recorded as such and run
again as another attempt. The run folder is the truth; MLflow is written along the way, and if it
is down the night goes on.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from configs.layers import engine_of
from flows.arrival import claim_place, look_again, look_around
from flows.done import done_line, done_of
from flows.halting import Halt
from flows.noting import NotingRunner
from flows.outcome import begin, conclude
from flows.run_trial import Orders, run_trial
from flows.runs import read_records
from flows.sites import leave, site_of
from flows.skips import Skip, SkipLines, why_skip
from infra.store import write_value
from infra.tracking import TrackingDown
from tasks.check_table import PASSING
from tasks.launch import read_secrets
from tasks.publish import publish_trial
from tasks.record_trial import bare_record, fingerprint
from tasks.screen import kept_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from configs.plan import Trial
    from flows.arrival import Ground
    from flows.budget import Budget
    from flows.outcome import Hands, Outcome
    from flows.question import Question
    from flows.stages import Runner
    from infra.host_agent import HostAgent
    from infra.store import RunFolder, TrialFolder
    from infra.tracking import Tracker
    from tasks.prepare import Survey
    from tasks.record import TrialRecord
    from tasks.seen_files import FilesSeen
    from tasks.venue import Site

_ATTEMPTS = 2  # a failure that says of itself that once more may help gets one more


def once_more(record: TrialRecord) -> bool:
    """Whether another attempt may help: the failure says so, or the machine alone was in the way."""
    if record.failure is not None:
        return record.failure.retry == "same_once"
    found = {finding.name for finding in record.findings if finding.tolerated is None}
    return bool(found) and found <= PASSING


class Conductor:
    """Runs what is missing of one sweep, or of the blocks that one place takes of it.

    Args:
        question: What is asked.
        run: Its run.
        hands: What is worked with.
        budget: Says what there is time for; None: for everything.
        cut_off: Markers of attempts that could not tear down, as :func:`begin` found them.
        began: When the sweep did; None: now.
    """

    def __init__(
        self,
        question: Question,
        run: RunFolder,
        hands: Hands,
        budget: Budget | None = None,
        cut_off: Sequence[str] = (),
        *,
        began: datetime | None = None,
    ) -> None:
        self._question = question
        self._run = run
        self._hands = hands
        self._budget = budget
        self._cut_off = list(cut_off)
        self._secrets = {
            name: read_secrets(question.sweep, host) for name, host in question.hosts.items()
        }
        self._grounds: dict[str, Ground] = {}
        self._held: list[HostAgent] = []
        """Hands on hosts that are claimed: for the whole sweep, or another one would slip in
        between two trials."""
        self._records: dict[str, TrialRecord] = {}
        self._halt = Halt(question, began)
        self._seen: FilesSeen = {}
        self._skipped = SkipLines(hands.say)

    def conduct(self) -> Outcome:
        """Runs the plan, then compares and reports all of it.

        Raises:
            StageFailedError: A host is held by another sweep, or cannot be surveyed.
        """
        question, run, hands = self._question, self._run, self._hands
        self._cut_off += begin(question, run, hands, self._budget)
        self.look_up()
        skips = self.work(question.plan.trials)
        return conclude(question, run, hands, self._records.values(), skips)

    def work(self, trials: Iterable[Trial]) -> list[Skip]:
        """Runs what is missing of some trials, one after another; lets go of their hosts then.

        Raises:
            StageFailedError: A host is held by another sweep, or cannot be surveyed.
        """
        try:
            return [skip for trial in trials if (skip := self._one(trial)) is not None]
        finally:
            self._skipped.flush()
            for agent in self._held:
                leave(agent, self._run.holder, self._hands.say)
            self._held.clear()
            self._grounds.clear()

    @property
    def records(self) -> Mapping[str, TrialRecord]:
        """The last finished attempts, by trial, as far as they were looked up or made here."""
        return self._records

    def look_up(self) -> None:
        """Reads all records of the run: others may be at work on it too."""
        self._records = {record.trial: record for record in read_records(self._run)}

    def _one(self, trial: Trial) -> Skip | None:
        """One trial with its attempts; or why it is not run."""
        self._hands.shown()
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
        reason = self._halt.why(trial, self._records)
        if reason is None and self._budget is not None:
            reason = self._budget.why_not(trial, self._records)
        return Skip(trial.id, reason, leaves_record=True) if reason is not None else None

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
        hands.say(done_line(done_of(record)))
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
