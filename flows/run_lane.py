"""The deployment `eagle3-sweep/lane`: one place's share of a sweep that another flow run conducts.

It is started by that flow run (flows/pool.py), never by people or by a schedule.
"""

from __future__ import annotations

from typing import Any, cast

from prefect import flow
from prefect.client.schemas.objects import State  # noqa: TC002 - Prefect reads it for its form
from prefect.logging import get_run_logger
from prefect.runtime import flow_run as this_run
from prefect.states import Cancelled, Completed, Failed

from configs.nodes import nodes_of
from flows.aftermath import clean_up_lane
from flows.budget import budget_of
from flows.host_slots import A_DAY_S, held_slots, sign
from flows.lane import Orphaned, Work, question_of, work_lane
from flows.prefect_hands import prefect_hands
from flows.runs import conducted_since
from infra.places import runs_folder
from infra.run_locks import is_conducted, lane
from infra.store import RunFolder, Store


def after_the_end(flow: Any, flow_run: Any, state: Any) -> None:  # noqa: ARG001 - Prefect's names
    """Cancelled or crashed: nothing stays on the host; runs in another process, as the sweep's does."""
    given = flow_run.parameters
    clean_up_lane(_folder(given["run"]), given["place"], print)


@flow(
    # The same flow to people: its runs stand in one list, and the reaper looks after them.
    name="eagle3-sweep",
    description="One host's share of a sweep on several; started by that sweep.",
    on_cancellation=[cast("Any", after_the_end)],
    on_crashed=[cast("Any", after_the_end)],
    persist_result=False,
    validate_parameters=True,
)
def run_lane(run: str, place: str, until: str | None = None) -> State[Any]:
    """Takes block after block of a run for one place, until none is left.

    Args:
        run: Sweep and number of its run folder, such as nightly/0007.
        place: A host, or several nodes (node0+node1).
        until: When the hosts must be free, in place of the sweep's own.
    """
    log = get_run_logger()
    folder = _folder(run)
    run_id = this_run.id
    sign(run_id)
    question = question_of(folder)
    store, since = Store(runs_folder()), conducted_since(folder)
    budget = budget_of(question, store, folder, until, since, together=True)
    hands = prefect_hands(log, f"sweep {question.sweep.name}")

    def between() -> None:
        if not is_conducted(folder.path):
            raise Orphaned(f"{folder.id} is conducted by nobody any more: its lane on {place} ends")

    try:
        with held_slots(run_id, nodes_of(place), A_DAY_S), lane(folder.path, place):
            between()
            done = work_lane(Work(question, folder, hands, budget), place, between)
    except Orphaned as error:
        return Cancelled(message=str(error))
    blocks = f"{done.blocks} block{'s' if done.blocks != 1 else ''}"
    if done.lost is not None:
        return Failed(message=f"{place} is given up after {blocks}: {done.lost}")
    return Completed(message=f"{blocks} of {folder.id} on {place}")


def _folder(run: str) -> RunFolder:
    return RunFolder(runs_folder() / run)
