"""Screening: which levels of a factor are tried in seconds first, and how many of them stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from configs.names import Count, Name, Number
from configs.problems import Said
from configs.values import Value

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from configs.sweep import Sweep


class Screening(Value):
    """Before the night: all-reduce under every level, what the levels change, who may stay."""

    factor: Name
    """The factor whose levels are screened."""
    keep: Count = 3
    """At most so many levels go into the plan; the reference is always one of them."""
    starts: Literal["every", "none"] | Annotated[tuple[Name, ...], Field(min_length=1)] = "every"
    """Levels under which the engine is started once to prove what they change: every, none, or
    a list of names."""
    where_it_matters: bool = False
    """Leave a level out also in single arms, in which nothing that it sets can matter."""
    within_hours: Annotated[Number, Field(gt=0)] = 24.0
    """An earlier screen of the same question on the same host counts for so long."""

    def starts_at(self, levels: Collection[str]) -> tuple[str, ...]:
        """The levels under which the engine is started, in the factor's order."""
        match self.starts:
            case "every":
                return tuple(levels)
            case "none":
                return ()
            case names:
                return tuple(level for level in levels if level in names)


def screening_problems(sweep: Sweep) -> Iterator[Said]:
    """What a sweep says of its screen and cannot mean."""
    screen = sweep.screen
    if screen is None:
        return
    levels = sweep.factors.get(screen.factor)
    if levels is None:
        known = ", ".join(sweep.factors) or "none; add factors"
        yield Said("screen.factor", f"no factor is called {screen.factor!r}: there are {known}")
        return
    if isinstance(screen.starts, tuple):
        for name in screen.starts:
            if name not in levels:
                yield Said(
                    "screen.starts",
                    f"{screen.factor} has no level {name!r}: name one of {', '.join(levels)}",
                )


def without_levels(sweep: Sweep, factor: str, dropped: Collection[str]) -> Sweep:
    """A sweep without some levels of a factor; its first level, the reference, always stays."""
    levels = sweep.factors[factor]
    reference = next(iter(levels))
    kept = {
        name: level for name, level in levels.items() if name == reference or name not in dropped
    }
    asked = sweep.screen
    if asked is not None and isinstance(asked.starts, tuple):
        starts = asked.starts_at(kept) or "none"
        asked = asked.model_copy(update={"starts": starts})
    return sweep.model_copy(update={"factors": {**sweep.factors, factor: kept}, "screen": asked})
