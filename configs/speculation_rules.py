"""What a way of speculating says against an arm's other flags; known before anything is loaded.

From SGLang's own refusals (0.5.9 and 0.5.12 server_args.py, 0.5.23 speculative_hook.py), and from
what it changes silently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from configs.flags import flag_value, whole_flag
from configs.layers import arm_flags, engine_of, place_of, single_changes
from configs.plan import arm_env
from configs.problems import Said
from configs.speculation import Eagle, Eagle3, Nextn, Ngram, Off, Standalone

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from configs.names import FlagValue
    from configs.speculation import Speculation
    from configs.sweep import Sweep

    Flags = Mapping[str, FlagValue]

# Backends that hold a tree in pages: the first two in 0.5.9 and 0.5.12, all in 0.5.23.
_PAGED_TREES: Final = ("flashinfer", "fa3", "triton")
_BREADTH: Final = 10  # of an n-gram tree, unless it is given
_BACKENDS: Final = ("attention-backend", "decode-attention-backend", "prefill-attention-backend")
# With these SGLang falls back to fixed steps, with a line in its log (adaptive_spec_params.py).
_NOT_ADAPTIVE: Final = (
    "enable-dp-attention",
    "enable-multi-layer-eagle",
    "enable-two-batch-overlap",
    "enable-pdmux",
)


def speculation_problems(sweep: Sweep) -> list[Said]:
    """Combinations of flags that SGLang refuses, or that switch off what was asked for."""
    found: dict[Said, None] = {}
    for levels, arms in single_changes(sweep):
        for name in arms:
            if engine_of(sweep, name).kind != "sglang":
                continue  # what vLLM refuses stands in configs/vllm_rules.py
            arm = sweep.arms[name]
            flags = arm_flags(sweep, name, levels)
            for flag, message in _conflicts(arm.speculation, flags):
                found[Said(place_of(sweep, name, levels, flag), f"{message} (arm {name})")] = None
            env = arm_env(sweep, name, levels)
            for message in _variables(arm.speculation, env):
                found[Said(f"arms.{name}.speculation", message)] = None
    return list(found)


def _conflicts(way: Speculation, flags: Flags) -> Iterator[tuple[str, str]]:
    if isinstance(way, Off):
        return
    branches = _branches(way)
    page = whole_flag(flags, "page-size") or 1
    asked = {name: flag_value(flags, name) for name in _BACKENDS}
    good = ("flashinfer",) if isinstance(way, Ngram) else _PAGED_TREES
    if branches > 1 and page > 1 and asked["attention-backend"] not in {None, *good}:
        yield (
            "page-size",
            (
                f"{page} with {branches} branches per step works with the attention backend "
                f"{' or '.join(good)} only: set page-size: 1, another backend, or a chain"
            ),
        )
    for flag, backend in asked.items():
        if backend == "trtllm_mha" and branches > 1 and not isinstance(way, Ngram):
            yield flag, f"trtllm_mha takes chains only, not topk {branches}: set topk: 1"
    if flag_value(flags, "enable-dp-attention") is True and isinstance(way, Standalone | Ngram):
        yield (
            "enable-dp-attention",
            f"SGLang refuses it with {way.kind}: leave it out, or speculate another way",
        )
    if isinstance(way, Eagle3 | Eagle | Nextn) and way.adaptive is not None:
        for flag in _NOT_ADAPTIVE:
            if flag_value(flags, flag) is True:
                yield (
                    flag,
                    (
                        "SGLang falls back to fixed steps with it, with no more than a line in its "
                        "log: leave it out, or adaptive"
                    ),
                )


def _variables(way: Speculation, env: Mapping[str, str]) -> Iterator[str]:
    """Trees under the second worker, which 0.5.8 to 0.5.10 refuse and later ones switch off."""
    wanted = env.get("SGLANG_ENABLE_SPEC_V2", "").lower() in {"1", "true"}
    if wanted and _branches(way) > 1 and not isinstance(way, Ngram):
        yield (
            "SGLANG_ENABLE_SPEC_V2 is on, which takes chains only: set topk: 1, or leave the "
            "variable out"
        )


def _branches(way: Speculation) -> int:
    """Branches per step, as far as the file says; 1 where the engine chooses."""
    if isinstance(way, Off):
        return 1
    if isinstance(way, Ngram):
        return way.max_breadth or _BREADTH
    return way.topk or 1
