"""Intervals over prompts: how often they hold the truth, and what they must not be fooled by."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.acceptance import by_kind, by_part
from tasks.clusters import Part, ratio_interval
from tests.builders import sample

PARTS = st.lists(
    st.builds(Part, st.integers(0, 9), st.integers(0, 300), st.integers(1, 100)),
    min_size=1,
    max_size=40,
)


def drawn(rng: np.random.Generator, prompts: int, repeats: int) -> list[Part]:
    """Answers to prompts whose own acceptance differs, of different lengths; the mean is 1.6."""
    parts = []
    for prompt in range(prompts):
        mean = float(np.clip(1.6 + 0.35 * rng.standard_normal(), 0.1, 2.9))
        for _ in range(repeats):
            steps = 1 + int(rng.poisson(90) * rng.uniform(0.5, 1.5))
            parts.append(Part(prompt, int(rng.binomial(3 * steps, mean / 3)), steps))
    return parts


@pytest.mark.parametrize(("prompts", "repeats"), [(4, 1), (16, 1), (16, 4)])
def test_the_truth_lies_inside_nineteen_times_in_twenty(prompts, repeats):
    rng = np.random.default_rng(11)
    held = 0
    for _ in range(800):
        interval = ratio_interval(drawn(rng, prompts, repeats))
        assert interval is not None
        held += interval[0] <= 1.6 <= interval[1]
    assert 0.92 <= held / 800 <= 0.975


@given(PARTS)
def test_the_ratio_lies_inside_and_order_and_scale_do_not_matter(parts):
    interval = ratio_interval(parts)
    if len({part.cluster for part in parts}) < 3:
        assert interval is None
        return
    assert interval is not None
    ratio = sum(p.numerator for p in parts) / sum(p.denominator for p in parts)
    assert interval[0] - 1e-9 <= ratio <= interval[1] + 1e-9
    assert ratio_interval(parts[::-1]) == pytest.approx(interval, abs=1e-9)
    scaled = [Part(p.cluster, 7 * p.numerator, 7 * p.denominator) for p in parts]
    assert ratio_interval(scaled) == pytest.approx(interval, abs=1e-9)


@given(PARTS, st.integers(2, 5))
def test_asking_the_same_prompts_again_does_not_narrow_it(parts, times):
    assert ratio_interval(parts * times) == pytest.approx(ratio_interval(parts), abs=1e-9)


def test_a_kind_of_text_has_an_interval_over_its_prompts():
    accepted = (120, 150, 180)
    rows = [
        sample(f"code-{n}", verify_steps=100, accepted=a, sent_s=float(n))
        for n, a in enumerate(accepted)
    ]
    rows += [sample("chat-1", kind="chat", verify_steps=50, accepted=60, sent_s=9.0)]
    code, chat = by_kind(rows)
    assert code.accept_length == pytest.approx(2.5)
    # Residuals -30, 0, 30 of 100 steps each: standard error 0.1732, t with 2 degrees 4.303.
    assert code.low == pytest.approx(2.5 - 4.3027 * 0.173205, rel=1e-4)
    assert code.high == pytest.approx(2.5 + 4.3027 * 0.173205, rel=1e-4)
    assert (chat.low, chat.high) == (None, None)


def test_repetitions_of_a_prompt_are_one_prompt():
    rows = [
        sample(name, verify_steps=100, accepted=150, sent_s=float(n))
        for n, name in enumerate(("a", "a#2", "b", "b#2"))
    ]
    (kind,) = by_kind(rows)
    assert (kind.requests, kind.low) == (4, None)


def test_halves_of_the_output_have_intervals_too():
    rows = [
        sample(f"p{n}", step=step, speculating=True, sent_s=float(n))
        for n, step in enumerate((2, 3, 4, 4))
    ]
    first, second = by_part(rows)
    for half in (first, second):
        assert half.low is not None
        assert half.high is not None
        assert half.low <= half.accept_length <= half.high


def test_an_accept_length_is_never_below_one():
    rows = [
        sample(f"p{n}", verify_steps=10, accepted=a, sent_s=float(n))
        for n, a in enumerate((0, 0, 12))
    ]
    (kind,) = by_kind(rows)
    assert kind.low == 1.0
