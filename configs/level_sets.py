"""Ready-made levels of a factor, in files of their own: ``nccl: {use: nvlink}``."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator

from configs.names import Name, Text
from configs.problems import ConfigError, Problem, WrongKeyError
from configs.sweep import Level
from configs.values import Value
from configs.written import Document, line_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    ReadSet = Callable[[str], "LevelSet"]

_USE, _ONLY = "use", "only"


class LevelSet(Value):
    """The levels of one factor, with where each of their settings comes from."""

    name: Name
    """The file's name without its ending."""
    about: Text
    """For which machines, and what it asks, in a sentence or two."""
    levels: Annotated[dict[Name, Level], Field(min_length=1)]
    """As under a sweep's factor; the first one is the reference."""
    sources: dict[Text, Text] = {}
    """Variable or flag -> who says what it does, and for which versions."""

    @model_validator(mode="after")
    def _everything_has_a_source(self) -> Self:
        used = {name for level in self.levels.values() for name in (*level.env, *level.flags)}
        for name in sorted(used - set(self.sources)):
            raise WrongKeyError(f"sources.{name}", "is missing: say who says what it does")
        for name in self.sources:
            if name not in used:
                raise WrongKeyError(f"sources.{name}", "is set by no level: take it out")
        return self


def with_sets(document: Document, file: str, read: ReadSet) -> Document:
    """A sweep's document with every ready-made set replaced by its levels.

    So the sweep holds what it runs, whatever becomes of the set's file: its levels are in the
    plan's digest, in every trial's intent and in the run folder.

    Raises:
        ConfigError: A set that is not there, or is wrong; levels that it does not have.
    """
    factors = document.data.get("factors")
    if not isinstance(factors, dict):
        return document
    problems: list[Problem] = []
    whole: dict[str, Any] = {}
    for factor, levels in factors.items():
        try:
            whole[factor] = _levels(levels, read)
        except WrongKeyError as error:
            at = f"factors.{factor}.{error.key}".removesuffix(".")
            problems.append(Problem(file, at, str(error), line_of(document, at)))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return document._replace(data=document.data | {"factors": whole})


def _levels(given: Any, read: ReadSet) -> Any:
    """The levels of one factor as it is written; those without a set stay as they are."""
    if isinstance(given, str):
        return _dumped(_found(given, "", read), None)
    if not isinstance(given, dict) or not isinstance(given.get(_USE), str):
        return given
    own = {name: level for name, level in given.items() if name not in {_USE, _ONLY}}
    only = given.get(_ONLY)
    if _ONLY in given and not isinstance(only, list):
        own[_ONLY] = only  # a level that happens to be called so
        only = None
    levels = _dumped(_found(given[_USE], _USE, read), only)
    for name in own:
        if name in levels:
            raise WrongKeyError(
                name, f"the set {given[_USE]} has a level of this name: call yours otherwise"
            )
    return levels | own


def _found(name: str, key: str, read: ReadSet) -> LevelSet:
    try:
        return read(name)
    except ConfigError as error:
        first = error.problems[0]
        if first.where or not first.message.startswith("no such file"):
            raise
        raise WrongKeyError(key, f"{first.file}: {first.message}") from error


def _dumped(levels: LevelSet, only: Iterable[object] | None) -> dict[str, Any]:
    """Levels as plain data, in the order that was asked for."""
    plain = {
        name: level.model_dump(mode="json", exclude_defaults=True)
        for name, level in levels.levels.items()
    }
    if only is None:
        return plain
    chosen: dict[str, Any] = {}
    for name in only:
        if name not in plain:
            close = difflib.get_close_matches(str(name), plain, n=1)
            hint = f"did you mean {close[0]}?" if close else f"one of {', '.join(plain)}"
            raise WrongKeyError(_ONLY, f"the set {levels.name} has no level {name!r}: {hint}")
        chosen[str(name)] = plain[str(name)]
    if not chosen:
        raise WrongKeyError(_ONLY, "is an empty list: name a level, or leave it out")
    return chosen
