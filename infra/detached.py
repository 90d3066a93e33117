"""Why a shell command that starts something in the background keeps SSH waiting."""

from __future__ import annotations

import re
from typing import NamedTuple

GOOD_SHAPE = (
    "setsid",
    "stdin from /dev/null",
    "stdout and stderr to the log file",
    "in the background",
    "prints the pid",
)
"""What lets go of the session and can be found again. Our engines are started so by the agent on
the host (infra/agent/supervise.py), which needs no shell for it."""

_PIECE = re.compile(
    r"""
    (?P<gap>[ \t\r]+)
    | (?P<redirect>\d*(?:>>|>\||>&|<<|<&|<|>)|&>>?)
    | (?P<cut>&&|\|\||[;\n|])
    | (?P<background>&)
    | (?P<group>[()])
    | (?P<word>(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\;&|<>()])+)
    """,
    re.VERBOSE | re.DOTALL,
)


class _Redirect(NamedTuple):
    """``2>&1`` is 2, >&, 1."""

    fd: str
    to: str
    target: str


class _Part(NamedTuple):
    """One command of a line, as far as it matters here."""

    words: list[str]
    redirects: list[_Redirect]


def holds_streams(command: str) -> tuple[str, ...]:
    """Which of ssh's streams a background part of a command keeps open; empty if none does.

    sshd waits for every holder of its pipes, however long that lives (fabric#1815). stdin is not
    among them: a shell gives /dev/null to what it puts into the background.
    """
    held = {stream for part in _background_parts(command) for stream in _open_streams(part)}
    return tuple(sorted(held))


def _background_parts(command: str) -> list[_Part]:
    """Every part that ends in ``&``, and those that fork by themselves.

    A group counts as one part: what is redirected after it is redirected for all of it.
    """
    parts: list[_Part] = []
    line: list[_Part] = []  # what is piped into the current part
    part, depth, at = _Part([], []), 0, 0
    pending: str | None = None
    while at < len(command):
        piece = _PIECE.match(command, at)
        if piece is None:  # an open quote: no shell would run it
            return []
        at, text = piece.end(), piece.group()
        if piece["group"]:
            depth += 1 if text == "(" else -1
        elif depth > 0 or piece["gap"]:
            continue
        elif piece["redirect"]:
            pending = text
        elif piece["word"] and pending is not None:
            digits = pending.rstrip("<>&|")
            part.redirects.append(_Redirect(digits, pending[len(digits) :], text))
            pending = None
        elif piece["word"]:
            part.words.append(text)
        elif text == "|":
            line.append(_Part(part.words, [_Redirect("1", ">", text), *part.redirects]))
            part = _Part([], [])
        else:
            if piece["background"] or _forks(part):
                parts += [*line, part]
            line, part = [], _Part([], [])
    return [*parts, part] if _forks(part) else parts


def _forks(part: _Part) -> bool:
    return part.words[:1] == ["setsid"] and bool({"-f", "--fork"} & set(part.words[1:3]))


def _open_streams(part: _Part) -> set[str]:
    """Stdout and stderr as far as they still lead to ssh, redirections read from left to right."""
    leads = {"1": "stdout", "2": "stderr"}
    for fd, to, target in part.redirects:
        if to.startswith("<"):
            continue
        if to.startswith("&>") or (to == ">&" and not target.isdecimal()):
            leads = {"1": "", "2": ""}
        elif to == ">&":
            leads[fd or "1"] = leads.get(target, "")
        else:
            leads[fd or "1"] = ""
    return {lead for lead in (leads["1"], leads["2"]) if lead}
