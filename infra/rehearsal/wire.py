"""A small HTTP/1.1 server on asyncio's transports: cheap enough for many thousand chunks a second."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_HEAD = 65_536
_LAST_DATA_RECV = 52  # offset in struct tcp_info


@dataclass(frozen=True)
class Asked:
    """One request.

    Attributes:
        method: in capitals.
        path: without the query.
        body: raw.
        authorization: the header of that name, or nothing.
    """

    method: str
    path: str
    body: bytes
    authorization: str = ""


class Reply:
    """The answer to one request: whole, or a stream of chunks."""

    def __init__(self, connection: Connection, asked: Asked) -> None:
        self._connection = connection
        self._asked = asked
        self._streaming = False
        self.on_gone: Callable[[], None] | None = None

    @property
    def open(self) -> bool:
        """Whether the client is still there."""
        return self._connection.transport is not None

    def lay_unread_s(self) -> float:
        """How long the last bytes of the request lay in the kernel, by its own count of ticks.

        ``tcpi_last_data_recv`` of ``TCP_INFO`` (linux/tcp.h): whole ticks of 1 to 10 ms.
        """
        transport = self._connection.transport
        if transport is None:
            return 0.0
        told = transport.get_extra_info("socket").getsockopt(
            socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_DATA_RECV + 4
        )
        return int.from_bytes(told[_LAST_DATA_RECV:], sys.byteorder) / 1000

    def whole(self, status: int, content: bytes, kind: str = "application/json") -> None:
        """The answer in one piece."""
        phrase = HTTPStatus(status).phrase
        self._connection.log(self._asked, status)
        head = (
            f"HTTP/1.1 {status} {phrase}\r\nserver: uvicorn\r\ncontent-length: {len(content)}\r\n"
            f"content-type: {kind}\r\n\r\n"
        )
        self._connection.send(head.encode() + content)
        self._connection.next()

    def json(self, status: int, value: object) -> None:
        """A JSON answer."""
        self.whole(status, json.dumps(value, separators=(",", ":")).encode())

    def text(self, status: int, value: str) -> None:
        """A plain text answer."""
        self.whole(status, value.encode(), "text/plain; charset=utf-8")

    def chunk(self, event: bytes) -> None:
        """One server-sent event; the head goes out before the first."""
        head = b""
        if not self._streaming:
            self._streaming = True
            self._connection.log(self._asked, 200)
            head = (
                b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\n"
                b"content-type: text/event-stream; charset=utf-8\r\n"
                b"transfer-encoding: chunked\r\n\r\n"
            )
        self._connection.send(b"".join((head, b"%x\r\n" % len(event), event, b"\r\n")))

    def end(self, event: bytes) -> None:
        """The last event and the end of the stream."""
        self.chunk(event)
        self._connection.send(b"0\r\n\r\n")
        self._connection.next()


class Connection(asyncio.Protocol):
    """One client connection, kept alive; one request at a time.

    Args:
        handle: called with each whole request and its reply.
        access_log: called with (client address, request line, status).
    """

    def __init__(
        self,
        handle: Callable[[Asked, Reply], None],
        access_log: Callable[[str, str, int], None],
    ) -> None:
        self._handle, self._access_log = handle, access_log
        self.transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._reply: Reply | None = None
        self._client = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the transport."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        host, port = transport.get_extra_info("peername")[:2]
        self._client = f"{host}:{port}"

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever is answering that nobody listens any more."""
        del exc
        self.transport = None
        if self._reply is not None and self._reply.on_gone is not None:
            self._reply.on_gone()

    def data_received(self, data: bytes) -> None:
        """Collect bytes; answer when a request is whole and the last one is answered."""
        self._buffer += data
        if self._reply is None:
            self._try_next()

    def _try_next(self) -> None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _MAX_HEAD and self.transport is not None:
                self.transport.close()
            return
        lines = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        method, target = lines[0].split(" ")[:2]
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines[1:])
        }
        length = int(headers.get("content-length", 0))
        if headers.get("expect", "").lower() == "100-continue" and len(self._buffer) == end + 4:
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        if len(self._buffer) < end + 4 + length:
            return
        body = bytes(self._buffer[end + 4 : end + 4 + length])
        del self._buffer[: end + 4 + length]
        secret = headers.get("authorization", "")
        asked = Asked(method, target.partition("?")[0], body, secret)
        self._reply = Reply(self, asked)
        self._handle(asked, self._reply)

    def send(self, data: bytes) -> None:
        """Bytes to the client, if it is still there."""
        if self.transport is not None:
            self.transport.write(data)

    def log(self, asked: Asked, status: int) -> None:
        """One line of the access log."""
        self._access_log(self._client, f"{asked.method} {asked.path} HTTP/1.1", status)

    def next(self) -> None:
        """The answer is out; take the next request."""
        self._reply = None
        if self._buffer:
            self._try_next()


def parse_json(asked: Asked) -> dict[str, Any] | None:
    """The body as an object; None when it is something else."""
    try:
        value = json.loads(asked.body or b"{}")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
