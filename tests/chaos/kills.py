"""Rows: the process that sweeps is killed, and nobody comes back; or two want one host."""

from __future__ import annotations

import json
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from configs.sweep import Patience
from infra.rehearsal import strange
from tasks.venue import StageFailedError
from tests import sweeping
from tests.agent_host import until
from tests.chaos.scene import LONG, SLOW, nothing_left, scene, short
from tests.chaos.table import row

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sweeping import Ground

_LEASE_S = 10.0
_AFTER_S = 10.0
_MARGIN_S = 5.0


def lapses(ground: Ground, attempt: Path, died: float) -> float:
    """Waits until a host has freed itself; the seconds since its controller died."""
    until(ground.empty, _LEASE_S + _AFTER_S + _MARGIN_S)
    seconds = time.monotonic() - died
    until(lambda: json.loads((attempt / "state.json").read_text())["phase"] == "stopped", 60)
    state = json.loads((attempt / "state.json").read_text())
    assert state["end_reason"] == "lease_expired", state
    return seconds


def _killed(place: Path, moment: str, **changed: Any) -> str:
    reached = {"the start": sweeping.loads, "the probe": sweeping.probes}[moment]
    with scene(place, **SLOW) as ground:
        strange.tell(ground.folder, **changed)
        asked = short(**LONG)
        with ground.command_of(asked, lease_s=_LEASE_S) as command:
            command.reaches(lambda: reached(ground.attempt("night")))
            command.signal(signal.SIGKILL)
            command.ended()
            died = time.monotonic()
        attempt = ground.attempt("night")
        seconds = lapses(ground, attempt, died)
        assert seconds < _LEASE_S + _AFTER_S + _MARGIN_S
        outcome = ground.run(asked)
        (record,) = outcome.records
        assert (record.attempt, record.status in sweeping.MEASURED) == (2, True), record.failure
        nothing_left(ground)
        return f"free {seconds:.1f} s after the kill (lease {_LEASE_S:g} s); a2 measured"


@row("killed", "SIGKILL of the sweep in the start")
def killed_in_the_start(place: Path) -> str:
    return _killed(place, "the start")


@row("killed", "SIGKILL of the sweep in the probe")
def killed_in_the_probe(place: Path) -> str:
    return _killed(place, "the probe")


@row("clock", "host an hour ahead, and its controller is killed")
def killed_with_another_clock(place: Path) -> str:
    return _killed(place, "the probe", clock_s=3600)


@row("clock", "host an hour behind, a whole trial")
def another_clock(place: Path) -> str:
    return _timed(place, -3600.0)


@row("clock", "host an hour ahead, a whole trial", fast=True)
def a_clock_ahead(place: Path) -> str:
    return _timed(place, 3600.0)


def _timed(place: Path, clock_s: float) -> str:
    with scene(place) as ground:
        strange.tell(ground.folder, clock_s=clock_s)
        tried = ground.trial(short())
        record = tried.record
        assert record.status in sweeping.MEASURED, record.failure
        assert abs(tried.state["started_wall"] - time.time() - clock_s) < 120
        assert all(0 <= stage.seconds < 60 for stage in record.stages)
        assert all(0 <= value < 60 for value in record.start.values())
        (measured,) = record.measurements
        assert measured.output_tok_s is not None
        assert measured.output_tok_s > 0
        assert record.started_at <= record.ended_at
        # A claim's age is its own host's, on a clock that nobody sets.
        assert tried.state["ended_monotonic"] - tried.state["started_monotonic"] < 120
        nothing_left(ground)
        return f"clock {clock_s:+g} s; start {record.start.get('start_s')} s, all stages in order"


def _patient(seconds: float, name: str, **more: Any) -> Any:
    asked = short(name, **more)
    patience = asked.patience.model_dump() | {"claim_s": seconds}
    return asked.model_copy(update={"patience": Patience(**patience)})


class _Watch:
    """Counts the engines that live at once on a host, until it is asked."""

    def __init__(self, ground: Ground) -> None:
        self._ground, self._over = ground, threading.Event()
        self.most = 0
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.05):
            try:
                self.most = max(self.most, len(self._ground.engines()))
            except (OSError, ValueError):
                continue

    def end(self) -> int:
        self._over.set()
        self._thread.join()
        return self.most


@row("two", "the second refuses at once, names the first, and disturbs nothing")
def refused(place: Path) -> str:
    with scene(place, **SLOW) as ground:
        seen: list[str] = []

        def second(stage: str) -> None:
            if stage != "warm_up":
                return
            other = sweeping.Ground(place / "other", ground.ready, ground.host.time_scale)
            (place / "other").mkdir()
            with pytest.raises(StageFailedError) as said:
                other.run(short("other"))
            assert said.value.failure.failure_class == "host_claimed"
            seen.append(said.value.failure.message)

        outcome = ground.run(short("first"), at=second)
        assert {record.status for record in outcome.records} <= sweeping.MEASURED
        assert outcome.run.holder in seen[0]
        nothing_left(ground)
        return seen[0]


@row("two", "from one controller and from two: the second waits, never two engines")
def waited(place: Path) -> str:
    with scene(place) as ground:
        (place / "other").mkdir()
        other = sweeping.Ground(place / "other", ground.ready, ground.host.time_scale)
        watch = _Watch(ground)
        first = ground.command_of(_patient(100, "first", blocks=2))
        with first, _second(ground, "same") as same, _second(other, "else") as elsewhere:
            codes = [command.ended(120) for command in (first, same, elsewhere)]
            assert codes == [0, 0, 0], "\n".join(c.text for c in (first, same, elsewhere))
        assert watch.end() == 1
        nothing_left(ground)
        return "three sweeps, one host, never more than one engine"


def _second(ground: Ground, name: str) -> Any:
    return ground.command_of(_patient(100, name))


@row("two", "the holder is dead: its lock is taken over when its lease has ended")
def taken_over(place: Path) -> str:
    with scene(place, **SLOW) as ground:
        with ground.command_of(short("dead", **LONG), lease_s=_LEASE_S) as command:
            command.reaches(lambda: sweeping.probes(ground.attempt("dead")))
            command.signal(signal.SIGKILL)
            command.ended()
        died, holder = time.monotonic(), ground.latest("dead").holder
        watch = _Watch(ground)
        with pytest.raises(StageFailedError, match="host_claimed"):
            ground.run(_patient(0, "hasty"))
        outcome = ground.run(_patient(60, "heir"))
        (record,) = outcome.records
        assert record.status in sweeping.MEASURED, record.failure
        assert watch.end() == 1
        nothing_left(ground)
        waited_s = time.monotonic() - died
        return f"took over from {holder}; measured {waited_s:.1f} s after the kill"
