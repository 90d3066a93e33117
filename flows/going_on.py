"""A night that crashed is begun again, and goes on with the run folder that it has.

Prefect retries what fails inside a process that lives; nobody does once the machine, the worker or
the process is gone (tried with 3.9.1). So the crashed flow run itself is scheduled once more: it
keeps its id, by which it finds its run folder (flows/runs.py), and any worker may take it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from prefect.client.schemas.filters import FlowRunFilter
from prefect.events.filters import EventFilter, EventNameFilter, EventResourceFilter
from prefect.states import AwaitingRetry

from flows.host_slots import HOLDS, LEASES, PROCESS
from flows.runs import of_flow_run
from infra.run_locks import RunHeld

if TYPE_CHECKING:
    from collections.abc import Callable

    from prefect.client.orchestration import SyncPrefectClient

    from infra.store import RunFolder, Store

NIGHTS: Final = "overnight"
"""The tag of runs that are begun while nobody looks: by day somebody starts a run again, or not."""
_BEGUN_AT_MOST: Final = 3
"""What crashes every time has a reason of its own."""
_LOOK_BACK: Final = timedelta(days=1)
_HEARTBEAT: Final = "prefect.flow-run.heartbeat"
_MOST: Final = 200


def go_on(
    client: SyncPrefectClient, store: Store, within_h: float, say: Callable[[str], None]
) -> int:
    """Schedules nights that crashed a short while ago; returns how many.

    Args:
        client: Of Prefect's server.
        store: All run folders.
        within_h: Hours since the last sign of life: what lay there until day stays there.
        say: Shows what is done.
    """
    now = datetime.now(UTC)
    wanted = {
        "tags": {"all_": [NIGHTS]},
        "state": {"type": {"any_": ["CRASHED"]}},
        "expected_start_time": {"after_": now - _LOOK_BACK},
        # One that another run waits for is that one's business.
        "parent_task_run_id": {"is_null_": True},
    }
    found = client.read_flow_runs(flow_run_filter=FlowRunFilter.model_validate(wanted), limit=_MOST)
    begun = 0
    for run in found:
        heard = last_heard(client, str(run.id)) or run.start_time or run.expected_start_time or now
        if run.run_count >= _BEGUN_AT_MOST or now - heard > timedelta(hours=within_h):
            continue
        folder = of_flow_run(store, str(run.id))
        if folder is not None and at_work(folder):
            say(f"{run.name}: it crashed; what still works on {folder.id} is waited for")
            continue
        # Or the next look would take it for the process that is dead.
        client.update_flow_run_labels(run.id, dict.fromkeys((PROCESS, HOLDS, LEASES), ""))
        client.set_flow_run_state(run.id, AwaitingRetry(message="it crashed, and goes on"))
        say(f"{run.name}: it crashed, and goes on where it stopped")
        begun += 1
    return begun


def at_work(run: RunFolder) -> bool:
    """Whether some process works on a run: a part of it may have outlived the rest."""
    try:
        with run.alone():
            return False
    except RunHeld:
        return True


def last_heard(client: SyncPrefectClient, flow_run: str) -> datetime | None:
    """The latest heartbeat of a flow run."""
    wanted = EventFilter(
        event=EventNameFilter(name=[_HEARTBEAT]),
        resource=EventResourceFilter(id=[f"prefect.flow-run.{flow_run}"]),
    )
    page = client.read_events(wanted, limit=1)
    return page.events[0].occurred if page.events else None
