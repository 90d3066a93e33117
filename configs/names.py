"""Names and small types that recur in what a user writes."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, StringConstraints

NAME_PATTERN: Final = r"^[a-z0-9][a-z0-9._-]*$"
NAME_LENGTH: Final = 60
ENV_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN, max_length=NAME_LENGTH)]
"""A name of ours: it becomes a folder, a metric key and a run name, so lower case, digits, . _ -"""

EnvName = Annotated[str, StringConstraints(pattern=ENV_PATTERN)]
"""The name of an environment variable."""

Text = Annotated[str, StringConstraints(min_length=1)]
"""A string that says something."""

_WHOLE = re.compile(r"-?[0-9]{1,18}")
_DECIMAL = re.compile(r"-?[0-9]{1,18}(?:\.[0-9]{1,18})?(?:[eE][+-]?[0-9]{1,3})?")


def whole(value: Any) -> Any:
    """A whole number written another way without loss (``"30000"``, ``3.0``); else unchanged.

    A truth value is none: ``True == 1`` in Python, and a bare ``yes`` is true to many readers of
    YAML.
    """
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def decimal(value: Any) -> Any:
    """A number in quotes as a number; anything else unchanged."""
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        return float(value)
    return value


def one_or_many(value: Any) -> Any:
    """A single name as a list of one; what is no list and no name stays to be refused."""
    if isinstance(value, dict) or value is None:
        return value
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


Names = Annotated[tuple[Name, ...], BeforeValidator(one_or_many), Field(min_length=1)]
"""One name, or a list of them."""

Whole = Annotated[int, BeforeValidator(whole)]
Number = Annotated[float, BeforeValidator(decimal)]
Count = Annotated[Whole, Field(ge=1)]
Seconds = Annotated[Number, Field(gt=0)]

FlagValue = bool | int | float | str | tuple[int | float | str, ...]
"""true: the bare flag is given; false: it is left out; a list: one argument for each element;
anything else: one argument of its own."""

_TRUE: Final = frozenset({"yes", "on", "y", "true"})
_FALSE: Final = frozenset({"no", "off", "n", "false"})


def truth_of(value: Any) -> bool | None:
    """What a word such as ``yes`` is to readers of YAML 1.1; None for anything else."""
    word = value.lower() if isinstance(value, str) else None
    return True if word in _TRUE else False if word in _FALSE else None
