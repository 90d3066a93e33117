"""How an outcome is compared with what a recorded case expects, key by key."""

from __future__ import annotations

import math
import re
from typing import Any

#: Keys of expect.json that describe the case instead of its outcome.
DESCRIPTION = frozenset({"kind", "given", "inputs", "why", "reports", "basis"})
#: Lists that name what must be said, not the exact words.
NAMING_LISTS = frozenset({"warnings", "hints"})
#: Keys whose value, once it has spaces, is a sentence of ours to word.
FREE_TEXT = frozenset({"policy", "fallback", "if_killed_before_done", "reason"})
#: Whole numbers that identify a thing: one beside is another thing, not a near figure.
IDENTIFIERS = frozenset({"pid", "port", "gpu", "gi", "line", "exit_code", "status", "bad_index"})
FIGURE_TOLERANCE = 0.01

_LITTLE_WORDS = """
    a an and are as at be but by can for from has have if in into is it its may of on or so
    than that the their them then there these they this to up was were will with you your
"""
_DENIALS = """
    no not none nothing never without missing absent cannot
"""
_SOFT_DENIALS = """
    lacks lack off zero few fewer unknown disabled neither nobody
"""
_STOPWORDS = frozenset(_LITTLE_WORDS.split())
_PLAIN_NEGATIONS = frozenset(_DENIALS.split())
_NEGATIONS = _PLAIN_NEGATIONS | frozenset(_SOFT_DENIALS.split())
_PATH = re.compile(r"(?<![\w.])/[\w./-]*\w")
_FLAG = re.compile(r"--[a-zA-Z][\w-]*")
_IDENTIFIER = re.compile(
    r"\b(?:\w+_\w+(?:\.\w+)*|[A-Za-z]*[a-z][A-Z]\w*|[A-Za-z]+\d\w*)\b"  # snake, Camel, word2
)
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?")
_WORD = re.compile(r"[^\W\d_]+")


def differences(expected: dict[str, Any], got: dict[str, Any]) -> list[str]:
    """Every key of the outcome that is not as expected, in words; empty if all are."""
    found = []
    for key, value in expected.items():
        if key in DESCRIPTION:
            continue
        if key not in got:
            found.append(f"{key} expected {value!r} got no such key")
        elif not same(key, value, got[key]):
            found.append(f"{key} expected {value!r} got {got[key]!r}")
    return found


def same(key: str, expected: Any, got: Any) -> bool:
    """Whether one value answers the expected one, by what kind of value it is."""
    if expected is None or isinstance(expected, bool):
        return got is expected
    if isinstance(expected, int | float):
        return _same_figure(key, expected, got)
    if isinstance(expected, str):
        return isinstance(got, str) and _same_text(key, expected, got)
    if isinstance(expected, dict):
        return (
            isinstance(got, dict)
            and all(name in got and same(name, want, got[name]) for name, want in expected.items())
            and all(not isinstance(v, float) or math.isfinite(v) for v in got.values())
        )
    return isinstance(got, list | tuple | set | frozenset) and _same_list(key, expected, list(got))


def _same_figure(key: str, expected: float, got: Any) -> bool:
    if isinstance(got, bool) or not isinstance(got, int | float) or not math.isfinite(got):
        return False
    if key in IDENTIFIERS:
        return got == expected
    return abs(got - expected) <= FIGURE_TOLERANCE * abs(expected)


def _same_text(key: str, expected: str, got: str) -> bool:
    if expected == got:
        return True
    sentence = " " in expected.strip() and (key in FREE_TEXT or _is_prose(expected))
    return sentence and names_the_same_thing(expected, got)


def _is_prose(text: str) -> bool:
    """Four plain words at least: a literal value (a path, a time, an error line) has fewer."""
    return sum(word.strip(".,:;()?!").isalpha() for word in text.split()) >= 4


def _same_list(key: str, expected: list[Any], got: list[Any]) -> bool:
    sentences = key in NAMING_LISTS or any(isinstance(e, str) and " " in e for e in expected)
    if sentences and expected and key in NAMING_LISTS:
        return all(any(names_the_same_thing(e, str(g)) for g in got) for e in expected)
    if len(expected) != len(got):
        return False
    if any(isinstance(e, float) for e in expected):  # a row of figures has an order
        return all(_same_figure(key, e, g) for e, g in zip(expected, got, strict=True))
    rest = list(got)
    for want in expected:
        at = next((i for i, have in enumerate(rest) if _same_member(want, have)), None)
        if at is None:
            return False
        rest.pop(at)
    return True


def _same_member(expected: Any, got: Any) -> bool:
    if isinstance(expected, str) and isinstance(got, str):
        prose = " " in expected and _WORD.search(expected) is not None
        return expected == got or (prose and names_the_same_thing(expected, got))
    if isinstance(expected, dict) and isinstance(expected.get("reason"), str):
        return _same_located(expected, got)
    if isinstance(expected, dict | list):
        return same("", expected, got)
    return type(expected) is type(got) and bool(expected == got)


def _same_located(expected: dict[str, Any], got: Any) -> bool:
    """A problem that says where it is: the place decides, of the reason a third must recur.

    The place already names the thing, and a problem is a denial however it is worded.
    """
    place = {key: value for key, value in expected.items() if key != "reason"}
    if not place or not same("", place, got) or not isinstance(got.get("reason"), str):
        return same("", expected, got)
    reason, words = got["reason"], _content(expected["reason"])
    have = _content(reason)
    shared = sum(any(_same_mark(w, h) for h in have) for w in words)
    return expected["reason"] == reason or shared >= max(1, math.ceil(len(words) / 3))


def _content(text: str) -> set[str]:
    """Marks and significant words together, denials among them."""
    return {*_marks(text), *_words(text), *(_tokens(text) & _NEGATIONS)} - {"no", "not"}


def names_the_same_thing(expected: str, got: str) -> bool:
    """Whether a sentence of ours names what the expected sentence names.

    Two thirds of its marks (flags, paths, identifiers, numbers) must recur, and enough of its
    significant words: a third beside marks, half without them. What is denied there must be
    denied here.
    """
    want_marks, want_words = _marks(expected), _words(expected)
    have_marks, have_words = _marks(got), _words(got)
    shared_marks = sum(any(_same_mark(w, h) for h in have_marks) for w in want_marks)
    if shared_marks < math.ceil(2 * len(want_marks) / 3):
        return False
    needed = math.ceil(len(want_words) / (3 if want_marks else 2))
    if len(want_words & have_words) < needed:
        return False
    if not want_marks and not want_words:
        return expected.strip() == got.strip()
    return not _tokens(expected) & _PLAIN_NEGATIONS or bool(_tokens(got) & _NEGATIONS)


def _marks(text: str) -> list[str]:
    found: list[str] = []
    for pattern in (_PATH, _FLAG, _IDENTIFIER, _NUMBER):
        found += [mark.lower() for mark in pattern.findall(text)]
        text = pattern.sub(" ", text)
    return sorted(set(found))


def _same_mark(expected: str, got: str) -> bool:
    if _NUMBER.fullmatch(expected) and _NUMBER.fullmatch(got):
        return abs(float(expected) - float(got)) <= FIGURE_TOLERANCE * abs(float(expected))
    return expected == got


def _tokens(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(text)}


def _words(text: str) -> set[str]:
    """Significant words by their first five letters, so that endings do not matter."""
    for pattern in (_PATH, _FLAG, _IDENTIFIER, _NUMBER):
        text = pattern.sub(" ", text)
    plain = (word for word in _tokens(text) if len(word) > 1)
    return {w.rstrip("s")[:5] for w in plain if w not in _STOPWORDS | _NEGATIONS}
