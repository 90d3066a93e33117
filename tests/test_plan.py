"""A plan holds every arm under every combination of levels once in each block, and is stable."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.cells import cells
from configs.names import NAME_PATTERN
from configs.nodes import place_name
from configs.plan import (
    blocks_of,
    duplicate_intents,
    hash_of,
    intent,
    make_plan,
    shared_by_all,
)
from configs.read import parse, parse_document, parse_sweep
from configs.rules import problems
from configs.sweep import Sweep
from tests.sweeps import TEXT, sweep, unchecked

NAME = st.from_regex(NAME_PATTERN.replace("*$", "{0,6}$"), fullmatch=True)


@st.composite
def sweeps(draw):
    arms = draw(st.lists(NAME, min_size=1, max_size=4, unique=True))
    factors = draw(
        st.dictionaries(NAME, st.lists(NAME, min_size=1, max_size=3, unique=True), max_size=3)
    )
    tree: dict[str, Any] = {
        "name": draw(NAME),
        "question": "?",
        "hosts": draw(st.lists(NAME, min_size=1, max_size=3, unique=True)),
        "engine": {"model": "/m"},
        "baseline": draw(st.sampled_from(arms)),
        "arms": {arm: {} for arm in arms},
        "factors": {
            factor: {level: {"env": {f"F{n}": level}} for level in levels}
            for n, (factor, levels) in enumerate(factors.items())
        },
        "probes": {"p": {"kind": "stream", "prompts": "mixed", "concurrency": [1]}},
        "blocks": draw(st.integers(1, 5)),
        "seed": draw(st.integers(0, 10)),
    }
    return tree


def read(tree: Any) -> Sweep | None:
    """The sweep, or None where two settings would have one name (refused, see the rules)."""
    asked = parse(Sweep, json.dumps(tree), "f")
    refused = problems(asked)
    assert all("would both be called" in said.message for said in refused)
    return None if refused else asked


@settings(max_examples=150, deadline=None)
@given(sweeps())
def test_every_setting_stands_once_in_every_block(tree):
    asked = read(tree)
    if asked is None:
        return
    plan = make_plan(asked)
    wanted = {
        (block, arm, tuple(zip(asked.factors, levels, strict=True)))
        for block in range(1, asked.blocks + 1)
        for arm in asked.arms
        for levels in itertools.product(*asked.factors.values())
    }
    found = Counter((t.block, t.arm, tuple(t.levels.items())) for t in plan.trials)
    assert set(found) == wanted
    assert set(found.values()) == {1}
    assert [trial.order for trial in plan.trials] == list(range(len(plan.trials)))
    assert [trial.block for trial in plan.trials] == sorted(trial.block for trial in plan.trials)


@settings(max_examples=150, deadline=None)
@given(sweeps())
def test_ids_are_unique_and_safe_as_a_folder(tree):
    asked = read(tree)
    if asked is None:
        return
    ids = [trial.id for trial in make_plan(asked).trials]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"b\d{2,}-[a-z0-9][a-z0-9._-]*", name) for name in ids)
    assert max(map(len, ids)) < 200


@settings(max_examples=60, deadline=None)
@given(sweeps())
def test_one_file_and_seed_is_one_plan(tree):
    asked = read(tree)
    if asked is not None:
        assert make_plan(asked) == make_plan(asked)


@settings(max_examples=60, deadline=None)
@given(sweeps())
def test_a_block_runs_on_one_host(tree):
    asked = read(tree)
    if asked is None:
        return
    hosts = [{t.host for t in block} for block in blocks_of(make_plan(asked).trials).values()]
    assert all(len(each) == 1 for each in hosts)
    used = Counter(host for each in hosts for host in each)
    assert max(used.values()) - min(used[place_name(host)] for host in asked.hosts) <= 1


def test_another_seed_is_another_order_of_the_same_trials():
    first, second = make_plan(sweep()), make_plan(sweep(("seed: 3", "seed: 4")))
    assert [t.id for t in first.trials] != [t.id for t in second.trials]
    assert {t.id for t in first.trials} == {t.id for t in second.trials}
    assert first.digest != second.digest


def test_blocks_are_shuffled_each_for_itself():
    plan = make_plan(sweep(("blocks: 2", "blocks: 8")))
    orders = {
        tuple(trial.id.partition("-")[2] for trial in block)
        for block in blocks_of(plan.trials).values()
    }
    assert len(orders) > 4


def test_more_blocks_leave_the_earlier_ones_as_they_are():
    two, three = make_plan(sweep()), make_plan(sweep(("blocks: 2", "blocks: 3")))
    assert three.trials[: len(two.trials)] == two.trials


def shuffled(tree: Any, turn: int) -> Any:
    if isinstance(tree, dict):
        keys = sorted(tree, key=lambda key: hash_of([turn, key]))
        return {key: shuffled(tree[key], turn) for key in keys}
    return tree


@pytest.mark.parametrize("turn", range(4))
def test_an_intent_does_not_depend_on_the_order_of_keys(turn):
    tree = parse_document(TEXT, "f").data
    tree["engine"]["env"] = {"B": "1", "A": "2"}
    other = parse_sweep(json.dumps(shuffled(tree, turn)), "f")
    asked = parse_sweep(json.dumps(tree), "f")
    here = shared_by_all(asked, {"x": "1", "y": "2"})
    there = shared_by_all(other, {"y": "2", "x": "1"})
    for arm, levels in cells(asked):
        assert intent(asked, arm, levels, here) == intent(other, arm, levels, there)


SAME = {
    "words": ("Which of two drafters pays?", "Does it?"),
    "patience": ("seed: 3", "seed: 3\npatience: {start_s: 1}"),
    "blocks": ("blocks: 2", "blocks: 5"),
    "margin": ("seed: 3", "seed: 3\nsame_margin: 0.1"),
    "alias": ("tp-size: 8", "tensor-parallel-size: 8"),
    "quotes": ("tp-size: 8", 'tp-size: "8"'),
    "flag left out": ("tp-size: 8", "tp-size: 8\n    disable-cuda-graph: false"),
    "another arm": ("/models/b", "/models/c"),
    "another level": ("NCCL_PROTO: LL", "NCCL_PROTO: Simple"),
}
OTHER = {
    "model": ("/models/target", "/models/other"),
    "flag": ("tp-size: 8", "tp-size: 4"),
    "switch": ("tp-size: 8", "tp-size: 8\n    disable-cuda-graph: true"),
    "environment": ("  kind: sglang", "  kind: sglang\n  env: {A: b}"),
    "drafter": ("/models/a", "/models/c"),
    "speculation": (
        "num_steps: 3\n      topk: 1\n      draft_tokens: 4",
        "num_steps: 1\n      topk: 1\n      draft_tokens: 2",
    ),
    "patch": ("blocks: 2", "patches: [p]"),
    "probe": ("prompts: mixed", "prompts: mixed\n    sampling: {temperature: 0.6}"),
    "concurrency": ("[1, 8]", "[1, 4]"),
    "seed, which chooses prompts": ("seed: 3", "seed: 4"),
}


def intent_of_a(*changes: tuple[str, str], **contents: str) -> str:
    asked = unchecked(*changes)
    return intent(asked, "a", {"nccl": "default"}, shared_by_all(asked, contents))


@pytest.mark.parametrize("name", SAME)
def test_what_cannot_change_a_number_leaves_the_intent(name):
    assert intent_of_a(SAME[name]) == intent_of_a()


@pytest.mark.parametrize("name", OTHER)
def test_what_may_change_a_number_changes_the_intent(name):
    assert intent_of_a(OTHER[name]) != intent_of_a()


def test_contents_of_prompts_and_patches_are_part_of_the_intent():
    assert intent_of_a(prompts="1") != intent_of_a(prompts="2")
    assert make_plan(sweep(), {"p": "1"}).digest != make_plan(sweep(), {"p": "2"}).digest


def test_settings_that_ask_for_the_same_are_pointed_out():
    plan = make_plan(sweep(("{env: {NCCL_PROTO: LL}}", "{}"), ("blocks: 2", "blocks: 1")))
    pairs = {frozenset(pair) for pair in duplicate_intents(plan.trials)}
    assert frozenset({"b01-base-default", "b01-base-ll"}) in pairs
    assert len(pairs) == 3
    assert duplicate_intents(make_plan(sweep()).trials) == []


def test_ten_thousand_trials_are_planned_in_under_a_second():
    tree = parse_document(TEXT, "f").data
    tree["arms"] = {"base": {}} | {
        f"a{n}": {"speculation": {"kind": "eagle3", "drafter": f"/d{n}"}} for n in range(9)
    }
    tree["factors"] = {
        "f": {f"l{n}": {"env": {"A": str(n)}} for n in range(10)},
        "g": {f"l{n}": {"flags": {"page-size": n + 1}} for n in range(10)},
    }
    tree["blocks"] = 10
    asked = parse_sweep(json.dumps(tree), "f")
    start = time.process_time()
    plan = make_plan(asked)
    assert time.process_time() - start < 1
    assert len({trial.id for trial in plan.trials}) == 10_000
