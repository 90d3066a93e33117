"""Which layers of the target an engine really captures for a drafter, release by release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from configs.version import within
from tasks.drafter_config import IDS, DrafterConfig, Findings
from tasks.drafter_verdict import DrafterProblem, EngineFacts, TargetFacts

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_COUNT: Final = 3
MLA_ARCHITECTURE: Final = "Eagle3DeepseekV2ForCausalLM"
_NESTED: Final = f"eagle_config.{IDS}"
# Wrappers and subclasses of deepseek_v2.py, whose rule for the ids changed in 0.5.13.
_DEEPSEEK: Final = ("Deepseek", "Kimi", "MistralLarge3", "PixtralForConditionalGeneration")


@dataclass(frozen=True)
class Layers:
    """The layer ids of a config, as far as the engine reads them."""

    ids: tuple[int, ...] | None
    """Ids in the place that the engine reads; ``None``: it uses its default layers."""
    captured: tuple[int, ...] | None
    """Layers in front of which it takes the hidden state; ``None`` where that is not known."""
    count: int
    """How many hidden states the drafter is asked to take."""


def read_at_least(engine: EngineFacts, version: str) -> bool:
    """Say whether the engine is this release or newer; an unknown version counts as newest."""
    try:
        return engine.version is None or within(engine.version, f">={version}")
    except ValueError:
        return True


def resolve_layers(config: DrafterConfig, target: TargetFacts, engine: EngineFacts) -> Layers:
    """Apply the engine's own rules for reading and shifting the ids.

    SGLang reads only the nested list (model_runner.py, spec_aux_hidden_state.py); vLLM only the
    one at the top level (gpu_model_runner.py), and takes it as it stands.
    """
    if not config.uses_aux and engine.framework == "sglang":
        return Layers(None, (), 0)
    ids = _integers(_read_list(config, engine))
    declared = config.integer("num_aux_hidden_states")
    count = len(ids) if ids else declared or DEFAULT_COUNT
    if ids:
        captured = ids if engine.framework == "vllm" else _shifted(ids, target, engine)
        return Layers(ids, tuple(captured), count)
    return Layers(None, default_layers(target), count)


def default_layers(target: TargetFacts) -> tuple[int, ...] | None:
    """Return the layers that both engines take when the config names none."""
    n = target.layers
    return None if n is None else (2, n // 2, n - 3)


def check_layers(config: DrafterConfig, target: TargetFacts, engine: EngineFacts) -> Findings:
    """Find layer ids that are not read, not possible, or not what the drafter was trained on."""
    yield from _check_place(config, target, engine)
    found = _read_list(config, engine)
    if found is None:
        return
    if not config.uses_aux and engine.framework == "sglang":
        if found:
            yield f"use_aux_hidden_state is false: {_NESTED} is ignored"
        return
    ids = _integers(found)
    if found == [] and engine.framework == "sglang":
        yield DrafterProblem(
            reason="layer_ids_empty",
            message=f"{_NESTED} is an empty list: no layer would be captured",
            hint=f"name the layers, or leave {IDS} out for the default ones",
        )
    elif ids is None:
        yield DrafterProblem(
            reason="layer_ids_not_integers",
            message=f"{IDS} is {found!r}, not a list of layer numbers",
        )
    else:
        yield from _check_ids(ids, target)
        yield from _check_shift(ids, target, engine)


def _check_place(config: DrafterConfig, target: TargetFacts, engine: EngineFacts) -> Findings:
    """Find ids that stand where this engine does not look."""
    value = config.data.get("eagle_config")
    # SGLang up to 0.5.13 calls .get on whatever stands there, null included.
    null_is_absent = value is None and read_at_least(engine, "0.5.15")
    unread = "eagle_config" not in config.data or null_is_absent or engine.framework == "vllm"
    if not unread and not isinstance(value, dict):
        yield DrafterProblem(
            reason="eagle_config_not_object",
            message=f"eagle_config is {value!r}, not an object",
            hint=f'write "eagle_config": {{"{IDS}": [...]}}, or leave it out',
        )
        return
    if _read_list(config, engine) is not None:
        return
    nested, top = config.eagle_config.get(IDS), config.data.get(IDS)
    elsewhere = nested if engine.framework == "vllm" else top
    if elsewhere is None:
        if config.uses_aux:
            yield f"{IDS} missing: default layers will be used"
        else:
            yield "use_aux_hidden_state is false: only the last layer's hidden state is used"
        return
    if engine.framework == "vllm":
        # A newer vLLM may read it there; a start is not refused on that.
        yield f"vLLM reads {IDS} at the top level only: the default layers may be used"
    elif _integers(elsewhere) == default_layers(target):
        yield f"{IDS} at the top level is not read; the default layers are the same"
    else:
        yield DrafterProblem(
            reason="layer_ids_not_read",
            message=f"the {IDS} at the top level are ignored, default layers are captured",
            hint=f"SGLang reads only {_NESTED}: move the list there",
        )


def _check_ids(ids: Sequence[int], target: TargetFacts) -> Findings:
    if len(set(ids)) < len(ids):
        yield DrafterProblem(
            reason="layer_ids_repeated",
            message=f"a layer id stands twice in {list(ids)}: it is captured once only",
        )
    elif list(ids) != sorted(ids):
        yield f"layer ids {list(ids)} are not in order: they are captured in the target's order"
    n = target.layers
    if any(i < 0 or (n is not None and i > n) for i in ids):
        yield DrafterProblem(
            reason="layer_id_out_of_range",
            message=f"layer ids {list(ids)}: the target has {n} layers, 0 to {n and n - 1}",
            hint="is this the drafter of another target?",
        )
    if n is not None and n in ids:
        yield (
            f"layer id {n} equals the number of layers: it means the final output; older versions "
            f"then feed only {len(ids) - 1} of {len(ids)} blocks and crash in the first draft"
        )


def _check_shift(ids: tuple[int, ...], target: TargetFacts, engine: EngineFacts) -> Findings:
    if engine.framework != "sglang":
        return
    captured, n = _shifted(ids, target, engine), target.layers
    if _is_deepseek(target) and ids[0] != 1 and not read_at_least(engine, "0.5.13"):
        yield (
            f"the first id is {ids[0]}, not 1: SGLang before 0.5.13 shifts ids by +1 all the same, "
            f"so that layers {captured} are captured instead of {list(ids)}; acceptance is lower "
            "(by about 0.1 tokens in sglang#25454)"
        )
    if n is not None and n in captured and n not in ids:
        yield (
            f"layer id {n - 1} is shifted to {n}, which is behind the last layer: only "
            f"{len(ids) - 1} of {len(ids)} blocks are fed, and the first draft crashes"
        )
    default = default_layers(target)
    if default is not None and tuple(captured) != default and not read_at_least(engine, "0.5.11"):
        yield (
            f"CUDA graphs before 0.5.11 are captured with the default layers {list(default)}, not "
            f"{captured}: acceptance depends on whether a step runs in a graph"
        )


def _shifted(ids: tuple[int, ...], target: TargetFacts, engine: EngineFacts) -> list[int]:
    """Apply SGLang's ``set_eagle3_layers_to_capture`` (deepseek_v2.py, gpt_oss.py, others).

    Layer i is captured at its input, so the output of layer i is asked for as i + 1. DeepSeek-like
    targets do this from 0.5.13 on only where the first id is 1; gpt-oss from 0.5.18 (not in
    0.5.15) on not where the last id is the number of layers.
    """
    if _is_deepseek(target):
        shift = ids[0] == 1 or not read_at_least(engine, "0.5.13")
    elif (target.architecture or "").startswith("GptOss"):
        shift = max(ids) != target.layers or not read_at_least(engine, "0.5.16")
    else:
        shift = True
    return [i + 1 for i in ids] if shift else list(ids)


def _is_deepseek(target: TargetFacts) -> bool:
    """Unknown targets count as DeepSeek-like: Kimi and DeepSeek are what is mostly served."""
    return target.architecture is None or target.architecture.startswith(_DEEPSEEK)


def _read_list(config: DrafterConfig, engine: EngineFacts) -> object:
    return config.data.get(IDS) if engine.framework == "vllm" else config.eagle_config.get(IDS)


def _integers(value: object) -> tuple[int, ...] | None:
    if isinstance(value, list) and value and all(type(item) is int for item in value):
        return tuple(value)
    return None
