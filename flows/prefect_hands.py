"""What a conductor works with inside a Prefect flow run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.outcome import Hands
from flows.prefect_stages import PrefectRunner
from flows.telling import once_each, tell_lost
from infra.connect import connect
from infra.tracking import Tracker, tracking_uri

if TYPE_CHECKING:
    from logging import Logger, LoggerAdapter


def prefect_hands(log: Logger | LoggerAdapter[Logger], during: str) -> Hands:
    """Hands that log to the flow run, and tell at once when a host is lost.

    Args:
        log: Of the flow run.
        during: In which work, for the message.
    """
    lost = once_each(lambda name, why: tell_lost(name, why, during))
    uri = tracking_uri()
    return Hands(
        connect=lambda spec: connect(spec, note=log.warning, lost=lambda why: lost(spec.name, why)),
        runner=PrefectRunner,
        tracker=Tracker(uri, note=log.info) if uri else None,
        say=log.info,
    )
