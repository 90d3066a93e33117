"""Reads JSON that others wrote: with NaN and Infinity in it, cut off, or no JSON at all."""

from __future__ import annotations

import json
import math
from typing import Final

BIGGEST_COUNT: Final = 1e18


class NotJsonError(ValueError):
    """The text is not JSON; ``cut_off`` says that it looks like the beginning of some."""

    def __init__(self, message: str, *, cut_off: bool = False) -> None:
        super().__init__(message)
        self.cut_off = cut_off


def read_json(text: str) -> object:
    """The value in a JSON text; ``NaN`` and ``Infinity`` become floats as Python writes them.

    Raises:
        NotJsonError: for anything else, also for nesting deeper than Python can follow.
    """
    stripped = text.strip().removeprefix("\ufeff")
    try:
        value: object = json.loads(stripped)
    except (ValueError, RecursionError) as error:
        cut_off = stripped[:1] in ("{", "[") and stripped[-1:] not in ("}", "]")
        words = str(error) if isinstance(error, ValueError) else "nested too deeply"
        raise NotJsonError(words, cut_off=cut_off) from error
    return value


def mapping(value: object) -> dict[str, object]:
    """The value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def rows(value: object) -> list[dict[str, object]]:
    """The objects of a JSON list; a lone object counts as a list of one."""
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, dict)]


def number(value: object) -> float | None:
    """A finite figure, also where it was written as a string; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float | str):
        try:
            figure = float(value)
        except (ValueError, OverflowError):
            return None
        return figure if math.isfinite(figure) else None
    return None


def count(value: object) -> int | None:
    """A whole number that is not negative, also where it was written as a float or a string.

    One beyond ``BIGGEST_COUNT`` is damage: sums of counts must stay within a float.
    """
    figure = number(value)
    if figure is None or not 0 <= figure <= BIGGEST_COUNT or figure != int(figure):
        return None
    return int(figure)


def words(value: object) -> str | None:
    """The value if it is a string with something in it."""
    return value if isinstance(value, str) and value else None
