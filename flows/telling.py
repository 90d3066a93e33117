"""Events of ours in Prefect; its automations turn them into messages (flows/notices.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prefect.events import emit_event

from flows.prefect_stages import shown

if TYPE_CHECKING:
    from collections.abc import Callable

HOST_LOST: Final = "eagle3.host.lost"
MORNING: Final = "eagle3.morning"


def tell(event: str, resource: str, subject: str, text: str) -> None:
    """Emits an event that carries its whole message; a server that is away costs the message.

    Args:
        event: One of the names here.
        resource: What it is about, such as ``eagle3.host.box``.
        subject: One line.
        text: The message, with links.
    """
    shown(
        lambda: emit_event(
            event=event,
            resource={"prefect.resource.id": resource, "prefect.resource.name": resource},
            payload={"subject": subject, "text": text},
        )
    )


def tell_lost(host: str, why: str, during: str) -> None:
    """A host was given up: not reached within the patience, or rebooted."""
    tell(
        HOST_LOST,
        f"eagle3.host.{host}",
        f"host {host} is lost",
        f"host {host} is lost: {why}\nduring {during}",
    )


def once_each(tell_it: Callable[[str, str], None]) -> Callable[[str, str], None]:
    """Passes the first word about each host on, and no further one: teardown fails after it too."""
    told: set[str] = set()

    def once(host: str, why: str) -> None:
        if host not in told:
            told.add(host)
            tell_it(host, why)

    return once
