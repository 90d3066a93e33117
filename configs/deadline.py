"""Until when a sweep may use its hosts: a time of day, in a time zone that is always stated."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta
from typing import Annotated, Final, NamedTuple
from zoneinfo import ZoneInfo

from pydantic import AfterValidator

_CLOCK: Final = re.compile(r"(?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d)")


def _clock(text: str) -> str:
    if not _CLOCK.fullmatch(text):
        raise ValueError(f'{text!r} is no time of day: write "06:30"')
    return text


def _zone(text: str) -> str:
    try:
        ZoneInfo(text)
    except (KeyError, OSError, ValueError) as error:  # unknown; a folder's name; ../etc
        raise ValueError(
            f"{text!r} is no time zone: write a name such as Europe/Berlin or UTC"
        ) from error
    return text


Clock = Annotated[str, AfterValidator(_clock)]
"""A time of day, hours and minutes."""

Zone = Annotated[str, AfterValidator(_zone)]
"""A time zone by its name in the IANA database."""


class Deadline(NamedTuple):
    """When the hosts must be free again."""

    at: datetime
    """With its offset."""
    text: str
    """As it is said: 06:30 CET on Tuesday, 1 December (Europe/Berlin)."""


def next_deadline(clock: str, zone: str | None, now: datetime) -> Deadline:
    """The next time that it is so late.

    A time that does not exist (clocks go forward) is later by the length of the gap, and of one that
    comes twice the first counts, as in docs/schedules.md.

    Args:
        clock: Such as 06:30.
        zone: Its time zone; None: this machine's.
        now: With its offset.
    """
    found = _CLOCK.fullmatch(_clock(clock))
    assert found is not None  # _clock raises  # noqa: S101
    hour = time(int(found["hour"]), int(found["minute"]))
    there = ZoneInfo(_zone(zone)) if zone is not None else None
    today = now.astimezone(there).date()
    for day in (today, today + timedelta(days=1)):
        local = datetime.combine(day, hour, tzinfo=there)
        # A naive time is taken as this machine's; through UTC, so that a gap moves it.
        at = datetime.fromtimestamp(local.timestamp(), tz=now.tzinfo).astimezone(there)
        if at > now:
            break
    named = zone or "this machine's zone"
    return Deadline(at, f"{at:%H:%M %Z on %A}, {at.day} {at:%B} ({named})")


def split_clock(text: str) -> tuple[str, str | None]:
    """A time of day and its zone, as they are typed: ``06:30``, ``06:30 Europe/Berlin``.

    Raises:
        ValueError: One of them is not right; says what would be.
    """
    clock, _, zone = text.strip().partition(" ")
    return _clock(clock), _zone(zone.strip()) if zone.strip() else None
