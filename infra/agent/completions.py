"""Reads vLLM's stream of ``/v1/completions``: each event has what is new, and a running count."""

from __future__ import annotations

import itertools
import json
import re
from array import array
from typing import Any, Optional

from infra.agent.streams import TEXT_TAIL, Fault, Reading, objects

_LAST = 8
_TAIL_BYTES = 32_768
_LONGEST = 19
"""Digits of a token id that is none."""


class CompletionsStream:
    """vLLM's ``/v1/completions`` with ``stream_options`` and ``return_token_ids``.

    Asked with ``include_usage`` and ``continuous_usage_stats``, every event carries
    ``usage.completion_tokens`` (0.33.0 entrypoints/openai/completion/serving.py), so the last count
    of a read is found by its key, as with SGLang: inside a JSON string its quotes would be escaped.
    Text and ids are increments; they are put together once, at the end.

    Attributes:
        times: When the count rose, seconds on the caller's clock.
        counts: Completion tokens so far at that time.
    """

    _COUNT = b'"completion_tokens":'
    _NUMBER = re.compile(rb"\s*(\d{1,18})(?!\d)")
    _TEXT = re.compile(rb'"text":\s*"((?:[^"\\]|\\.)*)"')
    # The quote before it tells it from prompt_token_ids.
    _IDS = re.compile(rb'"token_ids":\s*\[([\d,\s]*)\]')

    def __init__(self) -> None:
        self.times = array("d")
        self.counts = array("q")
        self._rest = b""
        self._parts: list[bytes] = []
        self._count = 0

    def feed(self, data: bytes, now: float) -> None:
        """Takes the bytes of one read; the times of its tokens are ``now``."""
        buffer = self._rest + data if self._rest else data
        end = buffer.rfind(b"\n\n")
        if end < 0:
            self._rest = buffer
            return
        self._rest = buffer[end + 2 :]
        self._parts.append(buffer[: end + 2])
        at = buffer.rfind(self._COUNT, 0, end)
        number = self._NUMBER.match(buffer, at + len(self._COUNT)) if at >= 0 else None
        count = int(number[1]) if number is not None else 0
        if count > self._count:
            self._count = count
            self.times.append(now)
            self.counts.append(count)

    def finish(self) -> Reading:
        """Puts the answer together.

        The fault is ``engine_error`` (an error event), ``aborted`` (finish reason abort),
        ``cut_stream`` (no finish reason: the engine went away in the middle) or ``not_a_stream``.
        """
        whole = b"".join(self._parts)
        found = self._IDS.findall(whole)
        numbers = [number.strip() for part in found for number in part.split(b",")]
        ids = [int(number) for number in numbers if number.isdigit() and len(number) < _LONGEST]
        usage: dict[str, Any] = {}
        reason: Any = None
        error: Any = None
        for event in itertools.islice(objects(whole), _LAST):  # the last one first
            usage = usage or _usage(event)
            error = error or event.get("error")
            reason = reason or _choice(event).get("finish_reason")
            if usage and reason:
                break
        fault = self._fault(reason, error)
        meta = {**usage, "finish_reason": reason} if usage or reason else None
        return Reading(
            meta=meta,
            output_ids=ids if found else None,
            text_tail=self._tail(whole),
            fault=fault,
        )

    def _tail(self, whole: bytes) -> str:
        """The last text, put together before it is decoded: an end costs one such look, not many."""
        pieces = self._TEXT.findall(whole[-_TAIL_BYTES:])[-TEXT_TAIL:]
        try:
            text = json.loads(b'"' + b"".join(pieces) + b'"')
        except ValueError:  # no text of an engine
            return ""
        return str(text)[-TEXT_TAIL:]

    def _fault(self, reason: Any, error: Any) -> Optional[Fault]:
        if error is not None:
            message = error.get("message", error) if isinstance(error, dict) else error
            return Fault("engine_error", str(message)[:500])
        rest = self._rest.strip()
        if not self._parts and rest and not rest.startswith(b"data:"):
            return Fault("not_a_stream", self._rest[:500].decode("utf-8", "replace"))
        if reason is None:
            return Fault("cut_stream", "the stream ended without a finish reason")
        if reason == "abort":
            return Fault("aborted", "vLLM ended the request")
        return None


def _choice(event: dict[str, Any]) -> dict[str, Any]:
    choices = event.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def _usage(event: dict[str, Any]) -> dict[str, Any]:
    """What an event says of the whole request: its tokens, and its speculation where it is told.

    The latter stands in the last event of 0.33 with ``--per-request-spec-decode-metrics``.
    """
    usage = event.get("usage")
    metrics = event.get("metrics")
    told = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
    return {
        **(usage if isinstance(usage, dict) else {}),
        **(told if isinstance(told, dict) else {}),
    }
