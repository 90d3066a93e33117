"""Which cells of arms and levels a sweep runs: all of them, all but some, or those of a list."""

from __future__ import annotations

import difflib
import itertools
import math
from typing import TYPE_CHECKING, Final, NamedTuple

from configs.problems import Said

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from configs.sweep import Sweep

ARM: Final = "arm"
"""The word for the arm in ``exclude`` and ``combinations``; no factor bears it there."""
_MOST_CELLS: Final = 200_000  # to look at, before anything is excluded
_SHOWN: Final = 3


class Cell(NamedTuple):
    """One setting that is run in every block."""

    arm: str
    levels: dict[str, str]
    """Factor -> level, every factor in the order of the file."""

    @property
    def key(self) -> tuple[str, ...]:
        """Hashable; factors always come in one order."""
        return (self.arm, *self.levels.values())

    def __str__(self) -> str:
        return "+".join(self.key)


def cells(sweep: Sweep) -> list[Cell]:
    """The cells of a sweep that is right in itself, arms first, each factor's levels in order."""
    if sweep.combinations:
        asked = {key for entry in sweep.combinations for key in _listed(sweep, entry)}
        return [cell for cell in crossed(sweep) if cell.key in asked]
    return [cell for cell in crossed(sweep) if not any(_fits(cell, e) for e in sweep.exclude)]


def crossed(sweep: Sweep) -> Iterator[Cell]:
    """Every arm under every combination of levels."""
    names = list(sweep.factors)
    for arm, *levels in itertools.product(sweep.arms, *(sweep.factors[name] for name in names)):
        yield Cell(arm, dict(zip(names, levels, strict=True)))


def is_restricted(sweep: Sweep) -> bool:
    """Whether anything of the crossing may be left out."""
    return bool(sweep.exclude or sweep.combinations)


def crossing_size(sweep: Sweep) -> int:
    """How many cells the crossing has before anything is left out."""
    return math.prod([len(sweep.arms), *(len(levels) for levels in sweep.factors.values())])


def first_levels(sweep: Sweep) -> dict[str, str]:
    """Each factor's first level, which is its reference."""
    return {factor: next(iter(levels)) for factor, levels in sweep.factors.items() if levels}


def cell_problems(sweep: Sweep) -> list[Said]:
    """What is wrong with ``exclude`` and ``combinations``, each rule by its place in the list."""
    if not is_restricted(sweep):
        return []
    if sweep.exclude and sweep.combinations:
        message = "stands beside combinations, which lists every cell already: keep one of the two"
        return [Said("exclude", message)]
    if ARM in sweep.factors:
        message = (
            "is the word for the arm in exclude and combinations: give the factor another name"
        )
        return [Said(f"factors.{ARM}", message)]
    unknown = list(_unknown_names(sweep))
    if unknown:
        return unknown
    if crossing_size(sweep) > _MOST_CELLS:
        message = f"the crossing has {crossing_size(sweep):,} cells: {_MOST_CELLS:,} at most"
        return [Said("factors", message)]
    empty = list(_without_effect(sweep))
    return empty or list(_missing(sweep))


def cell_cautions(sweep: Sweep) -> Iterator[Said]:
    """Cells that lose a comparison because what they would be compared with is left out."""
    if not is_restricted(sweep):
        return
    there = {cell.key for cell in cells(sweep)}
    firsts = first_levels(sweep)
    key = "combinations" if sweep.combinations else "exclude"
    no_baseline: list[Cell] = []
    nothing: list[Cell] = []
    for cell in cells(sweep):
        beside = [Cell(arm, cell.levels).key in there for arm in sweep.arms if arm != cell.arm]
        own = any(
            Cell(cell.arm, cell.levels | {factor: firsts[factor]}).key in there
            for factor, level in cell.levels.items()
            if level != firsts[factor]
        )
        if cell.arm == sweep.baseline:
            if not own and not any(beside):
                nothing.append(cell)
        elif Cell(sweep.baseline, cell.levels).key not in there:
            (no_baseline if own else nothing).append(cell)
    if no_baseline:
        yield Said(
            key,
            f"{_some(no_baseline)} will not be compared with {sweep.baseline}, which is not run at "
            "the same levels: only with the same arm at a factor's first level",
        )
    if nothing:
        yield Said(
            key,
            f"{_some(nothing)} will be compared with nothing: neither {sweep.baseline} at the same "
            "levels is run nor the same arm at a factor's first level",
        )


def _listed(sweep: Sweep, entry: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """The cells of one entry of a list: a factor that it leaves out is at its first level."""
    firsts = first_levels(sweep)
    ways = [entry.get(factor, (firsts[factor],)) for factor in sweep.factors]
    yield from itertools.product(entry.get(ARM, tuple(sweep.arms)), *ways)


def _fits(cell: Cell, rule: Mapping[str, Sequence[str]]) -> bool:
    """Whether a rule speaks of a cell: what it leaves out may be anything."""
    return all((cell.arm if key == ARM else cell.levels[key]) in of for key, of in rule.items())


def _unknown_names(sweep: Sweep) -> Iterator[Said]:
    known: dict[str, Iterable[str]] = {ARM: sweep.arms, **sweep.factors}
    for place, entry in _entries(sweep):
        if not entry:
            yield Said(place, "is empty: name a factor's level, or an arm")
        for key, names in entry.items():
            if key not in known:
                yield Said(f"{place}.{key}", f"no factor is called so: {_near(key, known)}")
                continue
            for name in names:
                if name not in known[key]:
                    what = "arm" if key == ARM else "level"
                    message = f"there is no {what} {name!r}: {_near(name, known[key])}"
                    yield Said(f"{place}.{key}", message)


def _entries(sweep: Sweep) -> Iterator[tuple[str, Mapping[str, Sequence[str]]]]:
    for word, entries in (("exclude", sweep.exclude), ("combinations", sweep.combinations)):
        for index, entry in enumerate(entries):
            yield f"{word}.{index}", entry


def _without_effect(sweep: Sweep) -> Iterator[Said]:
    """Rules that leave out nothing that is not left out already; entries that add nothing."""
    left = list(crossed(sweep))
    for index, rule in enumerate(sweep.exclude):
        rest = [cell for cell in left if not _fits(cell, rule)]
        if len(rest) == len(left):
            said = "nothing that the rules above do not exclude already: take it out"
            yield Said(f"exclude.{index}", f"excludes {said}")
        left = rest
    seen: set[tuple[str, ...]] = set()
    for index, entry in enumerate(sweep.combinations):
        keys = set(_listed(sweep, entry))
        if keys <= seen:
            yield Said(f"combinations.{index}", "lists what stands above already: take it out")
        seen |= keys


def _missing(sweep: Sweep) -> Iterator[Said]:
    """The baseline must be run at the reference levels; an arm or level without a cell is none."""
    run = cells(sweep)
    key = "combinations" if sweep.combinations else "exclude"
    firsts = first_levels(sweep)
    if Cell(sweep.baseline, firsts) not in run:
        at = ", ".join(f"{factor}: {level}" for factor, level in firsts.items())
        yield Said(
            key,
            f"leaves out the baseline {sweep.baseline} at the first levels ({at}), which all else "
            "rests on: keep that cell",
        )
    for arm in sweep.arms:
        if arm != sweep.baseline and all(cell.arm != arm for cell in run):
            yield Said(f"arms.{arm}", f"is in no cell that {key} leaves: take the arm out")
    for factor, levels in sweep.factors.items():
        for level in levels:
            if level != firsts[factor] and all(cell.levels[factor] != level for cell in run):
                message = f"is in no cell that {key} leaves: take the level out"
                yield Said(f"factors.{factor}.{level}", message)


def _near(name: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]}?" if close else f"one of {', '.join(names)}"


def _some(found: Sequence[Cell]) -> str:
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(map(str, found[:_SHOWN])) + more
