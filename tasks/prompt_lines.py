"""What one line of a prompt file holds, and everything that is wrong with it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

KEYS = ("id", "kind", "messages", "text")
MAX_WORD = 80
# Ids and kinds become parts of metric names and of file names; "#" marks a repeated prompt.
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Fault(NamedTuple):
    """One thing that is wrong with a line."""

    where: str
    """The key's path, such as messages.2.content; empty for the line as a whole."""
    message: str
    """What is wrong and what would be right."""


def parse_line(line: str) -> tuple[dict[str, Any] | None, list[Fault]]:
    """Return a line's object, or None when it is none, and all of its faults."""
    twice: list[str] = []

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        twice.extend(sorted({name for name in names if names.count(name) > 1}))
        return dict(pairs)

    try:
        value = json.loads(line, object_pairs_hook=members)
    except json.JSONDecodeError as error:
        return None, [Fault("", f"not JSON: {error.msg} at column {error.colno}")]
    except (ValueError, RecursionError) as error:
        return None, [Fault("", f"not JSON that can be read: {error}")]
    if not isinstance(value, dict):
        words = f"an object is needed, with id, kind and messages or text, not {_name(value)}"
        return None, [Fault("", words)]
    repeated = [Fault(name, "this key stands twice in one object") for name in twice]
    return value, [*repeated, *_faults(value)]


def _faults(record: dict[str, Any]) -> Iterator[Fault]:
    for key in sorted(set(record) - set(KEYS)):
        yield Fault(key, f"unknown key (known: {', '.join(KEYS)})")
    for key in ("id", "kind"):
        yield from _word_faults(key, record.get(key))
    has_messages = record.get("messages") is not None
    has_text = record.get("text") is not None
    if has_messages and has_text:
        yield Fault("", "messages and text exclude each other; keep one")
    elif has_messages:
        yield from _conversation_faults(record["messages"])
    elif has_text:
        yield from _content_faults("text", record["text"])
    else:
        yield Fault("", "messages or text is missing")


def _word_faults(key: str, value: object) -> Iterator[Fault]:
    if value is None:
        yield Fault(key, "missing")
    elif not isinstance(value, str):
        yield Fault(key, f"must be a string, not {_name(value)}")
    elif not WORD.fullmatch(value) or len(value) > MAX_WORD:
        yield Fault(
            key,
            f"{json.dumps(value[:MAX_WORD])} is not 1 to {MAX_WORD} of letters a-z, digits, "
            '".", "_" and "-" with a letter or digit first',
        )


def _conversation_faults(messages: object) -> Iterator[Fault]:
    if not isinstance(messages, list) or not messages:
        yield Fault("messages", f"must be a list of messages, not {_name(messages)}")
        return
    roles: list[str] = []
    for place, message in enumerate(messages, start=1):
        where = f"messages.{place}"
        if not isinstance(message, dict):
            yield Fault(where, f"an object with role and content is needed, not {_name(message)}")
            continue
        for key in sorted(set(message) - {"role", "content"}):
            yield Fault(f"{where}.{key}", "unknown key (known: role, content)")
        role = message.get("role")
        if role in ("system", "user", "assistant"):
            roles.append(role)
        else:
            shown = json.dumps(role)[:40]
            yield Fault(f"{where}.role", f"must be system, user or assistant, not {shown}")
        yield from _content_faults(f"{where}.content", message.get("content"))
    if len(roles) == len(messages):
        yield from (Fault("messages", words) for words in _order_faults(roles))


def _order_faults(roles: Sequence[str]) -> Iterator[str]:
    talk = roles[1:] if roles[0] == "system" else roles
    if "system" in talk:
        yield "a system message may only come first"
    elif not talk:
        yield "a system message alone asks nothing; a user message is missing"
    elif any(role != ("user", "assistant")[place % 2] for place, role in enumerate(talk)):
        yield f"user and assistant must take turns, the user first; found {', '.join(talk[:8])}"
    elif talk[-1] != "user":
        yield "the last message must be the user's, so that there is something to answer"


def _content_faults(where: str, value: object) -> Iterator[Fault]:
    if value is None:
        yield Fault(where, "missing")
    elif not isinstance(value, str):
        yield Fault(where, f"must be a string (plain text, no parts), not {_name(value)}")
    elif not value.strip():
        yield Fault(where, "empty")
    elif any("\ud800" <= character <= "\udfff" for character in value):
        yield Fault(where, "holds half of a surrogate pair, which is no text")


def _name(value: object) -> str:
    """Return what a JSON value is, in JSON's words."""
    if value is None:
        return "null"
    if isinstance(value, list) and not value:
        return "an empty list"
    names: dict[type, str] = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "a list",
    }
    return names.get(type(value), "an object")
