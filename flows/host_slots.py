"""One slot of Prefect's for each host, and what a flow run says of itself while it holds one.

The slot is the outer, friendly layer: whoever comes second waits in Prefect, where people see it.
What keeps two sweeps apart is the lock on the host itself, which other controllers know too.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.concurrency.context import ConcurrencyContext
from prefect.concurrency.sync import concurrency
from prefect.logging import get_run_logger

from flows.prefect_stages import shown
from infra.process_identity import this_process

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prefect.client.orchestration import SyncPrefectClient

PREFIX: Final = "host-"
PROCESS: Final = "eagle3.process"
"""Label of a flow run: the process that it is (infra/process_identity.py)."""
HOLDS: Final = "eagle3.holds"
"""Label of a flow run: the slots that it was given, apart by spaces; it waits while it has none."""
LEASES: Final = "eagle3.leases"
"""Label of a flow run: Prefect's leases on these slots, by which they are given back just once."""

A_DAY_S: Final = 24 * 3600.0
_LEASE_S: Final = 300.0
_AWAY_S: Final = 900.0  # a restart, an update; the hosts are free by then
_AGAIN_S: Final = 2.0


def host_slot(host: str) -> str:
    """The name of a host's global concurrency limit: one host, one sweep."""
    return f"{PREFIX}{host}"


def make_slots(names: Iterable[str]) -> None:
    """One slot per host, made if it is missing: a missing one would mean no limit at all."""
    with get_client(sync_client=True) as client:
        for name in names:
            client.upsert_global_concurrency_limit_by_name(name, 1)


def leases() -> str:
    """The leases that this flow run has now, as Prefect itself remembers them for its clean-up."""
    context = ConcurrencyContext.get()
    return " ".join(map(str, context.cleanup_lease_ids)) if context else ""


def end_leases(client: SyncPrefectClient, text: str) -> None:
    """Gives back what a dead run's leases hold; one that ran out meanwhile is passed over by Prefect.

    By their ids, so that nothing is given back twice: a slot without one could be another run's.
    """
    for lease in text.split():
        client.release_concurrency_slots_with_lease(UUID(lease))


def sign(flow_run: str | None) -> None:
    """Says which process a flow run is."""
    write_labels(flow_run, {PROCESS: this_process()})


@contextmanager
def held_slots(flow_run: str | None, hosts: Iterable[str], wait_s: float) -> Iterator[None]:
    """Holds the slots of some hosts, and says so on the flow run's page.

    Args:
        flow_run: Its id.
        hosts: By name.
        wait_s: How long they are waited for.

    Raises:
        TimeoutError: Others have them.
    """
    # In one order for all sweeps: two that share hosts must not wait for each other in a circle.
    slots = sorted(host_slot(name) for name in hosts)
    make_slots(slots)
    with concurrency(
        slots,
        occupy=1,
        strict=True,
        lease_duration=_LEASE_S,
        timeout_seconds=wait_s,
        # Prefect would end the flow if its server is away when the lease is due; the lock on
        # the host still keeps others out.
        raise_on_lease_renewal_failure=False,
    ):
        write_labels(flow_run, {HOLDS: " ".join(slots), LEASES: leases()})
        yield
        _await_server()
    write_labels(flow_run, {HOLDS: "", LEASES: ""})


def _await_server() -> None:
    """Waits for a server that is away, as long as a restart may take.

    The trials did without it; but a new client gives up at its first refused connection, so the
    release of the slots, or Prefect's own look at the end, would turn a good sweep into a failed
    flow run.
    """
    deadline = time.monotonic() + _AWAY_S
    with get_client(sync_client=True) as client:
        error = client.api_healthcheck()
        if error is not None:
            get_run_logger().warning(
                "the work is done; waiting for Prefect's server, to say so there: %s", error
            )
        while error is not None and time.monotonic() < deadline:
            time.sleep(_AGAIN_S)
            error = client.api_healthcheck()


def write_labels(flow_run: str | None, labels: Mapping[str, str]) -> None:
    """What a flow run says of itself, for the reaper."""
    if flow_run is None:
        return

    def write() -> None:
        with get_client(sync_client=True) as client:
            client.update_flow_run_labels(UUID(flow_run), dict(labels))

    shown(write)
