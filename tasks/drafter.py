"""Checks a drafter against its target and engine before minutes of loading are spent on it."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final

from tasks.drafter_config import DrafterConfig, check_types, flattened, read_config
from tasks.drafter_dtype import check_dtype
from tasks.drafter_layers import (
    DEFAULT_COUNT,
    MLA_ARCHITECTURE,
    Layers,
    check_layers,
    read_at_least,
    resolve_layers,
)
from tasks.drafter_map import bad_index, check_d2t, check_t2d
from tasks.drafter_verdict import DrafterProblem, DrafterVerdict, EngineFacts, TargetFacts
from tasks.drafter_weights import aux_by_weights, check_weights, head_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tasks.drafter_config import Findings
    from tasks.safetensors_header import Tensor

LLAMA_ARCHITECTURE: Final = "LlamaForCausalLMEagle3"
_OVERRIDE: Final = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1"
_SPECULATORS: Final = DrafterProblem(
    reason="speculators_format",
    message="config.json is in the speculators layout, which SGLang does not load",
    hint="convert it to SGLang's flat layout: architectures and sizes at the top level",
)


def check_drafter(
    config: bytes | None,
    target: TargetFacts,
    engine: EngineFacts,
    headers: Mapping[str, Tensor] | None = None,
    d2t: Sequence[object] | None = None,
    *,
    t2d: Sequence[bool] | None = None,
) -> DrafterVerdict:
    """Say whether an engine will load a drafter for a target and accept what it drafts.

    Args:
        config: bytes of the drafter's config.json; ``None`` if there is none.
        target: the target model.
        engine: the engine, its version and the flags that matter.
        headers: the checkpoint's tensors by name, from its safetensors headers.
        d2t: values of the ``d2t`` tensor: offsets from draft ids to target ids.
        t2d: values of the ``t2d`` tensor: which target ids the drafter knows.
    """
    read, found = read_config(config)
    shown = {} if config is None else {"config_sha256": hashlib.sha256(config).hexdigest()}
    if headers is not None:
        shown["weights_sha256"] = _digest(headers)
    if read is None:
        return _verdict(found, **shown)
    if read.is_speculators and engine.framework != "vllm":
        return _verdict([*found, _SPECULATORS], ok_for=("vllm",), **shown)
    read = flattened(read)
    found += check_types(read)
    found += _check_architecture(read, engine)
    is_eagle3 = _is_eagle3(read, engine)
    layers = resolve_layers(read, target, engine)
    if is_eagle3:
        found += check_layers(read, target, engine)
        found += _check_count(read, layers, engine)
    if is_eagle3 or _algorithm(engine) == "EAGLE3":
        found += _check_depth(read, engine)
    if _algorithm(engine) == "STANDALONE":
        found += _check_tokens(read, target)
    else:
        found += _check_sizes(read, target, engine, eagle3=is_eagle3)
    if is_eagle3 and headers is not None:
        found += check_weights(read, headers, target, engine, layers.count)
    found += check_dtype(read, headers, target, engine)
    if d2t is not None:
        found += check_d2t(read, d2t, target)
    if t2d is not None:
        found += check_t2d(t2d, d2t)
    found += _check_context(read, target, engine)
    return _verdict(
        found,
        ok_for=(engine.framework,),
        capture_layers=layers.captured if is_eagle3 else None,
        num_aux=layers.count if is_eagle3 else None,
        num_aux_by_config=layers.count if is_eagle3 else None,
        num_aux_by_weights=aux_by_weights(headers or {}, target.hidden_size),
        head=head_of(read, headers) if is_eagle3 else None,
        draft_context=read.context,
        target_context=engine.context_length or target.context,
        bad_index=bad_index(d2t or (), target),
        **shown,
    )


def _verdict(found: Sequence[DrafterProblem | str], **facts: object) -> DrafterVerdict:
    problems = tuple(item for item in found if isinstance(item, DrafterProblem))
    reasons = tuple(dict.fromkeys(problem.reason for problem in problems))
    good_for = facts.pop("ok_for", ())
    return DrafterVerdict.model_validate(
        {
            **facts,
            "ok": not problems,
            "reason": reasons[0] if reasons else None,
            "also": reasons[1:],
            "problems": problems,
            "warnings": tuple(item for item in found if isinstance(item, str)),
            "ok_for": good_for if not problems or "speculators_format" in reasons else (),
        }
    )


def _check_architecture(config: DrafterConfig, engine: EngineFacts) -> Findings:
    name, algorithm = config.architecture, _algorithm(engine)
    if name is None:
        yield DrafterProblem(
            reason="arch_missing",
            message=f"architectures is {config.data.get('architectures')!r}",
            hint=f'write "architectures": ["{LLAMA_ARCHITECTURE}"] if it is an EAGLE-3 drafter',
        )
    elif "eagle3" in name.lower():
        yield from _check_eagle3(name, algorithm, engine)
    elif engine.framework == "vllm" and "eagle" not in name.lower():
        yield f"vLLM takes {name} for an EAGLE-3 drafter because the method says so"
    elif algorithm == "EAGLE3":
        is_older = "eagle" in name.lower()
        yield DrafterProblem(
            reason="arch_not_eagle3",
            message=f"architectures names {name}, which is no EAGLE-3 drafter",
            hint="this is an EAGLE/EAGLE-2 drafter: use --speculative-algorithm EAGLE"
            if is_older
            else f"drafter config.json architectures must be {LLAMA_ARCHITECTURE}",
        )
    if not config.data.get("model_type"):
        yield DrafterProblem(
            reason="model_type_missing",
            message="no model_type: transformers cannot tell what the config is for",
            hint='write "model_type": "llama" for a Llama-like drafter',
        )


def _check_eagle3(name: str, algorithm: str, engine: EngineFacts) -> Findings:
    if engine.framework == "sglang":
        known = name == LLAMA_ARCHITECTURE
        if name == MLA_ARCHITECTURE and not read_at_least(engine, "0.5.12"):
            yield DrafterProblem(
                reason="arch_unsupported",
                message=f"{name} is not in SGLang {engine.version}",
                hint="an MLA drafter needs SGLang 0.5.12 or newer",
            )
        elif not known and name != MLA_ARCHITECTURE:
            yield DrafterProblem(
                reason="arch_unsupported",
                message=f"SGLang has no class {name}",
                hint=f"SGLang's names are {LLAMA_ARCHITECTURE} and {MLA_ARCHITECTURE}",
            )
    if algorithm != "EAGLE3":
        yield DrafterProblem(
            reason="algorithm_mismatch",
            message=f"{name} is an EAGLE-3 drafter, the algorithm is {algorithm}",
            hint=f"use EAGLE3: with {algorithm} it starts, answers 200 and accepts nothing",
        )


def _is_eagle3(config: DrafterConfig, engine: EngineFacts) -> bool:
    """Say whether the EAGLE-3 rules apply; others have no layer ids and no draft vocabulary."""
    name = (config.architecture or "").lower()
    named_by_method = not name or (engine.framework == "vllm" and "eagle" not in name)
    return "eagle3" in name or (named_by_method and _algorithm(engine) == "EAGLE3")


def _algorithm(engine: EngineFacts) -> str:
    return (engine.speculative_algorithm or "EAGLE3").upper()


def _check_count(config: DrafterConfig, layers: Layers, engine: EngineFacts) -> Findings:
    count = layers.count
    if engine.framework != "sglang" or not count:
        return
    if count != DEFAULT_COUNT and not read_at_least(engine, "0.5.12"):
        yield DrafterProblem(
            reason="aux_count_unsupported",
            message=f"{count} hidden states: SGLang before 0.5.12 builds fc for {DEFAULT_COUNT}",
            hint="take SGLang 0.5.12 or newer",
        )
    declared = config.integer("num_aux_hidden_states")
    named = len(layers.ids or ()) or DEFAULT_COUNT
    if declared is not None and declared != named:
        yield DrafterProblem(
            reason="aux_width_mismatch",
            message=f"num_aux_hidden_states is {declared}, but {named} layers are captured",
            hint="make both agree with the checkpoint's fc layer",
        )


def _check_depth(config: DrafterConfig, engine: EngineFacts) -> Findings:
    depth = config.integer("num_hidden_layers")
    only_one = config.architecture == MLA_ARCHITECTURE or not read_at_least(engine, "0.5.12")
    if engine.framework == "sglang" and only_one and depth not in {None, 1}:
        yield DrafterProblem(
            reason="draft_layers_unsupported",
            message=f"num_hidden_layers is {depth}; this drafter class takes 1 layer only",
            hint="copied from the target? else take SGLang 0.5.12 or newer and a Llama-like drafter",
        )


def _check_sizes(
    config: DrafterConfig, target: TargetFacts, engine: EngineFacts, *, eagle3: bool
) -> Findings:
    own, declared = config.integer("hidden_size"), config.integer("target_hidden_size")
    reads = declared or own
    if None not in {reads, target.hidden_size} and reads != target.hidden_size:
        key = "target_hidden_size" if declared else "hidden_size"
        yield DrafterProblem(
            reason="hidden_size_mismatch",
            message=f"{key} is {reads}, the target's hidden size is {target.hidden_size}",
            hint=f'a narrower drafter needs "target_hidden_size": {target.hidden_size}',
            draft=reads,
            target=target.hidden_size,
        )
    vocab = config.integer("vocab_size")
    if None not in {vocab, target.vocab_size} and vocab != target.vocab_size:
        yield DrafterProblem(
            reason="vocab_size_mismatch",
            message=f"vocab_size is {vocab}, the target has {target.vocab_size} tokens",
            hint="a drafter of another target, or a padded vocabulary",
            draft=vocab,
            target=target.vocab_size,
        )
    if eagle3:
        yield from _check_draft_vocab(config, target, engine)


def _check_tokens(config: DrafterConfig, target: TargetFacts) -> Findings:
    """A language model of its own need only number the tokens alike; sizes may be padded."""
    own, theirs = config.integer("vocab_size"), target.vocab_size
    if own is not None and theirs is not None and own != theirs:
        yield (
            f"vocab_size is {own}, the target has {theirs} tokens: its ids are taken for the "
            "target's, so both need one tokenizer"
        )


def _check_draft_vocab(config: DrafterConfig, target: TargetFacts, engine: EngineFacts) -> Findings:
    if not config.has_draft_vocab:
        if engine.framework == "sglang" and config.architecture == LLAMA_ARCHITECTURE:
            yield DrafterProblem(
                reason="draft_vocab_size_missing",
                message="llama_eagle3.py reads draft_vocab_size without a default",
                hint='add "draft_vocab_size": null (the target\'s head is used) or the number',
            )
        return
    value, limit = config.data["draft_vocab_size"], target.vocab_size
    own, wide = config.integer("hidden_size"), target.hidden_size
    if value is None:
        if not config.is_tied and None not in {own, wide} and own != wide:
            yield DrafterProblem(
                reason="lm_head_not_shareable",
                message=f"draft_vocab_size is null: the target's head ({wide} wide) is used at {own}",
                hint="a narrower drafter needs a head of its own and its draft_vocab_size",
            )
    elif type(value) is not int or value <= 0 or (limit is not None and value > limit):
        yield DrafterProblem(
            reason="draft_vocab_size_invalid",
            message=f"draft_vocab_size is {value!r}; the target has {limit} tokens",
            hint="write null or a number up to the target's vocabulary",
        )


def _check_context(config: DrafterConfig, target: TargetFacts, engine: EngineFacts) -> Findings:
    """SGLang gives the drafter the target's context and refuses one that its config lacks."""
    have, need = config.context, engine.context_length or target.context
    if have is None or need is None or have >= need:
        return
    if engine.framework == "vllm":
        yield f"vLLM cuts the context to the drafter's {have} tokens, or drafts poorly beyond them"
    elif engine.allow_longer_context:
        yield f"the drafter was made for {have} tokens: expect poor acceptance beyond {have}"
    else:
        yield DrafterProblem(
            reason="draft_context_too_short",
            message=f"the drafter's context is {have} tokens, the server's {need}",
            hint=(
                f"pass --context-length {have} for a short-prompt test, or set {_OVERRIDE} and "
                f"expect poor acceptance beyond {have}"
            ),
            draft=have,
            target=need,
        )


def _digest(headers: Mapping[str, Tensor]) -> str:
    rows = sorted((name, tensor.dtype, list(tensor.shape)) for name, tensor in headers.items())
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()
