"""What makes arms incomparable, known before the night is spent on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from configs.flags import flag_value
from configs.layers import arm_flags, place_of, single_changes
from configs.problems import Said
from configs.speculation import Off

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from configs.names import FlagValue
    from configs.sweep import Sweep

# What SGLang sets for itself when it speculates and the user says nothing (0.5.9
# server_args.py:2362, the same in 0.5.23 speculative_hook.py:1087).
LIMIT_WHEN_SPECULATING: Final = 48
LIMIT: Final = "max-running-requests"
# Two trials that differ in one of these use other GPUs, or are refused when compared.
_SHARED: Final = (
    "tp-size",
    "pp-size",
    "dp-size",
    LIMIT,
    "cuda-graph-max-bs",
    "cuda-graph-max-bs-decode",
)


def unfairness(sweep: Sweep) -> list[Said]:
    """Why the arms of a sweep could not be compared with its baseline; empty when they can."""
    if sweep.baseline not in sweep.arms or any(not levels for levels in sweep.factors.values()):
        return []
    found: dict[Said, None] = {}
    for levels, arms in single_changes(sweep):
        flags = {name: arm_flags(sweep, name, levels) for name in arms}
        found |= dict.fromkeys(_limits_unset(sweep, flags))
        found |= dict.fromkeys(_differences(sweep, levels, flags))
    return list(found)


def _limits_unset(sweep: Sweep, flags: Mapping[str, Mapping[str, FlagValue]]) -> Iterator[Said]:
    unset = [name for name in flags if flag_value(flags[name], LIMIT) is None]
    plain = [name for name in unset if isinstance(sweep.arms[name].speculation, Off)]
    if not unset or (len(unset) == len(flags) and len(plain) in {0, len(unset)}):
        return  # all set, or all with one default of the engine
    most = max(max(probe.concurrency) for probe in sweep.probes.values())
    yield Said(
        f"engine.flags.{LIMIT}",
        f"is not set for {_list(unset)}: SGLang's default is {LIMIT_WHEN_SPECULATING} when "
        "speculating and another when not, so the arms would not be comparable; set it for all, "
        f"to at least {most}",
    )


def _differences(
    sweep: Sweep, levels: Mapping[str, str], flags: Mapping[str, Mapping[str, FlagValue]]
) -> Iterator[Said]:
    if sweep.baseline not in flags:
        return  # nothing is compared with it at these levels
    reference = flags[sweep.baseline]
    for flag in _SHARED:
        for name in flags:
            here, there = flag_value(flags[name], flag), flag_value(reference, flag)
            unset_limit = flag == LIMIT and None in {here, there}  # said above
            if here == there or unset_limit:
                continue
            yield Said(
                place_of(sweep, name, levels, flag),
                f"{flag} differs ({_shown(there)} for {sweep.baseline}, {_shown(here)} for "
                f"{name}): no speedup could be computed between them; set it once under "
                "engine.flags, or make it a factor",
            )


def _shown(value: FlagValue | None) -> str:
    return "unset" if value is None else str(value)


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)
