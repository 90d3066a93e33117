"""Rows: the engine dies, hangs, makes no tokens, or loses one of its processes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests import sweeping
from tests.chaos.scene import nothing_left, samples, scene, short
from tests.chaos.table import row

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sweeping import Ground, Tried

_DEATH_S = 1.0
_SILENCE_S = 2.0
_MARGIN_S = 4.0
"""For a machine that is busy with something else."""


def _first_of_two(
    ground: Ground, silence_s: float = _SILENCE_S, **more: Any
) -> tuple[Tried, Tried]:
    """A trial that meets its fault, and the attempt after it, which must find free GPUs."""
    outcome = ground.run(short(silence_s=silence_s, per_slot=4, **more), lease_s=60)
    first, second = (ground.tried(outcome, "b01-tuned", number) for number in (1, 2))
    assert second.record.status in sweeping.MEASURED, second.record.failure
    nothing_left(ground)
    return first, second


def _class_of(tried: Tried, stage: str) -> str:
    failure = tried.record.failure
    assert failure is not None
    assert failure.stage == stage, failure
    assert failure.message
    return failure.failure_class


def _partial(tried: Tried) -> str:
    """What was measured until then is kept, and what was cut off is marked as such."""
    rows = samples(tried.folder)
    done = sum(row["error"] is None for row in rows)
    marked = [row["error"]["class"] for row in rows if row["error"] is not None]
    assert marked
    return f"{done} whole samples and {len(marked)} marked {marked[0]}"


def _late(ground: Ground, tried: Tried, stage: str) -> float:
    """Seconds from the death, as the host saw it, until the trial knew."""
    known = ground.failed_at["b01-tuned"][stage]
    return float(known - tried.state["ended_monotonic"])


@row("engine", "dies under load")
def dies(place: Path) -> str:
    with scene(place) as ground:
        ground.plant("decode", "die", rank=2, after_requests=6)
        asked = short(per_slot=4)
        outcome = ground.run(asked, lease_s=60)
        tried = ground.tried(outcome, "b01-tuned")
        found = _class_of(tried, "probe")
        late = _late(ground, tried, "probe:load")
        assert late < _DEATH_S + _MARGIN_S
        nothing_left(ground)
        return f"{found} after {late:.2f} s; {_partial(tried)}"


@row("engine", "one scheduler is killed under load, and the engine does not notice", fast=True)
def scheduler_killed(place: Path) -> str:
    with scene(place) as ground:
        ground.plant("decode", "sigkill_scheduler", rank=5, after_requests=6)
        # The death is found by looking at the processes, and not by the silence after it.
        first, _ = _first_of_two(ground, silence_s=30)
        assert _class_of(first, "probe") == "scheduler_dead"
        assert first.record.failure is not None
        assert "sglang::schedul" in first.record.failure.message
        return f"scheduler_dead: {first.record.failure.message}; {_partial(first)}"


@row("engine", "one scheduler is killed before the first request")
def scheduler_killed_before(place: Path) -> str:
    # A start of some seconds: the supervisor looks once a second who a needed child is.
    with scene(place, start_s=4.0) as ground:
        ground.plant("ready", "sigkill_scheduler", rank=0)
        began = time.monotonic()
        first, _ = _first_of_two(ground)
        found = first.record.failure
        assert found is not None
        assert found.failure_class == "scheduler_dead", found
        return f"{found.failure_class} at {found.stage}, {time.monotonic() - began:.1f} s for both"


@row("engine", "one scheduler is killed, and the engine ends itself")
def scheduler_killed_and_noticed(place: Path) -> str:
    with scene(place, watch_children=True) as ground:
        ground.plant("decode", "sigkill_scheduler", rank=5, after_requests=6)
        outcome = ground.run(short(per_slot=4), lease_s=60)
        first = ground.tried(outcome, "b01-tuned", 1)
        # Its own last words are kept: they know the exit code.
        assert _class_of(first, "probe") == "host_oom_or_killed"
        nothing_left(ground)
        return f"host_oom_or_killed; {_partial(first)}"


@row("engine", "hangs under load")
def hangs(place: Path) -> str:
    with scene(place) as ground:
        ground.plant("decode", "hang", after_requests=6)
        first, _ = _first_of_two(ground)
        assert _class_of(first, "probe") == "not_generating"
        seconds = {stage.name: stage.seconds for stage in first.record.stages}["probe:load"]
        assert _SILENCE_S <= seconds < _SILENCE_S + 3 * _MARGIN_S
        return f"not_generating {seconds:.1f} s into the probe; {_partial(first)}"


@row("engine", "answers 200 to /health and makes no tokens, before the probe")
def no_tokens(place: Path) -> str:
    with scene(place) as ground:
        ground.plant("ready", "no_tokens")
        first, _ = _first_of_two(ground)
        assert _class_of(first, "wait_ready") == "not_generating"
        seconds = {stage.name: stage.seconds for stage in first.record.stages}["wait_ready"]
        assert seconds < 4 * _SILENCE_S + 3 * _MARGIN_S
        return f"not_generating after {seconds:.1f} s of waiting"


@row("engine", "makes no tokens any more, in the middle of the probe")
def no_tokens_later(place: Path) -> str:
    with scene(place) as ground:
        ground.plant("after_requests", "no_tokens", after_requests=7)
        first, _ = _first_of_two(ground)
        assert _class_of(first, "probe") == "not_generating"
        return f"not_generating; {_partial(first)}"


@row("engine", "hangs while it starts")
def hangs_at_start(place: Path) -> str:
    with scene(place) as ground:
        ground.plant("target_weights", "hang", rank=6)
        first, _ = _first_of_two(ground)
        assert _class_of(first, "wait_ready") == "ready_timeout"
        assert first.record.failure is not None
        return f"ready_timeout in {first.record.failure.start_stage}"
