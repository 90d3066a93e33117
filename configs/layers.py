"""What an arm gets: the engine's settings, its own above them, then those of the levels."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, assert_never

from configs import vllm
from configs.counterparts import LIMIT, counterpart
from configs.flags import canonical, flag_value
from configs.speculation import drafter_of, speculation_flags
from configs.sweep import Sglang
from configs.vllm import Vllm, vllm_speculation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from configs.names import FlagValue
    from configs.releases import EngineKind
    from configs.speculation import Speculation
    from configs.sweep import Engine, Level, Sweep


class Place(NamedTuple):
    """One part of a sweep that sets flags and environment."""

    where: str
    flags: Mapping[str, FlagValue]
    env: Mapping[str, str]
    engines: tuple[EngineKind, ...]
    """The engines that get them; a factor's level goes to the arms of all."""


def engine_of(sweep: Sweep, arm: str) -> Engine:
    """The engine that an arm runs on."""
    name = sweep.arms[arm].engine
    return sweep.engine if name is None else sweep.engines[name]


def engine_place(sweep: Sweep, arm: str) -> str:
    """The path of the engine that an arm runs on."""
    name = sweep.arms[arm].engine
    return "engine" if name is None else f"engines.{name}"


def engines_by_place(sweep: Sweep) -> dict[str, Engine]:
    """Path in the sweep -> engine, of every one that a sweep describes."""
    return {"engine": sweep.engine} | {f"engines.{n}": e for n, e in sweep.engines.items()}


def engine_kinds(sweep: Sweep) -> tuple[EngineKind, ...]:
    """The engines that a sweep's arms run on, each once, in the arms' order."""
    return tuple(dict.fromkeys(engine_of(sweep, arm).kind for arm in sweep.arms))


def arm_flags(sweep: Sweep, arm: str, levels: Mapping[str, str]) -> dict[str, FlagValue]:
    """The flags of one arm under these levels: the engine's, the arm's, then the levels'.

    A flag of a later layer takes the place of the same flag under any of its names.
    """
    engine = engine_of(sweep, arm)
    merged: dict[str, tuple[str, FlagValue]] = {}
    layers = [_given_anyway(engine), engine.flags, sweep.arms[arm].flags]
    layers += [sweep.factors[factor][level].flags for factor, level in levels.items()]
    for layer in layers:
        for flag, value in layer.items():
            one = canonical(flag, engine.kind)
            merged.pop(one, None)
            merged[one] = (flag, value)
    return dict(merged.values()) | _speculation(engine, sweep.arms[arm].speculation)


def _given_anyway(engine: Engine) -> dict[str, FlagValue]:
    match engine:
        case Sglang():
            return {}
        case Vllm():
            return vllm.DEFAULT_FLAGS
        case _:
            assert_never(engine)


def _speculation(engine: Engine, way: Speculation) -> dict[str, FlagValue]:
    match engine:
        case Sglang():
            return speculation_flags(way)
        case Vllm():
            wanted = vllm_speculation(way)
            return {} if wanted is None else {"speculative-config": wanted.text()}
        case _:
            assert_never(engine)


def limit_flag(engine: EngineKind) -> str:
    """What an engine calls its limit on requests in flight."""
    return LIMIT.name(engine)


def named(flag: str, engine: EngineKind) -> str:
    """What an engine calls a setting of SGLang; the same word where it has no such thing."""
    return counterpart(flag, "sglang", engine) or flag


def levels_of(sweep: Sweep) -> Iterator[tuple[str, Level]]:
    """Every level of every factor, with its path."""
    for factor, levels in sweep.factors.items():
        for name, level in levels.items():
            yield f"factors.{factor}.{name}", level


def places(sweep: Sweep) -> Iterator[Place]:
    """Every part of a sweep that sets flags and environment."""
    for where, engine in engines_by_place(sweep).items():
        yield Place(where, engine.flags, engine.env, (engine.kind,))
    for name, arm in sweep.arms.items():
        yield Place(f"arms.{name}", arm.flags, arm.env, (engine_of(sweep, name).kind,))
    for where, level in levels_of(sweep):
        yield Place(where, level.flags, level.env, engine_kinds(sweep))


def reference_levels(sweep: Sweep) -> dict[str, str]:
    """Each factor's first level."""
    return {factor: next(iter(levels)) for factor, levels in sweep.factors.items() if levels}


def single_changes(sweep: Sweep) -> Iterator[dict[str, str]]:
    """The reference levels, then every change of one factor's level alone."""
    first = reference_levels(sweep)
    yield first
    for factor, levels in sweep.factors.items():
        for level in levels:
            if level != first[factor]:
                yield first | {factor: level}


def place_of(sweep: Sweep, arm: str, levels: Mapping[str, str], flag: str) -> str:
    """The path of what sets a flag (by canonical name) for an arm under these levels."""
    engine, there = engine_of(sweep, arm), engine_place(sweep, arm)
    found = f"{there}.flags.{flag}"
    layers = [(f"arms.{arm}", sweep.arms[arm].flags)]
    layers += [(f"factors.{f}.{name}", sweep.factors[f][name].flags) for f, name in levels.items()]
    for where, flags in [(there, engine.flags), *layers]:
        given = next((name for name in flags if canonical(name, engine.kind) == flag), None)
        if given is not None and flag_value(flags, flag, engine.kind) is not None:
            found = f"{where}.flags.{given}"
    return found


def model_paths(sweep: Sweep) -> dict[str, str]:
    """Path in the sweep -> folder on the host, of every target and drafter."""
    drafters = {
        f"arms.{name}.speculation.drafter": folder
        for name, arm in sweep.arms.items()
        if (folder := drafter_of(arm.speculation)) is not None
    }
    return {f"{at}.model": e.model for at, e in engines_by_place(sweep).items()} | drafters
