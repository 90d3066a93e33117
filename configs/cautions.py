"""What may run but should be known before the night is spent on it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from configs.cells import cell_cautions
from configs.flags import flag_value, title, unknown_flags, whole_flag
from configs.layers import (
    arm_flags,
    engine_of,
    model_paths,
    place_of,
    places,
    single_changes,
)
from configs.probe import streams_of
from configs.problems import Said
from configs.releases import knows_variable
from configs.speculation import Eagle, Eagle3, Standalone, drafter_of
from configs.synthetic_rules import synthetic_cautions
from configs.variable_cautions import variable_cautions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from configs.sweep import Sweep

_SHELL_CHARACTERS: Final = re.compile(r"[\s$`\"'\\;&|<>(){}\[\]*?!#]")
_FEW_STEPS: Final = 40  # SGLang's own acceptance figures come every 40 decode steps
_FEW_PROMPTS: Final = 4
# Attention backends that serve MLA targets only (SGLang 0.5.9 and 0.5.23 server_args.py); a
# drafter inherits the target's, and EAGLE-3 heads have plain attention (sglang#23490).
_MLA_ONLY: Final = frozenset({"trtllm_mla", "cutlass_mla", "flashmla", "cutedsl_mla"})


def warnings(sweep: Sweep) -> list[Said]:
    """What may run but should be known before the night is spent on it."""
    return [
        *_unknown_flags(sweep),
        *_unknown_variables(sweep),
        *_unused_engines(sweep),
        *_graph_limits(sweep),
        *_acceptance(sweep),
        *_few_prompts(sweep),
        *_random_tokens(sweep),
        *variable_cautions(sweep),
        *cell_cautions(sweep),
        *_shell_characters(sweep),
        *_one_block(sweep),
        *_drafter_backend(sweep),
        *synthetic_cautions(sweep),
    ]


def _unknown_flags(sweep: Sweep) -> Iterator[Said]:
    for place in places(sweep):
        for kind in place.engines:
            for flag in unknown_flags(place.flags, kind):
                message = f"no {title(kind)} release known here has this flag"
                yield Said(f"{place.where}.flags.{flag}", message)


def _unknown_variables(sweep: Sweep) -> Iterator[Said]:
    for place in places(sweep):
        for name in place.env:
            if knows_variable(name) is False:
                message = "no SGLang release known here reads this variable"
                yield Said(f"{place.where}.env.{name}", message)


def _unused_engines(sweep: Sweep) -> Iterator[Said]:
    used = {arm.engine for arm in sweep.arms.values()}
    for name in sweep.engines:
        if name not in used:
            yield Said(f"engines.{name}", "no arm runs on it: name it in an arm's engine")


def _graph_limits(sweep: Sweep) -> Iterator[Said]:
    ladder = sorted({c for probe in sweep.probes.values() for c in probe.concurrency})
    said: dict[Said, None] = {}
    for levels, arms in single_changes(sweep):
        for name in arms:
            if engine_of(sweep, name).kind != "sglang":
                continue  # vLLM counts tokens of a step there, not requests
            flags = arm_flags(sweep, name, levels)
            for flag in ("cuda-graph-max-bs", "cuda-graph-max-bs-decode"):
                limit = whole_flag(flags, flag)
                above = [str(c) for c in ladder if limit is not None and c > limit]
                if above:
                    where = place_of(sweep, name, levels, flag)
                    message = (
                        f"concurrency {' and '.join(above)} exceeds {flag} {limit}: decode falls "
                        "back to eager mode"
                    )
                    said[Said(where, message)] = None
    yield from said


def _acceptance(sweep: Sweep) -> Iterator[Said]:
    if not any(drafter_of(arm.speculation) for arm in sweep.arms.values()):
        return
    for name, probe in streams_of(sweep.probes).items():
        tokens = probe.sampling.max_new_tokens
        if tokens < _FEW_STEPS and probe.random is None:
            yield Said(
                f"probes.{name}.sampling.max_new_tokens",
                f"{tokens} output tokens are fewer than {_FEW_STEPS} decode steps: the acceptance "
                "reported will be that of the start of an answer, not of the rest",
            )


def _few_prompts(sweep: Sweep) -> Iterator[Said]:
    for name, probe in streams_of(sweep.probes).items():
        least = min(probe.requests(c) for c in probe.concurrency)
        if least < _FEW_PROMPTS and probe.random is None:
            yield Said(
                f"probes.{name}.min_requests",
                f"{least} prompts say nothing about a drafter: acceptance depends on the text; "
                f"use at least {_FEW_PROMPTS}",
            )


def _random_tokens(sweep: Sweep) -> Iterator[Said]:
    for name, probe in streams_of(sweep.probes).items():
        drawn = probe.random
        if drawn is None:
            continue
        yield Said(
            f"probes.{name}.prompts",
            "random token prompts say little about acceptance: throughput only, no acceptance is "
            "claimed",
        )
        if drawn.range_ratio < 1:
            yield Said(
                f"probes.{name}.random.range_ratio",
                f"range ratio {drawn.range_ratio} makes lengths {drawn.shortest}..{drawn.tokens}",
            )


def _shell_characters(sweep: Sweep) -> Iterator[Said]:
    for where, folder in model_paths(sweep).items():
        if _SHELL_CHARACTERS.search(folder):
            yield Said(where, "path contains shell characters: it is quoted, not run")


def _one_block(sweep: Sweep) -> Iterator[Said]:
    if sweep.blocks == 1 and len(sweep.arms) > 1:
        yield Said("blocks", "one block says nothing about the noise: run at least two")


def _drafter_backend(sweep: Sweep) -> Iterator[Said]:
    said: dict[Said, None] = {}
    for levels, arms in single_changes(sweep):
        for name in arms:
            if engine_of(sweep, name).kind != "sglang":
                continue
            arm = sweep.arms[name]
            flags = arm_flags(sweep, name, levels)
            asked = flag_value(flags, "attention-backend")
            own = flag_value(flags, "speculative-draft-attention-backend")
            drafts = isinstance(arm.speculation, Eagle3 | Eagle | Standalone)
            if drafts and asked in _MLA_ONLY and own is None:
                where = place_of(sweep, name, levels, "attention-backend")
                message = (
                    f"the drafter of {name} inherits {asked}, which serves MLA models only: set "
                    "speculative-draft-attention-backend (trtllm_mha, flashinfer or triton)"
                )
                said[Said(where, message)] = None
    yield from said
