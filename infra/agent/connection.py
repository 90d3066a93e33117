"""Requests one after another over one connection; each part of an answer costs one receive call."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Optional
from urllib.parse import urlsplit

from infra.agent.answers import Answer, Malformed
from infra.agent.refusal import Refusal
from infra.agent.streams import Fault

MESSAGE = 500
_BUFFER = 1 << 18

Feed = Callable[[bytes, float], None]


class Target(NamedTuple):
    """Where requests go, and what stands before each body."""

    family: int
    address: Any
    head: bytes
    """Request line and headers, up to the value of Content-Length."""

    @classmethod
    def read(cls, url: str, headers: dict[str, str]) -> Target:
        """Takes a URL apart and looks its host up; ``bad_request`` if it is not plain http.

        The engine is on this host, so there is no TLS; of several addresses the first is taken.
        """
        try:
            parts = urlsplit(url)
            port = parts.port or 80
        except ValueError as fault:
            raise Refusal("bad_request", f"{url}: {fault}") from fault
        if parts.scheme != "http" or not parts.hostname:
            raise Refusal("bad_request", f"{url} is no http:// URL of an engine on this host")
        try:
            family, _, _, _, address = socket.getaddrinfo(
                parts.hostname, port, type=socket.SOCK_STREAM
            )[0]
        except OSError as fault:
            raise Refusal("bad_request", f"{url}: {fault}") from fault
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(family, address, _head(path, parts.netloc.rpartition("@")[2], headers))


class Ended(NamedTuple):
    """The end of an answer."""

    fault: Optional[Fault]
    """Of the transport; None if the answer was 200 and came to its end."""


class Connection:
    """One connection; one request at a time, and never a wait: whoever polls says when to go on.

    Attributes:
        status: Of the last answer; None while its head is not there.
        usable: Whether a further request may be sent over it.
    """

    def __init__(self, target: Target, buffer: bytearray) -> None:
        """Begins to connect.

        Args:
            target: Of all requests.
            buffer: Shared by all connections: what is received is taken out at once.

        Raises:
            OSError: There is no way there.
        """
        self.status: Optional[int] = None
        self.usable = True
        self._target = target
        self._buffer, self._view = buffer, memoryview(buffer)
        self._unsent = memoryview(b"")
        self._answer = Answer()
        self._feed: Feed = _ignore
        self._refused = b""
        self._socket = socket.socket(target.family, socket.SOCK_STREAM)
        try:
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _raise(self._socket.connect_ex(target.address), errno.EINPROGRESS)
        except OSError:
            self.close()
            raise

    def fileno(self) -> int:
        """For the poll."""
        return self._socket.fileno()

    def established(self) -> None:
        """To be called when it first becomes writable; raises the ``OSError`` if it did not."""
        _raise(self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))

    def send(self, body: bytes, feed: Feed) -> bool:
        """Begins a request; ``feed`` gets the body of a good answer, and when each part came.

        Returns:
            Whether all of it is out; if not, ``push`` when the connection is writable again.

        Raises:
            OSError: The connection is broken.
        """
        self._answer, self._feed, self._refused, self.status = Answer(), feed, b"", None
        data = b"%b%d\r\n\r\n%b" % (self._target.head, len(body), body)
        self._unsent = memoryview(data)
        return self.push()

    def push(self) -> bool:
        """Sends on; whether all of it is out. Raises as ``send`` does."""
        try:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            return False
        return not self._unsent

    def read(self) -> Optional[Ended]:
        """Takes what has come, all of it at this moment; returns the answer's end if that was it."""
        answer = self._answer
        try:
            count = self._socket.recv_into(self._buffer)
        except BlockingIOError:
            return None
        except OSError as fault:
            return self._cut(f"{type(fault).__name__}: {fault}")
        now = time.monotonic()
        if count == 0:
            closed = "closed before the end of the answer"
            return self._end() if answer.end() else self._cut(closed)
        try:
            body = answer.feed(self._view[:count].tobytes())
        except Malformed as fault:
            return self._cut(f"not HTTP: {fault}")
        self.status = answer.status
        if body:
            if answer.status == 200:
                self._feed(body, now)
            elif len(self._refused) < MESSAGE:
                self._refused += body[:MESSAGE]
        return self._end() if answer.whole else None

    def close(self) -> None:
        """Cuts the connection off, with whatever is under way on it."""
        self.usable = False
        self._socket.close()

    def _cut(self, why: str) -> Ended:
        self.close()
        return Ended(Fault("disconnected", why[:MESSAGE]))

    def _end(self) -> Ended:
        # An answer before the whole request was read: what is left of it would be in the way.
        if not self._answer.keeps or self._unsent:
            self.close()
        if self.status == 200:
            return Ended(None)
        text = self._refused.decode("utf-8", "replace")
        return Ended(Fault("http_error", f"{self.status}: {text}"[:MESSAGE]))


def buffer() -> bytearray:
    """What all connections of a loop read into."""
    return bytearray(_BUFFER)


def no_way(fault: OSError) -> Fault:
    """The fault of a connection that did not come about."""
    refused = isinstance(fault, ConnectionRefusedError)
    return Fault("refused" if refused else "unreachable", str(fault)[:MESSAGE])


def _head(path: str, host: str, headers: dict[str, str]) -> bytes:
    """Request line and headers; those given outweigh ours."""
    ours = {
        "Host": host,
        "Accept": "*/*",
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
    }
    theirs = {name.lower() for name in headers}
    lines = {name: text for name, text in ours.items() if name.lower() not in theirs}
    words = [f"POST {path} HTTP/1.1"]
    words += [f"{name}: {text}" for name, text in {**lines, **headers}.items()]
    if any(sign in word for word in words for sign in "\r\n\0"):
        raise Refusal("bad_request", "a header or the URL holds a line break")
    try:
        return "\r\n".join([*words, "Content-Length: "]).encode("latin-1")
    except UnicodeEncodeError as fault:
        raise Refusal("bad_request", f"a header is not Latin-1: {fault}") from fault


def _raise(code: int, *fine: int) -> None:
    if code not in (0, *fine):
        raise OSError(code, os.strerror(code))


def _ignore(_body: bytes, _now: float) -> None:
    """Where bytes go before the first request."""
