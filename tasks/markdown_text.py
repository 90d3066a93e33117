"""Foreign text inside Markdown: what a log or a user wrote reads as it was written."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Only what means something where it stands: the Markdown is read as it is, too.
_MEANING = re.compile(
    r"(?P<sign>[`*<]"
    r"|\](?=[(:])"
    r"|\\(?=[!-/:-@\[-`{-~]|$)"
    r"|&(?=#?\w+;)"
    r"|(?<![^\W_])_|_(?![^\W_])"
    r"|~(?=~)|(?<=~)~"
    r"|^[-+](?=\s|$)|^-(?=-)|^#(?=[#\s]|$)|^>)"
)
_NUMBER = re.compile(r"^(\d+)([.)])(?=\s|$)")


def inline(text: str) -> str:
    """Text in one line that means nothing in Markdown: no emphasis, link, HTML, list or heading.

    Line ends and runs of spaces become one space.
    """
    line = _MEANING.sub(r"\\\g<sign>", " ".join(text.split()))
    return _NUMBER.sub(r"\1\\\2", line)


def fenced(lines: Sequence[str], language: str) -> str:
    """A code block whose fence is longer than any in the text."""
    whole = [part for line in lines for part in line.splitlines() or [""]]
    longest = 2
    for line in whole:
        stripped = line.lstrip()
        longest = max(longest, len(stripped) - len(stripped.lstrip("`")))
    fence = "`" * (longest + 1)
    return "\n".join([f"{fence}{language}", *whole, fence])
