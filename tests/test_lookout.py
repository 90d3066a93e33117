"""Whose end is told of, where several nodes of a place ended: by cause, then by time."""

from __future__ import annotations

import pytest

from tasks.lookout import Ended, first_cause
from tasks.venue import failed


def _ended(failure_class: str, at: float) -> Ended:
    return Ended(failed("probe", failure_class).failure, at)


@pytest.mark.parametrize(
    ("own", "other", "whose"),
    [
        (("engine_dead", 10.0), ("gpu_oom", 11.0), "other"),
        (("engine_dead", 10.0), ("engine_dead", 9.9), "other"),
        (("engine_dead", 10.0), ("engine_dead", 10.1), "own"),
        (("engine_dead", 10.0), ("engine_dead", 10.0), "own"),
        (("gpu_oom", 10.0), ("engine_dead", 9.0), "own"),
        (("gpu_oom", 10.0), ("kv_cache_too_small", 9.0), "other"),
        (("gpu_oom", 10.0), ("kv_cache_too_small", 11.0), "own"),
    ],
)
def test_a_cause_wins_over_an_echo_and_then_the_earlier_end(
    own: tuple[str, float], other: tuple[str, float], whose: str
) -> None:
    mine, theirs = _ended(*own), _ended(*other)
    assert first_cause(mine, [theirs]) is (theirs if whose == "other" else mine)
    assert first_cause(mine, []) is mine


def test_of_several_nodes_the_one_with_a_cause_is_named() -> None:
    lead, echo, cause = (
        _ended("engine_dead", 3.0),
        _ended("engine_dead", 1.0),
        _ended("gpu_oom", 9.0),
    )
    assert first_cause(lead, [echo, cause]) is cause
    assert first_cause(lead, [echo]) is echo
