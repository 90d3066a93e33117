"""Rows: a sweep is stopped, in every stage."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests import sweeping
from tests.chaos.scene import later, nothing_left, scene, short
from tests.chaos.table import row

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sweeping import Ground

_EVERY = (
    "claim",
    "survey",
    "clean_gpus",
    "patch",
    "clear_pycache",
    "check_drafter",
    "launch",
    "wait_ready",
    "verify",
    "warm_up",
    "probe:load",
    "tear_down",
)
_BOUND_S = 30.0
"""Prefect kills a cancelled flow after so long."""


class _Stop(BaseException):
    """As the command line's own."""


def stopped_in(ground: Ground, stage: str) -> float:
    """SIGTERM while a stage is at work; the seconds until the trial was torn down."""
    sent: list[float] = []

    def stop(_number: int, _frame: object) -> None:
        raise _Stop

    def send() -> None:
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGTERM)

    def at(name: str) -> None:
        if name == stage and not sent:
            later(0.02, send)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        with pytest.raises(_Stop):
            ground.run(short(patches="kimi_k25_eagle3"), at=at, fresh=True, lease_s=60)
    finally:
        signal.signal(signal.SIGTERM, before)
    return time.monotonic() - sent[0]


def _left_well(ground: Ground, before: bytes) -> str:
    """The stage that the record names; nothing else is left."""
    nothing_left(ground)
    assert ground.source.read_bytes() == before
    (folder,) = ground.latest("night").trials()
    record = json.loads(folder.record.read_bytes())
    assert (record["status"], record["failure"]["failure_class"]) == ("failed", "cancelled")
    assert record["stages"][-1]["name"] == "tear_down"
    return str(record["failure"]["stage"])


@row("cancelled", "SIGTERM in launch", fast=True)
def in_launch(place: Path) -> str:
    with scene(place, patched=False) as ground:
        before = ground.source.read_bytes()
        seconds = stopped_in(ground, "launch")
        assert seconds < _BOUND_S
        return f"torn down {seconds:.1f} s after SIGTERM in {_left_well(ground, before)}"


@row("cancelled", "SIGTERM in each of the twelve stages")
def in_every_stage(place: Path) -> str:
    with scene(place, patched=False) as ground:
        before, longest, seen = ground.source.read_bytes(), 0.0, []
        for stage in _EVERY:
            longest = max(longest, stopped_in(ground, stage))
            seen.append(_left_well(ground, before))
        assert longest < _BOUND_S
        outcome = ground.run(short(patches="kimi_k25_eagle3"))
        assert {record.status for record in outcome.records} <= sweeping.MEASURED
        return f"{len(seen)} stages, the longest {longest:.1f} s; run again it was measured"
