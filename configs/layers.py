"""What an arm gets: the engine's settings, its own above them, then those of the levels."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from configs.cells import cells, first_levels, is_restricted
from configs.flags import canonical, flag_value, whole_flag
from configs.speculation import drafter_of
from configs.speculation_flags import speculation_flags
from configs.synthetic import synthetic_flags

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from configs.names import FlagValue
    from configs.sweep import Level, Sweep


class Place(NamedTuple):
    """One part of a sweep that sets flags and environment."""

    where: str
    flags: Mapping[str, FlagValue]
    env: Mapping[str, str]


def arm_flags(sweep: Sweep, arm: str, levels: Mapping[str, str]) -> dict[str, FlagValue]:
    """The flags of one arm under these levels: the engine's, the arm's, then the levels'.

    A flag of a later layer takes the place of the same flag under any of its names.
    """
    merged: dict[str, tuple[str, FlagValue]] = {}
    layers = [sweep.engine.flags, sweep.arms[arm].flags]
    layers += [sweep.factors[factor][level].flags for factor, level in levels.items()]
    for layer in layers:
        for flag, value in layer.items():
            name = canonical(flag)
            merged.pop(name, None)
            merged[name] = (flag, value)
    one = sweep.arms[arm]
    drafter = drafter_of(one.speculation) is not None
    made_up = synthetic_flags(sweep.engine.weights, one.simulate, drafter=drafter)
    return dict(merged.values()) | speculation_flags(one.speculation) | made_up


def levels_of(sweep: Sweep) -> Iterator[tuple[str, Level]]:
    """Every level of every factor, with its path."""
    for factor, levels in sweep.factors.items():
        for name, level in levels.items():
            yield f"factors.{factor}.{name}", level


def places(sweep: Sweep) -> Iterator[Place]:
    """Every part of a sweep that sets flags and environment."""
    yield Place("engine", sweep.engine.flags, sweep.engine.env)
    for name, arm in sweep.arms.items():
        yield Place(f"arms.{name}", arm.flags, arm.env)
    for where, level in levels_of(sweep):
        yield Place(where, level.flags, level.env)


def reference_levels(sweep: Sweep) -> dict[str, str]:
    """Each factor's first level."""
    return first_levels(sweep)


def gpus_by_way(flags: Mapping[str, FlagValue]) -> dict[str, int]:
    """Flag -> how many GPUs it multiplies the server by; their product is what the server takes.

    Under DP attention the data-parallel ranks are among the tensor-parallel ones.
    """
    ways = {flag: whole_flag(flags, flag) or 1 for flag in ("tp-size", "pp-size")}
    if flag_value(flags, "enable-dp-attention") is not True:
        ways["dp-size"] = whole_flag(flags, "dp-size") or 1
    return ways


def single_changes(sweep: Sweep) -> Iterator[tuple[dict[str, str], list[str]]]:
    """The reference levels, then every change of one factor's level alone; with the arms there.

    Where not everything is crossed: every combination of levels that is run, since a change of one
    level alone need not be among them.
    """
    if is_restricted(sweep):
        run: dict[tuple[str, ...], tuple[dict[str, str], list[str]]] = {}
        for cell in cells(sweep):
            run.setdefault(cell.key[1:], (cell.levels, []))[1].append(cell.arm)
        yield from run.values()
        return
    first, arms = reference_levels(sweep), list(sweep.arms)
    yield first, arms
    for factor, levels in sweep.factors.items():
        for level in levels:
            if level != first[factor]:
                yield first | {factor: level}, arms


def place_of(sweep: Sweep, arm: str, levels: Mapping[str, str], flag: str) -> str:
    """The path of what sets a flag (by canonical name) for an arm under these levels."""
    found = f"engine.flags.{flag}"
    layers = [(f"arms.{arm}", sweep.arms[arm].flags)]
    layers += [(f"factors.{f}.{name}", sweep.factors[f][name].flags) for f, name in levels.items()]
    for where, flags in [("engine", sweep.engine.flags), *layers]:
        given = next((name for name in flags if canonical(name) == flag), None)
        if given is not None and flag_value(flags, flag) is not None:
            found = f"{where}.flags.{given}"
    return found


def env_place_of(
    sweep: Sweep, arm: str, levels: Mapping[str, str], name: str
) -> tuple[str, str | None]:
    """The path of what sets a variable for an arm under these levels, and its value if it is set."""
    layers = [("engine", sweep.engine.env), (f"arms.{arm}", sweep.arms[arm].env)]
    layers += [(f"factors.{f}.{level}", sweep.factors[f][level].env) for f, level in levels.items()]
    for where, env in reversed(layers):
        if name in env:
            return f"{where}.env.{name}", env[name]
    return f"engine.env.{name}", None


def model_paths(sweep: Sweep) -> dict[str, str]:
    """Path in the sweep -> folder on the host, of the target and of every drafter."""
    drafters = {
        f"arms.{name}.speculation.drafter": folder
        for name, arm in sweep.arms.items()
        if (folder := drafter_of(arm.speculation)) is not None
    }
    return {"engine.model": sweep.engine.model, **drafters}
