"""Reads the options of released engines out of their wheels and writes configs/engines/*.tsv.

``python -m benchmarks.engine_flags`` (``make engine-tables``) fetches every release named below
through pip, reads the source with ``ast`` (importing it would take torch and more), and writes
one table per engine: option name, canonical name, first and last release that has it, and what it
takes. Of SGLang it also writes docs/evidence/sglang-versions.md, where what a release has stands
beside configs/engines/sglang-versions.tsv, our table of what differs.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import zipfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.written import out_of_date
from tests.wheels import wheel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ENGINES = Path(__file__).parents[1] / "configs" / "engines"
SGLANG = (
    "0.5.9",
    "0.5.10",
    "0.5.10.post1",
    "0.5.11",
    "0.5.12",
    "0.5.12.post1",
    "0.5.13",
    "0.5.13.post1",
    "0.5.14",
    "0.5.15",
    "0.5.15.post1",
    "0.5.16",
    "0.5.17",
    "0.5.18",
    "0.5.19",
    "0.5.20",
    "0.5.21",
    "0.5.22",
    "0.5.23",
)
VLLM = ("0.18.1", "0.26.0", "0.33.0")
RELEASES = {"sglang": SGLANG, "vllm": VLLM}
_PREFERRED = (
    "tp-size",
    "dp-size",
    "pp-size",
    "ep-size",
    "model-path",
    "speculative-draft-model-path",
    "dist-init-addr",
)
_SGLANG_FILES = re.compile(r"sglang/srt/(server_args\.py|arg_groups/.*\.py)\Z")
_VLLM_FILES = re.compile(
    r"vllm/(engine/arg_utils|entrypoints/cli/serve|entrypoints/(openai|common)/cli_args)\.py\Z"
)
_VLLM_CONFIGS = re.compile(r"vllm/(config/.*|entrypoints/(openai|common)/cli_args)\.py\Z")
_FRONTEND = {"FrontendArgs", "BaseFrontendArgs"}


class Option(NamedTuple):
    """One option of one release: all of its names without dashes, the first one its own."""

    names: tuple[str, ...]
    takes: str
    """``value``, ``switch`` (``--no-NAME`` turns it off) or ``flag`` (it can only be given)."""


def options(engine: str, version: str) -> list[Option]:
    """Every option that a release's parser has, in no particular order."""
    read = _sglang if engine == "sglang" else _vllm
    return read(sources(engine, version))


@cache
def sources(engine: str, version: str) -> dict[str, str]:
    """The Python files of a release, by path."""
    with zipfile.ZipFile(wheel(engine, version)) as archive:
        return {
            name: archive.read(name).decode("utf-8", "replace")
            for name in archive.namelist()
            if name.startswith(f"{engine}/") and name.endswith(".py")
        }


def _sglang(files: dict[str, str]) -> list[Option]:
    """Up to 0.5.18 ``add_argument`` calls; later annotated fields of arg_groups, and both."""
    found: dict[str, set[str]] = {}
    takes: dict[str, str] = {}
    for path, text in files.items():
        if not _SGLANG_FILES.match(path):
            continue
        for node in ast.walk(ast.parse(text)):
            for names, kind in (*_argument(node), *_field(node)):
                found.setdefault(names[0], set()).update(names)
                takes.setdefault(names[0], kind)
    return [
        Option((first, *sorted(names - {first})), takes[first]) for first, names in found.items()
    ]


def _argument(node: ast.AST) -> Iterator[tuple[list[str], str]]:
    """The names in a call of ``add_argument``, long ones alone."""
    if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "add_argument":
        return
    texts = [word.value for word in node.args if isinstance(word, ast.Constant)]
    names = [str(text)[2:] for text in texts if str(text).startswith("--")]
    action = next((ast.unparse(k.value) for k in node.keywords if k.arg == "action"), "")
    kind = "flag" if "store_" in action else "switch" if "BooleanOptional" in action else "value"
    if names:
        yield names, kind


def _field(node: ast.AST) -> Iterator[tuple[list[str], str]]:
    """The names in ``name: A[type, Arg(...)]``; ``Derived`` and ``no_cli`` have none."""
    if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
        return
    annotation = node.annotation
    if not isinstance(annotation, ast.Subscript):
        return
    if getattr(annotation.value, "id", "") not in {"A", "Annotated"}:
        return
    name, aliases = node.target.id.replace("_", "-"), []
    for call in (c for c in ast.walk(annotation) if isinstance(c, ast.Call)):
        kind = getattr(call.func, "id", "")
        given = {k.arg: k.value for k in call.keywords}
        if kind == "Derived" or (kind == "Arg" and _literal(given.get("no_cli"))):
            return
        if kind == "Arg":
            name = str(_literal(given.get("cli_name")) or f"--{name}").removeprefix("--")
            aliases += [str(a).removeprefix("--") for a in _literal(given.get("aliases")) or ()]
    inner = annotation.slice
    first = inner.elts[0] if isinstance(inner, ast.Tuple) else inner
    yield [name, *aliases], "flag" if ast.unparse(first) == "bool" else "value"


def _literal(node: ast.AST | None) -> Any:
    try:
        return ast.literal_eval(node) if node is not None else None
    except ValueError:
        return None


def _vllm(files: dict[str, str]) -> list[Option]:
    """Calls of ``add_argument``, and every field of the frontend's argument classes."""
    fields = _config_fields(text for path, text in files.items() if _VLLM_CONFIGS.match(path))
    found: list[Option] = []
    for path, text in files.items():
        if not _VLLM_FILES.match(path):
            continue
        tree = ast.parse(text)
        groups = _kwargs_of(tree)
        for node in ast.walk(tree):
            for names, kind in _argument(node):
                spread = _spread(node, groups)
                typed = _switch(fields.get(spread)) if spread else None
                found.append(Option(tuple(names), typed or kind))
    for (holder, name), annotation in fields.items():
        if holder in _FRONTEND:
            found.append(Option((name.replace("_", "-"),), _switch(annotation) or "value"))
    return found


def _config_fields(texts: Iterable[str]) -> dict[tuple[str, str], str]:
    """(class, field) -> its annotation, of every class in these files."""
    return {
        (holder.name, field.target.id): ast.unparse(field.annotation)
        for text in texts
        for holder in ast.walk(ast.parse(text))
        if isinstance(holder, ast.ClassDef)
        for field in holder.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }


def _kwargs_of(tree: ast.AST) -> dict[str, str]:
    """``model_kwargs = get_kwargs(ModelConfig)``: variable -> class."""
    return {
        node.targets[0].id: node.value.args[0].id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Call)
        and getattr(node.value.func, "id", "") == "get_kwargs"
        and isinstance(node.value.args[0], ast.Name)
    }


def _spread(node: ast.AST, groups: dict[str, str]) -> tuple[str, str] | None:
    """The class and field behind ``**model_kwargs["dtype"]``, alone or inside a mapping."""
    spreads = (
        [k.value for k in node.keywords if k.arg is None] if isinstance(node, ast.Call) else []
    )
    for inner in (inner for value in spreads for inner in ast.walk(value)):
        if isinstance(inner, ast.Subscript):
            holder, name = groups.get(getattr(inner.value, "id", "")), _literal(inner.slice)
            if holder is not None and isinstance(name, str):
                return holder, name
    return None


def _switch(annotation: str | None) -> str | None:
    """What ``get_kwargs`` makes of a field's type: a truth value becomes --x and --no-x."""
    if annotation is None:
        return None
    parts = {part.strip() for part in re.split(r"[|,\[\]]", annotation)}
    return "switch" if "bool" in parts and "str" not in parts else "value"


def table(engine: str) -> str:
    """The engine's table as text."""
    versions = RELEASES[engine]
    seen: dict[str, list[int]] = {}
    takes: dict[str, str] = {}
    together: dict[str, set[str]] = {}
    own: dict[str, str] = {}
    for number, version in enumerate(versions):
        for option in options(engine, version):
            for name in option.names:
                seen.setdefault(name, []).append(number)
                takes[name] = option.takes
                together.setdefault(name, set()).update(option.names)
                own[name] = option.names[0]
    rows = [f"# flag\tcanonical name\tfirst seen\tlast seen\ttakes (of {', '.join(versions)};"]
    rows[0] += " made by benchmarks/engine_flags.py)"
    for name in sorted(seen):
        preferred = [other for other in _PREFERRED if other in together[name]]
        canonical = preferred[0] if preferred and engine == "sglang" else own[name]
        first, last = versions[min(seen[name])], versions[max(seen[name])]
        rows.append("\t".join([name, canonical, first, last, takes[name]]))
    return "\n".join(rows) + "\n"


def main() -> int:
    """Writes the tables, or with ``--check`` says which of them is out of date."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.engine_flags", description=__doc__)
    made.add_argument("--check", action="store_true", help="write nothing; exit 1 if one differs")
    check = made.parse_args().check
    tables = ((ENGINES / f"{engine}-flags.tsv", table(engine)) for engine in RELEASES)
    stale = out_of_date(tables, check=check)
    print(f"out of date: {', '.join(stale)}" if stale else "both tables are as the wheels say")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
