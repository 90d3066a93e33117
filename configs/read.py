"""The one door for YAML: from a file to a value, or to everything that is wrong with it."""

from __future__ import annotations

import datetime as dt
import difflib
import json
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pydantic import TypeAdapter, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from configs.explain import explain
from configs.host import Host
from configs.patch import Patch
from configs.problems import ConfigError, Problem
from configs.rules import problems as sweep_problems
from configs.sweep import Sweep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from configs.values import Value

T = TypeVar("T", bound="Value")

SHIPPED = Path(__file__).parent


class Document(NamedTuple):
    """A parsed file: plain data, and where each key stands."""

    data: Any
    lines: dict[tuple[str | int, ...], int]


def find(room: str, name: str) -> Path:
    """The file of a sweep, host or patch by its name, or by its path.

    Names are looked up in ./configs/<room>/ first, then among the shipped files, so that an
    installed package can be used from any folder.

    Raises:
        ConfigError: No such file; names those that there are.
    """
    direct = Path(name).expanduser()
    if direct.suffix in {".yaml", ".yml", ".example"} or "/" in name:
        if direct.is_file():
            return direct
        raise ConfigError([Problem(name, "", "no such file")])
    folders = [Path("configs") / room, SHIPPED / room]
    for folder in folders:
        path = folder / f"{name}.yaml"
        if path.is_file():
            return path
    there = sorted({path.stem for folder in folders for path in folder.glob("*.yaml")})
    close = difflib.get_close_matches(name, there, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(there) or 'none'}"
    raise ConfigError([Problem(f"configs/{room}/{name}.yaml", "", f"no such file: {hint}")])


def read_sweep(name: str) -> Sweep:
    """The sweep of this name or path, checked against itself.

    Raises:
        ConfigError: Everything that is wrong with the file, at once.
    """
    path = find("sweeps", name)
    document = _parse(path)
    sweep = _validate(Sweep, document, path)
    _refuse(str(path), document, sweep)
    return sweep


def read_host(name: str) -> Host:
    """The host of this name or path."""
    return _read(Host, "hosts", name)


def read_patch(name: str) -> Patch:
    """The patch of this name or path."""
    return _read(Patch, "patches", name)


def check_sweep(sweep: Sweep, host: Host | None = None, file: str = "sweep") -> None:
    """Checks a sweep that did not come from a file (typed into a form), or against its host.

    Raises:
        ConfigError: Everything that is wrong with it.
    """
    found = [Problem(file, said.where, said.message) for said in sweep_problems(sweep, host)]
    if found:
        raise ConfigError(found)


def parse_sweep(text: str, file: str) -> Sweep:
    """The sweep in a text, for tests and forms; errors as from a file."""
    document = _load(text, file)
    sweep = _validate(Sweep, document, Path(file))
    _refuse(file, document, sweep)
    return sweep


def to_yaml(value: Value) -> str:
    """A value as YAML text, as a user would write it (defaults left out)."""
    yaml = YAML()
    yaml.default_flow_style = False
    out = StringIO()
    yaml.dump(value.model_dump(mode="json", exclude_defaults=True), out)
    return out.getvalue()


def _read(model: type[T], room: str, name: str) -> T:
    path = find(room, name)
    value = _validate(model, _parse(path), path)
    stem = path.name.split(".")[0]
    if getattr(value, "name", stem) != stem:
        message = f"says {value.name!r}, the file is called {stem!r}: make them equal"  # type: ignore[attr-defined]
        raise ConfigError([Problem(str(path), "name", message)])
    return value


def _refuse(file: str, document: Document, sweep: Sweep) -> None:
    found = [
        Problem(file, said.where, said.message, line_of(document, said.where))
        for said in sweep_problems(sweep)
    ]
    if found:
        raise ConfigError(found)


def line_of(document: Document, where: str) -> int | None:
    """The line of a dotted path, or of the nearest key above it."""
    parts: tuple[str | int, ...] = tuple(int(p) if p.isdigit() else p for p in where.split("."))
    while parts:
        for candidate in (parts, tuple(str(p) for p in parts)):
            if candidate in document.lines:
                return document.lines[candidate]
        parts = parts[:-1]
    return None


def _parse(path: Path) -> Document:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"is not UTF-8 (byte {error.start}): save it as UTF-8"
        raise ConfigError([Problem(str(path), "", message)]) from error
    except OSError as error:
        raise ConfigError([Problem(str(path), "", f"cannot be read: {error.strerror}")]) from error
    return _load(text, str(path))


def _load(text: str, file: str) -> Document:
    yaml = YAML(typ="rt", pure=True)
    try:
        tree = yaml.load(text)
    except DuplicateKeyError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        key = str(error.problem).split('"')[1] if '"' in str(error.problem) else "a key"
        raise ConfigError(
            [Problem(file, key, "stands twice in one mapping: keep one", line)]
        ) from error
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        raise ConfigError([Problem(file, "", _yaml_advice(text, line, error), line)]) from error
    except YAMLError as error:
        raise ConfigError([Problem(file, "", f"is not YAML: {error}")]) from error
    if tree is None:
        raise ConfigError([Problem(file, "", "empty file: a mapping of keys is expected")])
    if not isinstance(tree, CommentedMap):
        kind = "list" if isinstance(tree, CommentedSeq) else type(tree).__name__
        raise ConfigError([Problem(file, "", f"is a {kind}: a mapping of keys is expected")])
    lines: dict[tuple[str | int, ...], int] = {}
    wrong: list[Problem] = []
    data = _plain(tree, (), lines, wrong, file)
    if wrong:
        raise ConfigError(wrong)
    return Document(data, lines)


def _yaml_advice(text: str, line: int | None, error: MarkedYAMLError) -> str:
    shown = text.splitlines()[line - 1] if line and line <= len(text.splitlines()) else ""
    if "\t" in shown[: len(shown) - len(shown.lstrip())] or "'\\t'" in str(error.problem):
        return "is not YAML: tab used for indentation: use spaces"
    return f"is not YAML: {error.problem or error.context or error}"


def _plain(
    node: Any,
    where: tuple[str | int, ...],
    lines: dict[tuple[str | int, ...], int],
    wrong: list[Problem],
    file: str,
) -> Any:
    """Plain data of a node; notes lines, and what JSON cannot say."""
    dotted = ".".join(map(str, where))
    if isinstance(node, CommentedMap):
        plain: dict[str, Any] = {}
        for key, value in node.items():
            at = (*where, key)
            line = node.lc.key(key)[0] + 1 if key in node.lc.data else None
            if not isinstance(key, str):
                message = f"the key {key!r} is not text: put it in quotes"
                wrong.append(Problem(file, dotted, message, line))
                continue
            if line:
                lines[at] = line
            plain[key] = _plain(value, at, lines, wrong, file)
        return plain
    if isinstance(node, CommentedSeq):
        return [
            _plain(value, (*where, index), lines, wrong, file) for index, value in enumerate(node)
        ]
    if isinstance(node, (dt.date, dt.datetime)):
        wrong.append(Problem(file, dotted, "is read as a date: put it in quotes", lines.get(where)))
        return str(node)
    if isinstance(node, bool) or node is None:
        return node
    for kind in (int, float, str):
        if isinstance(node, kind):
            return kind(node)
    wrong.append(Problem(file, dotted, f"has a value of kind {type(node).__name__}"))
    return None


def _validate(model: type[T], document: Document, path: Path) -> T:
    try:
        # Through JSON in strict mode: lists become tuples, and nothing else is bent to fit
        # (a bare `yes`, a 0.10 that was meant as text, true where a number is wanted).
        text = json.dumps(document.data)
        return TypeAdapter(model).validate_json(text, strict=True)
    except ValueError as error:
        if not isinstance(error, ValidationError):
            message = "holds a number that is not finite: write an ordinary one"
            raise ConfigError([Problem(str(path), "", message)]) from error
        found = [
            Problem(str(path), where, message, line_of(document, where))
            for where, message in explain(error, document.data, model)
        ]
        raise ConfigError(found) from error


def every_file(room: str) -> Iterator[Path]:
    """All shipped files of a room, for the test that reads and plans each of them."""
    yield from sorted((SHIPPED / room).glob("*.yaml*"))
