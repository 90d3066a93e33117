"""A lane: what one place does of a sweep, block after block, beside the lanes of other places."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from configs.host import Host
from flows.blocks import Blocks, classes_of
from flows.conduct import Conductor
from flows.question import pose
from flows.runs import read_run_plan, read_run_sweep
from infra.errors import (
    AgentBroken,
    AgentRefusal,
    ContactLost,
    FileRefused,
    HostRebooted,
    HostRefused,
    WorldError,
)
from infra.store import read_json
from tasks.screen_kept import read_screen
from tasks.venue import StageFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from configs.plan import Plan, Trial
    from flows.budget import Budget
    from flows.outcome import Hands
    from flows.question import Question
    from infra.store import RunFolder
    from tasks.record import TrialRecord

_OF_THE_PLACE = (
    StageFailedError,  # its lock is another sweep's, its nodes differ
    ContactLost,
    HostRebooted,
    HostRefused,
    FileRefused,
    AgentRefusal,
    AgentBroken,
)


class RunChanged(WorldError):
    """The files that a run was planned from say something else now."""


class Orphaned(WorldError):
    """Whoever conducts the run is gone, so its lanes end too."""


class Work(NamedTuple):
    """A run, and what it is worked on with."""

    question: Question
    run: RunFolder
    hands: Hands
    budget: Budget | None
    """Says what there is time for; None: for everything."""


class Worked(NamedTuple):
    """What a lane did."""

    blocks: int
    """That it went through to their end."""
    lost: str | None
    """Why its place was given up; None: there was nothing left to take."""


class _PlaceLost(Exception):
    """Raised between two trials, so that what the place holds is let go on the way out."""


def work_lane(work: Work, place: str, between: Callable[[], None]) -> Worked:
    """Takes block after block for one place until none is left for it, or until it is lost.

    Args:
        work: The run, whose lane of this place the caller holds.
        place: A host, or several nodes.
        between: Called before every trial; what it raises ends the lane.

    Raises:
        WorldError: Not the place's fault: no disk space, a record that cannot be read.
    """
    blocks = Blocks(work.run, work.question.plan, classes_of(work.question))
    note = blocks.note()
    conductor = Conductor(*work, note.cut_off, began=note.began)
    done = 0

    def trials() -> Iterator[Trial]:
        nonlocal done
        while (block := blocks.take(place)) is not None:
            conductor.look_up()
            for trial in blocks.trials(block, place):
                between()
                yield trial
                why = _lost_with(conductor.records.get(trial.id))
                if why is not None:
                    raise _PlaceLost(why)
            blocks.finish(block)
            done += 1

    try:
        conductor.work(trials())
    except (_PlaceLost, *_OF_THE_PLACE) as error:
        blocks.lose(place, str(error))
        return Worked(done, str(error))
    return Worked(done, None)


def _lost_with(record: TrialRecord | None) -> str | None:
    """Why a place is given up after a trial."""
    failure = record.failure if record is not None else None
    if failure is None or failure.failure_class != "ssh_lost":
        return None
    return failure.message


def question_of(run: RunFolder) -> Question:
    """The question of a run that another process conducts, from its folder and the files here.

    Raises:
        RunChanged: Prompts or patches are not those that the run was planned from.
    """
    plan = read_run_plan(run)
    hosts = read_json(run.path / "run.json").get("hosts", {})
    known = {name: Host.model_validate(spec) for name, spec in hosts.items()}
    posed = pose(read_run_sweep(run), known=known)
    if not _same(plan, posed.plan):
        raise RunChanged(
            f"{run.id}: prompts or patches are not what they were as the run began: put them back, "
            "or end the run and begin another"
        )
    return posed._replace(plan=plan, screen=read_screen(run.path))


def _same(plan: Plan, now: Plan) -> bool:
    """Whether every trial still means what it did; a screen may have left some of them out."""
    intents = {trial.id: trial.intent for trial in now.trials}
    return all(intents.get(trial.id) == trial.intent for trial in plan.trials)
