"""When a warmed-up server counts as settled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from configs.probe import WarmUp
from tasks.stability import Pace, difference, paces
from tests.builders import closed_loop, sample


@given(st.integers(1, 6), st.floats(0.05, 3.0), st.integers(1, 3))
def test_windows_of_a_steady_loop_are_alike(users, ttft_s, step):
    samples = closed_loop(users, 12, ttft_s=ttft_s, step=step, speculating=True)
    seen = paces(samples, 2 * users, 5 * users, users)
    assert len(seen) == 2
    assert difference(*seen) < 0.02


def test_a_loop_out_of_step_is_steady_too():
    # Two users whose requests begin half a request apart.
    early = [sample(f"a{i}", sent_s=i * 0.74) for i in range(20)]
    late = [sample(f"b{i}", sent_s=0.37 + i * 0.74) for i in range(20)]
    first, second = paces([*early, *late], 4, 16, 2)[:2]
    assert first.tok_s == pytest.approx(2 * 65 / 0.74, rel=0.01)
    assert difference(first, second) < 0.01


def test_what_still_compiles_shows():
    slow = [sample(f"s{i}", sent_s=i * 1.0, tok_s=71.2) for i in range(8)]
    quick = [sample(f"q{i}", sent_s=8 + i * 0.74) for i in range(8)]
    first, second = paces([*slow, *quick], 0, 8, 1)
    assert difference(first, second) == pytest.approx(1 / 0.74 - 1, rel=0.02)


def test_acceptance_that_still_changes_shows_at_equal_speed():
    assert difference(Pace(100.0, 2.0), Pace(101.0, 2.5)) == pytest.approx(0.25)
    assert difference(Pace(100.0, None), Pace(101.0, 2.5)) == pytest.approx(0.01)
    assert difference(Pace(0.0, None), Pace(101.0, None)) == 1.0


def test_a_load_that_was_not_held_says_nothing():
    assert paces([sample(f"p{i}", sent_s=2.0 * i) for i in range(10)], 2, 4, 1) == []
    assert paces(closed_loop(2, 2), 4, 4, 2) == []


def test_windows_come_in_pairs():
    with pytest.raises(ValidationError, match="3 is odd"):
        WarmUp(max_windows=3)
    assert [WarmUp().window(users) for users in (1, 8, 64)] == [8, 8, 64]
