"""Reads an engine's token stream as it arrives, at the price of two byte searches per read."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple, Optional, Protocol

TEXT_TAIL = 200

_DONE = b"[DONE]"


class Fault(NamedTuple):
    """Why a request did not end well."""

    kind: str
    """Snake-case class."""
    message: str


class Reading(NamedTuple):
    """What a whole stream said."""

    meta: Optional[dict[str, Any]]
    """The engine's own account of the request, as in the last event that had one."""
    output_ids: Optional[list[int]]
    text_tail: str
    """The last 200 characters of the last text. A server that streams increments instead of the
    whole text so far (an SGLang flag) leaves only its last piece here."""
    fault: Optional[Fault]
    """None if the engine said that the request is finished, and well."""


class Stream(Protocol):
    """A parser of one engine's stream; a further engine is one more of these."""

    times: array[float]
    counts: array[int]

    def feed(self, data: bytes, now: float) -> None:
        """Takes the bytes of one read, all of which came at the time ``now``."""

    def finish(self) -> Reading:
        """Reads the last events after the stream has ended, cleanly or not."""


class GenerateStream:
    """SGLang's ``/generate`` with ``stream: true``.

    Every event repeats the whole text so far and carries ``meta_info.completion_tokens``
    (tokenizer_manager.py, 0.5.8 to 0.5.23), so parsing each one is quadratic in the output.
    Instead the last count in the complete events of a read is found by its key: inside a JSON
    string its quotes would be escaped, so the bytes can only be the key. Events that are torn
    over reads count when their end is there.

    Attributes:
        times: When the count rose, seconds on the caller's clock.
        counts: Completion tokens so far at that time.
    """

    _COUNT = b'"completion_tokens":'
    _NUMBER = re.compile(rb"\s*(\d{1,18})(?!\d)")

    def __init__(self) -> None:
        self.times = array("d")
        self.counts = array("q")
        self._rest = b""
        self._counted = b""
        self._others: list[bytes] = []
        self._count = 0

    def feed(self, data: bytes, now: float) -> None:
        """Takes the bytes of one read; the times of its tokens are ``now``."""
        buffer = self._rest + data if self._rest else data
        end = buffer.rfind(b"\n\n")
        if end < 0:
            self._rest = buffer
            return
        self._rest = buffer[end + 2 :]
        at = buffer.rfind(self._COUNT, 0, end)
        number = self._NUMBER.match(buffer, at + len(self._COUNT)) if at >= 0 else None
        if number is None:
            self._others.append(buffer[:end])
            del self._others[:-2]
            return
        self._counted = buffer
        self._others.clear()
        count = int(number[1])
        if count > self._count:
            self._count = count
            self.times.append(now)
            self.counts.append(count)

    def finish(self) -> Reading:
        """Parses the last events.

        The fault is ``engine_error`` (an error event), ``aborted`` (finish reason abort),
        ``cut_stream`` (no finish reason: the engine went away in the middle) or ``not_a_stream``.
        """
        tail = [*self._others[::-1], self._counted]
        events = [event for part in tail for event in objects(part)]
        whole = next((event for event in events if isinstance(event.get("meta_info"), dict)), None)
        error = next((event["error"] for event in events if "error" in event), None)
        meta = whole["meta_info"] if whole else None
        text = whole.get("text") if whole else None
        ids = whole.get("output_ids") if whole else None
        return Reading(
            meta=meta,
            output_ids=ids if isinstance(ids, list) else None,
            text_tail=text[-TEXT_TAIL:] if isinstance(text, str) else "",
            fault=self._fault(meta, error),
        )

    def _fault(self, meta: Optional[dict[str, Any]], error: Any) -> Optional[Fault]:
        if error is not None:
            message = error.get("message", error) if isinstance(error, dict) else error
            return Fault("engine_error", str(message)[:500])
        if meta is None and self._rest.strip() and not self._rest.lstrip().startswith(b"data:"):
            return Fault("not_a_stream", self._rest[:500].decode("utf-8", "replace"))
        reason = meta.get("finish_reason") if meta else None
        if reason is None:
            return Fault("cut_stream", "the stream ended without a finish reason")
        if isinstance(reason, dict) and reason.get("type") == "abort":
            return Fault("aborted", str(reason.get("message", reason))[:500])
        return None


def objects(part: bytes) -> Iterator[dict[str, Any]]:
    """The JSON objects of complete server-sent events, the last one first."""
    for event in reversed(part.split(b"\n\n")):
        data = event.strip()
        if not data.startswith(b"data:") or data.endswith(_DONE):
            continue
        try:
            value = json.loads(data[5:])
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value
