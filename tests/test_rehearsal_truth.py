"""The truth of the pretend engine is the one that was asked for, and its forecasts hold."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.rehearsal import truth
from infra.rehearsal.truth import DRAFTERS, Arm, expected

BASE = Arm()


def arm(drafter, steps=3, topk=1, draft_tokens=4, proto="") -> Arm:
    accept = truth.chain(DRAFTERS[drafter], steps, topk, draft_tokens)
    return Arm(True, accept, steps, topk, draft_tokens, proto)


def ratio(drafter, users) -> float:
    return expected(arm(drafter), users, 4096).user_tok_s / expected(BASE, users, 4096).user_tok_s


def test_baseline_anchors():
    assert expected(BASE, 1, 256).user_tok_s == pytest.approx(63.6)
    assert 8 / truth.base_step_s(8) == pytest.approx(471, abs=1)
    assert 64 / truth.base_step_s(64) == pytest.approx(2370)


@pytest.mark.parametrize(
    ("drafter", "rate", "length"),
    [("aq-medai-k2-drafter", 0.42, 2.26), ("k25-custom", 0.25, 1.75), ("k25-tuned", 0.62, 2.86)],
)
def test_acceptance_of_the_drafters(drafter, rate, length):
    accept = DRAFTERS[drafter]
    assert sum(accept) / 3 == pytest.approx(rate)
    assert 1 + sum(accept) == pytest.approx(length)
    assert accept[0] > accept[1] > accept[2]


def test_who_pays_at_which_concurrency():
    assert ratio("aq-medai-k2-drafter", 1) == pytest.approx(0.99, abs=0.002)
    assert ratio("aq-medai-k2-drafter", 64) == pytest.approx(0.86, abs=0.002)
    assert ratio("k25-custom", 1) < 0.8
    assert ratio("k25-tuned", 1) == pytest.approx(1.25, abs=0.01)
    assert ratio("k25-tuned", 1) > ratio("k25-tuned", 8) > ratio("k25-tuned", 64) > 1


def test_only_ll_changes_the_step_and_it_changes_all_reduce_alone():
    saved = 1 - truth.ALL_REDUCE_SHARE * truth.LL_SAVES
    for users in (1, 8, 64):
        for plain, faster in (
            (BASE, Arm(nccl_proto="LL")),
            (arm("k25-tuned"), arm("k25-tuned", proto="ll")),
        ):
            assert truth.step_s(faster, users) == pytest.approx(truth.step_s(plain, users) * saved)
    assert truth.step_s(Arm(nccl_proto="Simple"), 8) == truth.step_s(BASE, 8)


def test_verify_step_does_not_depend_on_the_drafter_but_on_the_settings():
    assert truth.step_s(arm("k25-custom"), 8) == truth.step_s(arm("k25-tuned"), 8)
    shorter, longer = arm("k25-tuned", 1, 1, 2), arm("k25-tuned", 5, 1, 6)
    assert truth.step_s(shorter, 8) < truth.step_s(arm("k25-tuned"), 8) < truth.step_s(longer, 8)
    assert sum(shorter.accept_at) < sum(arm("k25-tuned").accept_at) < sum(longer.accept_at)
    wide = arm("k25-tuned", 3, 2, 6)
    assert sum(wide.accept_at) > sum(arm("k25-tuned").accept_at)


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=5).map(lambda xs: tuple(sorted(xs)[::-1])),
    st.integers(1, 7),
    st.integers(1, 4),
)
def test_acceptance_never_rises_with_the_position(accept, steps, topk):
    found = truth.chain(accept, steps, topk, steps + 1)
    assert len(found) == steps
    assert list(found) == sorted(found, reverse=True)
    assert all(0 <= share <= 1 + 1e-12 for share in found)
    assert sum(truth.accepted_shares(found)) == pytest.approx(1)


def test_mean_steps_agree_with_drawing_them():
    accept, dice, runs, tokens = DRAFTERS["k25-tuned"], random.Random(3), 4000, 60
    total = 0
    for _ in range(runs):
        made = 0
        while made < tokens:
            drawn = dice.random()
            made += 1 + sum(drawn < share for share in accept)
            total += 1
    assert truth.mean_verify_steps(accept, tokens) == pytest.approx(total / runs, rel=0.01)


def test_boot_noise_scales_every_step():
    noisy, calm = expected(BASE, 8, 64, noise=1.01), expected(BASE, 8, 64)
    assert noisy.step_s == pytest.approx(calm.step_s * 1.01)
    assert noisy.user_tok_s == pytest.approx(calm.user_tok_s / 1.01)


def test_a_request_of_one_token_has_no_speed():
    with pytest.raises(ValueError, match="two output tokens"):
        expected(BASE, 1, 1)
