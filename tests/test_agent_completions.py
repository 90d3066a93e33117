"""vLLM's stream of completions, as it arrives: torn anywhere, its counts and ids are the same."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from infra.agent.completions import CompletionsStream

PROMPT_IDS = [1, 2, 3]


def event(ids: list[int], total: int, **more: Any) -> bytes:
    """One event as 0.33 writes it."""
    choice = {"index": 0, "text": "ab" * len(ids), "finish_reason": None, **more}
    choice |= {"prompt_token_ids": PROMPT_IDS if total == len(ids) else None, "token_ids": ids}
    usage = {"prompt_tokens": 3, "total_tokens": 3 + total, "completion_tokens": total}
    body = {"id": "cmpl-1", "object": "text_completion", "choices": [choice], "usage": usage}
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


def last(total: int, **more: Any) -> bytes:
    usage: dict[str, Any] = {"prompt_tokens": 3, "total_tokens": 3 + total}
    usage |= {"completion_tokens": total, "prompt_tokens_details": {"cached_tokens": 2}}
    body = {"id": "cmpl-1", "choices": [], "usage": usage, **more}
    return b"data: " + json.dumps(body).encode() + b"\n\n" + b"data: [DONE]\n\n"


WHOLE = [
    event([10], 1),
    event([11, 12, 13], 4),
    event([14, 15], 6, finish_reason="length"),
    last(6),
]


def read(*parts: bytes) -> CompletionsStream:
    stream = CompletionsStream()
    for number, part in enumerate(parts):
        stream.feed(part, float(number))
    return stream


def test_an_answer_is_put_together():
    stream = read(*WHOLE)
    assert list(stream.counts) == [1, 4, 6]
    assert list(stream.times) == [0.0, 1.0, 2.0]
    reading = stream.finish()
    assert reading.fault is None
    assert reading.output_ids == [10, 11, 12, 13, 14, 15], "without the prompt's"
    assert reading.text_tail == "ab" * 6
    assert reading.meta == {
        "prompt_tokens": 3,
        "total_tokens": 9,
        "completion_tokens": 6,
        "prompt_tokens_details": {"cached_tokens": 2},
        "finish_reason": "length",
    }


def test_speculation_of_the_request_is_taken_where_it_is_told():
    told = {"num_spec_steps": 2, "num_accepted_draft_tokens": 3, "acceptance_histogram": [0, 1, 1]}
    reading = read(*WHOLE[:-1], last(6, metrics={"speculative_decoding": told})).finish()
    assert reading.meta is not None
    assert reading.meta["num_spec_steps"] == 2
    assert reading.meta["acceptance_histogram"] == [0, 1, 1]


@given(st.lists(st.integers(0, 4000), max_size=12))
def test_however_a_stream_is_torn_its_counts_are_the_same(places):
    data = b"".join(WHOLE)
    cuts = sorted({0, len(data), *(place % len(data) for place in places)})
    stream = read(*(data[a:b] for a, b in itertools.pairwise(cuts)))
    reading = stream.finish()
    assert reading.output_ids == [10, 11, 12, 13, 14, 15]
    assert list(stream.counts)[-1] == 6
    assert list(stream.counts) == sorted(stream.counts)


def test_what_went_wrong_is_told():
    def fault(*parts: bytes) -> str | None:
        found = read(*parts).finish().fault
        return found.kind if found else None

    assert fault(*WHOLE[:2]) == "cut_stream"
    assert fault(event([1], 1, finish_reason="abort")) == "aborted"
    assert fault(b'data: {"error": {"message": "boom"}}\n\n') == "engine_error"
    assert fault(b"<html>") == "not_a_stream"
    assert fault() == "cut_stream"


def test_text_that_looks_like_a_count_is_none():
    sly = json.dumps({"choices": [{"text": '"completion_tokens":99', "token_ids": [5]}]}).encode()
    stream = read(b"data: " + sly + b"\n\n")
    assert list(stream.counts) == []


@given(st.recursive(st.none() | st.integers() | st.text(max_size=3), st.lists, max_leaves=4))
def test_any_event_is_read_without_an_exception(value):
    for key in ("choices", "usage", "metrics", "error"):
        body = json.dumps({key: value, "choices": value}).encode()
        read(b"data: " + body + b"\n\n").finish()
    read(b'data: {"token_ids":[' + b"9" * 5000 + b"]}\n\n").finish()


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_an_exception(data):
    read(data, b"\n\n").finish()
