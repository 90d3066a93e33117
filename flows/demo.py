"""`eagle3-sweep demo`: the main job through Prefect, as people start it every day, and what it says."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
from prefect.client.schemas.sorting import LogSort
from prefect.utilities.urls import url_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from prefect.client.schemas.objects import Log

NAME: Final = "eagle3-sweep/eagle3-sweep"
_PAUSE_S: Final = 1.0
_PAGE: Final = 200  # logs that Prefect gives at once
# What a flow run logs is sent in batches, and comes up to some seconds after the state that it ends
# in (seen in 3.9.1). This is the last line; of a run that crashed it never comes.
_LAST: Final = "Finished in state "
_LATE_S: Final = 10.0


class Ended(NamedTuple):
    """How a flow run ended."""

    completed: bool
    state: str
    """The state's name, and its message where it has one."""


def begin(say: Callable[[str], None]) -> UUID:
    """Starts the main job, as ``prefect deployment run`` would; says where it is looked at."""
    with get_client(sync_client=True) as client:
        deployment = client.read_deployment_by_name(NAME)
        run = client.create_flow_run_from_deployment(deployment.id)
    say(f"{url_for('flow-run', obj_id=run.id)}\n")
    return run.id


def follow(run: UUID, say: Callable[[str], None]) -> Ended:
    """Says what a flow run itself logs, until it has ended.

    ``prefect deployment run --watch`` prints every event of every task instead, a thousand lines
    for sixteen trials.
    """
    seen: set[UUID] = set()
    heard_all, until = False, math.inf
    with get_client(sync_client=True) as client:
        while True:
            state = client.read_flow_run(run).state
            for line in _lines(client, run):
                if line.id in seen or line.task_run_id is not None:
                    continue
                seen.add(line.id)
                if line.message.startswith(_LAST):
                    heard_all = True
                else:
                    say(line.message)
            if state is not None and state.is_final():
                until = min(until, time.monotonic() + _LATE_S)
                if heard_all or time.monotonic() >= until:
                    said = ": ".join(part for part in (state.name, state.message) if part)
                    return Ended(state.is_completed(), said)
            time.sleep(_PAUSE_S)


def _lines(client: SyncPrefectClient, run: UUID) -> list[Log]:
    found: list[Log] = []
    wanted = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run]))
    while len(found) % _PAGE == 0:
        page = client.read_logs(wanted, limit=_PAGE, offset=len(found), sort=LogSort.TIMESTAMP_ASC)
        found += page
        if not page:
            break
    return found
