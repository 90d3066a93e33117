"""The text that the pretend engine writes: cheap to slice, never looping, decided by the prompt.

Token ids are 100 … 999 and each stands for two characters, so a cumulative answer of n tokens
is one slice of a prepared text and one of prepared id digits, whatever n is.
"""

from __future__ import annotations

import random
import zlib
from functools import cache

_LETTERS = "etaoinshrdlucmfwypvbgkjqxz .,-"
_STARTS = 4096
_BLOCK = 32_768


@cache
def _prepared(blocks: int) -> tuple[bytes, bytes]:
    """Text and comma-separated ids of ``blocks`` blocks; a longer one starts like a shorter."""
    dice = random.Random(59)
    ids = [100 + int(dice.random() * 900) for _ in range(blocks * _BLOCK)]
    pairs = [a + b for a in _LETTERS for b in _LETTERS]
    text = "".join(pairs[token - 100] for token in ids).encode()
    return text, ",".join(map(str, ids)).encode()


def prepare() -> None:
    """Make the text before the first request needs it."""
    _prepared(1)


class Answer:
    """The answer to one prompt, as slices; the same prompt always gets the same answer."""

    def __init__(self, prompt: bytes, longest: int) -> None:
        self._start = zlib.crc32(prompt) % _STARTS
        blocks = 1 + (self._start + longest) // _BLOCK
        self._text, self._ids = _prepared(blocks)

    def text(self, tokens: int) -> bytes:
        """The first so many tokens as text; needs no JSON escaping."""
        return self._text[2 * self._start : 2 * (self._start + tokens)]

    def ids(self, tokens: int) -> bytes:
        """Their ids, separated by commas."""
        return self._ids[4 * self._start : 4 * (self._start + tokens) - 1] if tokens else b""


def count(text: str) -> int:
    """Tokens of a prompt: four characters each."""
    return max(1, (len(text) + 3) // 4)
