"""From pydantic's errors to sentences that say what is wrong and what would be right."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, get_args, get_origin

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_SCALARS = {"bool", "int", "float", "str"}
# pydantic names a union's variant that has validators "function-after[check(), Name]".
_WRAPPED = re.compile(r"^function-\w+\[.*?(\w+)\]+$")


def explain(error: ValidationError, data: Any, model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """(key path, message) of every error, each once.

    A plain union reports the errors of all of its variants; only those of the variant that the
    data's ``kind`` names are of use.
    """
    said: set[tuple[str, str]] = set()
    kinds = dict(_variants(model))
    for detail in error.errors(include_url=False):
        found = _one(detail, data, model, kinds)
        if found is not None and found not in said:
            said.add(found)
            yield found


def _one(
    detail: ErrorDetails, data: Any, model: type[BaseModel], kinds: dict[str, str]
) -> tuple[str, str] | None:
    path: list[str] = []
    here = data
    for step in detail["loc"]:
        part = _variant_name(step)
        if isinstance(part, str) and part in kinds and not _has(here, part):
            asked = here.get("kind") if isinstance(here, dict) else None
            known = _siblings(part, model)
            if asked not in known:
                shown = "is missing" if asked is None else f"{asked!r} is not known"
                return ".".join([*path, "kind"]), f"{shown}: one of {', '.join(known)}"
            if asked != kinds[part]:
                return None
            continue
        if isinstance(part, str) and part in _SCALARS and not _has(here, part):
            return ".".join(
                path
            ), f"must be true, false, a number, text or a list of them, not {_show(here)}"
        if part == "[key]":
            return ".".join(path), _key_message(detail, path)
        path.append(str(part))
        here = _step(here, part)
    return ".".join(path), _message(detail, path, data, model)


def _message(
    detail: ErrorDetails,
    path: list[str],
    data: Any,
    model: type[BaseModel],
) -> str:
    kind, given = detail["type"], detail["input"]
    context = detail.get("ctx", {})
    if kind == "extra_forbidden":
        known = _keys_at(detail, data, model)
        close = difflib.get_close_matches(path[-1], known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
        return f"unknown key: {hint}"
    if kind == "missing":
        return f"is missing{_describe(path[-1], _owner(detail, data, model))}"
    if kind == "value_error":
        return str(context.get("error", detail["msg"]))
    if kind == "string_pattern_mismatch":
        return f"{given!r} does not fit: lower-case letters, digits, '.', '_' and '-' are allowed"
    if kind in {"int_type", "int_from_float"}:
        return f"must be a whole number, not {_show(given)}"
    if kind == "float_type":
        return f"must be a number, not {_show(given)}"
    if kind == "string_type":
        return f"must be text, not {_show(given)}: put it in quotes"
    if kind == "bool_type":
        return f"must be true or false, not {_show(given)}"
    if kind in {"dict_type", "model_type", "model_attributes_type"}:
        return f"must be a mapping of keys, not {_show(given)}"
    if kind in {"tuple_type", "list_type"}:
        return f"must be a list, not {_show(given)}: write [{given}]"
    if kind == "literal_error":
        return f"is {_show(given)}: one of {context.get('expected', '')}"
    text = detail["msg"]
    return f"{text[0].lower()}{text[1:]}, not {_show(given)}"


def _key_message(detail: ErrorDetails, path: list[str]) -> str:
    name = path[-1] if path else "?"
    if detail["type"] == "string_pattern_mismatch":
        return (
            f"the name {name!r} does not fit: use lower-case letters, digits, '.', '_' and '-' "
            "(environment variables: letters, digits and '_')"
        )
    return f"the name {name!r} does not fit: {detail['msg']}"


def _describe(key: str, holder: type[BaseModel] | None) -> str:
    """What a missing key would say, from its own docstring."""
    field = holder.model_fields.get(key) if holder else None
    if field is None or not field.description:
        return ""
    return ": " + " ".join(field.description.split()).rstrip(".")


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return f"{str(value).lower()} (YAML reads a bare true/false as a truth value)"
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    return "nothing (null)" if value is None else repr(value)


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


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """All models that an annotation can hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    if get_origin(annotation) is not None:
        for inner in get_args(annotation):
            yield from _models(inner)


def _field_model(owner: type[BaseModel] | None, part: str | int) -> type[BaseModel] | None:
    """The model of a field; inside a mapping or list the element's model stays."""
    if owner is None or isinstance(part, int):
        return owner
    field = owner.model_fields.get(part)
    if field is None:
        return owner
    return next(_models(field.annotation), None)


def _all_models(model: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[type[BaseModel]]:
    if model in seen:
        return
    seen.add(model)
    yield model
    for field in model.model_fields.values():
        for inner in _models(field.annotation):
            yield from _all_models(inner, seen)


def _variants(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    for found in _all_models(model, set()):
        kind = found.model_fields.get("kind")
        if kind is not None and isinstance(kind.default, str):
            yield found.__name__, kind.default


def _siblings(name: str, model: type[BaseModel]) -> list[str]:
    """The kinds of the union that holds this variant."""
    kinds = dict(_variants(model))
    for found in _all_models(model, set()):
        for field in found.model_fields.values():
            names = [inner.__name__ for inner in _models(field.annotation)]
            if name in names and len(names) > 1:
                return [kinds[n] for n in names if n in kinds]
    return [kinds[name]]


def _class(name: str, model: type[BaseModel]) -> type[BaseModel] | None:
    return next((m for m in _all_models(model, set()) if m.__name__ == name), None)


def _keys_at(detail: ErrorDetails, data: Any, model: type[BaseModel]) -> list[str]:
    """The keys that the model at an unknown key's place has."""
    owner = _owner(detail, data, model)
    return list(owner.model_fields) if owner else []


def _owner(detail: ErrorDetails, data: Any, model: type[BaseModel]) -> type[BaseModel] | None:
    """The model that the last key of an error's place belongs to."""
    owner: type[BaseModel] | None = model
    here = data
    kinds = dict(_variants(model))
    for step in detail["loc"][:-1]:
        part = _variant_name(step)
        if isinstance(part, str) and part in kinds and not _has(here, part):
            owner = _class(part, model)
            continue
        owner = _field_model(owner, part)
        here = _step(here, part)
    return owner
