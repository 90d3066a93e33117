"""Variables that change nothing, or not what they seem to: said before the night is spent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from configs.flags import flag_value, whole_flag
from configs.layers import (
    arm_flags,
    engine_of,
    env_place_of,
    named,
    places,
    single_changes,
)
from configs.nccl import GUIDE, lacks_ring, legacy_level, similar, variables
from configs.problems import Said

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from configs.names import FlagValue
    from configs.sweep import Sweep

# Written by SGLang itself whatever the user sets (0.5.9 engine.py:806-819, 0.5.23 1878-1921).
ALWAYS: Final = {
    "CUDA_DEVICE_MAX_CONNECTIONS": "SGLang sets it to 8 always (0.5.9 to 0.5.23)",
    "CUDA_MODULE_LOADING": "SGLang sets it to AUTO always (0.5.9; 0.5.23 leaves it)",
}


_SIZES: Final = ("tp-size", "pp-size", "dp-size", "ep-size")


class _ByFlags(NamedTuple):
    """What SGLang makes of a variable under some flags."""

    value: str
    """What it writes where nothing is set, or over what is."""
    over: str | None
    """The flag for which it writes over the user's value; None: only where none is set."""


def variable_cautions(sweep: Sweep) -> list[Said]:
    """Every variable that is overwritten, deprecated, unknown or set to what it is anyway."""
    found: dict[Said, None] = {}
    for place in places(sweep):
        for name, value in place.env.items():
            where = f"{place.where}.env.{name}"
            if name in ALWAYS and "sglang" in place.engines:
                found[Said(where, f"has no effect: {ALWAYS[name]}")] = None
            for message in _of_one(name, value):
                found[Said(where, message)] = None
    return list(found | dict.fromkeys(_under_flags(sweep)))


def _of_one(name: str, value: str) -> Iterator[str]:
    if not name.startswith("NCCL_"):
        return
    known = variables().get(name)
    if known is None:
        meant = similar(name)
        hint = f"did you mean {meant}?" if meant else f"the names are in {GUIDE}"
        yield f"NCCL's user guide knows no such variable, and NCCL would ignore it silently: {hint}"
        return
    if known.ended:
        yield f"{known.ended}: use {known.instead} ({known.source})"
    level = legacy_level(name, value)
    if level is not None:
        yield f"{value} means {level} to NCCL, and numbers may change their meaning: write {level}"
    if name == "NCCL_ALGO" and lacks_ring(value):
        yield (
            f"{value} leaves a collective without Ring; since NCCL 2.24 one that has no algorithm "
            "left fails (AllGather with Tree alone does): write allreduce:" + _plain(value)
        )
    if name == "NCCL_PROTO" and "ll128" in value.lower().split(",") and "^" not in value:
        yield "LL128 can corrupt data on platforms that do not support it (NCCL's user guide)"


def _plain(value: str) -> str:
    """The algorithms alone, without the collective that they were for."""
    return value.split(";", maxsplit=1)[0].rpartition(":")[2]


def _under_flags(sweep: Sweep) -> Iterator[Said]:
    """What SGLang writes depends on flags: looked at for every arm at its levels."""
    for levels, arms in single_changes(sweep):
        for arm in arms:
            flags, kind = arm_flags(sweep, arm, levels), engine_of(sweep, arm).kind
            sizes = {size: whole_flag(flags, named(size, kind), kind) or 1 for size in _SIZES}
            if set(sizes.values()) == {1}:
                yield from _alone(sweep, arm, levels)
            if kind != "sglang":
                continue
            for name, ours in _written(flags).items():
                where, value = env_place_of(sweep, arm, levels, name)
                if value is None:
                    continue
                if value == ours.value:
                    yield Said(where, f"changes nothing: SGLang sets it to {value} by itself here")
                elif ours.over is not None:
                    message = f"has no effect: with {ours.over} SGLang sets it to {ours.value}"
                    yield Said(where, message)


def _alone(sweep: Sweep, arm: str, levels: Mapping[str, str]) -> Iterator[Said]:
    """With one GPU nothing is communicated."""
    for name in variables():
        if name.startswith("NCCL_DEBUG"):
            continue
        where, value = env_place_of(sweep, arm, levels, name)
        if value is not None:
            yield Said(
                where, "changes nothing: one GPU serves here (tp-size), and talks to no other"
            )


def _written(flags: Mapping[str, FlagValue]) -> dict[str, _ByFlags]:
    """What SGLang (0.5.9 to 0.5.23, _set_envs_and_config) writes under these flags."""
    symmetric = "enable-symm-mem" if flag_value(flags, "enable-symm-mem") is True else None
    nvls = "enable-nccl-nvls" if flag_value(flags, "enable-nccl-nvls") is True else None
    found = {
        "NCCL_CUMEM_ENABLE": _ByFlags(str(int(bool(symmetric))), symmetric),
        "NCCL_NVLS_ENABLE": _ByFlags(str(int(bool(symmetric or nvls))), nvls or symmetric),
    }
    if (whole_flag(flags, "dcp-size") or 1) > 1:
        found["NCCL_GRAPH_MIXING_SUPPORT"] = _ByFlags("0", symmetric)
    return found
