"""Takes an HTTP/1.1 answer apart as its bytes come in, without knowing where they come from."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Optional

LONGEST_HEAD = 1 << 16

_LINE = b"\r\n"
_HEAD_END = b"\r\n\r\n"
_NO_BODY = (204, 304)
_STATUS = re.compile(rb"[1-9]\d\d\Z")
_LENGTH = re.compile(rb"\d{1,18}\Z")


class Malformed(Exception):
    """The bytes are no HTTP/1.1 answer; the message says what is wrong with them."""


class Answer:
    """One answer (RFC 9112): a head, and a body in chunks, of a known length or up to the end.

    A token stream is thousands of small chunks, mostly one to a receive call, so what is done for
    each of them is one search, one number and one slice.

    Attributes:
        status: Of the answer; None until its head is there.
        whole: Whether its end has been seen.
        keeps: Whether the connection may be used again afterwards.
    """

    def __init__(self) -> None:
        self.status: Optional[int] = None
        self.whole = False
        self.keeps = True
        self._take: Callable[[bytes], bytes] = self._head
        self._rest = b""
        self._left = 0
        self._skip = 0

    def feed(self, data: bytes) -> bytes:
        """Takes the next bytes; returns those of the body among them.

        Raises:
            Malformed: The bytes are no HTTP answer.
        """
        if self._rest:
            data, self._rest = self._rest + data, b""
        return self._take(data)

    def end(self) -> bool:
        """Says that the connection has ended; returns whether that was the answer's end too."""
        self.keeps = False
        if self._take == self._open:
            self.whole = True
        return self.whole

    def _head(self, data: bytes) -> bytes:
        status = 0
        while status < 200:  # what is below is no answer yet, as 100 Continue
            end = data.find(_HEAD_END)
            if end < 0:
                self._keep(data, 0)
                return b""
            first, *lines = data[:end].split(_LINE)
            words = first.split(None, 2)
            if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not _STATUS.match(words[1]):
                raise Malformed(f"no status line: {first[:80]!r}")
            status, data = int(words[1]), data[end + 4 :]
        headers = {}
        for line in lines:
            name, _, value = line.partition(b":")
            headers[name.strip().lower()] = value.strip().lower()
        self.status = status
        self.keeps = words[0] != b"HTTP/1.0" and headers.get(b"connection") != b"close"
        self._take = self._body(headers, status)
        return self._take(data)

    def _body(self, headers: dict[bytes, bytes], status: int) -> Callable[[bytes], bytes]:
        """How the rest is to be read."""
        if status in _NO_BODY:
            return self._counted
        if b"chunked" in headers.get(b"transfer-encoding", b""):
            return self._chunks
        length = headers.get(b"content-length")
        if length is None:
            self.keeps = False
            return self._open
        if not _LENGTH.match(length):
            raise Malformed(f"content-length {length[:80]!r}")
        self._left = int(length)
        return self._counted

    def _chunks(self, data: bytes) -> bytes:
        end = len(data)
        if self._left == self._skip == 0:
            line = data.find(_LINE)
            # Nearly always: one chunk, whole.
            if line > 0 and 0 < _size(data[:line]) == end - line - 4:
                return data[line + 2 : end - 2]
        parts = []
        at = 0
        while at < end:
            if self._left:
                part = data[at : at + self._left]
                parts.append(part)
                at += len(part)
                self._left -= len(part)
                self._skip = 2
                if self._left:
                    break
            if self._skip:
                past = min(self._skip, end - at)
                at += past
                self._skip -= past
                continue
            line = data.find(_LINE, at)
            if line < 0:
                self._keep(data, at)
                break
            self._left = _size(data[at:line])
            at = line + 2
            if self._left == 0:
                self._take = self._trailers
                self._trailers(data[at:])
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _trailers(self, data: bytes) -> bytes:
        """Headers after the last chunk: read past, up to the empty line."""
        if data.startswith(_LINE):
            self._over(data, 2)
        elif _HEAD_END in data:
            self._over(data, data.index(_HEAD_END) + 4)
        else:
            self._keep(data, 0)
        return b""

    def _counted(self, data: bytes) -> bytes:
        part = data[: self._left]
        self._left -= len(part)
        if self._left == 0:
            self._over(data, len(part))
        return part

    def _open(self, data: bytes) -> bytes:
        return data

    def _over(self, data: bytes, at: int) -> None:
        self.whole = True
        self._take = self._after
        if at < len(data):
            self._after(data)

    def _after(self, data: bytes) -> bytes:
        """Bytes that nobody asked for: the connection is of no further use."""
        self.keeps = self.keeps and not data
        return b""

    def _keep(self, data: bytes, at: int) -> None:
        """Leaves a torn line or head for the next time."""
        self._rest = data[at:]
        if len(self._rest) > LONGEST_HEAD:
            raise Malformed(f"no end of a head or line within {LONGEST_HEAD} bytes")


def _size(line: bytes) -> int:
    """The size of a chunk; extensions behind a semicolon are ignored."""
    try:
        size = int(line.partition(b";")[0], 16)
    except ValueError:
        size = -1
    if size < 0:
        raise Malformed(f"no chunk size: {line[:80]!r}")
    return size
