"""Requests one after another over a connection of their own, each token read in one receive call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple, Optional
from urllib.parse import urlsplit

from infra.agent.answers import Answer, Malformed
from infra.agent.refusal import Refusal
from infra.agent.streams import Fault

MESSAGE = 500
_BUFFER = 1 << 18


class Target(NamedTuple):
    """Where requests go, and what stands before each body."""

    host: str
    port: int
    secure: bool
    head: bytes
    """Request line and headers, up to the value of Content-Length."""

    @classmethod
    def read(cls, url: str, headers: dict[str, str]) -> Target:
        """Takes an http or https URL apart; ``bad_request`` if it is none."""
        try:
            parts = urlsplit(url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError as fault:
            raise Refusal("bad_request", f"{url}: {fault}") from fault
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Refusal("bad_request", f"{url} is not an http URL")
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = {
            "Host": parts.netloc.rpartition("@")[2],
            "Accept": "*/*",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
        }
        theirs = {name.lower() for name in headers}
        lines = {name: text for name, text in lines.items() if name.lower() not in theirs}
        lines.update(headers)
        words = [f"POST {path} HTTP/1.1", *(f"{name}: {text}" for name, text in lines.items())]
        if any(sign in word for word in words for sign in "\r\n\0"):
            raise Refusal("bad_request", "a header or the URL holds a line break")
        try:
            head = "\r\n".join([*words, "Content-Length: "]).encode("latin-1")
        except UnicodeEncodeError as fault:
            raise Refusal("bad_request", f"a header is not Latin-1: {fault}") from fault
        return cls(parts.hostname, port, parts.scheme == "https", head)


class Connection(asyncio.BufferedProtocol):
    """One connection; one request at a time.

    Every receive call writes into one and the same buffer, whichever connection it is for: what
    is in it is taken out before the next one.
    """

    def __init__(self, buffer: memoryview) -> None:
        self._buffer = buffer
        self._transport: Optional[asyncio.Transport] = None
        self._answer: Optional[Answer] = None
        self._last = Answer()
        self._feed: Optional[Callable[[bytes, float], None]] = None
        self._ended: Optional[asyncio.Future[Optional[Fault]]] = None
        self._refused = b""

    @property
    def status(self) -> Optional[int]:
        """Of the last answer, None while its head is not there."""
        return self._last.status

    @property
    def usable(self) -> bool:
        """Whether a further request may be sent over it."""
        return self._transport is not None and not self._transport.is_closing()

    def send(
        self, data: bytes, feed: Callable[[bytes, float], None]
    ) -> asyncio.Future[Optional[Fault]]:
        """Sends one request; ``feed`` gets the body of a good answer, and when each part came.

        Returns:
            What is set when the answer has ended: None, or the fault of the transport.
        """
        assert self._transport is not None
        self._answer = self._last = Answer()
        self._feed, self._refused = feed, b""
        self._ended = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        return self._ended

    def close(self) -> None:
        """Cuts the connection off, with whatever is under way on it."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go; the hint is of no use (asyncio gives -1)."""
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Takes what has come, all of it at this moment."""
        now = time.monotonic()
        answer = self._answer
        if answer is None:
            self.close()  # an answer that nobody asked for
            return
        try:
            body = answer.feed(self._buffer[:nbytes].tobytes())
        except Malformed as fault:
            self._end(Fault("disconnected", f"not HTTP: {fault}"[:MESSAGE]))
            return
        if body:
            if answer.status == 200:
                assert self._feed is not None
                self._feed(body, now)
            elif len(self._refused) < MESSAGE:
                self._refused += body[:MESSAGE]
        if answer.whole:
            self._end(None)

    def eof_received(self) -> bool:
        """The engine has said its last; the transport closes itself."""
        return False

    def connection_lost(self, exc: Optional[Exception]) -> None:
        """Ends what is under way: well only if the answer was to end with the connection."""
        self._transport = None
        if self._answer is None:
            return
        if exc is None and self._answer.end():
            self._end(None)
        else:
            why = f"{type(exc).__name__}: {exc}" if exc else "closed before the end of the answer"
            self._end(Fault("disconnected", why[:MESSAGE]))

    def _end(self, fault: Optional[Fault]) -> None:
        answer, ended = self._answer, self._ended
        assert answer is not None
        assert ended is not None
        self._answer = self._feed = self._ended = None
        if fault is not None or not answer.keeps:
            self.close()
        if fault is None and answer.status != 200:
            text = self._refused.decode("utf-8", "replace")
            fault = Fault("http_error", f"{answer.status}: {text[:MESSAGE]}")
        if not ended.done():
            ended.set_result(fault)


class Caller:
    """One user of an engine: keeps its connection as long as the engine does."""

    def __init__(self, target: Target, buffer: memoryview, timeout_s: float) -> None:
        self._target, self._buffer, self._timeout_s = target, buffer, timeout_s
        self._connection: Optional[Connection] = None

    async def call(
        self, body: bytes, feed: Callable[[bytes, float], None], sent: Callable[[], None]
    ) -> tuple[Optional[int], Optional[Fault]]:
        """Sends one request and waits for the end of its answer.

        Args:
            body: Of the request.
            feed: Gets the parts of the body of a good answer.
            sent: Called at the moment before the request goes out.

        Returns:
            The status, None if no head came; and the fault of the transport, if there was one.
        """
        until = time.monotonic() + self._timeout_s
        late = Fault("timeout", f"no end within {self._timeout_s} s")
        try:
            connection = await self._open()
        except asyncio.TimeoutError:
            return None, late
        except OSError as fault:
            # With several addresses asyncio folds the refusals of all into one error's text.
            refused = isinstance(fault, ConnectionRefusedError) or "refused" in str(fault)
            return None, Fault("refused" if refused else "unreachable", str(fault)[:MESSAGE])
        loop = asyncio.get_running_loop()
        data = b"%b%d\r\n\r\n%b" % (self._target.head, len(body), body)
        sent()
        ended = connection.send(data, feed)
        alarm = loop.call_later(until - time.monotonic(), _ring, ended, late)
        try:
            fault = await ended
        except asyncio.CancelledError:
            connection.close()
            raise
        finally:
            alarm.cancel()
        if fault is late:
            connection.close()
        return connection.status, fault

    def close(self) -> None:
        """Gives the connection up."""
        if self._connection is not None:
            self._connection.close()

    async def _open(self) -> Connection:
        if self._connection is None or not self._connection.usable:
            target = self._target
            _, self._connection = await asyncio.wait_for(
                asyncio.get_running_loop().create_connection(
                    lambda: Connection(self._buffer),
                    target.host,
                    target.port,
                    ssl=True if target.secure else None,
                ),
                self._timeout_s,
            )
        return self._connection


def buffer() -> memoryview:
    """What all connections of a loop read into."""
    return memoryview(bytearray(_BUFFER))


def _ring(ended: asyncio.Future[Optional[Fault]], late: Fault) -> None:
    if not ended.done():
        ended.set_result(late)
