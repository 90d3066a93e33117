"""What every key of a file means, written from the models themselves: the pages in docs/reference.

python -m configs.reference     # writes them; `make reference`
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from configs.host import Host
from configs.level_sets import LevelSet
from configs.patch import Patch
from configs.probe import Probe
from configs.schema import all_models, models_in
from configs.sweep import Sweep

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic import BaseModel

FOLDER: Final = Path(__file__).parent.parent / "docs" / "reference"
_BOUNDS: Final = {
    "minimum": "≥",
    "ge": "≥",
    "exclusiveMinimum": ">",
    "gt": ">",
    "maximum": "≤",
    "le": "≤",
    "exclusiveMaximum": "<",
    "lt": "<",
}
_WORDS: Final = {
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "boolean": "`true` or `false`",
    "null": "none",
}


class Page(NamedTuple):
    """One page: the models whose keys it explains, and all inside them that no page before has."""

    file: str
    title: str
    about: str
    models: tuple[type[BaseModel], ...]


PAGES: Final = (
    Page(
        "probes.md",
        "Keys of a probe",
        "Under `probes` of a sweep. In words, with examples: [sweep files](../sweeps.md), "
        "[profile a step](../profile.md).",
        tuple(models_in(Probe)),
    ),
    Page(
        "sweeps.md",
        "Keys of a sweep file",
        "`configs/sweeps/NAME.yaml`. In words, with examples: [sweep files](../sweeps.md).",
        (Sweep,),
    ),
    Page(
        "hosts.md",
        "Keys of a host file",
        "`configs/hosts/NAME.yaml`. In words, with examples: [host files](../hosts.md).",
        (Host,),
    ),
    Page(
        "level-sets.md",
        "Keys of a level set",
        "`configs/factors/NAME.yaml`. In words, with examples: [factors](../sweeps.md#factors).",
        (LevelSet,),
    ),
    Page(
        "patches.md",
        "Keys of a patch",
        "`configs/patches/NAME.yaml`. In words, with examples: [patches](../sweeps.md#patches).",
        (Patch,),
    ),
)


def reference() -> dict[str, str]:
    """File name -> text of every page."""
    homes: dict[type[BaseModel], str] = {}
    for page in PAGES:
        for top in page.models:
            for model in all_models(top):
                homes.setdefault(model, page.file)
    names = {model.__name__: file for model, file in homes.items()}
    return {page.file: _page(page, homes, names) for page in PAGES}


def _page(page: Page, homes: Mapping[type[BaseModel], str], names: Mapping[str, str]) -> str:
    here = [model for model, file in homes.items() if file == page.file]
    parts = [f"# {page.title}", page.about]
    parts.append("Made from the models by `make reference`: do not edit. Unknown keys are errors.")
    parts += [_section(model, names) for model in here]
    return "\n\n".join(parts) + "\n"


def _section(model: type[BaseModel], names: Mapping[str, str]) -> str:
    schema = model.model_json_schema()
    known = schema.get("$defs", {})
    own = known.get(model.__name__, schema)  # a model that holds itself stands among its parts
    rows = [
        f"| `{key}` | {_type(field, names, names[model.__name__])} "
        f"| {_default(key, field, own.get('required', ()))} | {meaning(key, field, known)} |"
        for key, field in own["properties"].items()
    ]
    head = ["| key | type | default | meaning |", "|---|---|---|---|"]
    table = "\n".join([*head, *rows]) if rows else "No keys of its own."
    return f"## {model.__name__}\n\n{_line(own.get('description', ''))}\n\n{table}"


def meaning(key: str, field: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """What a key means: its own docstring, else the first line of the model that it holds."""
    if "description" in field:
        return _line(field["description"])
    if key == "kind":
        return "Says which of several forms this is."
    name = field.get("$ref", "").rpartition("/")[2]
    return _line(known.get(name, {}).get("description", "").split("\n\n")[0])


def _type(field: Mapping[str, Any], names: Mapping[str, str], here: str) -> str:
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        file = names[name]
        return f"[{name}]({'' if file == here else file}#{name.lower()})"
    if "anyOf" in field:
        if {"boolean", "array"} <= {one.get("type") for one in field["anyOf"]}:
            return "`true`, `false`, number, text, or a list"
        shown = [_type(one, names, here) for one in field["anyOf"]]
        return " or ".join(dict.fromkeys(shown))
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    return _plain(field, names, here)


def _plain(field: Mapping[str, Any], names: Mapping[str, str], here: str) -> str:
    kind = field.get("type")
    if kind == "array":
        items = field.get("items", {})
        least = ", at least one" if field.get("minItems") or field.get("minLength") else ""
        return f"list of {_type(items, names, here)}{least}"
    if kind == "object":
        values = [*field.get("patternProperties", {}).values()]
        more = field.get("additionalProperties")
        values += [more] if isinstance(more, dict) else []
        inner = " or ".join(_type(value, names, here) for value in values)
        least = ", at least one" if field.get("minProperties") else ""
        return f"name → {inner or 'anything'}{least}"
    bounds = [f"{sign} {field[key]:g}" for key, sign in _BOUNDS.items() if key in field]
    word = _WORDS.get(str(kind), "anything")
    return f"{word} {', '.join(bounds)}".strip()


def _default(key: str, field: Mapping[str, Any], required: Iterable[str]) -> str:
    if key in required or "default" not in field:
        return "required"
    value = field["default"]
    if value is None or value in ({}, [], ""):
        return "none"
    if isinstance(value, dict):
        return f"`{json.dumps(value)}`" if "$ref" not in field else "its defaults"
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"


def _line(text: str) -> str:
    """A docstring as one line of a table."""
    return " ".join(text.replace("``", "`").split()).replace("|", "\\|")


def main() -> None:
    """Writes every page."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in reference().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        print(f"docs/reference/{name}")


if __name__ == "__main__":
    main()
