"""The lease of a trial: how long its engine may live without hearing from a controller."""

from __future__ import annotations

import os
import time
from typing import Optional

from infra.agent import folders, processes


def path(folder: str) -> str:
    """Where a trial's lease lies."""
    return os.path.join(folder, "lease.json")


def renew(folder: str, lease_s: float) -> None:
    """Lets the engine live for ``lease_s`` seconds from now."""
    deadline = time.monotonic() + lease_s
    value = {"deadline_monotonic": deadline, "boot_id": processes.boot_id()}
    folders.write_json(path(folder), value, durable=False)


def deadline(folder: str) -> Optional[float]:
    """The deadline on this boot's monotonic clock; None if no readable lease of this boot is there.

    An unreadable lease neither ends nor extends anything: who watches keeps the last one he saw.
    """
    value = folders.read_object(path(folder))
    if value is None or value.get("boot_id") != processes.boot_id():
        return None
    seconds = value.get("deadline_monotonic")
    return float(seconds) if isinstance(seconds, (int, float)) else None


def expired(folder: str) -> bool:
    """Whether a lease is there and has run out."""
    until = deadline(folder)
    return until is not None and time.monotonic() > until
