"""From pydantic's errors to sentences that say what is wrong and what would be right."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from configs.names import ENV_PATTERN, NAME_PATTERN, truth_of
from configs.problems import Said, WrongKeyError
from configs.schema import all_models, field_model, kinds_of, missing_kinds, siblings, unsaid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

_SCALARS: Final = {"bool", "int", "float", "str"}
# pydantic names a union's variant that has validators "function-after[check(), Name]".
_WRAPPED: Final = re.compile(r"^function-\w+\[.*?(\w+)\]+$")
_ALLOWED: Final = {
    NAME_PATTERN: "lower-case letters, digits, '.', '_' and '-' are allowed, a letter or digit first",
    ENV_PATTERN: "letters, digits and '_' are allowed, no digit first",
}
_DID_YOU_MEAN: Final = re.compile(r"unknown key: did you mean (?P<key>.*)\?")
_EMPTY: Final = "must not be empty"
_BOUNDS: Final = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}


class _Asked(NamedTuple):
    """What was given, and what was wanted."""

    data: Any
    written: Mapping[tuple[str | int, ...], str]
    model: type[BaseModel]
    kinds: dict[str, str]


def explain(
    error: ValidationError | None,
    data: Any,
    written: Mapping[tuple[str | int, ...], str],
    model: type[BaseModel],
) -> list[Said]:
    """Every error, each once, with its key path.

    A plain union reports the errors of all of its variants; only those of the variant that the
    data's ``kind`` names are of use. Where a union's ``kind`` is missing, pydantic would take the
    first variant that fits; that is an error here.

    Args:
        error: What pydantic said, or None if it said nothing.
        data: The plain data.
        written: Numbers as they stood in the file, by path.
        model: What the data was to become.
    """
    unnamed = [
        Said(f"{where}.kind" if where else "kind", _kind_message(None, known))
        for where, known in missing_kinds(data, model)
    ]
    asked = _Asked(data, written, model, kinds_of(model))
    details = error.errors(include_url=False) if error else []
    found = [said for detail in details if (said := _one(detail, asked)) is not None]
    inside = tuple(said.where.removesuffix("kind") for said in unnamed)
    found = [said for said in found if not said.where.startswith(inside)] if inside else found
    return only_causes([*unnamed, *found])


def only_causes(found: Iterable[Said]) -> list[Said]:
    """Every error once, without those that merely follow from another one.

    A list of which every element is wrong counts as empty, and a misspelt key as missing.
    """
    once = list(dict.fromkeys(found))
    meant = {f"{said.where.rpartition('.')[0]}.{_meant(said)}".lstrip(".") for said in once}
    return [
        said
        for said in once
        if not (said.message.startswith("is missing") and said.where in meant)
        and not (said.message == _EMPTY and any(o.where.startswith(f"{said.where}.") for o in once))
    ]


def unknown_key(key: str, known: Iterable[str]) -> str:
    """What is said of a key that nobody knows."""
    names = list(known)
    close = difflib.get_close_matches(key, names, n=1)
    return f"unknown key: did you mean {close[0]}?" if close else f"unknown key: {_known(names)}"


def _known(names: list[str]) -> str:
    return f"known are {', '.join(names)}" if names else "nothing is expected here"


def _meant(said: Said) -> str | None:
    """The key that a misspelt one was meant to be."""
    found = _DID_YOU_MEAN.fullmatch(said.message)
    return found["key"] if found else None


def _one(detail: ErrorDetails, asked: _Asked) -> Said | None:
    path: list[str] = []
    place: list[str | int] = []
    here = asked.data
    for step in detail["loc"]:
        part = _variant_name(step)
        if isinstance(part, str) and part in asked.kinds and not _has(here, part):
            if not isinstance(here, dict):
                known = siblings(part, asked.model)
                return Said(".".join(path), _no_mapping(here, known))
            kind = here.get("kind", unsaid(part, asked.model))
            if kind not in (known := siblings(part, asked.model)):
                return Said(".".join([*path, "kind"]), _kind_message(kind, known))
            if kind != asked.kinds[part]:
                return None
            continue
        if isinstance(part, str) and (part in _SCALARS or "[" in part) and not _has(here, part):
            if part == "[key]":
                return Said(".".join(path), _key_message(detail, path))
            return Said(".".join(path), _no_flag_value(here))
        path.append(str(part))
        place.append(part)
        here = _step(here, part)
    wrong = detail.get("ctx", {}).get("error")
    if isinstance(wrong, WrongKeyError):
        path.append(wrong.key)
    return Said(".".join(path), _message(detail, path, asked.written.get(tuple(place)), asked))


def _message(detail: ErrorDetails, path: list[str], written: str | None, asked: _Asked) -> str:
    kind, given = detail["type"], detail["input"]
    context = detail.get("ctx", {})
    if kind == "extra_forbidden":
        owner = _owner(detail, asked)
        return unknown_key(path[-1], owner.model_fields if owner else ())
    if kind == "missing":
        return f"is missing{_describe(path[-1], _owner(detail, asked))}"
    if kind == "value_error":
        return str(context.get("error", detail["msg"]))
    if kind == "string_pattern_mismatch":
        pattern = str(context.get("pattern", ""))
        return f"{given!r} does not fit: {_ALLOWED.get(pattern, f'it must match {pattern}')}"
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        return f"must be {words} {context[key]:g}, not {written or _show(given)}"
    if kind in {"too_short", "string_too_short"}:
        return _EMPTY
    if kind == "string_too_long":
        return f"has {len(given)} characters: at most {context['max_length']} are allowed"
    if kind in {"int_type", "int_from_float", "int_parsing"}:
        return f"must be a whole number, not {written or _show(given)}"
    if kind in {"float_type", "float_parsing"}:
        return f"must be a number, not {written or _show(given)}"
    if kind == "string_type":
        quotes = "" if given is None or isinstance(given, (dict, list)) else ": put it in quotes"
        return f"must be text, not {written or _show(given)}{quotes}"
    if kind == "bool_type":
        return f"must be true or false, not {written or _show(given)}"
    if kind in {"dict_type", "model_type", "model_attributes_type"}:
        return f"must be a mapping of keys, not {written or _show(given)}"
    if kind in {"tuple_type", "list_type"}:
        shown = written or _show(given)
        return f"must be a list, not {shown}" + _as_list(given, shown)
    if kind == "literal_error":
        return f"is {written or _show(given)}: {_choice(given, context.get('expected', ''))}"
    text = detail["msg"]
    return f"{text[0].lower()}{text[1:]}, not {written or _show(given)}"


def _as_list(given: Any, shown: str) -> str:
    if isinstance(given, (dict, list)) or given is None:
        return ""
    return f": write [{given if isinstance(given, str) else shown}]"


def _choice(given: Any, expected: str) -> str:
    """The right words, and the nearest one first."""
    words = re.findall(r"'([^']*)'", expected)
    close = difflib.get_close_matches(str(given).lower(), words, n=1)
    return f"did you mean {close[0]}?" if close else f"one of {', '.join(words)}"


def _kind_message(kind: Any, known: list[str]) -> str:
    names = ", ".join(known)
    if kind is None:
        return f"is missing: one of {names}"
    close = difflib.get_close_matches(str(kind).lower(), known, n=1)
    hint = f"did you mean {close[0]}? known are {names}" if close else f"one of {names}"
    return f"{kind!r} is not known: {hint}"


def _no_flag_value(given: Any) -> str:
    shown = "a list that holds lists, mappings or truth values"
    if not isinstance(given, list):
        shown = _show(given)
    return f"must be true, false, a number, text or a list of numbers and texts, not {shown}"


def _no_mapping(given: Any, known: list[str]) -> str:
    if given in known:
        return f"must be a mapping, not {given!r}: write {{kind: {given}}}"
    return f"must be a mapping with a kind ({', '.join(known)}), not {_show(given)}"


def _key_message(detail: ErrorDetails, path: list[str]) -> str:
    name = path[-1] if path else "?"
    if detail["type"] == "string_pattern_mismatch":
        pattern = str(detail.get("ctx", {}).get("pattern", ""))
        return f"the name {name!r} does not fit: {_ALLOWED.get(pattern, pattern)}"
    if detail["type"] == "string_too_long":
        return f"the name has {len(name)} characters: at most {detail['ctx']['max_length']}"
    return f"the name {name!r} does not fit: {detail['msg']}"


def _describe(key: str, holder: type[BaseModel] | None) -> str:
    """Who needs a missing key, and what it would say, from its own docstring."""
    if holder is None or key not in holder.model_fields:
        return ""
    kind = holder.model_fields.get("kind")
    needs = f" ({kind.default} needs it)" if kind is not None and kind.default else ""
    text = holder.model_fields[key].description
    return needs + (f": {' '.join(text.split()).rstrip('.')}" if text else "")


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return f"{str(value).lower()} (YAML reads a bare true/false as a boolean)"
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    if value is None:
        return "nothing (null)"
    truth = truth_of(value)
    if truth is not None:
        meant = str(truth).lower()
        return f"{value!r} (a boolean to many readers: a bare {value} is {meant} in YAML 1.1)"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _variant_name(step: str | int) -> str | int:
    wrapped = _WRAPPED.match(step) if isinstance(step, str) else None
    return wrapped.group(1) if wrapped else step


def _has(here: Any, key: str) -> bool:
    return isinstance(here, dict) and key in here


def _step(here: Any, part: str | int) -> Any:
    if isinstance(here, dict):
        return here.get(part)
    if isinstance(here, list) and isinstance(part, int) and part < len(here):
        return here[part]
    return None


def _owner(detail: ErrorDetails, asked: _Asked) -> type[BaseModel] | None:
    """The model that the last key of an error's place belongs to."""
    owner: type[BaseModel] | None = asked.model
    here = asked.data
    for step in detail["loc"][:-1]:
        part = _variant_name(step)
        if isinstance(part, str) and part in asked.kinds and not _has(here, part):
            owner = next((m for m in all_models(asked.model) if m.__name__ == part), None)
            continue
        owner = field_model(owner, part)
        here = _step(here, part)
    return owner
