"""What a server changed in silence is found by name."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tasks.effective import Setting, effective_settings, setting_differences

REAL = Path(__file__).parent / "fixtures" / "real_info"


def settings(arm: str) -> dict[str, Setting]:
    return effective_settings((REAL / arm / "get_server_info.json").read_text(encoding="utf-8"))


def test_a_real_server_runs_with_what_was_asked():
    asked: dict[str, Setting] = {
        "--speculative-algorithm": "EAGLE3",
        "--speculative-num-steps": 3,
        "--tp-size": "1",
        "model": "/tmp/m/target/",
        "max_running_requests": 48,
        "disable_radix_cache": False,
    }
    assert setting_differences(asked, settings("eagle3-good")) == ()


def test_the_limit_in_effect_replaces_the_argument():
    assert settings("base")["max_running_requests"] == 4096
    two = '{"max_running_requests": 64, "internal_states": [{"effective_max_running_requests_per_dp": 24}, {"effective_max_running_requests_per_dp": 24}]}'
    assert effective_settings(two)["max_running_requests"] == 48


def test_differences_name_both_values():
    asked = {"speculative_num_draft_tokens": 24, "trust_remote_code": True, "no_such": 1}
    assert setting_differences(asked, settings("eagle3-good")) == (
        "speculative_num_draft_tokens: asked 24, in effect 4",
        "trust_remote_code: asked True, in effect False",
        "no_such: asked 1, the server does not say what is in effect",
    )


def test_other_answers_give_nothing():
    assert effective_settings("<html>") == {}
    assert effective_settings("[1]") == {}


@given(st.text())
def test_no_text_breaks_the_reading(text):
    effective_settings(text)
    effective_settings('{"decode": ' + text)
