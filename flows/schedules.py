"""When a deployment's cron schedule fires, as Prefect will have it; see docs/schedules.md."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, NamedTuple
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from collections.abc import Sequence


class Fire(NamedTuple):
    """One moment at which a schedule fires."""

    at: datetime
    """In UTC."""
    local: datetime
    """On the clocks of the schedule's zone."""
    clock: Literal["plain", "moved", "first_of_two"]
    """moved: the time asked for was skipped as clocks were put forward; first_of_two: it comes
    twice as they are put back."""


def next_fires(cron: str, timezone: str | None, after: datetime, count: int) -> tuple[Fire, ...]:
    """The next moments at which Prefect's scheduler starts a run.

    Args:
        cron: As in prefect.yaml.
        timezone: IANA name; None is UTC, as in Prefect.
        after: The first moment lies after this one; without a zone it is local time.
        count: How many.

    Raises:
        ValueError: Prefect refuses the expression or the zone, with its own words.
    """
    dates = _dates(cron, timezone, after + timedelta(microseconds=1), count)
    zone = ZoneInfo(timezone or "UTC")
    return tuple(_fire(cron, moment.astimezone(zone)) for moment in dates)


def policy(fires: Sequence[Fire]) -> str:
    """In a sentence, what becomes of the local hour in these nights."""
    usual = Counter(f"{fire.local:%H:%M}" for fire in fires if fire.clock != "moved")
    said = [f"local hour stays {' and '.join(usual)}"] if usual else []
    for fire in fires:
        if fire.clock == "moved":
            said.append(
                "a time inside the gap runs once, later by the length of the gap "
                f"({fire.local:%H:%M} local on {fire.local:%Y-%m-%d})"
            )
        if fire.clock == "first_of_two":
            said.append(
                "a time that comes twice runs once, at the first occurrence "
                f"({fire.local:%H:%M %Z} on {fire.local:%Y-%m-%d})"
            )
    return "; ".join(said)


def too_late(
    planned: datetime, now: datetime, within_h: float | None, *, begun: bool = False
) -> str | None:
    """Why a run does not begin any more; None while it may.

    Args:
        planned: When its schedule wanted it.
        now: With a zone, as ``planned``.
        within_h: Hours; None: it may always begin.
        begun: Whether it began before, was cut off and is to go on: it came in time then, and the
            planned time of a flow run stays the same.
    """
    if within_h is None or begun:
        return None
    late = now - planned
    if late <= timedelta(hours=within_h):
        return None
    return (
        f"missed: planned for {planned.astimezone(UTC):%Y-%m-%d %H:%M} UTC, its turn came "
        f"{late.total_seconds() / 3600:.1f} h later, and it may begin {within_h:g} h late at most; "
        "to run it now, start the deployment by hand"
    )


def _dates(cron: str, timezone: str | None, start: datetime, count: int) -> list[datetime]:
    # Local: Prefect's server side takes seconds to import.
    from prefect.server.schemas.schedules import CronSchedule

    schedule = CronSchedule(cron=cron, timezone=timezone)
    found = asyncio.run(schedule.get_dates(n=count, start=start))
    # Plain ones: Prefect's own class of moments warns of its end.
    return [datetime.fromtimestamp(moment.timestamp(), tz=UTC) for moment in found]


def _fire(cron: str, local: datetime) -> Fire:
    wall = local.replace(tzinfo=UTC, fold=0)
    # The same expression on a clock that is never changed: does it hold this wall time?
    asked_for = _dates(cron, "UTC", wall, 1)[0] == wall
    twice = local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset()
    clock: Literal["plain", "moved", "first_of_two"] = (
        "moved" if not asked_for else "first_of_two" if twice else "plain"
    )
    return Fire(local.astimezone(UTC), local, clock)
