"""What the names and shapes of a drafter's tensors say against its config."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tasks.drafter_layers import MLA_ARCHITECTURE, read_at_least
from tasks.drafter_verdict import DrafterProblem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tasks.drafter_config import DrafterConfig, Findings
    from tasks.drafter_verdict import EngineFacts, Head, TargetFacts
    from tasks.safetensors_header import Tensor

    Headers = Mapping[str, Tensor]

_SILENT: Final = "accept length will be 1.00"


def aux_by_weights(headers: Headers, width: int | None) -> int | None:
    """Say for how many hidden states the ``fc`` layer was made; ``None`` if it is no multiple."""
    fc = _find(headers, "fc.weight")
    if fc is None or not width or len(fc.shape) != 2 or fc.shape[1] % width:
        return None
    return fc.shape[1] // width


def head_of(config: DrafterConfig, headers: Headers | None) -> Head | None:
    """Say where the drafter's output head comes from; None where that is not known."""
    if config.is_tied:
        return "embedding"
    if config.has_draft_vocab and config.data["draft_vocab_size"] is None:
        return "target"
    if headers is None:
        return None
    return "own" if _find(headers, "lm_head.weight") is not None else "missing"


def check_weights(
    config: DrafterConfig, headers: Headers, target: TargetFacts, engine: EngineFacts, count: int
) -> Findings:
    """Find tensors that are missing, misnamed or of another shape than the config says.

    Weights that the loader does not know are skipped without a word, and parameters that get no
    weights stay random: such a server is healthy and accepts nothing (sglang#27829).
    """
    yield from _check_width(config, headers, target, count)
    yield from _check_layer(config, headers, engine)
    yield from _check_embedding(config, headers, target)
    yield from _check_head(config, headers, target)
    yield from _check_map(config, headers, target)


def _check_width(
    config: DrafterConfig, headers: Headers, target: TargetFacts, count: int
) -> Findings:
    fc, width = _find(headers, "fc.weight"), target.hidden_size
    if fc is None:
        if count:
            yield DrafterProblem(
                reason="fc_missing_in_weights",
                message=f"no fc.weight, which joins {count} hidden states",
                hint=f"{_SILENT}: the checkpoint is incomplete or of an older EAGLE",
            )
        return
    if width is None or not count or len(fc.shape) != 2:
        return
    if fc.shape[1] != width * count:
        made_for = aux_by_weights(headers, width)
        words = f"{made_for} hidden states" if made_for else "no whole number of hidden states"
        yield DrafterProblem(
            reason="aux_width_mismatch",
            message=(
                f"fc takes {fc.shape[1]} values, {words} of {width}; the config asks for {count}"
            ),
            hint="name as many layers in eagle_config as the drafter was trained with",
        )
    own = config.integer("hidden_size")
    if own is not None and fc.shape[0] != own:
        message = f"fc gives {fc.shape[0]} values, hidden_size is {own}"
        yield DrafterProblem(reason="hidden_size_mismatch", message=message)


def _check_layer(config: DrafterConfig, headers: Headers, engine: EngineFacts) -> Findings:
    old = any("midlayer." in name for name in headers)
    new = any(name.removeprefix("model.").startswith("layers.") for name in headers)
    if not old and not new:
        message = "no tensor of a decoder layer (midlayer.* or layers.0.*)"
        yield DrafterProblem(
            reason="decoder_layer_missing_in_weights", message=message, hint=_SILENT
        )
        return
    legacy = engine.framework == "sglang" and not read_at_least(engine, "0.5.12")
    if legacy and not old and config.architecture != MLA_ARCHITECTURE:
        yield DrafterProblem(
            reason="weight_names_not_read",
            message="tensors are named layers.0.*; SGLang before 0.5.12 reads only midlayer.*",
            hint=f"{_SILENT}: rename the tensors, or take SGLang 0.5.12 or newer",
        )
    own = config.integer("hidden_size")
    for name in ("midlayer.self_attn.q_proj.weight", "layers.0.self_attn.q_proj.weight"):
        query = _find(headers, name)
        if query is not None and own and len(query.shape) == 2 and query.shape[1] != 2 * own:
            yield DrafterProblem(
                reason="attention_width_mismatch",
                message=f"{name} takes {query.shape[1]} values, EAGLE-3 gives 2 x {own}",
                hint="these are the weights of an EAGLE or EAGLE-2 drafter, or of another width",
            )


def _check_embedding(config: DrafterConfig, headers: Headers, target: TargetFacts) -> Findings:
    own = config.integer("hidden_size")
    shared = own is None or target.hidden_size is None or own == target.hidden_size
    if not shared and _find(headers, "embed_tokens.weight") is None:
        yield DrafterProblem(
            reason="embed_tokens_missing_in_weights",
            message="the drafter is narrower than the target, yet brings no embedding of its own",
            hint=f"{_SILENT}: the target's embedding has another width and is not shared",
        )


def _check_head(config: DrafterConfig, headers: Headers, target: TargetFacts) -> Findings:
    size = config.integer("draft_vocab_size")
    if size is None or config.is_tied:
        return
    head = _find(headers, "lm_head.weight")
    if head is None:
        full = size == target.vocab_size
        yield DrafterProblem(
            reason="lm_head_missing_in_weights",
            message=f"no lm_head.weight, yet draft_vocab_size is {size}: the head stays random",
            hint=f"{_SILENT}; set draft_vocab_size to null in a copied config"
            if full
            else f"{_SILENT}; the checkpoint is incomplete, export it again with its head",
        )
    elif head.shape[0] != size:
        yield DrafterProblem(
            reason="draft_vocab_size_mismatch",
            message=f"lm_head has {head.shape[0]} rows, draft_vocab_size is {size}",
            hint=f'write "draft_vocab_size": {head.shape[0]}',
        )


def _check_map(config: DrafterConfig, headers: Headers, target: TargetFacts) -> Findings:
    size, vocab = config.integer("draft_vocab_size"), target.vocab_size
    d2t, t2d = _find(headers, "d2t"), _find(headers, "t2d")
    if d2t is None and size is not None and vocab is not None and size < vocab:
        yield DrafterProblem(
            reason="d2t_missing_in_weights",
            message=f"no d2t to map {size} draft tokens onto {vocab} target tokens",
            hint="draft ids would be taken for target ids: export the checkpoint with its d2t",
        )
    if d2t is not None and size is not None and d2t.shape != (size,):
        message = f"d2t has shape {list(d2t.shape)}, draft_vocab_size is {size}"
        yield DrafterProblem(reason="d2t_length_mismatch", message=message)
    if t2d is not None and vocab is not None and t2d.shape != (vocab,):
        yield f"t2d has shape {list(t2d.shape)}, the target has {vocab} tokens: another target?"


def _find(headers: Headers, name: str) -> Tensor | None:
    for prefix in ("", "model."):
        if prefix + name in headers:
            return headers[prefix + name]
    return None
