"""Order of release numbers as Python packages write them, and ranges over them."""

from __future__ import annotations

import re
from operator import eq, ge, gt, le, lt, ne
from typing import Final, NamedTuple

_VERSION: Final = re.compile(
    r"\s*v?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[-_.]?(?P<phase>alpha|a|beta|b|preview|pre|c|rc)[-_.]?(?P<phase_n>\d*))?"
    r"(?:(?:[-_.]?(?:post|rev|r)[-_.]?(?P<post>\d*))|-(?P<bare_post>\d+))?"
    r"(?:[-_.]?dev[-_.]?(?P<dev>\d*))?"
    r"(?:\+[a-z0-9]+(?:[-_.][a-z0-9]+)*)?\s*",
    re.IGNORECASE,
)
_PHASES: Final = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "c": 2, "rc": 2, "pre": 2, "preview": 2}
_FINAL: Final = 3
_CLAUSE: Final = re.compile(r"\s*(?P<sign>==|!=|>=|<=|>|<)\s*(?P<version>\S+)\s*")
_SIGNS: Final = {"==": eq, "!=": ne, ">=": ge, "<=": le, ">": gt, "<": lt}


class Version(NamedTuple):
    """A release number as a value that sorts: dev < a < b < rc < final < post.

    The order is the one of PEP 440; a local part (``+cu128``) says how a wheel was built,
    not which release it is, and is left out.
    """

    release: tuple[int, ...]
    phase: int
    phase_n: int
    post: int
    dev: float


def parse_version(text: str) -> Version:
    """Read a release number such as ``0.5.10.post1`` or ``0.5.9rc0``.

    Raises:
        ValueError: the text is no release number.
    """
    found = _VERSION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a version number")
    numbers = tuple(int(part) for part in found["release"].split("."))
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers = numbers[:-1]
    named_post = found["post"] if found["post"] is not None else found["bare_post"]
    post = -1 if named_post is None else int(named_post or 0)
    # A development build comes before the thing it develops into.
    dev = float("inf") if found["dev"] is None else float(found["dev"] or 0)
    phase = _PHASES[found["phase"].lower()] if found["phase"] else _FINAL
    if found["phase"] is None and post < 0 and found["dev"] is not None:
        phase = -1
    return Version(numbers, phase, int(found["phase_n"] or 0), post, dev)


def is_version(text: str) -> bool:
    """Whether a text is a release number."""
    return _VERSION.fullmatch(text) is not None


def check_range(text: str) -> str:
    """Return the range unchanged if it can be read, such as ``>=0.5.9,<0.5.10``.

    Raises:
        ValueError: a clause is no comparison with a version number.
    """
    for clause in text.split(","):
        found = _CLAUSE.fullmatch(clause)
        if found is None:
            raise ValueError(f"{clause.strip()!r} is not a version range such as '>=0.5.9'")
        parse_version(found["version"])
    return text


def within(version: str, wanted: str) -> bool:
    """Say whether a version lies in a range, by plain order (``0.5.10rc0`` is below ``0.5.10``).

    Raises:
        ValueError: either text cannot be read.
    """
    have = parse_version(version)
    for clause in check_range(wanted).split(","):
        found = _CLAUSE.fullmatch(clause)
        if found is not None and not _SIGNS[found["sign"]](have, parse_version(found["version"])):
            return False
    return True
