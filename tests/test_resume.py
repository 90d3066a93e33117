"""A sweep that is run again goes on where it stopped, unless what it measured is no longer there."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from flows.runs import read_records
from tasks.reporting import compare_sweep
from tests import rehearsing, sweeping
from tests.chaos.scene import short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from configs.sweep import Sweep
    from tasks.comparison import Comparison
    from tests.sweeping import Ground

pytestmark = [pytest.mark.slow, pytest.mark.chaos]


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with sweeping.ground(tmp_path_factory.mktemp("resume"), time_scale=16.0) as made:
        rehearsing.patch(made.folder)
        made.run(short())
        yield made


def _weights(ground: Ground) -> None:
    """A drafter that was trained on: other numbers, the same size."""
    path = next((ground.folder / "home/data/eagle3/k25-tuned").glob("*.safetensors"))
    with path.open("r+b") as file:  # sparse: it is only as large as it says
        file.seek(-1, os.SEEK_END)
        file.write(b"\xff")


def _engine(ground: Ground) -> None:
    """Another version of the engine."""
    site = ground.folder / "home/site"
    shutil.move(site / "sglang-0.5.9.dist-info", site / "sglang-0.5.9.post1.dist-info")
    path = site / "sglang-0.5.9.post1.dist-info" / "METADATA"
    path.write_text(path.read_text().replace("0.5.9", "0.5.9.post1"))


def test_what_is_done_is_skipped_and_said(ground: Ground) -> None:
    outcome = ground.run(short())
    (skip,) = outcome.skipped
    assert "done already" in skip.reason
    assert any("skipped: done already" in text for text in ground.said)


@pytest.mark.parametrize("change", [_weights, _engine])
def test_what_changed_on_the_host_is_measured_anew(
    ground: Ground, change: Callable[[Ground], None]
) -> None:
    (before,) = ground.run(short()).records
    change(ground)
    outcome = ground.run(short())
    (after,) = outcome.records
    assert not outcome.skipped
    assert after.attempt == before.attempt + 1
    assert after.fingerprint != before.fingerprint


def test_two_states_of_a_drafter_are_never_thrown_together(ground: Ground) -> None:
    asked = short("halves", arms="base+tuned+again")
    ground.run(asked)
    drafter = next((ground.folder / "home/data/eagle3/k25-tuned").glob("*.safetensors"))
    with drafter.open("r+b") as file:
        file.seek(-2, os.SEEK_END)
        file.write(b"\xfe")
    begun: list[str] = []

    def stop_after_the_first(stage: str) -> None:
        begun.append(stage)
        if begun.count("claim") == 2:
            raise KeyboardInterrupt  # and the third keeps its record of before

    with pytest.raises(KeyboardInterrupt):
        ground.run(asked, at=stop_after_the_first)
    found = _compared(ground, asked)
    assert not any(cell.contrast == "arm" for cell in found.cells)
    (refusal,) = found.refusals
    assert [d.fact for d in refusal.differences] == ["files of data/eagle3/k25-tuned"]
    ground.run(asked)
    assert not _compared(ground, asked).refusals


def _compared(ground: Ground, asked: Sweep) -> Comparison:
    """The comparison of what is there, as if this machine had been idle: suspect speeds count."""
    measured = (r for r in read_records(ground.latest(asked.name)) if r.failure is None)
    return compare_sweep(asked, [r.model_copy(update={"status": "ok"}) for r in measured])


def test_fresh_forgets_on_purpose(ground: Ground) -> None:
    before = ground.latest("night")
    outcome = ground.run(short(), fresh=True)
    assert outcome.run.path != before.path
    assert not outcome.skipped
    (record,) = outcome.records
    first = ground.tried(outcome, record.trial, 1).record  # of which there may be a second
    assert first.status in sweeping.MEASURED


def test_another_probe_or_patch_is_another_plan_and_another_run(ground: Ground) -> None:
    before = ground.latest("night")
    for asked in (short(tokens=47), short(patches="kimi_k25_eagle3")):
        outcome = ground.run(asked)
        assert outcome.run.path != before.path
        assert not outcome.skipped
