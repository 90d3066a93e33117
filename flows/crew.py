"""Lanes as flow runs of their own: Prefect's workers carry them out, wherever one is free."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, cast

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import StateType
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Cancelling, Crashed

from flows.host_slots import HOLDS, LEASES, PROCESS, end_leases
from flows.prefect_stages import shown
from infra.process_identity import look_up

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun, State

    from infra.store import RunFolder

DEPLOYMENT: Final = "eagle3-sweep/lane"
_BEGUN: Final = {StateType.RUNNING, StateType.PENDING}
_LET_GO_S: Final = 45.0  # a cancelled flow run has thirty seconds


class PrefectCrew:
    """The lanes of one run.

    Args:
        run: The run.
        until: A deadline in place of the sweep's, as it was typed.
        say: Told what cannot be done.
    """

    def __init__(self, run: RunFolder, until: str | None, say: Callable[[str], None]) -> None:
        self._run = run
        self._until = until
        self._say = say
        self._runs: dict[str, UUID] = {}
        self._deployed = True

    def start(self, place: str) -> bool:
        """See flows.pool.Crew."""
        if not self._deployed:
            return False
        made = shown(lambda: self._begin(place))
        if made is None:
            return False
        self._runs[place] = made.id
        return True

    def _begin(self, place: str) -> FlowRun | None:
        sweep, number = self._run.path.parts[-2:]
        try:
            # A coroutine where it is called inside one, which a flow of ours never is.
            return cast(
                "FlowRun",
                run_deployment(
                    DEPLOYMENT,
                    parameters={"run": f"{sweep}/{number}", "place": place, "until": self._until},
                    flow_run_name=f"{sweep} on {place}",
                    timeout=0,
                ),
            )
        except ObjectNotFound:
            self._deployed = False
            self._say(
                f"the deployment {DEPLOYMENT} is missing (eagle3-sweep deploy): this process works "
                "on one host after another"
            )
            return None

    def going(self, place: str) -> bool:
        """See flows.pool.Crew; while the server is away nothing is known, so it may be."""
        found = shown(lambda: self._read(place))
        if found is None:
            return True
        word = found.labels.get(PROCESS)
        dead = word is not None and look_up(str(word)) == "dead"
        if found.state is not None and not found.state.is_final():
            if not dead:
                return True
            # Nobody else says so where its worker died with it; the reaper would, minutes later.
            shown(lambda: self._set(place, Crashed(message="found dead: its process is gone")))
        leases = str(found.labels.get(LEASES, ""))
        if dead and leases:
            shown(lambda: self._end_leases(leases))
        return False

    def at_its_place(self, place: str) -> bool:
        """See flows.pool.Crew."""
        found = shown(lambda: self._read(place))
        if found is None or found.state is None or found.state.is_final():
            return False
        return HOLDS in found.labels

    def cancel(self, place: str) -> None:
        """See flows.pool.Crew."""
        if place not in self._runs:
            return
        found = shown(lambda: self._read(place))
        if found is None or found.state is None or found.state.is_final():
            return
        state = _ended(found, "the sweep needs this lane no more")
        shown(lambda: self._set(place, state))

    def _read(self, place: str) -> FlowRun:
        with get_client(sync_client=True) as client:
            return client.read_flow_run(self._runs[place])

    def _end_leases(self, leases: str) -> None:
        with get_client(sync_client=True) as client:
            end_leases(client, leases)

    def _set(self, place: str, state: State[Any]) -> None:
        with get_client(sync_client=True) as client:
            client.set_flow_run_state(self._runs[place], state, force=True)


def end_lanes(flow_run: UUID, say: Callable[[str], None]) -> None:
    """Cancels the lanes of a flow run that is over before its time, and waits until they let go.

    Prefect cancels no flow run for its parent's sake where each has a process of its own.
    """
    wanted = FlowRunFilter.model_validate(
        {
            "parent_flow_run_id": {"any_": [flow_run]},
            "state": {"type": {"any_": ["SCHEDULED", "PENDING", "RUNNING"]}},
        }
    )
    with get_client(sync_client=True) as client:
        lanes = client.read_flow_runs(flow_run_filter=wanted)
        for lane in lanes:
            client.set_flow_run_state(lane.id, _ended(lane, "the sweep is over"), force=True)
            say(f"{lane.name}: cancelled, as the sweep is over")
        deadline = time.monotonic() + _LET_GO_S
        for lane in lanes:
            while time.monotonic() < deadline and not _is_over(client, lane.id):
                time.sleep(1.0)


def _ended(lane: FlowRun, why: str) -> State[Any]:
    """The state that ends a lane: its worker stops what has begun, the rest is only taken back."""
    begun = lane.state is not None and lane.state.type in _BEGUN
    return Cancelling(message=why) if begun else Cancelled(message=why)


def _is_over(client: SyncPrefectClient, lane: UUID) -> bool:
    state = client.read_flow_run(lane).state
    return state is None or state.is_final()
