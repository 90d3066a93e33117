"""The world's faults as classes of the failure table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.errors import AgentRefusal, ContactLost, HostRebooted, HostRefused
from infra.store import DiskFull
from tasks.contact import IF_KILLED
from tasks.venue import failed

if TYPE_CHECKING:
    from infra.errors import WorldError
    from tasks.record import Failure


def of_world(stage: str, error: WorldError) -> Failure:
    """The world's fault as a class of the table."""
    match error:
        case HostRebooted():
            name = "host_rebooted"
        case DiskFull():
            name = "disk_full"
        case AgentRefusal(error="disk_full"):
            name = "disk_full"
        case AgentRefusal(error="unreachable"):
            name = "engine_dead"
        case AgentRefusal(error="timeout"):
            name = "not_generating"
        case ContactLost() | HostRefused():
            name = "ssh_lost"
        case _:
            name = "unknown_exception"
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, ContactLost):
        text += f"; what runs there is unknown: {IF_KILLED}"
    return failed(stage, name, text).failure
