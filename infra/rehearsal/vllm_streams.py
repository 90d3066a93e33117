"""How one request's progress becomes the answer of ``/v1/completions``, in the shape of vLLM 0.33."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from infra.rehearsal.decoding import Request
    from infra.rehearsal.wire import Reply


class CompletionsSink:
    """Sends what is new (or one whole answer) of a ``/v1/completions`` request.

    Args:
        reply: where the answer goes.
        asked: the request's body.
        model: the served name.
        interval: tokens between two events (``--stream-interval``); the first comes at once.
        details: whether the usage tells what came from the cache.
        done: called once the request has ended.
    """

    def __init__(
        self,
        reply: Reply,
        asked: dict[str, Any],
        model: str,
        *,
        interval: int,
        details: bool,
        done: Callable[[Request], None],
    ) -> None:
        self._reply, self._asked, self._model, self._done = reply, asked, model, done
        self._interval, self._details = interval, details
        options = asked.get("stream_options") or {}
        self._usage = bool(options.get("include_usage"))
        self._running = self._usage and bool(options.get("continuous_usage_stats"))
        self._ids = bool(asked.get("return_token_ids"))
        self._sent = 0

    def progress(self, request: Request) -> None:
        """Write what the request has made since the last event."""
        if not self._asked.get("stream"):
            if request.finished:
                self._whole(request)
            return
        due = self._sent == 0 or request.done - self._sent >= self._interval
        if request.finished or due:
            self._event(request)
        if request.finished:
            self._done(request)
            if self._usage:
                last = {**self._head(request), "choices": [], "usage": self._used(request)}
                self._reply.chunk(_event(last))
            self._reply.end(b"data: [DONE]\n\n")

    def _event(self, request: Request) -> None:
        text = request.answer.text(request.done)[2 * self._sent :].decode()
        choice: dict[str, Any] = {"index": 0, "text": text, "logprobs": None}
        choice["finish_reason"] = request.finish["type"] if request.finished else None
        choice["stop_reason"] = None
        if self._ids:
            ids = request.answer.ids(request.done)[4 * self._sent :].lstrip(b",").decode()
            choice["prompt_token_ids"] = [1] * request.prompt_tokens if self._sent == 0 else None
            choice["token_ids"] = [int(one) for one in ids.split(",")]
        event = {**self._head(request), "choices": [choice]}
        if self._running:
            event["usage"] = _usage(request)
        self._sent = request.done
        self._reply.chunk(_event(event))

    def _whole(self, request: Request) -> None:
        text = request.answer.text(request.done).decode()
        reason = request.finish["type"]
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
        self._done(request)
        body = {**self._head(request), "choices": [choice], "usage": self._used(request)}
        self._reply.json(200, body)

    def _head(self, request: Request) -> dict[str, Any]:
        return {
            "id": f"cmpl-{request.rid}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": self._model,
        }

    def _used(self, request: Request) -> dict[str, Any]:
        details = {"cached_tokens": request.cached_tokens} if self._details else None
        return {**_usage(request), **({"prompt_tokens_details": details} if details else {})}


def _usage(request: Request) -> dict[str, Any]:
    return {
        "prompt_tokens": request.prompt_tokens,
        "total_tokens": request.prompt_tokens + request.done,
        "completion_tokens": request.done,
    }


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"
