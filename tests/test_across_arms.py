"""What no trial alone can show is said beside the verdicts, and only then."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.compare import compare
from tests.builders import measurement, record


def night(ours: dict[str, Any], blocks: int = 3, **more: Any) -> tuple[str, ...]:
    """Notes on a baseline and one arm whose only measurement differs in these fields."""
    records = []
    for block in range(1, blocks + 1):
        records.append(record("base", block, effective={"max-total-num-tokens": "1000000"}))
        probed = measurement(accept_length=2.5).model_copy(update=ours)
        records.append(record("tuned", block, (probed,), **more))
    return compare(records).notes


@pytest.mark.parametrize(
    ("differs", "near", "words"),
    [
        ({"natural_stops": 9}, {"natural_stops": 8}, "11% of the answers ended by themselves"),
        ({"completion_tokens": 22_529}, {"completion_tokens": 22_527}, "282 tokens on average"),
        ({"requested": 79}, {"requested": 80}, "fewer than 10 requests per concurrent slot"),
    ],
)
def test_other_texts_and_short_probes_are_said(differs, near, words):
    (note,) = night(differs)
    assert words in note
    assert night(near) == ()


def test_another_room_in_the_kv_cache_is_said():
    (note,) = night({}, effective={"max-total-num-tokens": "949999"})
    assert "tuned has room for 949,999 tokens in its KV cache, base for 1,000,000" in note
    assert night({}, effective={"max-total-num-tokens": "950000"}) == ()
    assert night({}, effective={}) == ()


def ladder(at_many: float, blocks: int = 3) -> tuple[str, ...]:
    """Notes on an arm that accepts 2.5 tokens a step alone, and this many at 64 users."""
    records = []
    for block in range(1, blocks + 1):
        jitter = 1 + 0.001 * (block - 2)
        for arm, one, many in (("base", 1.0, 1.0), ("tuned", 2.5 * jitter, at_many)):
            probed = tuple(
                measurement(concurrency=c, accept_length=length)
                for c, length in ((1, one), (64, many))
            )
            records.append(record(arm, block, probed))
    return compare(records).notes


def test_acceptance_that_changes_with_the_load_is_said_with_its_interval():
    (note,) = ladder(2.3)
    assert note.startswith("tuned, load: accept length at 64 is 0.920 [0.9")
    assert "times that at 1" in note


def test_within_the_margin_or_without_repetition_nothing_is_said():
    assert ladder(2.46) == ()
    assert ladder(2.3, blocks=1) == ()
