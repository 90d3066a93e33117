"""How one request's progress becomes the answer of ``/generate``, in the 0.5.9 shape."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from infra.rehearsal.decoding import Request
    from infra.rehearsal.wire import Reply


def meta_info(
    request: Request, draft_tokens: int, e2e_s: float | None, *, counted: bool = True
) -> dict[str, Any]:
    """``meta_info`` of one request; speculation counts and latency only once it is finished.

    Names and definitions are those of 0.5.9: the rate is accepted over proposed drafts, the
    length completion tokens (the one from prefill included) over verify steps. Not ``counted``:
    an engine that leaves the counts out.
    """
    meta: dict[str, Any] = {
        "id": request.rid,
        "finish_reason": request.finish if request.finished else None,
        "prompt_tokens": request.prompt_tokens,
        "weight_version": "default",
        "total_retractions": request.retractions,
        "completion_tokens": request.done,
        "cached_tokens": request.cached_tokens,
    }
    if request.finished:
        meta["e2e_latency"] = e2e_s
        if request.steps > 0 and counted:
            proposed = request.steps * (draft_tokens - 1)
            meta["spec_accept_rate"] = request.accepted / proposed
            meta["spec_accept_length"] = request.done / request.steps
            meta["spec_accept_token_num"] = request.accepted
            meta["spec_draft_token_num"] = proposed
            meta["spec_verify_ct"] = request.steps
            meta["spec_accept_histogram"] = request.histogram
    return meta


class GenerateSink:
    """Sends cumulative chunks (or one whole answer) of a ``/generate`` request.

    Args:
        reply: where the answer goes.
        stream: chunks or one answer.
        interval: tokens between two chunks (``--stream-interval``); the first comes at once.
        draft_tokens: of the server's speculation.
        counted: whether the answer holds speculation counts.
        loop: for the latency.
        done: called once the request has ended.
    """

    def __init__(
        self,
        reply: Reply,
        *,
        stream: bool,
        interval: int,
        draft_tokens: int,
        counted: bool,
        loop: asyncio.AbstractEventLoop,
        done: Callable[[Request], None],
    ) -> None:
        self._reply, self._stream, self._draft_tokens = reply, stream, draft_tokens
        self._loop, self._done, self._counted = loop, done, counted
        self._interval = interval
        self._sent = 0
        self._fixed = b""

    def progress(self, request: Request) -> None:
        """Write what the request has so far."""
        if request.finished:
            self._finish(request)
        elif self._stream and (self._sent == 0 or request.done - self._sent >= self._interval):
            self._sent = request.done
            if not self._fixed:
                self._fixed = (
                    f'],"meta_info":{{"id":"{request.rid}","finish_reason":null,'
                    f'"prompt_tokens":{request.prompt_tokens},"weight_version":"default",'
                    f'"total_retractions":{request.retractions},"completion_tokens":'
                ).encode()
            self._reply.chunk(
                b"".join(
                    (
                        b'data: {"text":"',
                        request.answer.text(request.done),
                        b'","output_ids":[',
                        request.answer.ids(request.done),
                        self._fixed,
                        b'%d,"cached_tokens":%d}}\n\n' % (request.done, request.cached_tokens),
                    )
                )
            )

    def _finish(self, request: Request) -> None:
        e2e_s = self._loop.time() - request.arrived
        meta = meta_info(request, self._draft_tokens, e2e_s, counted=self._counted)
        body = b"".join(
            (
                b'{"text":"',
                request.answer.text(request.done),
                b'","output_ids":[',
                request.answer.ids(request.done),
                b'],"meta_info":',
                json.dumps(meta, separators=(",", ":")).encode(),
                b"}",
            )
        )
        self._done(request)
        if self._stream:
            self._reply.chunk(b"data: " + body + b"\n\n")
            self._reply.end(b"data: [DONE]\n\n")
        else:
            self._reply.whole(200, body)


class CallSink:
    """Hands the finished request to a function; for chat answers and the server's own requests."""

    def __init__(self, done: Callable[[Request], None]) -> None:
        self._done = done

    def progress(self, request: Request) -> None:
        """Only the end matters."""
        if request.finished:
            self._done(request)
