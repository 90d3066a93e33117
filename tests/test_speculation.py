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
from configs.releases import known_flags, release
from configs.speculation import (
    Adaptive,
    Corpus,
    Eagle,
    Eagle3,
    Nextn,
    Ngram,
    Off,
    Speculation,
    Standalone,
    drafter_of,
    most_drafts,
)
from configs.speculation_flags import speculation_flags

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
        Eagle(drafter="/d"),
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
    (
        Ngram(draft_tokens=8, match="prob", max_breadth=4, trie_depth=12, capacity=1000),
        {
            "speculative-algorithm": "NGRAM",
            "speculative-num-draft-tokens": 8,
            "speculative-ngram-match-type": "PROB",
            "speculative-ngram-max-bfs-breadth": 4,
            "speculative-ngram-capacity": 1000,
            "speculative-ngram-max-trie-depth": 12,
        },
    ),
    (
        Ngram(draft_tokens=8, min_breadth=2, branch_length=20, min_window=2, max_window=16),
        {
            "speculative-algorithm": "NGRAM",
            "speculative-num-draft-tokens": 8,
            "speculative-ngram-min-bfs-breadth": 2,
            "speculative-ngram-branch-length": 20,
            "speculative-ngram-min-match-window-size": 2,
            "speculative-ngram-max-match-window-size": 16,
        },
    ),
    (
        Ngram(draft_tokens=8, corpus=Corpus(path="/c", tokens=7, max_tokens=500)),
        {
            "speculative-algorithm": "NGRAM",
            "speculative-num-draft-tokens": 8,
            "speculative-ngram-external-corpus-path": "/c",
            "speculative-ngram-external-sam-budget": 7,
            "speculative-ngram-external-corpus-max-tokens": 500,
        },
    ),
    (
        Eagle3(drafter="/d", adaptive=Adaptive(), **CHAIN),
        {
            "speculative-algorithm": "EAGLE3",
            "speculative-draft-model-path": "/d",
            **CHAIN_FLAGS,
            "speculative-adaptive": True,
        },
    ),
    (
        Nextn(adaptive=Adaptive(config="/a.json")),
        {
            "speculative-algorithm": "NEXTN",
            "speculative-adaptive": True,
            "speculative-adaptive-config": "/a.json",
        },
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
    tree = Eagle3(drafter="/d", num_steps=5, topk=4, draft_tokens=8)
    assert most_drafts(tree) == 5
    assert most_drafts(Eagle3(drafter="/d", num_steps=5, topk=4, draft_tokens=4)) == 3
    assert most_drafts(Eagle(drafter="/d", adaptive=Adaptive(), **CHAIN)) == 7
    assert most_drafts(Eagle(drafter="/d", adaptive=Adaptive(config="/a"), **CHAIN)) is None


def test_every_flag_is_one_that_some_release_has():
    for _way, flags in FLAGS:
        assert [flag for flag in flags if flag not in known_flags()] == []


def test_flags_of_one_way_are_of_one_release():
    """What the validators keep apart is apart in the table of flags too."""
    for way, flags in FLAGS:
        newest = [known_flags()[flag].last for flag in flags]
        oldest = [known_flags()[flag].first for flag in flags]
        if newest:
            assert max(map(release, oldest)) <= min(map(release, newest)), way


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
        None,
        None,
        None,
        "/d",
        None,
    ]


WRONG: dict[str, Any] = {
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


WRONG |= {
    "a tree that drafts nothing": (
        {"num_steps": 2, "topk": 2, "draft_tokens": 1},
        (
            "draft_tokens: 1 is the token that is certain already, so nothing is drafted: raise it, "
            "or say speculation: {kind: off}"
        ),
    ),
    "an adaptive tree": (
        {"num_steps": 3, "topk": 2, "draft_tokens": 6, "adaptive": {}},
        (
            "adaptive: works with topk 1, not 2 (SGLang would fall back to fixed steps with no more "
            "than a line in its log): set topk: 1, or leave adaptive out"
        ),
    ),
    "adaptive from a step that it does not know": (
        {"num_steps": 4, "topk": 1, "draft_tokens": 5, "adaptive": {}},
        (
            "num_steps: 4 is not among the steps that SGLang changes between: begin with one of 1, "
            "3, 5, 7, or name them in adaptive.config"
        ),
    ),
}


WRONG_NGRAM: dict[str, Any] = {
    "min_breadth: is 11, above max_breadth 10: lower it, or raise the other": {"min_breadth": 11},
    "branch_length: is of SGLang 0.5.9, trie_depth of newer releases: no release has both": {
        "branch_length": 18,
        "trie_depth": 18,
    },
    "min_window: is 4, above max_window 3: lower it, or raise the other": {
        "min_window": 4,
        "max_window": 3,
    },
    (
        "max_window: the longest match (18) must be shorter than branch_length (18): set "
        "max_window: 17 or raise branch_length"
    ): {"max_window": 18},
    (
        "branch_length: the longest match (12) must be shorter than branch_length (6): set "
        "max_window: 5 or raise branch_length"
    ): {"branch_length": 6},
    "corpus: tokens 8 is above draft_tokens - 1 (7): lower it, or raise draft_tokens": {
        "corpus": {"path": "/c", "tokens": 8}
    },
    "draft_tokens: must be at least 2, not 1": {"draft_tokens": 1},
}


@pytest.mark.parametrize("message", WRONG_NGRAM)
def test_ngram_numbers_that_do_not_fit_together_are_named(message):
    text = json.dumps({"kind": "ngram", "draft_tokens": 8, **WRONG_NGRAM[message]})
    with pytest.raises(ConfigError) as caught:
        parse(Ngram, text, "f")
    (problem,) = caught.value.problems
    assert f"{problem.where}: {problem.message}" == message


@pytest.mark.parametrize("name", WRONG)
def test_numbers_that_do_not_fit_together_are_named(name):
    numbers, message = WRONG[name]
    with pytest.raises(ConfigError) as caught:
        parse(Eagle3, json.dumps({"kind": "eagle3", "drafter": "/d", **numbers}), "f")
    (problem,) = caught.value.problems
    assert f"{problem.where}: {problem.message}" == message


@given(st.integers(1, 12), st.integers(2, 8), st.integers(2, 80))
def test_a_tree_is_taken_exactly_up_to_its_size(steps, topk, tokens):
    size = 1 + topk + (steps - 1) * topk * topk
    if tokens <= size:
        assert Eagle3(drafter="/d", num_steps=steps, topk=topk, draft_tokens=tokens)
    else:
        with pytest.raises(ValidationError):
            Eagle3(drafter="/d", num_steps=steps, topk=topk, draft_tokens=tokens)
