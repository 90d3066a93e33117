"""Outlier boots: found as a whole, never more than a few, never where nobody can say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.outliers import MOST, outlier_boots

Ladder = list[dict[Any, dict[Any, float]]]


def ladder(
    settings: int = 4, blocks: int = 6, steps: int = 3, sd: float = 0.01, seed: int = 1
) -> Ladder:
    """Tables of boots that differ by setting and block, with noise shared over the ladder."""
    draw = np.random.default_rng(seed)
    boot = draw.normal(0, sd, (settings, blocks))
    return [
        {
            s: {
                b: 5 + 0.3 * s + 0.05 * b + c + boot[s, b] + draw.normal(0, sd / 3)
                for b in range(blocks)
            }
            for s in range(settings)
        }
        for c in range(steps)
    ]


def slow(tables: Ladder, setting: int, block: int, by: float) -> Ladder:
    for table in tables:
        table[setting][block] += by
    return tables


def test_a_boot_far_out_of_line_is_found_with_its_size():
    (found,) = outlier_boots(slow(ladder(), 2, 3, -0.12))
    assert (found.setting, found.block) == (2, 3)
    assert found.effect == pytest.approx(-0.12, abs=0.03)
    assert found.p < 0.001


def test_two_of_them_are_both_found():
    tables = slow(slow(ladder(), 2, 3, -0.12), 0, 1, 0.1)
    assert {(o.setting, o.block) for o in outlier_boots(tables)} == {(2, 3), (0, 1)}


def test_slowness_at_one_concurrency_alone_is_no_outlier_boot():
    tables = ladder(sd=0.02, seed=2)
    tables[1][2][3] -= 0.03
    assert outlier_boots(tables) == ()


def test_a_slow_arm_and_a_slow_block_are_not_outliers():
    tables = ladder()
    for table in tables:
        for block in table[1]:
            table[1][block] -= 0.5
        for setting in table:
            table[setting][4] -= 0.3
    assert outlier_boots(tables) == ()


@pytest.mark.parametrize(("settings", "blocks"), [(1, 6), (2, 3), (4, 1), (2, 1)])
def test_with_too_little_around_it_nobody_can_say(settings, blocks):
    assert outlier_boots(slow(ladder(settings, blocks), 0, 0, -0.5)) == ()


def test_where_two_boots_are_equally_far_out_it_is_the_slow_one():
    (found,) = outlier_boots(slow(ladder(2, 8), 1, 3, -0.2))
    assert (found.setting, found.block) == (1, 3)
    (found,) = outlier_boots(slow(ladder(2, 8), 0, 3, -0.2))
    assert (found.setting, found.block) == (0, 3)


def test_nothing_at_all_and_exact_repetitions():
    assert outlier_boots([]) == ()
    flat = [{s: dict.fromkeys(range(6), 3.0) for s in range(4)}]
    assert outlier_boots(flat) == ()


def test_a_quiet_night_rarely_loses_a_boot():
    lost = sum(bool(outlier_boots(ladder(seed=seed))) for seed in range(300))
    assert lost <= 30  # 15 expected; beyond 30 once in ten thousand such tests


@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.integers(2, 7))
def test_never_more_than_a_sixth_and_the_same_under_scaling(seed, settings, blocks):
    tables = ladder(settings, blocks, seed=seed)
    draw = np.random.default_rng(seed)
    for _ in range(settings * blocks // 2):
        slow(tables, int(draw.integers(settings)), int(draw.integers(blocks)), draw.normal(0, 0.3))
    found = outlier_boots(tables)
    assert len(found) <= MOST * settings * blocks
    shifted = [{s: {b: y + 7 for b, y in t[s].items()} for s in t} for t in tables]
    assert [o[:2] for o in outlier_boots(shifted)] == [o[:2] for o in found]


def test_exact_repetitions_have_no_outlier_but_a_boot_that_is_really_slow():
    """What is left of them is rounding, of which some is always the largest."""
    exact = {
        f"s{s}": {b: math.log(97.3 * 1.1**s * (1 + 0.07 * b)) for b in range(4)} for s in range(5)
    }
    assert outlier_boots([exact]) == ()
    exact["s2"][1] -= 0.2
    (found,) = outlier_boots([exact])
    assert (found.setting, found.block) == ("s2", 1)
    assert found.effect == pytest.approx(-0.2, abs=1e-6)
