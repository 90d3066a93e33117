"""A file as it was written: plain data, and the line on which each of its keys stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from configs.problems import Problem
from configs.short_levels import LONG

if TYPE_CHECKING:
    from configs.plain import Where
    from configs.problems import Said


class Document(NamedTuple):
    """A parsed file: plain data, where each key stands, and how each number was written."""

    data: Any
    lines: dict[Where, int]
    written: dict[Where, str]


def line_of(document: Document, where: str) -> int | None:
    """The line of a dotted path, or of the nearest key above it.

    Names may hold dots (``arms.k2.5.flags``), so every way to cut the path is tried.
    """
    return max(
        (
            (len(place), line)
            for place, line in document.lines.items()
            if f"{where}.".startswith(".".join(map(str, place)) + ".")
        ),
        default=(0, None),
    )[1]


def problem_of(document: Document, file: str, said: Said) -> Problem:
    """What is wrong, at the place where the user wrote it.

    A level in the short form has no ``env`` or ``flags`` in the file, although its value has.
    """
    where = said.where
    if where.startswith("factors.") and not _stands(document, where):
        for word in LONG:
            short = where.replace(f".{word}.", ".", 1)
            if short != where and _stands(document, short):
                where = short
                break
    return Problem(file, where, said.message, line_of(document, where))


def _stands(document: Document, where: str) -> bool:
    return any(".".join(map(str, place)) == where for place in document.lines)
