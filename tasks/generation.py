"""Judges one answer of a generation endpoint: text came, nothing came, or rubbish came."""

from __future__ import annotations

from typing import Literal, NamedTuple

from tasks.foreign_json import NotJsonError, count, mapping, read_json, rows, words

#: A short unit repeated all along an answer is a broken model, not a boring one.
LONGEST_UNIT = 4
FEWEST_REPEATS = 4
SHORTEST_JUDGED = 8
#: Share of replacement and control characters from which a text is rubbish.
RUBBISH_SHARE = 0.3

Verdict = Literal["tokens", "nothing", "garbage", "unreadable"]


class Generated(NamedTuple):
    """What one generation answer holds."""

    verdict: Verdict
    text: str
    tokens: int | None
    why: str | None


def read_generation(body: str) -> Generated:
    """Read an answer of ``/generate``, ``/v1/completions`` or ``/v1/chat/completions``.

    A stream is judged by its last event that holds text. An answer with an ``error`` in it holds
    nothing, whatever its HTTP status was.
    """
    answer = _answer(body)
    if answer is None:
        return Generated("unreadable", "", None, f"not an answer: {body[:80]!r}")
    if answer.get("error"):
        return Generated("nothing", "", None, f"error in the answer: {str(answer['error'])[:200]}")
    text, ids = _text(answer), answer.get("output_ids")
    usage = {**mapping(answer.get("usage")), **mapping(answer.get("meta_info"))}
    tokens = count(usage.get("completion_tokens"))
    same_id = isinstance(ids, list) and len(ids) >= SHORTEST_JUDGED and len(set(map(str, ids))) == 1
    if same_id:
        return Generated("garbage", text, tokens, "every token is the same")
    why = garbage(text)
    if why is not None:
        return Generated("garbage", text, tokens, why)
    if tokens == 0 or not (text.strip() or tokens):
        return Generated("nothing", text, tokens, "no token was generated")
    return Generated("tokens", text, tokens, None)


def garbage(text: str) -> str | None:
    """Why a text cannot come from a working model, or None.

    Wrong weights, a broken quantisation or NaN logits give one character or one short unit over
    and over (vllm#42426, ktransformers#1961); acceptance on such text looks superb.
    """
    body = text.strip()
    if len(body) < SHORTEST_JUDGED:
        return None
    unit = _unit(body)
    if unit is not None:
        return f"{unit!r} repeated all along"
    strange = sum(c == "\ufffd" or (not c.isprintable() and not c.isspace()) for c in body)
    if strange >= RUBBISH_SHARE * len(body):
        return f"{strange} of {len(body)} characters are no text"
    return None


def _unit(body: str) -> str | None:
    for length in range(1, LONGEST_UNIT + 1):
        if len(body) < max(SHORTEST_JUDGED, FEWEST_REPEATS * length):
            return None
        if body[length:] == body[:-length]:
            return body[:length]
    return None


def _answer(body: str) -> dict[str, object] | None:
    events = [line[5:].strip() for line in body.splitlines() if line.startswith("data:")]
    last: dict[str, object] | None = None
    for piece in events or [body]:
        if piece == "[DONE]":
            continue
        try:
            found = rows(read_json(piece))
        except NotJsonError:
            continue
        if found and (last is None or _text(found[0]) or found[0].get("error")):
            last = found[0]
    return last


def _text(answer: dict[str, object]) -> str:
    choice = next(iter(rows(answer.get("choices"))), {})
    message = {**mapping(choice.get("delta")), **mapping(choice.get("message"))}
    for value in (
        answer.get("text"),
        choice.get("text"),
        message.get("content"),
        message.get("reasoning_content"),
        message.get("reasoning"),
    ):
        if isinstance(value, list):
            value = value[0] if value else None  # noqa: PLW2901 - a batch of one
        if words(value) is not None:
            return str(value)
    return ""
