"""A token stream is counted right however it is torn, and whatever the model says in it."""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from infra.agent.clock import percentile
from infra.agent.streams import GenerateStream


def event(count: int, finish: dict[str, Any] | None = None, text: str | None = None) -> bytes:
    said = "tok " * count if text is None else text
    meta = {"id": "r", "finish_reason": finish, "prompt_tokens": 7, "completion_tokens": count}
    value = {"text": said, "output_ids": list(range(count)), "meta_info": meta}
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


LENGTH = {"type": "length", "length": 4}
WHOLE = event(1) + event(2) + event(4, LENGTH) + b"data: [DONE]\n\n"


def read(pieces: list[bytes]) -> GenerateStream:
    stream = GenerateStream()
    for at, piece in enumerate(pieces):
        stream.feed(piece, float(at))
    return stream


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@given(st.lists(st.integers(0, 10_000), max_size=12))
def test_however_a_stream_is_torn_its_counts_are_the_same(places):
    stream = read(cut(WHOLE, places))
    reading = stream.finish()
    assert stream.counts[-1] == 4
    assert list(stream.counts) == sorted(set(stream.counts))
    assert list(stream.times) == sorted(stream.times)
    assert (reading.fault, reading.output_ids, reading.text_tail) == (
        None,
        [0, 1, 2, 3],
        "tok tok tok tok ",
    )


@given(text=st.text(max_size=60), places=st.lists(st.integers(0, 10_000), max_size=5))
def test_whatever_the_model_says_is_not_taken_for_a_count(text, places):
    nasty = text + '"completion_tokens": 99' + text
    stream = read(cut(event(1, text=nasty) + event(2, LENGTH, nasty), places))
    reading = stream.finish()
    assert stream.counts[-1] == 2
    assert reading.text_tail == nasty[-200:]
    assert reading.fault is None


def test_a_count_belongs_to_the_read_that_completes_its_event():
    whole = event(1) + event(2)
    stream = read([whole[:-1], whole[-1:], event(3)])
    assert (list(stream.counts), list(stream.times)) == ([1, 2, 3], [0.0, 1.0, 2.0])


def test_ten_thousand_long_events_cost_less_than_half_a_second():
    events = [event(count, text="word " * 1000) for count in range(1, 501)]
    stream = GenerateStream()
    began = time.thread_time()
    for at in range(10_000):
        stream.feed(events[at % 500], 0.0)
    assert time.thread_time() - began < 0.5


def test_a_count_beyond_any_number_is_no_count():
    raw = b'data: {"meta_info": {"completion_tokens": ' + b"9" * 400 + b"}}\n\n"
    assert list(read([raw, event(2)]).counts) == [2]


def test_compact_json_is_read_too():
    value = {"text": "a", "meta_info": {"completion_tokens": 5, "finish_reason": {"type": "stop"}}}
    raw = b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"
    stream = read([raw])
    assert (list(stream.counts), stream.finish().fault) == ([5], None)


@given(st.binary(max_size=200))
def test_noise_is_no_stream_and_no_crash(noise):
    stream = read([noise])
    assert stream.finish().fault is not None


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.floats(0.01, 1.0))
def test_a_percentile_is_one_of_the_values(values, share):
    value = percentile(values, share)
    assert value in values
    assert sum(v <= (value or 0) for v in values) >= share * len(values) - 1e-9
    assert percentile([], share) is None
