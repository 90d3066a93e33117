"""A sweep as a flow run carries it out: in its own process, or with a lane for each of its places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from configs.nodes import nodes_of
from flows.aftermath import clean_up_lane
from flows.blocks import Blocks, classes_of
from flows.budget import budget_of
from flows.conduct import Conductor
from flows.crew import PrefectCrew
from flows.host_slots import A_DAY_S, held_slots
from flows.lane import Work
from flows.outcome import begin, conclude
from flows.pool import Pool, whole_blocks
from flows.runs import began_at, open_run, read_records
from flows.screen_run import screened_first
from flows.sweep_bar import SweepBar

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from flows.budget import Budget
    from flows.outcome import Hands, Outcome
    from flows.question import Question
    from infra.store import RunFolder, Store

_TRY_S: Final = 5.0  # other places may be free meanwhile


class Commission(NamedTuple):
    """A sweep that this flow run is to conduct."""

    question: Question
    store: Store
    hands: Hands
    warn: Callable[[str], None]
    flow_run: str | None
    """Id of the Prefect flow run."""
    flow_url: str
    """Its page."""
    host: str | None
    """Another place than the sweep's own, as it was asked for."""
    until: str | None
    fresh: bool

    def screened(self) -> Question:
        """The question as its screen leaves it; made now, if the sweep wants one and none fits."""
        known = self.question.warnings
        found = screened_first(
            self.question, self.store, self.hands, host=self.host, flow_run=self.flow_run
        )
        for warning in found.warnings:
            if warning not in known:
                self.warn(warning)
        return found

    def run(self, question: Question) -> AbstractContextManager[RunFolder]:
        """The run folder, held."""
        return open_run(
            self.store,
            question,
            fresh=self.fresh,
            flow_run=self.flow_run,
            flow_url=self.flow_url,
        )

    def budget(self, question: Question, run: RunFolder) -> Budget | None:
        """What there is time for."""
        return budget_of(
            question, self.store, run, self.until, began_at(run, self.flow_run), together=True
        )


def carry_out(asked: Commission) -> Outcome:
    """Runs what is missing, compares, reports.

    Raises:
        StageFailedError: The only host is held by another sweep, or cannot be surveyed.
    """
    return _together(asked) if len(classes_of(asked.question)) > 1 else _alone(asked)


def _alone(asked: Commission) -> Outcome:
    """All of it in this process, at one place."""
    with held_slots(asked.flow_run, asked.question.hosts, A_DAY_S):
        question = asked.screened()
        with asked.run(question) as run:
            bar = SweepBar(run)
            hands = asked.hands._replace(shown=bar.show)
            budget, began = asked.budget(question, run), began_at(run, asked.flow_run)
            outcome = Conductor(question, run, hands, budget, began=began).conduct()
            bar.show_now()
    return outcome


def _together(asked: Commission) -> Outcome:
    """A lane for each place, which takes blocks as it comes to them."""
    if asked.question.sweep.screen is None:
        question = asked.screened()
    else:
        with held_slots(asked.flow_run, asked.question.hosts, A_DAY_S):
            question = asked.screened()
    hands, flow_run = asked.hands, asked.flow_run
    with asked.run(question) as run:
        budget = asked.budget(question, run)
        cut_off = begin(question, run, hands, budget)
        blocks = Blocks(run, question.plan, classes_of(question))
        whole = whole_blocks(question, read_records(run))
        blocks.begin(whole, cut_off, began_at(run, flow_run))
        bar = SweepBar(run)
        Pool(
            Work(question, run, hands._replace(shown=bar.show), budget),
            PrefectCrew(run, asked.until, hands.say),
            slots=lambda place: held_slots(flow_run, nodes_of(place), _TRY_S),
            clean_up=lambda place: clean_up_lane(run, place, hands.say),
        ).carry_out()
        bar.show_now()
        outcome = conclude(question, run, hands, read_records(run))
    return outcome._replace(notes=blocks.words())
