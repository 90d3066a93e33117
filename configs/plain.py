"""From a tree of YAML nodes to plain data: what JSON can say, and where it stood."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

Where = tuple[str | int, ...]

_TAG: Final = "tag:yaml.org,2002:"
# Aliases can make a short file expand without end ("billion laughs").
_MOST_VALUES: Final = 50_000
_MOST_DEPTH: Final = 60
_ENDLESS: Final = "is nested too deeply, or holds too many values: does an alias hold itself?"


class Wrong(NamedTuple):
    """One thing that cannot be taken over."""

    where: str
    message: str
    line: int


@dataclass
class Plain:
    """Plain data, and what was seen on the way."""

    data: Any = None
    lines: dict[Where, int] = field(default_factory=dict)
    """Line of each key and list element, from 1."""
    written: dict[Where, str] = field(default_factory=dict)
    """Numbers as they stand in the file: 0.10, which is 0.1 as data."""
    wrong: list[Wrong] = field(default_factory=list)
    values: int = 0


def plain_of(node: Any) -> Plain:
    """The plain data of a composed node (ruamel's ScalarNode, SequenceNode or MappingNode)."""
    plain = Plain()
    plain.data = _value(node, (), plain)
    return plain


def _value(node: Any, where: Where, plain: Plain) -> Any:
    plain.values += 1
    if plain.values > _MOST_VALUES or len(where) > _MOST_DEPTH:
        if not any(said.message == _ENDLESS for said in plain.wrong):
            _note(node, where[:3], plain, _ENDLESS)
        return None
    if node.id == "mapping" and node.tag == f"{_TAG}map":
        return _mapping(node, where, plain)
    if node.id == "sequence" and node.tag == f"{_TAG}seq":
        return _sequence(node, where, plain)
    if node.id == "scalar":
        return _scalar(node, where, plain)
    _note(node, where, plain, f"has the tag {_short(node.tag)}: take it out")
    return None


def _sequence(node: Any, where: Where, plain: Plain) -> list[Any]:
    found = []
    for index, element in enumerate(node.value):
        plain.lines[(*where, index)] = element.start_mark.line + 1
        found.append(_value(element, (*where, index), plain))
    return found


def _mapping(node: Any, where: Where, plain: Plain) -> dict[str, Any]:
    own: dict[str, Any] = {}
    merged: dict[str, Any] = {}
    first: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if key.tag == f"{_TAG}merge":
            merged = {**_merged(value, where, plain), **merged}
            continue
        if key.id != "scalar" or key.tag != f"{_TAG}str":
            shown = key.value if key.id == "scalar" else f"a {key.id}"
            _note(key, where, plain, f"the key {shown} is not text: put it in quotes")
            continue
        name = _text(key, where, plain)
        at = (*where, name)
        if name in first:
            message = f"duplicate key: stands in line {first[name]} too: keep one"
            _note(key, at, plain, message)
            continue
        first[name] = plain.lines[at] = line
        own[name] = _value(value, at, plain)
    return {**merged, **own}


def _merged(node: Any, where: Where, plain: Plain) -> dict[str, Any]:
    """What ``<<`` brings in: one mapping, or a list of them of which the first wins."""
    nodes = node.value if node.id == "sequence" else [node]
    found: dict[str, Any] = {}
    for each in nodes:
        value = _value(each, where, plain)
        if isinstance(value, dict):
            found = {**value, **found}
        else:
            _note(each, where, plain, "<< brings in what is no mapping: name one (<<: *anchor)")
    return found


def _scalar(node: Any, where: Where, plain: Plain) -> Any:
    text, kind = node.value, node.tag.removeprefix(_TAG)
    match kind:
        case "str":
            return _text(node, where, plain)
        case "null":
            return None
        case "bool" if text.lower() in {"true", "false"}:
            return text.lower() == "true"
        case "int" | "float":
            return _number(node, where, plain)
        case "timestamp":
            _note(node, where, plain, "is read as a date: put it in quotes")
        case _:
            _note(node, where, plain, f"has the tag {_short(node.tag)}: take it out")
    return None


def _text(node: Any, where: Where, plain: Plain) -> str:
    text: str = node.value
    if "\0" in text or any("\ud800" <= sign <= "\udfff" for sign in text):
        _note(node, where, plain, "holds a character that no file name or argument may have")
        return ""
    return text


def _number(node: Any, where: Where, plain: Plain) -> int | float | None:
    written = str(node.value)
    plain.written[where] = written
    digits = written.replace("_", "").lower()
    try:
        if node.tag == f"{_TAG}int":
            return int(digits, 0 if digits.lstrip("+-")[:2] in {"0x", "0o", "0b"} else 10)
        special = {".inf": "inf", "+.inf": "inf", "-.inf": "-inf", ".nan": "nan"}
        number = float(special.get(digits, digits))
    except ValueError:
        _note(node, where, plain, f"{written[:40]!r} is no number: put text in quotes")
        return None
    if not math.isfinite(number):
        _note(node, where, plain, f"{written[:40]!r} is no finite number: write an ordinary one")
        return None
    return number


def _note(node: Any, where: Where, plain: Plain, message: str) -> None:
    plain.wrong.append(Wrong(".".join(map(str, where)), message, node.start_mark.line + 1))


def _short(tag: str) -> str:
    return f"!!{tag.removeprefix(_TAG)}" if tag.startswith(_TAG) else tag
