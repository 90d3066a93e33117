"""Whether the variables of a factor's level can matter: taken, overwritten, or of no use here, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from configs.values import Value
from tasks.nccl_scope import WORDS as SCOPE_WORDS
from tasks.nccl_scope import scope_of
from tasks.reduce_path import BY_NCCL, WORDS
from tasks.screen_sizes import size_words, sizes_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tasks.nccl_log import NcclLog
    from tasks.reduce_path import ReducePath
    from tasks.screen_sizes import Sizes

Effect = Literal["taken", "overwritten", "ignored", "cannot_matter", "not_seen"]
"""taken: it was read where it can matter; not_seen: nobody said that it was read, or nobody looked."""

# What SGLang writes into its own environment before it starts its ranks: 0.5.9 engine.py:806-819,
# 0.5.12 engine.py:1222-1232, 0.5.23 engine.py:1878-1921.
WRITTEN_ALWAYS: Final = {"CUDA_DEVICE_MAX_CONNECTIONS": "8"}
WRITTEN_IF_UNSET: Final = {"NCCL_CUMEM_ENABLE": "0", "NCCL_NVLS_ENABLE": "0"}

# What the choice of a kernel depends on, which NCCL tells for every size.
_OF_THE_CHOICE: Final = ("NCCL_PROTO", "NCCL_ALGO", "NCCL_MIN_", "NCCL_MAX_")
_POINTLESS: Final = frozenset({"overwritten", "ignored", "cannot_matter"})


class VariableEffect(Value):
    """What became of one variable of a level."""

    variable: str
    asked: str
    effect: Effect
    reason: str


class Evidence(NamedTuple):
    """What was seen under one level."""

    log: NcclLog | None
    """NCCL's words; None: it said nothing."""
    seen: Mapping[str, str | None] | None
    """Variable -> value in the engine's own ranks; None: nobody looked."""


class Decode(NamedTuple):
    """How an arm decodes."""

    path: ReducePath
    """What carries its all-reduces."""
    sizes: Sizes
    tp: int
    """GPUs that share a layer."""


def engine_writes(env: Mapping[str, str]) -> dict[str, str]:
    """An environment as the engine's ranks get it."""
    return {**WRITTEN_IF_UNSET, **env, **WRITTEN_ALWAYS}


def judge_variables(
    asked: Mapping[str, str],
    here: Evidence,
    reference: Evidence,
    decode: Decode,
) -> tuple[VariableEffect, ...]:
    """What became of each variable that a level sets and the reference does not set so.

    Args:
        asked: The level's variables.
        here: What was seen under the level.
        reference: What was seen under the factor's first level.
        decode: How the arm decodes.
    """
    found = []
    for variable, value in asked.items():
        effect, reason = (
            _written_over(variable, value, here)
            or _nccl(variable, here, reference, decode)
            or _arrived(variable, value, here)
        )
        found.append(VariableEffect(variable=variable, asked=value, effect=effect, reason=reason))
    return tuple(found)


def without_effect(effects: Sequence[VariableEffect]) -> bool:
    """Whether none of a level's variables can matter; a level without any says nothing."""
    return bool(effects) and all(one.effect in _POINTLESS for one in effects)


def _written_over(variable: str, value: str, here: Evidence) -> tuple[Effect, str] | None:
    seen = here.seen.get(variable) if here.seen else None
    if seen is not None and seen != value:
        return "overwritten", f"the engine's own processes have {seen}"
    written = WRITTEN_ALWAYS.get(variable)
    if written is not None and seen is None:
        return "overwritten", f"SGLang sets it to {written} whatever is asked"
    return None


def _nccl(
    variable: str, here: Evidence, reference: Evidence, decode: Decode
) -> tuple[Effect, str] | None:
    if not variable.startswith("NCCL_"):
        return None
    path, sizes = decode.path, decode.sizes
    if decode.tp == 1:
        return "cannot_matter", "one GPU: nothing is sent"
    log = here.log
    scoped = _out_of_scope(variable, log, reference.log)
    if scoped is not None:
        return "cannot_matter", scoped
    if not BY_NCCL.intersection(path.kinds(sizes.bytes)):
        other = _other_path(path, sizes)
        if path.sure:
            return "cannot_matter", other
        return "not_seen", f"by the flags alone {other}; a start would tell whether they do"
    if log is None:
        return "not_seen", "NCCL wrote nothing under this level"
    if variable in log.ignored:
        return "ignored", f"NCCL says: {log.ignored[variable]}"
    same = _same_choice(variable, log, reference.log, sizes)
    if same is not None:
        return "cannot_matter", same
    if variable in log.taken:
        return "taken", f"NCCL says: set to {log.taken[variable]}"
    return "not_seen", "NCCL does not say that it read it"


def _other_path(path: ReducePath, sizes: Sizes) -> str:
    kinds = path.kinds(sizes.bytes)
    first = path.at(sizes.bytes[-1])
    limit = f" up to {size_words(first.up_to_bytes)}" if first.up_to_bytes is not None else ""
    return (
        f"decode's all-reduces ({sizes_words(sizes.bytes)}) go through "
        f"{' and '.join(WORDS[kind] for kind in kinds)}{limit}, not NCCL ({first.why})"
    )


def _out_of_scope(variable: str, log: NcclLog | None, reference: NcclLog | None) -> str | None:
    """Why the links in use leave a variable nothing to decide; None where it may decide."""
    scope = scope_of(variable)
    if scope is None:
        return None
    words = SCOPE_WORDS[scope]
    if scope == "debug":
        return f"it {words}"
    if scope == "nodes":
        return f"it {words}, and this is one"
    if scope == "collnet":
        return f"it {words}, and one machine has none"
    if log is None or not log.links:
        return None
    used = f"all links are {', '.join(log.links)}"
    match scope:
        case "net" | "ib" | "socket":
            net = any(link.startswith("NET") for link in log.links)
            return None if net else f"it {words}, and {used}"
        case "shm":
            shm = any("SHM" in one.transports for one in (log, reference) if one is not None)
            return None if shm else f"it {words}, and {used}"
        case "nvls":
            counts = [one.nvls_channels for one in (log, reference) if one is not None]
            off = len(counts) > 1 and all(count == 0 for count in counts)
            return f"it {words}, which has no channels here, set or not" if off else None


def _same_choice(
    variable: str, log: NcclLog, reference: NcclLog | None, sizes: Sizes
) -> str | None:
    """That NCCL chose for every size of decode just what it chooses by itself."""
    if reference is None or not variable.startswith(_OF_THE_CHOICE):
        return None
    pairs = [(log.choice_at(size), reference.choice_at(size)) for size in sizes.bytes]
    if any(mine is None or theirs is None for mine, theirs in pairs):
        return None
    kernels = [
        [(c.algorithm, c.protocol, c.channels) for c in pair if c is not None] for pair in pairs
    ]
    if any(mine != theirs for mine, theirs in kernels):
        return None
    chosen = dict.fromkeys(f"{kernel[0][0]} {kernel[0][1]}" for kernel in kernels)
    return f"NCCL takes {', '.join(chosen)} at every size of decode, as it does by itself"


def _arrived(variable: str, value: str, here: Evidence) -> tuple[Effect, str]:
    if here.seen is not None and here.seen.get(variable) == value:
        return "taken", "the engine's own processes have it"
    return "not_seen", "nothing that was looked at says what it did"
