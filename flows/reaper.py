"""The flow `eagle3-reaper`: what dead runs left is ended and given back, and nights go on."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from prefect import flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate
from prefect.client.schemas.filters import FlowFilter, FlowRunFilter
from prefect.client.schemas.objects import State  # noqa: TC002 - Prefect reads it for its form
from prefect.logging import get_run_logger
from prefect.runtime import flow_run as this_run
from prefect.states import Cancelled, Completed, Crashed
from prefect.variables import Variable

from flows.aftermath import clean_up_run
from flows.bringing import bring_missed
from flows.going_on import go_on, last_heard
from flows.host_slots import HOLDS, LEASES, PREFIX, PROCESS, end_leases, sign
from flows.reaping import Going, Slot, Unheld, fate, to_release, unheld
from infra.connect import connect
from infra.errors import WorldError
from infra.places import runs_folder
from infra.process_identity import look_up
from infra.run_locks import RunHeld
from infra.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from configs.host import Host
    from infra.host_agent import HostAgent
    from infra.store import RunFolder

_OURS: Final = "eagle3-"
_KEPT: Final = "eagle3_unheld_slots"
_MOST: Final = 200
_PATIENCE_S: Final = 20.0
_NEXT_BEAT_S: Final = 150.0
"""Two heartbeats as `up` sets them: after an outage of the server every living run is heard again."""


class _InUse(WorldError):
    """Another sweep holds the host."""


@flow(
    name="eagle3-reaper",
    description="Ends what dead runs left on hosts and in Prefect; gives their hosts' slots back; "
    "lets nights that crashed go on; brings to MLflow what it missed.",
    persist_result=False,
)
def reaper(
    silent_s: float = 900.0, slot_after_s: float = 900.0, go_on_within_h: float = 1.0
) -> State[Any]:
    """Reconciles flow runs, slots, hosts and MLflow.

    Args:
        silent_s: Seconds without a sign of life after which a run on another machine is dead.
        slot_after_s: Seconds after which a slot that no living run holds is given back.
        go_on_within_h: Hours after its last sign of life within which a night that crashed is
            begun again, to go on where it stopped.
    """
    say = get_run_logger().info
    sign(this_run.id)
    with get_client(sync_client=True) as client:
        runs = list(_going(client))
        dead = _dead(client, runs, silent_s)
        for run in dead:
            _end(client, run, say)
        living = [run for run in runs if run not in dead]
        released = _give_back(client, living, slot_after_s, say)
    cleaned = _clean_up(say)
    with get_client(sync_client=True) as client:
        again = go_on(client, Store(runs_folder()), go_on_within_h, say)
    brought = bring_missed(say)
    done = f"{len(dead)} dead runs, {len(released)} slots given back, {cleaned} runs cleaned up"
    done += f", {again} nights go on, {brought} runs brought to MLflow"
    return Completed(message=done)


def _going(client: SyncPrefectClient) -> Iterator[Going]:
    found = client.read_flow_runs(
        flow_filter=FlowFilter.model_validate({"name": {"like_": _OURS}}),
        flow_run_filter=FlowRunFilter.model_validate(
            {"state": {"type": {"any_": ["PENDING", "RUNNING", "CANCELLING"]}}}
        ),
        limit=_MOST,
    )
    for run in found:
        # One that is yet to begin has no process; what it says is of an earlier begin.
        begun = run.state is not None and not run.state.is_pending()
        word = run.labels.get(PROCESS) if begun else None
        stamp = run.state.timestamp if run.state else run.created
        heard = max(
            filter(None, [stamp, last_heard(client, str(run.id))]), default=datetime.now(UTC)
        )
        holds = frozenset(str(run.labels.get(HOLDS, "")).split())
        process = look_up(str(word)) if word else None
        yield Going(
            str(run.id),
            run.name,
            process,
            heard,
            holds,
            leases=str(run.labels.get(LEASES, "")),
            cancelling=run.state is not None and run.state.is_cancelling(),
        )


def _dead(client: SyncPrefectClient, runs: list[Going], silent_s: float) -> list[Going]:
    """Runs that are dead; one that is only silent is listened for once more."""
    found = [run for run in runs if fate(run, datetime.now(UTC), silent_s) == "dead"]
    silent = [run for run in found if run.process != "dead"]
    if silent:
        time.sleep(min(_NEXT_BEAT_S, silent_s))
        again = {run.id: run for run in _going(client)}
        now = datetime.now(UTC)
        spared = [
            run
            for run in silent
            if run.id not in again or fate(again[run.id], now, silent_s) == "alive"
        ]
        found = [run for run in found if run not in spared]
    return found


def _end(client: SyncPrefectClient, run: Going, say: Callable[[str], None]) -> None:
    why = (
        "its process is gone"
        if run.process == "dead"
        else f"nothing was heard of it since {run.heard:%Y-%m-%d %H:%M} UTC"
    )
    state = Cancelled if run.cancelling else Crashed
    client.set_flow_run_state(UUID(run.id), state(message=f"found dead: {why}"), force=True)
    end_leases(client, run.leases)
    say(f"{run.name}: found dead: {why}")


def _give_back(
    client: SyncPrefectClient, living: list[Going], after_s: float, say: Callable[[str], None]
) -> list[str]:
    now = datetime.now(UTC)
    slots = [
        Slot(limit.name, limit.updated or now)
        for limit in client.read_global_concurrency_limits(limit=_MOST)
        if limit.name.startswith(PREFIX) and limit.active_slots > 0
    ]
    found = unheld(slots, living, _remembered(), now)
    released = list(to_release(found, now, after_s))
    for name in released:
        client.update_global_concurrency_limit(name, GlobalConcurrencyLimitUpdate(active_slots=0))
        say(f"{name}: given back: no living run holds it since {found.pop(name).since:%H:%M} UTC")
    _remember(found)
    return released


def _remembered() -> dict[str, Unheld]:
    kept: Any = Variable.get(_KEPT, {})
    return {
        name: Unheld(*map(datetime.fromisoformat, moments)) for name, moments in dict(kept).items()
    }


def _remember(found: dict[str, Unheld]) -> None:
    kept = {name: [one.since.isoformat(), one.changed.isoformat()] for name, one in found.items()}
    Variable.set(_KEPT, kept, overwrite=True)


def _clean_up(say: Callable[[str], None]) -> int:
    """Cleans up after every run here that has unfinished attempts and no process at work on it."""
    cleaned = 0
    for run in Store(runs_folder()).all_runs():
        if all(folder.finished for folder in run.trials()):
            continue
        try:
            with run.alone():
                clean_up_run(run, say, reach=partial(_reach, run))
        except RunHeld:
            continue
        cleaned += 1
    return cleaned


def _reach(run: RunFolder, host: Host) -> HostAgent:
    """A hand on a host, unless another sweep is at work there: its own start cleans up.

    Raises:
        WorldError: It cannot be reached, or is in use.
    """
    agent = connect(host, patience_s=_PATIENCE_S)
    try:
        held = agent.call("held", root=agent.root)
        if held["held"] and held["holder"] != run.holder:
            raise _InUse(f"{held['holder']} is at work there")
    except WorldError:
        agent.close()
        raise
    return agent
