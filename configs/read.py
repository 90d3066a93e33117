"""The one door for YAML: from a file to a value, or to everything that is wrong with it."""

from __future__ import annotations

import json
import re
import warnings
from io import StringIO
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError, YAMLWarning
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from configs.explain import explain
from configs.find import SHIPPED, every_file, find, stem
from configs.flags import raw_flag_problems
from configs.host import Host
from configs.level_sets import LevelSet, with_sets
from configs.patch import Patch
from configs.plain import Plain, plain_of
from configs.problems import ConfigError, Problem
from configs.rules import problems as sweep_problems
from configs.sweep import Sweep
from configs.written import Document, line_of, problem_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from configs.values import Value

__all__ = [
    "SHIPPED",
    "Document",
    "check_sweep",
    "every_file",
    "find",
    "line_of",
    "parse",
    "parse_document",
    "parse_sweep",
    "read_document",
    "read_host",
    "read_level_set",
    "read_patch",
    "read_sweep",
    "to_yaml",
]

T = TypeVar("T", bound="Value")

_MOST_CHARACTERS: Final = 1_000_000  # the reader needs about a second for 100,000
# Line breaks to the reader, written as they are by the writer unless in quotes.
_FOLDED = re.compile("[\x85\u2028\u2029\ufeff]")


def read_sweep(name: str) -> Sweep:
    """The sweep of this name or path, checked against itself.

    Raises:
        ConfigError: Everything that is wrong with the file, at once.
    """
    path = find("sweeps", name)
    return _sweep(read_document(path), str(path))


def read_host(name: str) -> Host:
    """The host of this name or path.

    Raises:
        ConfigError: Everything that is wrong with the file, at once.
    """
    return _read(Host, "hosts", name)


def read_patch(name: str) -> Patch:
    """The patch of this name or path.

    Raises:
        ConfigError: Everything that is wrong with the file, at once.
    """
    return _read(Patch, "patches", name)


def read_level_set(name: str) -> LevelSet:
    """The ready-made levels of this name or path.

    Raises:
        ConfigError: Everything that is wrong with the file, at once.
    """
    return _read(LevelSet, "factors", name)


def check_sweep(sweep: Sweep, nodes: Sequence[Host] = (), file: str = "sweep") -> None:
    """Checks a sweep that did not come from a file (typed into a form), or against its host.

    Args:
        sweep: The question.
        nodes: The hosts of one of its places, the leading one first.
        file: What it is called in a refusal.

    Raises:
        ConfigError: Everything that is wrong with it.
    """
    found = [Problem(file, said.where, said.message) for said in sweep_problems(sweep, *nodes)]
    if found:
        raise ConfigError(found)


def parse_sweep(text: str, file: str) -> Sweep:
    """The sweep in a text, for tests and forms; errors as from a file."""
    return _sweep(parse_document(text, file), file)


def parse(model: type[T], text: str, file: str) -> T:
    """A value of any kind in a text; errors as from a file.

    Raises:
        ConfigError: Everything that is wrong with the text, at once.
    """
    return _validate(model, parse_document(text, file), file)


def to_yaml(value: Value) -> str:
    """A value as YAML text that reads back as the same value (defaults left out)."""
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 10_000
    out = StringIO()
    whole = value.model_dump(mode="json")
    yaml.dump(_with_kinds(value.model_dump(mode="json", exclude_defaults=True), whole), out)
    return out.getvalue()


def read_document(path: Path) -> Document:
    """The plain data of a file.

    Raises:
        ConfigError: It cannot be read, or is not YAML with a mapping in it.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError([Problem(str(path), "", f"cannot be read: {error.strerror}")]) from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        message = f"is not UTF-8 (byte {error.start}): save it as UTF-8"
        raise ConfigError([Problem(str(path), "", message, line)]) from error
    return parse_document(text, str(path))


def parse_document(text: str, file: str) -> Document:
    """The plain data of a text.

    Raises:
        ConfigError: It is not YAML 1.2 with a mapping in it, or says what JSON cannot.
    """
    if len(text) > _MOST_CHARACTERS:
        raise ConfigError([Problem(file, "", "is longer than a million characters")])
    tree = _compose(text.removeprefix("\ufeff"), file)
    if tree is None:
        raise ConfigError([Problem(file, "", "empty file: a mapping of keys is expected")])
    plain = plain_of(tree)
    if plain.wrong:
        raise ConfigError([Problem(file, *said) for said in plain.wrong])
    return _document(plain, file)


def _document(plain: Plain, file: str) -> Document:
    if plain.data is None:
        raise ConfigError([Problem(file, "", "empty file: a mapping of keys is expected")])
    if not isinstance(plain.data, dict):
        kind = "list" if isinstance(plain.data, list) else "single value"
        raise ConfigError([Problem(file, "", f"is a {kind}: a mapping of keys is expected", 1)])
    return Document(plain.data, plain.lines, plain.written)


def _compose(text: str, file: str) -> Any:
    """The tree of YAML nodes in a text, or None for an empty one."""
    directive = next((n for n, line in enumerate(text.splitlines(), 1) if line[:1] == "%"), None)
    yaml = YAML(typ="safe", pure=True)
    try:
        with warnings.catch_warnings():
            # An anchor that is given twice means the nearer one above it, as YAML says.
            warnings.simplefilter("ignore", YAMLWarning)
            tree = yaml.compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        raise ConfigError([Problem(file, "", _yaml_advice(text, line, error), line)]) from error
    except YAMLError as error:
        said = str(error).splitlines()[0]
        raise ConfigError([Problem(file, "", f"is not YAML: {said}")]) from error
    except RecursionError as error:
        raise ConfigError([Problem(file, "", "is not YAML: nested too deeply")]) from error
    except Exception as error:  # the library's own faults on hostile text: still the file's fault
        raise ConfigError([Problem(file, "", f"is not YAML: {error}")]) from error
    if directive is not None and yaml.resolver.processing_version != (1, 2):
        message = "asks for another YAML than 1.2: take the line out"
        raise ConfigError([Problem(file, "", message, directive)])
    return tree


def _yaml_advice(text: str, line: int | None, error: MarkedYAMLError) -> str:
    lines = text.splitlines()
    shown = lines[line - 1] if line and line <= len(lines) else ""
    problem = str(error.problem or error.context or error)
    if "\t" in shown[: len(shown) - len(shown.lstrip())] or "'\\t'" in problem:
        return "is not YAML: tab used for indentation: use spaces"
    if "mapping values are not allowed" in problem:
        return "is not YAML: a second ':' in one value, or wrong indentation: put text in quotes"
    if "another document" in problem or "single document" in problem:
        return "holds more than one document (---): keep one"
    if problem.startswith("found undefined alias") or "cannot start any token" in problem:
        return f"is not YAML: {problem}: put text that starts with * & @ ` % in quotes"
    return f"is not YAML: {error.context + ': ' if error.context else ''}{problem}"


def _read(model: type[T], room: str, name: str) -> T:
    path = find(room, name)
    document = read_document(path)
    value = _validate(model, document, str(path))
    said = getattr(value, "name", stem(path))
    if said != stem(path):
        message = f"says {said!r}, the file is called {stem(path)!r}: make them equal"
        raise ConfigError([Problem(str(path), "name", message, line_of(document, "name"))])
    return value


def _sweep(document: Document, file: str) -> Sweep:
    document = with_sets(document, file, read_level_set)
    try:
        sweep = _validate(Sweep, document, file)
    except ConfigError as error:
        # What can be said of flags without the rest is said at once, not in a second round.
        known = {problem.where for problem in error.problems}
        more = [
            problem_of(document, file, said)
            for said in raw_flag_problems(document.data)
            if said.where not in known
        ]
        raise ConfigError([*error.problems, *more]) from error
    found = [problem_of(document, file, said) for said in sweep_problems(sweep)]
    if found:
        raise ConfigError(found)
    return sweep


def _validate(model: type[T], document: Document, file: str) -> T:
    read: Callable[..., T] = TypeAdapter(model).validate_json
    error: ValidationError | None = None
    value: T | None = None
    try:
        # Through JSON in strict mode: lists become tuples, and nothing else is bent to fit (a
        # bare `yes`, a 0.10 that was meant as text, true where a number is wanted); what may be
        # written in two ways says so itself (configs/names.py).
        value = read(json.dumps(document.data), strict=True)
    except ValidationError as caught:
        error = caught
    found = [
        problem_of(document, file, said)
        for said in explain(error, document.data, document.written, model)
    ]
    if value is None or found:
        raise ConfigError(found) from error
    return value


def _with_kinds(short: Any, whole: Any) -> Any:
    """Puts back every ``kind``: it is a default of its class, and tells the classes apart."""
    if isinstance(short, dict):
        kind = {"kind": whole["kind"]} if "kind" in whole else {}
        return kind | {key: _with_kinds(value, whole[key]) for key, value in short.items()}
    if isinstance(short, list):
        return [_with_kinds(a, b) for a, b in zip(short, whole, strict=True)]
    if isinstance(short, str) and _FOLDED.search(short):
        return DoubleQuotedScalarString(short)
    return short
