"""The forecast of a short probe agrees with the closed form where both hold."""

import pytest

from infra.rehearsal.forecast import forecast
from infra.rehearsal.truth import DRAFTERS, PREFILL_S, Arm, expected, step_s

BASE = Arm()
TUNED = Arm(True, DRAFTERS["k25-tuned"], 3, 1, 4)


def test_one_user_without_speculation_is_plain_arithmetic():
    found = forecast(BASE, 1, 64, 4)
    one = PREFILL_S + 63 * step_s(BASE, 1)
    assert found.output_tok_s == pytest.approx(64 / one)
    assert found.user_tok_s == pytest.approx(63.6)
    assert found.accept_length == 1.0


def test_a_batch_that_starts_together_ends_together():
    found = forecast(BASE, 64, 64, 128)
    wave = PREFILL_S + 63 * step_s(BASE, 64)
    assert found.output_tok_s == pytest.approx(64 * 64 / wave)


@pytest.mark.parametrize("users", [1, 8, 64])
def test_a_long_loop_comes_to_the_closed_form(users):
    found = forecast(TUNED, users, 256, users * 12)
    wanted = expected(TUNED, users, 256)
    assert found.accept_length == pytest.approx(wanted.accept_length, rel=0.01)
    assert found.user_tok_s == pytest.approx(wanted.user_tok_s, rel=0.015)
    assert found.output_tok_s == pytest.approx(wanted.output_tok_s, rel=0.02)


def test_what_cannot_be_played_is_refused():
    with pytest.raises(ValueError, match="two output tokens"):
        forecast(BASE, 4, 64, 3)
