"""Text is told from rubbish and from nothing, in every shape an engine answers in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.generation import garbage, read_generation

FRANCE = " Paris. It is the largest city of the country."


def verdict(answer: object) -> str:
    return read_generation(json.dumps(answer)).verdict


def test_native_and_openai_answers_hold_text():
    assert verdict({"text": FRANCE, "meta_info": {"completion_tokens": 11}}) == "tokens"
    assert verdict([{"text": FRANCE}]) == "tokens"
    assert verdict({"choices": [{"text": FRANCE}], "usage": {"completion_tokens": 3}}) == "tokens"
    assert verdict({"choices": [{"message": {"content": FRANCE}}]}) == "tokens"
    thinking = {"choices": [{"message": {"content": None, "reasoning_content": "Let me see"}}]}
    assert verdict(thinking) == "tokens"


def test_a_stream_is_judged_by_its_last_text():
    events = [{"text": "a"}, {"text": FRANCE, "meta_info": {"completion_tokens": 11}}]
    body = "".join(f"data: {json.dumps(e)}\n\n" for e in events) + "data: [DONE]\n\n"
    made = read_generation(body)
    assert (made.verdict, made.text, made.tokens) == ("tokens", FRANCE, 11)


def test_an_error_inside_a_200_is_no_token():
    assert verdict({"error": {"message": "engine is dead"}}) == "nothing"
    body = 'data: {"text": "a"}\n\ndata: {"error": {"message": "aborted"}}\n\n'
    assert read_generation(body).verdict == "nothing"


def test_no_text_and_no_tokens_is_nothing():
    assert verdict({"text": ""}) == "nothing"
    assert verdict({"text": "", "meta_info": {"completion_tokens": 0}}) == "nothing"


def test_tokens_without_text_are_tokens():
    assert verdict({"text": "", "meta_info": {"completion_tokens": 4}}) == "tokens"


@pytest.mark.parametrize(
    "text",
    [
        "!!!!!!!!!!!!!!!!",
        "ofofofofofofof",
        "the the the the the",
        "\ufffd\ufffd\ufffdabc\ufffd\ufffd",
    ],
)
def test_rubbish_is_seen(text):
    assert garbage(text) is not None
    assert verdict({"text": text}) == "garbage"


@pytest.mark.parametrize(
    "text", [FRANCE, "Paris", "!!!", "1, 2, 3, 4, 5, 6", "巴黎是法国的首都。\n\n"]
)
def test_short_or_plain_text_is_not_rubbish(text):
    assert garbage(text) is None


def test_one_token_over_and_over_is_rubbish_whatever_its_text():
    assert verdict({"text": "", "output_ids": [0] * 16}) == "garbage"


def test_real_outputs_are_text():
    path = Path(__file__).parent / "fixtures" / "real_info" / "eagle3-good" / "generate.json"
    answers = json.loads(path.read_text(encoding="utf-8"))
    assert [verdict(a) for a in answers] == ["tokens"] * len(answers)


@given(st.text())
def test_no_body_breaks_the_reading(body):
    read_generation(body)
    read_generation(f"data: {body}")
    garbage(body)


@given(st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(
    st.sampled_from(["text", "choices", "message", "error", "output_ids", "meta_info"]), x)))  # fmt: skip
def test_no_shape_breaks_the_reading(answer):
    verdict(answer)
