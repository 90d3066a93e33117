"""Ways of speculating: which numbers fit together, and the flags that each becomes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from configs.problems import ConfigError
from configs.read import parse
from configs.speculation import (
    Eagle3,
    Nextn,
    Ngram,
    Off,
    Speculation,
    Standalone,
    drafter_of,
    most_drafts,
    speculation_flags,
)

CHAIN: Any = {"num_steps": 3, "topk": 1, "draft_tokens": 4}
CHAIN_FLAGS = {
    "speculative-num-steps": 3,
    "speculative-eagle-topk": 1,
    "speculative-num-draft-tokens": 4,
}
FLAGS: list[tuple[Speculation, dict[str, Any]]] = [
    (Off(), {}),
    (
        Eagle3(drafter="/d", **CHAIN),
        {"speculative-algorithm": "EAGLE3", "speculative-draft-model-path": "/d", **CHAIN_FLAGS},
    ),
    (
        Eagle3(drafter="/d"),
        {"speculative-algorithm": "EAGLE3", "speculative-draft-model-path": "/d"},
    ),
    (
        Eagle3(drafter="/d", eagle2=True),
        {"speculative-algorithm": "EAGLE", "speculative-draft-model-path": "/d"},
    ),
    (Nextn(**CHAIN), {"speculative-algorithm": "NEXTN", **CHAIN_FLAGS}),
    (
        Nextn(drafter="/d"),
        {"speculative-algorithm": "NEXTN", "speculative-draft-model-path": "/d"},
    ),
    (
        Standalone(drafter="/d", **CHAIN),
        {
            "speculative-algorithm": "STANDALONE",
            "speculative-draft-model-path": "/d",
            **CHAIN_FLAGS,
        },
    ),
    (
        Ngram(draft_tokens=12),
        {"speculative-algorithm": "NGRAM", "speculative-num-draft-tokens": 12},
    ),
]


@pytest.mark.parametrize(("way", "flags"), FLAGS)
def test_flags(way, flags):
    assert speculation_flags(way) == flags


def test_the_most_that_a_step_can_accept():
    assert most_drafts(Off()) == 0
    assert most_drafts(Eagle3(drafter="/d", **CHAIN)) == 3
    assert most_drafts(Eagle3(drafter="/d")) is None
    assert most_drafts(Ngram(draft_tokens=12)) == 11


def test_who_has_a_drafter():
    assert [drafter_of(way) for way, _ in FLAGS] == [
        None,
        "/d",
        "/d",
        "/d",
        None,
        "/d",
        "/d",
        None,
    ]


WRONG = {
    "one of three": (
        {"num_steps": 3},
        (
            "topk: is missing: give num_steps, topk and draft_tokens together, or none of them (then "
            "the engine chooses)"
        ),
    ),
    "two of three": (
        {"topk": 1, "draft_tokens": 4},
        (
            "num_steps: is missing: give num_steps, topk and draft_tokens together, or none of them "
            "(then the engine chooses)"
        ),
    ),
    "a chain with another count": (
        {"num_steps": 3, "topk": 1, "draft_tokens": 8},
        (
            "draft_tokens: topk 1 with num_steps 3 verifies 4 tokens, not 8 (SGLang would adjust it "
            "silently): set draft_tokens: 4"
        ),
    ),
    "more than the tree has": (
        {"num_steps": 2, "topk": 2, "draft_tokens": 8},
        (
            "draft_tokens: a tree of num_steps 2 and topk 2 has at most 7 tokens, not 8: lower "
            "draft_tokens"
        ),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_numbers_that_do_not_fit_together_are_named(name):
    numbers, message = WRONG[name]
    with pytest.raises(ConfigError) as caught:
        parse(Eagle3, json.dumps({"kind": "eagle3", "drafter": "/d", **numbers}), "f")
    (problem,) = caught.value.problems
    assert f"{problem.where}: {problem.message}" == message


@given(st.integers(1, 12), st.integers(2, 8), st.integers(1, 80))
def test_a_tree_is_taken_exactly_up_to_its_size(steps, topk, tokens):
    size = 1 + topk + (steps - 1) * topk * topk
    if tokens <= size:
        assert Eagle3(drafter="/d", num_steps=steps, topk=topk, draft_tokens=tokens)
    else:
        with pytest.raises(ValidationError):
            Eagle3(drafter="/d", num_steps=steps, topk=topk, draft_tokens=tokens)
