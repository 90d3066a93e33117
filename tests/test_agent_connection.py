"""The load client's own HTTP: what it sends, and how connections come and go."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from infra.agent.connection import Target
from infra.agent.drive import drive
from infra.agent.jobs import Job
from infra.agent.refusal import Refusal
from tests.test_agent_streams import LENGTH, event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BODY = event(1) + event(4, LENGTH) + b"data: [DONE]\n\n"
KEPT = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
OPEN = b"HTTP/1.1 200 OK\r\n\r\n" + BODY


def whole_request(peer: socket.socket) -> bytes:
    """One request with its body; empty when the client has gone."""
    data, rest = bytearray(), None
    while rest is None or len(data) < rest:
        more = peer.recv(1 << 20)
        if not more:
            return b""
        data += more
        if rest is None and b"\r\n\r\n" in data:
            length = bytes(data).lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
            rest = data.index(b"\r\n\r\n") + 4 + int(length)
    return bytes(data)


@contextmanager
def engine(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server whose connections are each handled by a function, one after another."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    peer, _ = listening.accept()
                except OSError:
                    return
                with peer:
                    answer(peer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(10)


def driven(
    tmp_path: Any, port: int, requests: int = 1, size: int = 1, **more: Any
) -> list[dict[str, Any]]:
    where = tmp_path / "jobs" / "p"
    where.mkdir(parents=True)
    asked = {
        "base_url": f"http://127.0.0.1:{port}",
        "path": "/generate",
        "concurrency": 1,
        "timeout_s": 5,
        "deadline_s": 20,
        "requests": [
            {"id": f"r{n}", "kind": "code", "payload": {"text": "x" * size}}
            for n in range(requests)
        ],
        **more,
    }
    drive(Job(str(tmp_path), str(where), asked))
    return [json.loads(line) for line in (where / "samples.jsonl").read_bytes().splitlines()]


def test_what_is_sent(tmp_path):
    seen: list[bytes] = []

    def answer(peer: socket.socket) -> None:
        seen.append(whole_request(peer))
        peer.sendall(KEPT)

    with engine(answer) as port:
        (sample,) = driven(tmp_path, port, headers={"Authorization": "Bearer x", "host": "h"})
    head, _, body = seen[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /generate HTTP/1.1"
    assert {"Authorization: Bearer x", "host: h", "Accept-Encoding: identity"} <= set(lines)
    assert not [line for line in lines if line.startswith("Host:")]
    assert json.loads(body) == {"text": "x"}
    assert (sample["error"], sample["chunks"][-1][1]) == (None, 4)


@pytest.mark.parametrize(("reply", "connections"), [(KEPT, 1), (OPEN, 3)])
def test_a_connection_is_used_again_if_it_may_be(tmp_path, reply, connections):
    made = 0

    def answer(peer: socket.socket) -> None:
        nonlocal made
        made += 1
        while whole_request(peer):
            peer.sendall(reply)
            if reply == OPEN:
                return

    with engine(answer) as port:
        samples = driven(tmp_path, port, 3)
    assert [sample["error"] for sample in samples] == [None] * 3
    assert made == connections


def test_a_request_longer_than_the_sockets_buffer_arrives_whole(tmp_path):
    sizes = []

    def answer(peer: socket.socket) -> None:
        sizes.append(len(whole_request(peer)))
        peer.sendall(KEPT)

    with engine(answer) as port:
        (sample,) = driven(tmp_path, port, size=5_000_000)
    assert sample["error"] is None
    assert sizes[0] > 5_000_000


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", "not HTTP"),
        (b"", "closed before the end"),
        (KEPT[:-20], "closed before the end"),
    ],
)
def test_what_is_no_answer_is_a_broken_connection(tmp_path, reply, told):
    def answer(peer: socket.socket) -> None:
        whole_request(peer)
        peer.sendall(reply)

    with engine(answer) as port:
        (sample,) = driven(tmp_path, port)
    assert sample["error"]["class"] == "disconnected"
    assert told in sample["error"]["message"]


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("https://127.0.0.1/generate", {}),
        ("http://127.0.0.1:99999/generate", {}),
        ("http:///generate", {}),
        ("http://127.0.0.1/generate", {"A": "b\r\nC: d"}),
        ("http://127.0.0.1/generate", {"A": "\u20ac"}),
    ],
)
def test_what_cannot_be_a_request_is_refused(url, headers):
    with pytest.raises(Refusal) as refused:
        Target.read(url, headers)
    assert refused.value.error == "bad_request"
