"""How often a change is seen that is none, and how soon one of five percent is."""

from __future__ import annotations

from math import sqrt
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.night_limits import limits
from tasks.change_point import (
    FALSE_ALARM,
    FIRST_LOOK,
    LIMITS,
    WINDOW,
    best_split,
    changes,
    splits,
    spread,
)

STEP = float(np.log(1.05))


def nights(draw: np.random.Generator, count: int, sd: float) -> list[float]:
    return list(draw.normal(0, sd, count))


def alarmed(series: list[list[float]]) -> float:
    return sum(bool(changes(each)) for each in series) / len(series)


@pytest.mark.parametrize("sd", [0.002, 0.02])
def test_twenty_nights_without_a_change_raise_few_alarms(sd):
    """Stated: 0.125 % a look, so 2 % for one figure over twenty nights, whatever the spread."""
    draw = np.random.default_rng(7)
    rate = alarmed([nights(draw, 20, sd) for _ in range(1600)])
    stated = 1 - (1 - FALSE_ALARM) ** (20 - FIRST_LOOK + 1)
    assert stated == pytest.approx(0.0198, abs=1e-4)
    # Four spreads of a binomial with 1,600 draws.
    assert rate == pytest.approx(stated, abs=4 * (stated / 1600) ** 0.5)


def test_unsteady_nights_raise_hardly_more():
    """Student's t with five degrees of freedom: heavier tails than the limits suppose."""
    draw = np.random.default_rng(8)
    rate = alarmed([list(0.01 * draw.standard_t(5, 20)) for _ in range(1500)])
    assert rate <= 0.06


@pytest.mark.parametrize(("sd", "within", "power"), [(0.01, 3, 0.9), (0.005, 1, 0.9)])
def test_a_step_of_five_percent_is_seen(sd, within, power):
    """After twelve quiet nights that vary by so much."""
    draw = np.random.default_rng(9)
    seen = placed = 0
    for _ in range(500):
        series = nights(draw, 12, sd) + [v + STEP for v in nights(draw, within, sd)]
        found = changes(series)
        seen += any(change.seen >= 12 for change in found)
        placed += any(change.first == 12 for change in found)
    assert seen >= power * 500
    assert placed >= 0.85 * seen


def test_a_step_is_dated_and_measured_and_told_once():
    draw = np.random.default_rng(1)
    series = nights(draw, 10, 0.004) + [v - STEP for v in nights(draw, 15, 0.004)]
    (change,) = changes(series)
    assert change.first == 10
    assert 10 <= change.seen <= 12
    assert change.step == pytest.approx(-STEP, abs=0.01)
    assert change.t < 0
    assert spread(series, [change]) == pytest.approx(0.004, rel=0.4)
    assert (spread(series, []) or 0) > 0.015


def test_after_a_change_the_next_one_is_found_too():
    draw = np.random.default_rng(2)
    series = [level + v for level in (0.0, 0.06, 0.02) for v in nights(draw, 12, 0.004)]
    assert [change.first for change in changes(series)] == [12, 24]


def test_too_few_nights_say_nothing():
    assert changes([0.0, 0.0, 0.0, 9.0]) == []
    assert changes([]) == []
    assert spread([1.0], []) is None


def test_nights_that_are_exactly_equal_raise_no_alarm_over_nothing():
    """No spread below 0.1 % is believed: a replayed result would prove anything."""
    assert changes([0.0] * 12 + [0.001] * 3) == []
    assert [change.first for change in changes([0.0] * 12 + [0.05] * 3)] == [12]


def test_more_nights_than_are_looked_at_are_no_trouble():
    draw = np.random.default_rng(3)
    series = nights(draw, 3 * WINDOW, 0.01)
    assert len(changes(series)) <= 1
    (change,) = changes(nights(draw, 60, 0.004) + [v + STEP for v in nights(draw, 5, 0.004)])
    assert change.first == 60


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-0.25, 0.25, width=32), min_size=3, max_size=20))
def test_splits_are_two_sample_t_statistics(values):
    series = np.asarray(values, dtype=float)
    t, steps = splits(series[np.newaxis, :], floor=1e-3)
    for k in range(1, len(values)):
        before, after = values[:k], values[k:]
        step = fmean(after) - fmean(before)
        squares = sum((v - fmean(part)) ** 2 for part in (before, after) for v in part)
        within = max(squares / (len(values) - 2), 1e-6)
        assert steps[0, k - 1] == pytest.approx(step, abs=1e-9)
        expected = step / sqrt(within * (1 / len(before) + 1 / len(after)))
        assert t[0, k - 1] == pytest.approx(expected, rel=1e-5, abs=1e-5)
    split, _t, _step = best_split(series)
    assert 1 <= split < len(values)


def test_the_limits_are_what_their_simulation_gives():
    assert len(LIMITS) == WINDOW - FIRST_LOOK + 1
    made = limits(30_000, seed=5)
    for place in range(0, 36, 5):
        assert made[place] == pytest.approx(LIMITS[place], rel=0.15 if place == 0 else 0.06)
