"""What makes arms incomparable, known before the night is spent on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from configs.counterparts import counterpart, shared
from configs.flags import flag_value, title
from configs.layers import (
    arm_flags,
    engine_of,
    engine_place,
    limit_flag,
    place_of,
    single_changes,
)
from configs.probe import highest
from configs.problems import Said
from configs.speculation import Off

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from configs.names import FlagValue
    from configs.releases import EngineKind
    from configs.sweep import Sweep

# What SGLang sets for itself when it speculates and the user says nothing (0.5.9
# server_args.py:2362, the same in 0.5.23 speculative_hook.py:1087).
LIMIT_WHEN_SPECULATING: Final = 48
LIMIT: Final = "max-running-requests"
# Two trials of one engine that differ in one of these use other GPUs, or are refused when compared.
_SHARED: Final[dict[EngineKind, tuple[str, ...]]] = {
    "sglang": (
        "tp-size",
        "pp-size",
        "dp-size",
        LIMIT,
        "cuda-graph-max-bs",
        "cuda-graph-max-bs-decode",
    ),
    "vllm": (
        "tensor-parallel-size",
        "pipeline-parallel-size",
        "data-parallel-size",
        "max-num-seqs",
    ),
}
# What a setting is where nobody gives it, the same in both engines.
_ONE_WAY: Final = ("tp-size", "pp-size", "dp-size", "nnodes")

_Flags = dict[str, "FlagValue"]


def unfairness(sweep: Sweep) -> list[Said]:
    """Why the arms of a sweep could not be compared with its baseline; empty when they can."""
    if sweep.baseline not in sweep.arms or any(not levels for levels in sweep.factors.values()):
        return []
    found: dict[Said, None] = dict.fromkeys(_targets(sweep))
    for levels, arms in single_changes(sweep):
        flags = {name: arm_flags(sweep, name, levels) for name in arms}
        found |= dict.fromkeys(_limits_unset(sweep, flags))
        found |= dict.fromkeys(_differences(sweep, levels, flags))
        found |= dict.fromkeys(_across_engines(sweep, levels, flags))
    return list(found)


def _targets(sweep: Sweep) -> Iterator[Said]:
    """A drafter or an engine is judged on one target."""
    wanted = engine_of(sweep, sweep.baseline).model
    for name in sweep.arms:
        if engine_of(sweep, name).model != wanted:
            yield Said(
                f"{engine_place(sweep, name)}.model",
                f"is another target than that of {sweep.baseline} ({wanted}): the arms would not "
                "be comparable; give both engines the same folder",
            )


def _limits_unset(sweep: Sweep, flags: Mapping[str, _Flags]) -> Iterator[Said]:
    kinds = {name: engine_of(sweep, name).kind for name in flags}
    unset = [n for n in flags if flag_value(flags[n], limit_flag(kinds[n]), kinds[n]) is None]
    most = highest(sweep.probes)
    if not unset:
        return
    flag = f"{engine_place(sweep, unset[0])}.flags.{limit_flag(kinds[unset[0]])}"
    if len(set(kinds.values())) > 1:
        yield Said(
            flag,
            f"is not set for {_list(unset)}: each engine has a default of its own, so the arms "
            f"would not be comparable; set it for all, to at least {most}",
        )
        return
    plain = [name for name in unset if isinstance(sweep.arms[name].speculation, Off)]
    alike = kinds[unset[0]] == "vllm" or len(plain) in {0, len(unset)}
    if len(unset) == len(flags) and alike:
        return  # all with one default of the engine
    default = (
        f"SGLang's default is {LIMIT_WHEN_SPECULATING} when speculating and another when not"
        if kinds[unset[0]] == "sglang"
        else "vLLM's default is another number"
    )
    yield Said(
        flag,
        f"is not set for {_list(unset)}: {default}, so the arms would not be comparable; set it "
        f"for all, to at least {most}",
    )


def _differences(
    sweep: Sweep, levels: Mapping[str, str], flags: Mapping[str, _Flags]
) -> Iterator[Said]:
    """Between the arms of one engine: the first of them, or the baseline, is the measure."""
    if sweep.baseline not in flags:
        return  # nothing is compared with it at these levels
    for kind in dict.fromkeys(engine_of(sweep, name).kind for name in flags):
        arms = [name for name in flags if engine_of(sweep, name).kind == kind]
        judge = sweep.baseline if sweep.baseline in arms else arms[0]
        for flag in _SHARED[kind]:
            there = flag_value(flags[judge], flag, kind)
            for name in arms:
                here = flag_value(flags[name], flag, kind)
                unset_limit = flag == limit_flag(kind) and None in {here, there}  # said above
                if here == there or unset_limit:
                    continue
                yield Said(
                    place_of(sweep, name, levels, flag),
                    f"{flag} differs ({_shown(there)} for {judge}, {_shown(here)} for {name}): no "
                    f"speedup could be computed between them; set it once under "
                    f"{engine_place(sweep, name)}.flags, or make it a factor",
                )


def _across_engines(
    sweep: Sweep, levels: Mapping[str, str], flags: Mapping[str, _Flags]
) -> Iterator[Said]:
    """Between the baseline and arms of another engine, under the names that each has."""
    judge = sweep.baseline
    if judge not in flags:
        return
    mine = engine_of(sweep, judge).kind
    for name in flags:
        kind = engine_of(sweep, name).kind
        if kind == mine:
            continue
        for flag, one in shared(kind).items():
            theirs = counterpart(flag, kind, mine)
            if theirs is None:
                continue
            unset = 1 if one in _ONE_WAY else None
            here = flag_value(flags[name], flag, kind) or unset
            there = flag_value(flags[judge], theirs, mine) or unset
            if here is None or there is None or here == there:
                continue
            yield Said(
                place_of(sweep, name, levels, flag),
                f"{flag} is {_shown(here)} for {name}, and {theirs}, which is {title(mine)}'s name "
                f"for it, {_shown(there)} for {judge}: engines are compared under equal limits "
                "(docs/engines.md); make them equal",
            )


def _shown(value: FlagValue | None) -> str:
    return "unset" if value is None else str(value)


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)
