"""The flow `eagle3-sweep`: a sweep as a Prefect run, and what happens when it is cut off."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from prefect import flow
from prefect.artifacts import create_link_artifact, create_markdown_artifact

# A name that is there for type checkers only would cost the whole form: Prefect then reads none of
# the flow's annotations, and shows every parameter as one of any kind.
from prefect.client.schemas.objects import State  # noqa: TC002
from prefect.logging import get_run_logger
from prefect.runtime import flow_run as this_run
from prefect.states import Cancelled, Completed, Failed
from prefect.utilities.urls import url_for

from configs.find import stem
from configs.sweep import Sweep  # noqa: TC001 - Prefect reads the annotation for its form
from flows.aftermath import clean_up_after
from flows.budget import deadline_of
from flows.commission import Commission, carry_out
from flows.crew import end_lanes
from flows.history import morning_regressions
from flows.host_slots import sign
from flows.prefect_hands import prefect_hands
from flows.prefect_stages import shown
from flows.question import pose
from flows.schedules import too_late
from infra.places import runs_folder
from infra.store import Store
from infra.tracking import TrackingDown
from tasks.undone import undone_sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flows.outcome import Outcome
    from infra.tracking import Tracker


def after_the_end(flow: Any, flow_run: Any, state: Any) -> None:  # noqa: ARG001 - Prefect's names
    """Cancelled or crashed: nothing stays on the host, and what was cut off is recorded.

    Prefect runs this in another process, seconds later, even after SIGKILL; so it finds everything
    from the run's id and the run folder.
    """
    end_lanes(flow_run.id, print)
    clean_up_after(str(flow_run.id), print)


def _run_name() -> str:
    """A flow run is called after its sweep, however that was given."""
    given = this_run.parameters
    definition = given.get("definition")
    if definition is not None:
        return str(definition["name"] if isinstance(definition, dict) else definition.name)
    return stem(Path(given["sweep"]))


@flow(
    name="eagle3-sweep",
    description="Does EAGLE-3 pay? Runs a sweep's trials on its hosts and reports the verdict.",
    flow_run_name=cast("Any", _run_name),
    on_cancellation=[cast("Any", after_the_end)],
    on_crashed=[cast("Any", after_the_end)],
    persist_result=False,
    validate_parameters=True,
)
def eagle3_sweep(
    sweep: str = "rehearsal",
    definition: Sweep | None = None,
    host: str | None = None,
    *,
    fresh: bool = False,
    until: str | None = None,
    start_within_h: float | None = None,
) -> State[Any]:
    """Runs what is missing of a sweep, compares, reports.

    Args:
        sweep: Name of a file in configs/sweeps, or a path.
        definition: A whole sweep, instead of a file.
        host: Another host than the sweep's own (name of a file in configs/hosts).
        fresh: Run everything again, instead of going on with the latest run.
        until: When the hosts must be free, such as 06:30 Europe/Berlin, in place of the sweep's own.
        start_within_h: Hours after the planned time within which it may still begin; later, the
            run ends as "Missed" and touches no host. None: whenever its turn comes.
    """
    now, again = datetime.now(UTC), this_run.run_count > 1
    late = too_late(this_run.scheduled_start_time, now, start_within_h, begun=again)
    if late is not None:
        return Cancelled(name="Missed", message=late)
    asked = definition if definition is not None else sweep
    return conduct(asked, host, fresh=fresh, until=until)


def conduct(
    asked: Sweep | str, host: str | None, *, fresh: bool, until: str | None = None
) -> State[Any]:
    """A sweep inside a flow run: waits for its hosts, runs what is missing, shows the outcome."""
    log = get_run_logger()
    question = pose(asked, host)
    deadline_of(question.sweep, until)  # what is no time is told before anything is touched
    for warning in question.warnings:
        log.warning(warning)
    run_id = this_run.id
    sign(run_id)
    hands = prefect_hands(log, f"sweep {question.sweep.name}")
    store = Store(runs_folder())
    # Not the run's own ui_url, which is an address of Prefect 2 (seen in 3.9.1).
    url = (url_for("flow-run", obj_id=run_id) if run_id else None) or ""
    asked_for = Commission(
        question, store, hands, log.warning, run_id, url, host=host, until=until, fresh=fresh
    )
    outcome = carry_out(asked_for)
    _show(outcome, hands.tracker)
    undone = undone_sentence(outcome.records)
    moved = morning_regressions(store, question.sweep)
    return verdict_state(outcome, [*([undone] if undone else []), *outcome.notes, *moved])


def verdict_state(outcome: Outcome, also: Sequence[str] = ()) -> State[Any]:
    """How the run ends in Prefect: it completes if anything could be measured, and says so.

    Args:
        outcome: Of the sweep.
        also: What else belongs into the morning's message, which takes its words from here.
    """
    counts = outcome.counts()
    message = " ".join([f"{outcome.report.sentence} ({counts.text()}).", *also])
    if counts.ok + counts.suspect == 0:
        return Failed(message=" ".join([f"no trial could be measured ({counts.text()}).", *also]))
    if counts.failed:
        return Completed(name="Partial", message=message)
    return Completed(message=message)


def _charts(sweep: str, tracker: Tracker) -> str:
    """Where its charts are; empty while MLflow is down: the sweep is done all the same."""
    try:
        return tracker.chart_link(sweep)
    except TrackingDown:
        return ""


def _show(outcome: Outcome, tracker: Tracker | None) -> None:
    report = outcome.report
    shown(
        lambda: create_markdown_artifact(
            key="eagle3-report", markdown=report.markdown, description=report.sentence
        )
    )
    link = _charts(report.sweep, tracker) if tracker else ""
    if link:
        shown(
            lambda: create_link_artifact(
                key="mlflow",
                link=link,
                link_text="Compare in MLflow",
                description="every trial of this sweep, with its figures",
            )
        )
