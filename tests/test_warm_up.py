"""Warming up on the pretend host: until the server has settled, or a finding says that it has not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import sweeping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tasks.record import TrialRecord
    from tests.sweeping import Ground


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with sweeping.ground(tmp_path_factory.mktemp("warm")) as made:
        yield made


def warmed(ground: Ground, windows: int) -> tuple[TrialRecord, str]:
    """A trial of one arm, and what its warm-up says of itself."""
    sweep = sweeping.sweep(f"warm{windows}", arms="base", warm_tokens=32, windows=windows)
    record = ground.trial(sweep).record
    assert record.status in sweeping.MEASURED, record.failure
    return record, next(stage.note for stage in record.stages if stage.name == "warm_up")


def test_a_settled_server_costs_two_windows(ground: Ground) -> None:
    record, note = warmed(ground, 6)
    assert note.startswith("load: 18 requests, 2 windows, the last two")
    assert note.endswith("stable")
    assert "warm_up_not_stable" not in {finding.name for finding in record.findings}


@pytest.mark.long
def test_one_that_slows_down_meanwhile_is_driven_on(ground: Ground) -> None:
    ground.plant("after_requests", "slow", after_requests=12, factor=3.0)
    record, note = warmed(ground, 4)
    assert note.startswith("load: 84 requests, 4 windows, the last two")
    assert "warm_up_not_stable" not in {finding.name for finding in record.findings}


def test_one_that_does_not_settle_within_the_bound_makes_the_trial_suspect(ground: Ground) -> None:
    # What may be a matter of the moment gets another attempt.
    for attempt in ("[.]a1$", "[.]a2$"):
        ground.plant("after_requests", "slow", after_requests=12, factor=3.0, trial=attempt)
    record, note = warmed(ground, 2)
    assert record.attempt == 2
    assert note.endswith("not stable")
    (found,) = [f for f in record.findings if f.name == "warm_up_not_stable"]
    assert record.status == "suspect"
    assert found.evidence == note
