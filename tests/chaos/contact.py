"""Rows: the way to the host is cut, goes silent, or its sshd is started again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from infra.rehearsal import hosting
from tests import rehearsing, sweeping
from tests.agent_host import until
from tests.chaos.scene import (
    LEASE_S,
    LONG,
    PROBING,
    QUICK,
    SLOW,
    Once,
    behind_relay,
    later,
    launched_once,
    nothing_left,
    scene,
    short,
    whole,
)
from tests.chaos.table import row

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

_STAGES = ("launch", "wait_ready", "probe:load", "tear_down")
_SILENCE_S = 25.0
"""More than the bound of every wait of ours, and less than the lease."""


@row("contact", "cut once in every stage of one trial", fast=True)
def cut_everywhere(place: Path) -> str:
    with scene(place) as ground, behind_relay(ground) as (relay, way):
        cut: list[str] = []

        def at(stage: str) -> None:
            cut.append(stage)
            later(0.1, relay.cut)

        outcome = ground.run(short(), at=at, **way)
        tried = ground.tried(outcome, "b01-tuned")
        assert tried.record.status in sweeping.MEASURED, tried.record.failure
        launched_once(tried)
        whole(tried)
        nothing_left(ground)
        lost = sum("trying again" in text for text in ground.said)
        return f"{len(cut)} cuts, {lost} noticed as lost contact; one launch, one attempt"


@row("contact", "cut at the probe, and back when it is over on the host", fast=True)
def away_during_the_probe(place: Path) -> str:
    with scene(place, **SLOW) as ground, behind_relay(ground) as (relay, way):
        result = "jobs/probe-load-c2/result.json"

        def away() -> None:
            relay.cut(and_refuse=10**6)
            attempt = ground.attempt("night")

            def back() -> None:
                until((attempt / result).exists, 30)
                relay.cut()

            later(0, back)

        hear = Once(PROBING, away)
        outcome = ground.run(short(**LONG), hear=hear, patience_s=60, **way)
        assert hear.done
        tried = ground.tried(outcome, "b01-tuned")
        assert tried.record.status in sweeping.MEASURED, tried.record.failure
        launched_once(tried)
        whole(tried)
        nothing_left(ground)
        return f"{len(tried.record.measurements)} probe collected whole after the cut"


def _silent_at(moment: str) -> Callable[[Path], str]:
    """Packets are dropped, nobody is told; the line comes back after all waits have ended."""

    def play(place: Path) -> str:
        with scene(place) as ground, behind_relay(ground) as (relay, way):
            frozen: list[float] = []

            def freeze() -> None:
                if not frozen:
                    frozen.append(time.monotonic())
                    relay.freeze()
                    later(_SILENCE_S, relay.thaw)

            def at(stage: str) -> None:
                if stage == moment:
                    later(0.1, freeze)

            outcome = ground.run(
                short(),
                at=at,
                patience_s=120,
                **way,
            )
            tried = ground.tried(outcome, "b01-tuned")
            assert frozen
            assert tried.record.status in sweeping.MEASURED, tried.record.failure
            assert tried.record.attempt == 1
            launched_once(tried)
            whole(tried)
            nothing_left(ground)
            assert time.monotonic() - frozen[0] < _SILENCE_S + LEASE_S
            return f"{_SILENCE_S:g} s of silence survived; one launch"

    return play


for _stage in _STAGES:
    row("contact", f"packets dropped silently at {_stage}")(_silent_at(_stage))


@row("contact", "sshd restarted at launch, wait, probe and teardown")
def sshd_restarted(place: Path) -> str:
    folder = rehearsing.build(place / "host", time_scale=QUICK, start_s=0.4)
    rehearsing.patch(folder)
    doors: list[AbstractContextManager[hosting.Host]] = []

    def open_door(port: int = 0) -> hosting.Host:
        door = hosting.serving(folder, port=port)
        ready = door.__enter__()
        doors.append(door)
        return ready

    def close_door() -> None:
        doors.pop().__exit__(None, None, None)

    ground = sweeping.Ground(place, open_door(), QUICK)
    try:

        def at(stage: str) -> None:
            if stage in _STAGES:
                close_door()
                later(0.5, lambda: open_door(ground.ready.port))

        outcome = ground.run(short(), at=at, patience_s=60, lease_s=LEASE_S)
        tried = ground.tried(outcome, "b01-tuned")
        assert tried.record.status in sweeping.MEASURED, tried.record.failure
        launched_once(tried)
        whole(tried)
        nothing_left(ground)
    finally:
        close_door()
    return f"{len(_STAGES)} restarts; one launch, one attempt"


@row("reboot", "in the middle of a probe", fast=True)
def rebooted(place: Path) -> str:
    with scene(place, patched=False, **SLOW) as ground, behind_relay(ground) as (relay, way):
        before = ground.source.read_bytes()

        def reboot() -> None:
            hosting.reboot(ground.ready)
            relay.cut()

        asked, hear = short(patches="kimi_k25_eagle3", **LONG), Once(PROBING, reboot)
        outcome = ground.run(asked, hear=hear, **way)
        assert hear.done
        first = ground.tried(outcome, "b01-tuned", 1)
        second = ground.tried(outcome, "b01-tuned", 2)
        assert first.record.failure is not None
        assert first.record.failure.failure_class == "host_rebooted"
        assert first.record.failure.stage == "probe"
        assert first.record.stages[-1].name == "tear_down"
        assert second.record.status in sweeping.MEASURED, second.record.failure
        assert second.state["boot_id"] != first.state["boot_id"]
        assert ground.source.read_bytes() == before
        nothing_left(ground)
        return "a1 failed(probe, host_rebooted), a2 measured; the patch was put back"
