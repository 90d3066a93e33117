"""What an arm gets: the engine's settings, its own above them, then those of the levels."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, assert_never

from configs import vllm
from configs.cells import cells, first_levels, is_restricted
from configs.counterparts import LIMIT, counterpart
from configs.flags import canonical, flag_value, whole_flag
from configs.speculation import drafter_of
from configs.speculation_flags import speculation_flags
from configs.sweep import Sglang
from configs.synthetic import synthetic_flags
from configs.vllm import Vllm, vllm_speculation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from configs.names import FlagValue
    from configs.releases import EngineKind
    from configs.sweep import Arm, Engine, Level, Sweep
    from configs.synthetic import Weights


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
    return dict(merged.values()) | _by_words(engine, sweep.arms[arm])


def weights_of(engine: Engine) -> Weights:
    """Whether an engine loads real weights; vLLM's are never made up here."""
    match engine:
        case Sglang():
            return engine.weights
        case Vllm():
            return "real"
        case _:
            assert_never(engine)


def _given_anyway(engine: Engine) -> dict[str, FlagValue]:
    match engine:
        case Sglang():
            return {}
        case Vllm():
            return vllm.DEFAULT_FLAGS
        case _:
            assert_never(engine)


def _by_words(engine: Engine, arm: Arm) -> dict[str, FlagValue]:
    """The flags of what an arm says in words of ours: its speculation, and what it makes up."""
    way = arm.speculation
    match engine:
        case Sglang():
            drafter = drafter_of(way) is not None
            made_up = synthetic_flags(engine.weights, arm.simulate, drafter=drafter)
            return speculation_flags(way) | made_up
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
    return first_levels(sweep)


def gpus_by_way(flags: Mapping[str, FlagValue], engine: EngineKind = "sglang") -> dict[str, int]:
    """Flag -> how many GPUs it multiplies the server by; their product is what the server takes.

    Under SGLang's DP attention the data-parallel ranks are among the tensor-parallel ones.
    """
    words = [named(flag, engine) for flag in ("tp-size", "pp-size")]
    if engine != "sglang" or flag_value(flags, "enable-dp-attention") is not True:
        words.append(named("dp-size", engine))
    return {flag: whole_flag(flags, flag, engine) or 1 for flag in words}


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
    engine, there = engine_of(sweep, arm), engine_place(sweep, arm)
    found = f"{there}.flags.{flag}"
    layers = [(f"arms.{arm}", sweep.arms[arm].flags)]
    layers += [(f"factors.{f}.{name}", sweep.factors[f][name].flags) for f, name in levels.items()]
    for where, flags in [(there, engine.flags), *layers]:
        given = next((name for name in flags if canonical(name, engine.kind) == flag), None)
        if given is not None and flag_value(flags, flag, engine.kind) is not None:
            found = f"{where}.flags.{given}"
    return found


def env_place_of(
    sweep: Sweep, arm: str, levels: Mapping[str, str], name: str
) -> tuple[str, str | None]:
    """The path of what sets a variable for an arm under these levels, and its value if it is set."""
    there = engine_place(sweep, arm)
    layers = [(there, engine_of(sweep, arm).env), (f"arms.{arm}", sweep.arms[arm].env)]
    layers += [(f"factors.{f}.{level}", sweep.factors[f][level].env) for f, level in levels.items()]
    for where, env in reversed(layers):
        if name in env:
            return f"{where}.env.{name}", env[name]
    return f"{there}.env.{name}", None


def model_paths(sweep: Sweep) -> dict[str, str]:
    """Path in the sweep -> folder on the host, of every target and drafter."""
    drafters = {
        f"arms.{name}.speculation.drafter": folder
        for name, arm in sweep.arms.items()
        if (folder := drafter_of(arm.speculation)) is not None
    }
    return {f"{at}.model": e.model for at, e in engines_by_place(sweep).items()} | drafters
