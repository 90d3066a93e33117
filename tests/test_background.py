"""A ladder of prompt lengths: real text, unshared beginnings, names of its own."""

from __future__ import annotations

import io
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from configs.plan import make_plan
from configs.probe import rungs_of
from configs.problems import ConfigError
from configs.read import parse_sweep
from configs.rules import problems
from flows.question import pose
from flows.show import plan_text
from tasks.background import lengthened, passages, rough_tokens
from tasks.prompts import Message, Prompt, choose
from tasks.texts import BACKGROUND, identities, read_sets, texts_of
from tests.sweeps import changed, sweep, unchecked, write_host

LADDER = ("prompts: mixed", "prompts: mixed\n    context_tokens: [0, 512, 2048]")
PLAIN = ("prompts: mixed", "prompts: mixed\n    template: {kind: none}")
LONG = ("prompts: mixed", f"{PLAIN[1]}\n    context_tokens: [0, 512, 2048]")


@pytest.fixture(scope="module")
def shipped() -> tuple[Prompt, ...]:
    return read_sets(sweep(LADDER))[BACKGROUND]


def test_every_length_is_a_probe_of_its_own():
    rungs = rungs_of(sweep(LADDER).probes)
    assert list(rungs) == ["load", "load-ctx512", "load-ctx2048"]
    assert [probe.prompt_tokens for probe in rungs.values()] == [0, 512, 2048]
    assert list(rungs_of(sweep().probes)) == ["load"]


def test_prompts_are_about_as_long_as_asked_and_end_with_their_question():
    asked = sweep(LONG)
    texts = texts_of(asked, read_sets(asked), None)
    plain = {text.id: text.text for text in texts["load"][8]}
    for tokens in (512, 2048):
        for text in texts[f"load-ctx{tokens}"][8]:
            front = text.text.removesuffix(plain[text.id].rpartition("\n\n")[2])
            assert front != text.text
            assert tokens * 0.9 < rough_tokens(front) < tokens * 1.25 + 400


def test_no_two_prompts_share_a_beginning():
    asked = sweep(LONG)
    texts = [text.text for text in texts_of(asked, read_sets(asked), None)["load-ctx2048"][8]]
    for one, other in itertools.combinations(texts, 2):
        shared = next(i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
        # A system message or an earlier turn stands in front of the background.
        assert shared < 8 or not one.startswith("(")


@given(st.integers(1, 30_000), st.integers(1, 900), st.integers())
def test_background_is_the_same_every_time_and_leaves_the_question_alone(tokens, number, seed):
    texts = tuple(f"Passage {n}: " + "the tide comes in and goes out again. " * n for n in range(9))
    prompt = Prompt(
        id="a", kind="chat", messages=(Message(role="user", content="Why is the sea salt?"),)
    )
    made = lengthened(prompt, tokens, number, seed, texts)
    assert made == lengthened(prompt, tokens, number, seed, texts)
    assert made.messages is not None
    content = made.messages[-1].content
    assert content.startswith(f"({number})\n")
    assert content.endswith("\n\n---\n\nWhy is the sea salt?")
    assert rough_tokens(content) >= tokens
    assert rough_tokens(content) <= tokens + 40


def test_a_prompt_is_not_its_own_background(shipped):
    texts = passages(shipped)
    for prompt in choose(shipped, 12, 1):
        made = lengthened(prompt, 20_000, 1, 1, texts)
        assert prompt.messages is not None
        assert made.messages is not None
        assert made.messages[-1].content.count(prompt.messages[-1].content) == 1
    assert lengthened(prompt, 0, 1, 1, texts) == prompt


def test_lengths_and_background_are_part_of_the_fingerprint():
    asked = sweep(LADDER)
    own = sweep(("prompts: mixed", "prompts: mixed\n    context_tokens: [0, 512]"))
    assert make_plan(asked).trials[0].intent != make_plan(own).trials[0].intent
    assert f"prompts:{BACKGROUND}" in identities(read_sets(asked))


def test_what_cannot_fit_is_refused_with_the_file():
    flags = ("tp-size: 8", "tp-size: 8\n    context-length: 2200")
    (said,) = problems(unchecked(LADDER, flags))
    assert said.where == "probes.load.context_tokens"
    assert "do not fit into context-length 2200" in said.message
    roomy = ("tp-size: 8", "tp-size: 8\n    context-length: 2304")
    assert problems(unchecked(LADDER, roomy)) == []


@pytest.mark.parametrize(
    ("probe", "words"),
    [
        ("prompts: mixed\n    context_tokens: [512, 512]", "512 stands twice"),
        (
            "prompts: random\n    random: {tokens: 9}\n    context_tokens: [512]",
            "make random.tokens that long",
        ),
        ("prompts: mixed\n    context_tokens: [-1]", "at least 0"),
    ],
)
def test_a_senseless_ladder_is_refused(probe, words):
    with pytest.raises(ConfigError) as caught:
        parse_sweep(changed(("prompts: mixed", probe)), "sweep.yaml")
    assert words in str(caught.value)


def test_a_rung_may_not_bear_another_probes_name():
    text = (
        f"{LADDER[1]}\n    concurrency: [1]\n  load-ctx512:\n    kind: stream\n    prompts: mixed"
    )
    (said,) = problems(unchecked(("prompts: mixed", text)))
    assert "measured as load-ctx512" in said.message


def test_the_plan_says_the_lengths(tmp_path, monkeypatch):
    write_host(tmp_path)
    monkeypatch.chdir(tmp_path)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(plan_text(pose(sweep(LADDER))))
    shown = console.export_text()
    assert "load-ctx2048: prompts mixed behind about 2048 tokens of background" in shown
