"""A night that was cut off and is begun again: the same folder, the same deadline, and never too late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from configs.sweep import Until
from flows.blocks import Blocks, classes_of
from flows.budget import budget_of
from flows.going_on import at_work
from flows.halting import Halt
from flows.question import pose
from flows.runs import began_at, open_run
from flows.schedules import too_late
from infra.store import Store
from tests import sweeping

if TYPE_CHECKING:
    from pathlib import Path

    from flows.question import Question


def posed(blocks: int = 1) -> Question:
    return pose(sweeping.sweep("night", patches="", blocks=blocks), "rehearsal")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs")


def test_a_flow_run_that_is_begun_again_goes_on_although_it_is_to_be_fresh(store: Store) -> None:
    with open_run(store, posed(), fresh=True, flow_run="night-1") as first:
        pass
    with open_run(store, posed(), fresh=True, flow_run="night-1") as again:
        assert again.path == first.path
    with open_run(store, posed(), fresh=True, flow_run="night-2") as other:
        assert other.path != first.path
    with open_run(store, posed(), fresh=True) as by_hand:
        assert by_hand.path not in {first.path, other.path}


def test_but_not_with_another_plan(store: Store) -> None:
    with open_run(store, posed(), fresh=True, flow_run="night-1") as first:
        pass
    with open_run(store, posed(blocks=2), fresh=True, flow_run="night-1") as changed:
        assert changed.path != first.path


def test_its_deadline_is_that_of_its_first_begin_and_not_the_next_days(store: Store) -> None:
    with open_run(store, posed(), fresh=True, flow_run="night-1") as run:
        began = began_at(run, "night-1")
        assert began is not None
        assert began_at(run, "night-2") is None
        # A deadline between that begin and now: it is over.
        since = began - timedelta(minutes=10)
        clock = f"{datetime.now(UTC) - timedelta(minutes=2):%H:%M} UTC"
        fresh, again = (budget_of(posed(), store, run, clock, at) for at in (None, since))
    assert fresh is not None
    assert again is not None
    assert "which is over" not in (fresh.why_not(posed().plan.trials[0], {}) or "")
    assert "which is over" in (again.why_not(posed().plan.trials[0], {}) or "")


def test_its_hours_count_from_its_first_begin_for_every_lane(store: Store) -> None:
    until = Until(max_blocks=3, min_blocks=2, hours=8)
    asked = sweeping.sweep("night", patches="", blocks=3).model_copy(update={"until": until})
    question = pose(asked, "rehearsal")
    began = datetime.now(UTC) - timedelta(hours=9)
    trial = question.plan.trials[0]
    with open_run(store, question, flow_run="night-1") as run:
        lanes = Blocks(run, question.plan, classes_of(question))
        lanes.begin([], [], began)
        assert lanes.note().began == began
        assert Halt(question, lanes.note().began).why(trial, {}) == "the 8 hours are over"
        lanes.begin([], [])
        assert Halt(question, lanes.note().began).why(trial, {}) is None


def test_it_is_not_begun_again_while_a_part_of_it_is_at_work(store: Store) -> None:
    with open_run(store, posed(), fresh=True, flow_run="night-1") as run:
        assert at_work(run)
    assert not at_work(run)


def test_it_is_not_too_late_for_what_has_begun_in_time() -> None:
    planned = datetime(2026, 11, 30, 22, tzinfo=UTC)
    now = planned + timedelta(hours=6)
    assert too_late(planned, now, 4) is not None
    assert too_late(planned, now, 4, begun=True) is None
