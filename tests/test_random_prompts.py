"""Random tokens: what a probe of them is, what it may claim, and what a user is told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.cautions import warnings
from configs.plan import make_plan
from configs.probe import RandomTokens
from configs.problems import ConfigError
from configs.read import parse_sweep
from tasks.measure import measure
from tasks.random_prompts import random_prompts
from tasks.report_outputs import THROUGHPUT_ONLY, outputs_section
from tasks.texts import read_sets, texts_of
from tests.builders import closed_loop, measurement, record
from tests.sweeps import changed, sweep

RANDOM = ("prompts: mixed", "prompts: random\n    random: {tokens: 512}")


@given(
    st.integers(1, 300),
    st.floats(0, 1),
    st.integers(1024, 40_000),
    st.integers(0, 40),
    st.integers(),
)
def test_prompts_have_the_lengths_and_ids_that_were_asked_for(tokens, ratio, below, count, seed):
    drawn = RandomTokens(tokens=tokens, range_ratio=ratio, ids_below=below)
    prompts = random_prompts(drawn, count, seed)
    assert len(prompts) == count
    assert all(drawn.shortest <= len(prompt) <= tokens for prompt in prompts)
    assert all(256 <= token < below for prompt in prompts for token in prompt)
    assert len({prompt[0] for prompt in prompts}) == count, "a shared beginning would be cached"
    assert prompts == random_prompts(drawn, count + 3, seed)[:count]


def test_more_prompts_than_ids_still_differ():
    drawn = RandomTokens(tokens=8, ids_below=1024)
    prompts = random_prompts(drawn, 2000, 1)
    assert len(set(prompts)) == 2000
    assert prompts != random_prompts(drawn, 2000, 2)


def test_they_are_sent_as_ids_and_need_neither_a_set_nor_a_template():
    asked = sweep(RANDOM)
    assert read_sets(asked) == {}
    texts = texts_of(asked, {}, None)["load"][8]
    assert len(texts) == 80
    assert {len(text.ids or ()) for text in texts} == {512}


def test_lengths_and_seed_are_part_of_the_fingerprint():
    plans = [
        make_plan(sweep(RANDOM)),
        make_plan(sweep(("prompts: mixed", "prompts: random\n    random: {tokens: 511}"))),
        make_plan(sweep(RANDOM, ("seed: 3", "seed: 4"))),
    ]
    assert len({plan.trials[0].intent for plan in plans}) == 3


def test_the_plan_warns_and_names_the_lengths():
    drawn = "prompts: random\n    random: {tokens: 1024, range_ratio: 0.25}"
    said = {w.where: w.message for w in warnings(sweep(("prompts: mixed", drawn)))}
    assert "throughput only" in said["probes.load.prompts"]
    assert said["probes.load.random.range_ratio"] == "range ratio 0.25 makes lengths 256..1024"


@pytest.mark.parametrize(
    ("probe", "where", "words"),
    [
        ("prompts: random", "probes.load.random", "say how long, such as {tokens: 512}"),
        ("prompts: mixed\n    random: {tokens: 9}", "probes.load.random", "leave random out"),
        (f"{RANDOM[1]}\n    kinds: [code]", "probes.load.kinds", "random tokens are of no kind"),
        ("prompts: random\n    random: {tokens: 0}", "probes.load.random.tokens", "at least 1"),
    ],
)
def test_half_a_question_is_refused(probe, where, words):
    with pytest.raises(ConfigError) as caught:
        parse_sweep(changed(("prompts: mixed", probe)), "sweep.yaml")
    (problem,) = caught.value.problems
    assert problem.where == where
    assert words in problem.message


def test_no_acceptance_is_claimed_whatever_was_counted():
    m = measure(closed_loop(step=3, speculating=True), "load", 4, speculating=True, claimed=False)
    assert m.counts_from == "not_claimed"
    assert (m.accept_length, m.accepted, m.verify_steps, m.proposed, m.by_kind) == (
        None,
        None,
        None,
        None,
        (),
    )
    assert (m.draft_accept_rate, m.accept_at_k, m.step_s, m.histogram) == (None,) * 4
    assert m.output_tok_s is not None
    assert m.user_tok_s is not None


def test_the_report_says_so():
    fields: dict[str, Any] = {"accept_length": None, "counts_from": "not_claimed"}
    noise = measurement(probe="noise", **fields)
    text = outputs_section([record("a", measurements=(noise, measurement()))])
    assert f"Probe noise: **{THROUGHPUT_ONLY}**" in text
    assert "Probe load" not in text
