"""Longer prompts from real text: background of our own in front of the question."""

from __future__ import annotations

import functools
import hashlib
import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tasks.prompts import Prompt

_ASCII_PER_TOKEN: Final = 4.0
_TOKENS_PER_OTHER: Final = 0.8
_BETWEEN: Final = "\n\n"
_END: Final = "\n\n---\n\n"


def passages(prompts: Iterable[Prompt]) -> tuple[str, ...]:
    """The texts that background is made of: every message of a set, whole."""
    return tuple(
        dict.fromkeys(
            text.strip()
            for prompt in prompts
            for text in ([m.content for m in prompt.messages or ()] or [prompt.text or ""])
            if text.strip()
        )
    )


@functools.lru_cache(maxsize=4096)  # the same passages for every request
def rough_tokens(text: str) -> float:
    """About how many tokens a text has; what the engine counts stands in the record."""
    plain = sum(character.isascii() for character in text)
    return plain / _ASCII_PER_TOKEN + (len(text) - plain) * _TOKENS_PER_OTHER


def lengthened(prompt: Prompt, tokens: int, number: int, seed: int, texts: Sequence[str]) -> Prompt:
    """The prompt with about so many tokens of background before its last question.

    The passages come in an order of their own for each prompt, behind a line with its number, so
    that two prompts share nothing beyond the chat template in the prefix cache. The prompt's own
    text is left out of its background. A background longer than all passages goes through them
    again in another order.

    Args:
        prompt: the question.
        tokens: of background; 0 leaves the prompt as it is.
        number: the prompt's place in the probe, from 1.
        seed: the sweep's.
        texts: from ``passages``.
    """
    if tokens == 0:
        return prompt
    own = {message.content.strip() for message in prompt.messages or ()}
    front = f"({number})\n{_cut(_ordered(prompt.id, seed, own, texts), tokens)}{_END}"
    if prompt.messages is None:
        return prompt.model_copy(update={"text": front + (prompt.text or "")})
    last = prompt.messages[-1]
    asked = last.model_copy(update={"content": front + last.content})
    return prompt.model_copy(update={"messages": (*prompt.messages[:-1], asked)})


def _ordered(name: str, seed: int, own: set[str], texts: Sequence[str]) -> Iterator[str]:
    """The passages again and again, each time in another order."""
    others = [text for text in texts if text not in own]
    turn = 1
    while others:
        keys = {
            text: hashlib.sha256(f"{seed}/{turn}/{name}/{text}".encode()).digest()
            for text in others
        }
        yield from sorted(others, key=keys.__getitem__)
        turn += 1


def _cut(ordered: Iterable[str], tokens: int) -> str:
    """Whole passages until there are enough tokens, the last one cut after a word."""
    taken: list[str] = []
    left = float(tokens)
    for text in ordered:
        size = rough_tokens(text)
        if size >= left:
            words = text.split(" ")
            taken.append(" ".join(words[: max(1, math.ceil(len(words) * left / size))]))
            break
        taken.append(text)
        left -= size + rough_tokens(_BETWEEN)
    return _BETWEEN.join(taken)
