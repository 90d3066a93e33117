"""Which levels a screen lets into the plan: never less than the reference, never one that is beaten."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.factor_effect import VariableEffect
from tasks.screen import (
    LevelScreen,
    SizeTime,
    StartProof,
    choose,
    dominated,
    effect_findings,
    ranked,
)
from tasks.screen_sizes import Sizes
from tasks.screen_times import median_interval, size_times

SIZES = (14336, 114688)
POINTLESS = VariableEffect(
    variable="NCCL_IB_HCA", asked="mlx5_0", effect="cannot_matter", reason="no InfiniBand here"
)
TAKEN = VariableEffect(variable="NCCL_PROTO", asked="LL", effect="taken", reason="NCCL says so")


def level(name: str, *medians: float, spread: float = 0.01, **more) -> LevelScreen:
    times = tuple(
        SizeTime(
            size_bytes=size,
            rows=size // 14336,
            median_us=median,
            low_us=median * (1 - spread),
            high_us=median * (1 + spread),
            rounds=16,
        )
        for size, median in zip(SIZES, medians, strict=False)
    )
    return LevelScreen(level=name, env={"X": name}, times=times, **more)


def beaten(*levels: LevelScreen) -> dict[str, str]:
    return dominated(levels, "ref", 0.02)


def test_slower_everywhere_is_dominated_by_the_fastest():
    assert beaten(level("ref", 20, 30), level("ll", 15, 20), level("slow", 25, 40)) == {
        "slow": "ll"
    }


def test_faster_at_one_size_is_enough_to_stay():
    assert beaten(level("ref", 20, 30), level("a", 15, 40), level("b", 25, 20)) == {}


def test_the_reference_is_never_dominated():
    assert beaten(level("ref", 20, 30), level("ll", 10, 10)) == {}


def test_within_the_intervals_nobody_is_slower():
    wide = level("wide", 21, 31, spread=0.2)
    assert beaten(level("ref", 20, 30), wide) == {}


def test_less_than_the_margin_is_no_gain():
    close = level("close", 20.2, 30.2, spread=0.001)
    assert beaten(level("ref", 20, 30, spread=0.001), close) == {}


def test_without_intervals_nothing_is_dominated():
    bare = [
        one.model_copy(
            update={
                "times": tuple(
                    t.model_copy(update={"low_us": None, "high_us": None}) for t in one.times
                )
            }
        )
        for one in (level("ref", 20, 30), level("slow", 40, 60))
    ]
    assert dominated(bare, "ref", 0.02) == {}


def test_levels_of_flags_are_not_told_apart_by_all_reduce():
    flagged = level("slow", 40, 60, flags={"attention-backend": "triton"})
    assert beaten(level("ref", 20, 30), flagged) == {}


@given(st.lists(st.tuples(st.floats(1, 100), st.floats(1, 100), st.floats(0, 0.5)), max_size=6))
def test_whatever_the_times_somebody_undominated_is_left(times):
    levels = [level("ref", 50, 50)]
    levels += [level(f"l{i}", a, b, spread=s) for i, (a, b, s) in enumerate(times)]
    found = beaten(*levels)
    assert "ref" not in found
    assert not set(found.values()) & set(found)


def test_ranks_by_the_mean_ratio_over_sizes():
    order = ranked([level("ref", 20, 30), level("ll", 10, 30), level("slow", 40, 30)], "ref")
    assert [name for name, _ in order] == ["ll", "ref", "slow"]
    assert order[0][1] == pytest.approx(0.5**0.5)


def test_the_slowest_go_when_there_are_more_than_may_stay():
    levels = [level("ref", 40, 60), level("a", 10, 50), level("b", 20, 40), level("c", 30, 30)]
    kept, dropped = choose(levels, "ref", 2, timed_by="nccl")
    assert kept == ("ref", "a")
    assert dropped["b"].startswith("keep is 2, and it is among the slowest: 0.58 x")
    assert set(dropped) == {"b", "c"}


def test_where_nothing_was_timed_nobody_is_slowest():
    levels = [LevelScreen(level=name, env={}) for name in ("ref", "a", "b", "c")]
    assert choose(levels, "ref", 2, timed_by="nothing") == (("ref", "a", "b", "c"), {})
    timed = [level("ref", 20, 30), level("a", 10, 10), level("b", 15, 15)]
    assert choose(timed, "ref", 1, timed_by="gloo")[0] == ("ref", "a", "b")


def test_what_does_not_start_or_cannot_matter_is_left_out_with_its_reason():
    failed = StartProof(
        trial="t.a1", status="failed", failure_class="nccl_error", message="no tree"
    )
    levels = [
        level("ref", 20, 30),
        level("tree", 20, 30, start=failed),
        level("ib", 20, 30, effects={"a": (POINTLESS,), "b": (POINTLESS,)}),
        level("half", 20, 30, effects={"a": (POINTLESS,), "b": (TAKEN,)}),
        LevelScreen(level="dead", env={}, error="unhandled cuda error"),
    ]
    kept, dropped = choose(levels, "ref", 9, timed_by="nccl")
    assert kept == ("ref", "half")
    assert dropped["tree"] == "the engine does not start: no tree"
    assert dropped["ib"].startswith("cannot matter in any arm: NCCL_IB_HCA=mlx5_0: no InfiniBand")
    assert dropped["dead"] == "it does not run: unhandled cuda error"


def test_a_failure_that_is_not_the_levels_own_drops_nothing():
    lost = StartProof(
        trial="t.a1", status="failed", failure_class="ssh_lost", of_the_setting=False, message="x"
    )
    own = lost.model_copy(update={"failure_class": "nccl_error", "of_the_setting": True})
    levels = [level("ref", 20, 30), level("a", 20, 30, start=lost)]
    assert choose(levels, "ref", 9, timed_by="nccl")[1] == {}
    # Where the reference itself does not start, no level is to blame.
    levels = [level("ref", 20, 30, start=own), level("a", 20, 30, start=own)]
    assert choose(levels, "ref", 9, timed_by="nccl")[1] == {}


def test_a_finding_names_the_arms_in_which_a_level_changes_nothing():
    levels = [
        level("ib", 20, 30, effects={"a": (POINTLESS,), "b": (POINTLESS,)}),
        level("half", 20, 30, effects={"a": (POINTLESS,), "b": (TAKEN,)}),
    ]
    whole, half = effect_findings("nccl", levels)
    assert (whole.name, whole.where) == ("factor_without_effect", "nccl=ib")
    assert half.where == "nccl=half in a"
    assert "take the level out" in whole.advice
    assert "in these arms" in half.advice


@pytest.mark.parametrize(
    ("count", "low", "high"), [(5, None, None), (6, 1, 6), (8, 1, 8), (9, 2, 8), (16, 4, 13)]
)
def test_the_interval_of_a_median_by_order_alone(count, low, high):
    assert median_interval([float(n) for n in range(count, 0, -1)]) == (low, high)


def test_the_interval_covers_a_median_as_often_as_it_says():
    import random

    draw = random.Random(4)
    hits = sum(
        low <= 0 <= high
        for low, high in (
            median_interval([draw.gauss(0, 1) ** 3 for _ in range(16)]) for _ in range(2000)
        )
        if low is not None and high is not None
    )
    assert 0.95 <= hits / 2000 <= 0.995


def test_rounds_become_times_and_passes_that_differ_widen_the_interval():
    sizes = Sizes(hidden=7168, dtype="bfloat16", rows=(1, 8))
    steady = [[10.0, 20.0]] * 8
    later = [[12.0, 20.0]] * 8
    small, large = size_times({"passes": [steady, later]}, sizes)
    assert (small.low_us, small.high_us, small.rounds) == (10.0, 12.0, 16)
    assert (large.median_us, large.low_us, large.high_us) == (20.0, 20.0, 20.0)
    assert size_times({"passes": []}, sizes) == ()
    assert size_times({}, sizes) == ()
