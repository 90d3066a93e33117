"""One slot of Prefect's for each host, and what a flow run says of itself while it holds one.

The slot is the outer, friendly layer: whoever comes second waits in Prefect, where people see it.
What keeps two sweeps apart is the lock on the host itself, which other controllers know too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

from prefect.client.orchestration import get_client

from flows.prefect_stages import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PREFIX: Final = "host-"
PROCESS: Final = "eagle3.process"
"""Label of a flow run: the process that it is (infra/process_identity.py)."""
HOLDS: Final = "eagle3.holds"
"""Label of a flow run: the slots that it was given, apart by spaces; it waits while it has none."""


def host_slot(host: str) -> str:
    """The name of a host's global concurrency limit: one host, one sweep."""
    return f"{PREFIX}{host}"


def make_slots(names: Iterable[str]) -> None:
    """One slot per host, made if it is missing: a missing one would mean no limit at all."""
    with get_client(sync_client=True) as client:
        for name in names:
            client.upsert_global_concurrency_limit_by_name(name, 1)


def write_labels(flow_run: str | None, labels: Mapping[str, str]) -> None:
    """What a flow run says of itself, for the reaper."""
    if flow_run is None:
        return

    def write() -> None:
        with get_client(sync_client=True) as client:
            client.update_flow_run_labels(UUID(flow_run), dict(labels))

    shown(write)
