"""Prompts of random token ids: seeded, each with a beginning of its own."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from configs.probe import RandomTokens

FIRST_ID: Final = 256
"""Vocabularies often begin with control tokens and single bytes."""
_BYTES: Final = 4


def random_prompts(drawn: RandomTokens, count: int, seed: int) -> list[tuple[int, ...]]:
    """So many prompts as token ids; a shorter list is the beginning of a longer one.

    They come from hashes of seed and number, and so are the same in every Python version. No two
    begin with the same token (as long as there are ids left), so that none finds the beginning of
    another in the prefix cache.

    Args:
        drawn: lengths and range of ids.
        count: how many prompts.
        seed: any integer.
    """
    width = drawn.ids_below - FIRST_ID
    begun: set[int] = set()
    prompts: list[tuple[int, ...]] = []
    for number in range(count):
        size, *values = _numbers(f"{seed}/{number}", drawn.tokens + 1)
        length = drawn.shortest + size % (drawn.tokens - drawn.shortest + 1)
        if len(begun) == width:
            begun.clear()
        first = values[0] % width
        while first in begun:
            first = (first + 1) % width
        begun.add(first)
        rest = (FIRST_ID + value % width for value in values[1:length])
        prompts.append((FIRST_ID + first, *rest))
    return prompts


def _numbers(key: str, count: int) -> list[int]:
    """Evenly spread numbers below 2**32; the remainder's bias is far below what matters here."""
    data = hashlib.shake_256(key.encode()).digest(_BYTES * count)
    return [int.from_bytes(data[at : at + _BYTES]) for at in range(0, len(data), _BYTES)]
