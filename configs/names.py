"""Names and small types that recur in what a user writes."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

Name = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=60),
]
"""A name of ours: it becomes a folder, a metric key and a run name, so lower case, digits, . _ -"""

EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
"""The name of an environment variable."""

Text = Annotated[str, StringConstraints(min_length=1)]
"""A string that says something."""

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]

FlagValue = bool | int | float | str | tuple[int | float | str, ...]
"""true: the bare flag is given; false: it is left out; a list: one argument for each element;
anything else: one argument of its own."""

Flags = dict[str, FlagValue]
