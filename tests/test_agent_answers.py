"""HTTP answers taken apart: however they are torn, and whatever is wrong with them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.agent.answers import LONGEST_HEAD, Answer, Malformed

EVENTS = [b"data: one\n\n", b"data: \r\n5\r\nsecond\n\n", b"x" * 300]


def chunked(parts: list[bytes], trailer: bytes = b"") -> bytes:
    body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + body + b"0\r\n" + trailer + b"\r\n"


def read(pieces: list[bytes]) -> tuple[Answer, bytes]:
    answer = Answer()
    return answer, b"".join([answer.feed(piece) for piece in pieces])


def torn(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=6),
    st.lists(st.integers(0, 10_000), max_size=12),
    st.sampled_from([b"", b"X-Sum: 1\r\n"]),
)
def test_chunks_are_the_same_however_they_are_torn(parts, places, trailer):
    answer, body = read(torn(chunked(parts, trailer), places))
    assert (body, answer.status, answer.whole, answer.keeps) == (b"".join(parts), 200, True, True)


def test_each_part_is_given_when_it_comes():
    answer = Answer()
    answer.feed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n")
    given_back = [answer.feed(b"%x\r\n%b\r\n" % (len(event), event)) for event in EVENTS]
    assert given_back == EVENTS
    assert not answer.whole
    assert answer.feed(b"0\r\n\r\n") == b""
    assert answer.whole


@given(st.binary(max_size=60), st.lists(st.integers(0, 10_000), max_size=8))
def test_a_body_of_a_known_length(body, places):
    head = b"HTTP/1.1 500 Bad\r\nContent-Length: %d\r\n\r\n" % len(body)
    answer, found = read(torn(head + body, places))
    assert (found, answer.status, answer.whole, answer.keeps) == (body, 500, True, True)


def test_a_body_without_a_length_ends_with_the_connection():
    answer, body = read([b"HTTP/1.0 200 OK\r\n\r\nab", b"cd"])
    assert (body, answer.whole) == (b"abcd", False)
    assert answer.end()
    assert not answer.keeps


def test_a_connection_that_ends_too_early_is_no_end():
    answer, body = read([chunked(EVENTS)[:-7]])
    assert body == b"".join(EVENTS)
    assert not answer.end()


@pytest.mark.parametrize(
    ("data", "keeps"),
    [
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 408 Late", False),
        (b"HTTP/1.1 204 None\r\n\r\n", True),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", True),
    ],
)
def test_when_a_connection_may_be_used_again(data, keeps):
    answer, body = read([data])
    assert (body, answer.whole, answer.keeps) == (b"", True, keeps)


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 fine\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: some\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"HTTP/1.1 " + b"2" * 5000 + b" OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nten\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabcde\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a" * LONGEST_HEAD,
    ],
)
def test_what_is_no_answer_is_told(data):
    with pytest.raises(Malformed):
        read([data])


def test_any_number_of_heads_may_come_before_the_answer():
    data = b"HTTP/1.1 100 Continue\r\n\r\n" * 5000 + chunked(EVENTS)
    answer, body = read([data])
    assert (body, answer.whole) == (b"".join(EVENTS), True)


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_noise_is_malformed_or_unfinished_and_nothing_else(noise, places):
    try:
        answer, _ = read(torn(noise, places))
    except Malformed:
        return
    assert not answer.whole
