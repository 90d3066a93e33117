"""The shipped deployments with a night of minutes: prefect.yaml as it is but for its clocks."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from configs.read import read_document

if TYPE_CHECKING:
    from datetime import datetime

_FILE = Path(__file__).parents[2] / "prefect.yaml"
REAPER_S = 60
"""The reaper comes every ten minutes as shipped."""
SILENT_S = 120
"""A run that cannot be looked up is dead after a quarter of an hour as shipped."""
_CHECK_AT = -0.15
_MORNING_AT = 0.8
"""Parts of a night's distance to the next at which the look over the hosts, and the message, come."""


class Week(NamedTuple):
    """When everything happens."""

    sweep: str
    nights: int
    first: datetime
    apart_s: int
    """From one night's planned begin to the next one's."""

    def planned(self, night: int) -> datetime:
        """When a night begins, from 1."""
        return self.first + timedelta(seconds=(night - 1) * self.apart_s)


def deployments(week: Week) -> str:
    """The text of a prefect.yaml: other moments, and the morning looks back one night of these."""
    content: Any = read_document(_FILE).data
    for deployment in content["deployments"]:
        name = deployment["name"]
        if name == "overnight":
            deployment["parameters"]["sweep"] = week.sweep
        if name == "eagle3-reaper":
            deployment["parameters"] = {"silent_s": SILENT_S}
        if name == "eagle3-morning":
            deployment["parameters"] = {"hours": week.apart_s / 3600}
        for schedule in deployment.get("schedules", ()):
            when = _when(name, week)
            del schedule["cron"], schedule["timezone"]
            schedule.update(when)
    return json.dumps(content, indent=1, default=str)


def _when(name: str, week: Week) -> dict[str, Any]:
    if name == "eagle3-reaper":
        return {"interval": REAPER_S, "anchor_date": f"{week.first:%Y-%m-%dT%H:%M:%S+00:00}"}
    part = {"overnight": 0.0, "eagle3-host-check": _CHECK_AT, "eagle3-morning": _MORNING_AT}[name]
    begin = week.first + timedelta(seconds=int(part * week.apart_s))
    rule = f"FREQ=SECONDLY;INTERVAL={week.apart_s};COUNT={week.nights}"
    return {"rrule": f"DTSTART:{begin:%Y%m%dT%H%M%SZ}\nRRULE:{rule}", "timezone": "UTC"}
