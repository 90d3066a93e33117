"""What is wrong with a file: all problems at once, each with where and what would be right."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Problem(NamedTuple):
    """One thing that is wrong."""

    file: str
    """The file as the user named it."""
    where: str
    """The key's path, e.g. arms.b.speculation.topk; empty for the file as a whole."""
    message: str
    """What is wrong, what would be right."""
    line: int | None = None
    """Line in the file, from 1."""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return (
            f"{place}: {self.where}: {self.message}" if self.where else f"{place}: {self.message}"
        )


class Said(NamedTuple):
    """A problem or a warning about one key of a value, whatever file it came from."""

    where: str
    message: str


class ConfigError(Exception):
    """A user's mistake in a file: printed without a traceback, exit code 2."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))


class WrongKeyError(ValueError):
    """Raised by a check over several keys, to name the one that is to be changed."""

    def __init__(self, key: str, message: str) -> None:
        self.key = key
        super().__init__(message)
