"""When there is no time for all, what the main question needs is run, whatever came out so far."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from configs.plan import Trial, make_plan
from tasks.allotment import allot, is_main, needed_blocks
from tests.sweeps import sweep

if TYPE_CHECKING:
    from configs.sweep import Sweep

COST = 600.0


def even(_trial: Trial) -> float:
    return COST


def asked(blocks: int = 6) -> Sweep:
    return sweep(("blocks: 2", f"blocks: {blocks}"))


def names(trials) -> Counter[int]:
    return Counter(trial.block for trial in trials)


def test_everything_runs_in_its_drawn_order_where_it_fits():
    plan = make_plan(asked())
    found = allot(asked(), plan.trials, even, 1e9)
    assert found.run == plan.trials
    assert not found.left


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 8), st.integers(0, 60), st.integers(0, 47))
def test_what_runs_fits_and_keeps_its_order(blocks, fits, done):
    plan = make_plan(asked(blocks))
    rest = plan.trials[min(done, len(plan.trials)) :]
    found = allot(asked(blocks), rest, even, fits * COST)
    assert found.seconds <= fits * COST
    assert [trial.order for trial in found.run] == sorted(trial.order for trial in found.run)
    assert sorted([*found.run, *found.left], key=lambda trial: trial.order) == list(rest)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 36))
def test_a_smaller_budget_keeps_a_part_of_what_a_larger_one_keeps(fits):
    """So that a trial which is kept for later is still kept when its time comes."""
    plan = make_plan(asked())
    small = allot(asked(), plan.trials, even, fits * COST).run
    large = allot(asked(), plan.trials, even, (fits + 1) * COST).run
    assert {t.id for t in small} <= {t.id for t in large}


def test_the_main_question_gets_three_blocks_before_anything_else_is_asked():
    """Three arms under two levels: nine trials are the main cells of three blocks."""
    plan = make_plan(asked())
    found = allot(asked(), plan.trials, even, 9 * COST)
    assert names(found.run) == {1: 3, 2: 3, 3: 3}
    assert all(is_main(asked(), trial) for trial in found.run)
    more = allot(asked(), plan.trials, even, 18 * COST)
    assert names(more.run) == {1: 6, 2: 6, 3: 6}
    four = allot(asked(), plan.trials, even, 21 * COST)
    assert names(four.run) == {1: 6, 2: 6, 3: 6, 4: 3}
    assert {t.levels["nccl"] for t in four.run if t.block == 4} == {"default"}


def test_a_block_with_room_for_some_holds_the_baseline():
    plan = make_plan(asked())
    two = allot(asked(), plan.trials, even, 20 * COST)
    assert [t.arm for t in two.left[:1]] == ["b"]
    assert {t.arm for t in two.run if t.block == 4} == {"base", "a"}


def test_a_baseline_alone_is_not_run():
    plan = make_plan(asked())
    found = allot(asked(), plan.trials, even, 19 * COST)
    assert 4 not in names(found.run)
    assert found.left[0].arm == "base"


def test_with_until_the_first_look_counts():
    text = sweep(("blocks: 2", "until: {min_blocks: 4, max_blocks: 6}"))
    assert needed_blocks(text) == 4
    assert needed_blocks(asked(2)) == 2
    found = allot(text, make_plan(text).trials, even, 12 * COST)
    assert names(found.run) == {1: 3, 2: 3, 3: 3, 4: 3}


def test_an_unknown_time_is_not_held_against_a_trial():
    plan = make_plan(asked())
    assert allot(asked(), plan.trials, lambda _trial: 0.0, 1.0).run == plan.trials


def test_copies_come_last():
    text = sweep(("  b:", "  copy: {replicate_of: base}\n  b:"), ("blocks: 2", "blocks: 1"))
    plan = make_plan(text)
    found = allot(text, plan.trials, even, 3 * COST)
    assert {trial.arm for trial in found.run} == {"base", "a", "b"}
