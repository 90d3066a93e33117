"""The events of a token stream in the dialects that load clients speak."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from infra.rehearsal.tokens import Answer

PROMPT_TOKENS = 32
"""What every answer says of its prompt; the endpoint does not count prompts."""


class Told(NamedTuple):
    """One answer.

    Attributes:
        rid: the request's id.
        answer: its text and token ids.
        limit: its length in tokens.
        model: the model's name.
    """

    rid: str
    answer: Answer
    limit: int
    model: str


class Dialect(Protocol):
    """How one path writes its events.

    Attributes:
        path: of the requests.
    """

    path: str

    def event(self, told: Told, before: int, done: int) -> bytes:
        """The event that carries the tokens from ``before`` to ``done``."""

    def ending(self, told: Told) -> list[bytes]:
        """What comes after the last token, besides ``[DONE]``."""


class Generate:
    """SGLang's ``/generate`` of 0.5.9: every event repeats all text and all ids so far."""

    path = "/generate"

    def event(self, told: Told, before: int, done: int) -> bytes:
        """Cumulative; ``meta_info`` counts the tokens."""
        del before
        reason = b'{"type":"stop","matched":163586}' if done == told.limit else b"null"
        return (
            b'data: {"text":"%b","output_ids":[%b],"meta_info":{"id":"%b","finish_reason":%b,'
            b'"prompt_tokens":%d,"weight_version":"default","total_retractions":0,'
            b'"completion_tokens":%d,"cached_tokens":0}}\n\n'
        ) % (
            told.answer.text(done),
            told.answer.ids(done),
            told.rid.encode(),
            reason,
            PROMPT_TOKENS,
            done,
        )

    def ending(self, told: Told) -> list[bytes]:
        """The last event said it all."""
        del told
        return []


class _OpenAi:
    """OpenAI's streams: every event has the new text, the last one the usage."""

    path: str
    _kind: str
    _piece: bytes
    """The JSON around a piece of text."""

    def event(self, told: Told, before: int, done: int) -> bytes:
        """Incremental, in the key order of SGLang's own answers."""
        reason = b'"stop"' if done == told.limit else b"null"
        text = told.answer.text(done)[2 * before :]
        return (
            b'data: {"id":"%b","object":"%b","created":0,"model":"%b","choices":[{"index":0,'
            b'%b,"logprobs":null,"finish_reason":%b,"matched_stop":null}],"usage":null}\n\n'
        ) % (
            told.rid.encode(),
            self._kind.encode(),
            told.model.encode(),
            self._piece % text,
            reason,
        )

    def ending(self, told: Told) -> list[bytes]:
        """The usage, in an event without choices."""
        usage = {
            "prompt_tokens": PROMPT_TOKENS,
            "total_tokens": PROMPT_TOKENS + told.limit,
            "completion_tokens": told.limit,
            "prompt_tokens_details": None,
        }
        last = {"id": told.rid, "object": self._kind, "created": 0, "model": told.model}
        text = json.dumps({**last, "choices": [], "usage": usage}, separators=(",", ":"))
        return [f"data: {text}\n\n".encode()]


class Completions(_OpenAi):
    """``/v1/completions`` with ``stream_options.include_usage``."""

    path, _kind, _piece = "/v1/completions", "text_completion", b'"text":"%b"'


class Chat(_OpenAi):
    """``/v1/chat/completions`` with ``stream_options.include_usage``."""

    path, _kind = "/v1/chat/completions", "chat.completion.chunk"
    _piece = b'"delta":{"role":"assistant","content":"%b"}'


DIALECTS: dict[str, Dialect] = {
    dialect.path: dialect for dialect in (Generate(), Completions(), Chat())
}
"""By path."""
