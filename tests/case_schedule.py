"""Asks the product about a case of kind ``schedule``."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from flows.schedules import next_fires, policy
from tests.case_files import the_file

if TYPE_CHECKING:
    from pathlib import Path


def schedule(folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    asked = json.loads(the_file(folder, "schedule.json").read_text(encoding="utf-8"))
    after = datetime.fromisoformat(asked["after"])
    try:
        fires = next_fires(asked["cron"], asked.get("timezone"), after, asked.get("count", 1))
    except ValueError as error:
        return {"ok": False, "reason": str(error), "fires_utc": []}
    moments = [f"{fire.at:%Y-%m-%dT%H:%M:%SZ}" for fire in fires]
    return {"ok": True, "reason": None, "fires_utc": moments, "policy": policy(fires)}
