"""What a rank does while an engine starts, stage by stage, with the log of each stage.

Order and wording follow 0.5.9 (srt/model_executor/model_runner.py, cuda_graph_runner.py,
speculative/eagle_worker.py): the target's pools and graphs come before the drafter's weights,
and the target's hooks are called without layer ids at graph capture.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from infra.rehearsal import models, nccl_words
from infra.rehearsal.failures import Failure
from infra.rehearsal.flags import CONTEXT_LEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from infra.rehearsal.rank import Rank

_GIB = 1024**3
_CONTEXT_GIB = 0.61
_TARGET_GIB = 71.3 * 8
_DRAFTER_GIB = 3.2
TOKEN_BYTES = 61 * 576 * 2
"""Bytes of KV cache per token on every rank: 61 MLA layers of 576 bfloat16 numbers."""
_DRAFT_TOKEN_BYTES = 16_384
_SHARDS = 64


def _dummy(rank: Rank, *, draft: bool) -> bool:
    """Whether weights are made up; the drafter's are where the target's are, unless it says else."""
    own = rank.args["speculative_draft_load_format"] if draft else None
    return bool((own or rank.args["load_format"]) == "dummy")


def _distributed_init(rank: Rank) -> None:
    rank.say("Init torch distributed begin.")
    if rank.gpu < 0:
        raise Failure(
            "distributed_init",
            "torch.AcceleratorError: CUDA error: invalid device ordinal\nGPU device may be out "
            "of range, do you have enough GPUs?\n",
        )
    rank.accident("distributed_init")
    rank.meet()
    if rank.number == 0:
        rank.say("sglang is using nccl==2.27.5")
    rank.free_at_start_gib = rank.free_gib()
    rank.take("distributed_init", _CONTEXT_GIB)
    if rank.args["tp_size"] > 1:
        _check_balance(rank)
        if not rank.args["disable_custom_all_reduce"]:
            rank.say(
                "Custom allreduce is disabled because it's not supported on more than two "
                "PCIe-only GPUs. To silence this warning, specify "
                "disable_custom_all_reduce=True explicitly.",
                "warning",
            )
        nccl_words.say_start(rank)
    took_s = rank.until("distributed_init")
    rank.say(f"Init torch distributed ends. elapsed={took_s:.2f} s, mem usage={_CONTEXT_GIB} GB")


def _check_balance(rank: Rank) -> None:
    """Refuse cards of which some are occupied, unless told to go on."""
    mine = rank.free_at_start_gib
    least = min(rank.free_gib(gpu) for gpu in rank.peers)
    if least >= mine * 0.9 - _CONTEXT_GIB:
        return
    message = (
        "The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
        f"min_per_gpu_memory={least!r}, local_gpu_memory={mine!r}, "
        f"local_gpu_memory * 0.9={mine * 0.9!r}"
    )
    if os.environ.get("SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK", "1") not in ("0", "false"):
        raise Failure("distributed_init", f"RuntimeError: {message}")
    rank.say(message, "warning")


def _target_weights(rank: Rank) -> None:
    rank.config = models.config_of(rank.args["model_path"], "target_weights")
    rank.say(f"Load weight begin. avail mem={rank.free_gib():.2f} GB")
    rank.model = models.build_target(rank.config, rank.say)
    rank.accident("target_weights")
    if not _dummy(rank, draft=False):
        rank.shard_bar(_SHARDS)
    rank.weight_gib = _TARGET_GIB / rank.args["tp_size"]
    rank.take("target_weights", rank.weight_gib)
    took_s = rank.until("target_weights")
    rank.say(
        f"Load weight end. elapsed={took_s:.2f} s, type={type(rank.model).__name__}, "
        f"dtype=torch.bfloat16, avail mem={rank.free_gib():.2f} GB, "
        f"mem usage={rank.weight_gib:.2f} GB."
    )


def _kv_cache(rank: Rank) -> None:
    if rank.number == 0:
        rank.say("Using KV cache dtype: torch.bfloat16")
    rank.accident("kv_cache")
    fraction = rank.args["mem_fraction_static"]
    room_gib = rank.free_gib() - rank.free_at_start_gib * (1 - fraction)
    if room_gib <= 0.01:
        raise Failure(
            "kv_cache",
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
            f"Current value: self.server_args.mem_fraction_static={fraction}",
        )
    tokens = int(room_gib * _GIB / TOKEN_BYTES)
    rank.tokens = min(tokens, rank.args["max_total_tokens"] or tokens)
    size_gib = rank.tokens * TOKEN_BYTES / _GIB
    rank.take("kv_cache", size_gib)
    rank.say(f"KV Cache is allocated. #tokens: {rank.tokens}, KV size: {size_gib:.2f} GB")
    rank.say(f"Memory pool end. avail mem={rank.free_gib():.2f} GB")
    rank.until("kv_cache")


def _graph_capture(rank: Rank) -> None:
    eagle3 = rank.args["speculative_algorithm"] == "EAGLE3"
    graphs = not rank.args["disable_cuda_graph"]
    if graphs:
        rank.say(
            "Capture cuda graph begin. This can take up to several minutes. "
            f"avail mem={rank.free_gib():.2f} GB"
        )
        if rank.number == 0:
            rank.say(f"Capture cuda graph bs {rank.captured()}")
    if eagle3:
        rank.hook("graph_capture", "set_eagle3_layers_to_capture")
    rank.accident("graph_capture")
    if not graphs:
        return
    if rank.args["tp_size"] > 1:
        config = rank.config.get("text_config", rank.config)
        nccl_words.say_choices(rank, config.get("hidden_size", 7168))
        if nccl_words.refuses(os.environ):
            nccl_words.say_refusal(rank)
            raise Failure("graph_capture", nccl_words.REFUSED)
    rank.graph_gib = 1.1 + 0.004 * len(rank.captured()) * (3 if eagle3 else 1)
    rank.take("graph_capture", rank.graph_gib)
    rank.capture_bar()
    took_s = rank.until("graph_capture")
    rank.say(
        f"Capture cuda graph end. Time elapsed: {took_s:.2f} s. mem usage={rank.graph_gib:.2f} GB. "
        f"avail mem={rank.free_gib():.2f} GB."
    )


def _draft_weights(rank: Rank) -> None:
    algorithm, drafter = (
        rank.args["speculative_algorithm"],
        rank.args["speculative_draft_model_path"],
    )
    if algorithm == "NGRAM":
        rank.accept_at = models.acceptance("NGRAM", None)
        rank.accident("draft_weights")
        return
    if drafter is None:
        # Without a draft path the target itself is loaded as the draft (sgl-project/sglang#36528).
        raise Failure(
            "draft_weights",
            "AttributeError: 'KimiK25ForConditionalGeneration' object has no attribute 'set_embed'",
        )
    config = models.config_of(drafter, "draft_weights")
    rank.say(f"Load weight begin. avail mem={rank.free_gib():.2f} GB")
    rank.accident("draft_weights")
    gib = _DRAFTER_GIB / rank.args["tp_size"] if models.tensors_of(drafter) else 0.01
    if not _dummy(rank, draft=True):
        rank.shard_bar(1)
    rank.take("draft_weights", gib)
    kind = (config.get("architectures") or ["LlamaForCausalLMEagle3"])[0]
    took_s = rank.until("draft_weights")
    rank.say(
        f"Load weight end. elapsed={took_s:.2f} s, type={kind}, dtype=torch.bfloat16, "
        f"avail mem={rank.free_gib():.2f} GB, mem usage={gib:.2f} GB."
    )
    if rank.number == 0:
        rank.say("Using KV cache dtype: torch.bfloat16")
    half_gib = rank.tokens * _DRAFT_TOKEN_BYTES / rank.args["tp_size"] / 2 / _GIB
    rank.take("draft_weights", 2 * half_gib)
    rank.say(
        f"KV Cache is allocated. #tokens: {rank.tokens}, K size: {half_gib:.2f} GB, "
        f"V size: {half_gib:.2f} GB"
    )
    rank.say(f"Memory pool end. avail mem={rank.free_gib():.2f} GB")
    rank.hook("embed_and_head", "get_embed_and_head")
    rank.accept_at = models.acceptance(algorithm, drafter, dummy=_dummy(rank, draft=True))


def _draft_graph_capture(rank: Rank) -> None:
    if rank.args["disable_cuda_graph"] or rank.args["speculative_algorithm"] == "NGRAM":
        rank.accident("draft_graph_capture")
        return
    drafter = rank.args["speculative_draft_model_path"]
    hidden = rank.config.get("text_config", rank.config).get("hidden_size", 7168)
    kinds = ["draft", "draft extend"] if rank.args["speculative_num_steps"] > 1 else []
    for number, kind in enumerate(kinds or ["draft extend"]):
        rank.say(
            f"Capture {kind} cuda graph begin. This can take up to several minutes. "
            f"avail mem={rank.free_gib():.2f} GB"
        )
        rank.accident("draft_graph_capture")
        if rank.args["speculative_algorithm"] != "STANDALONE":
            models.check_shapes(drafter, models.config_of(drafter, "draft_weights"), hidden)
        rank.take("draft_graph_capture", 0.06)
        rank.capture_bar()
        took_s = rank.until("draft_graph_capture", (number + 1) / len(kinds or [1]))
        rank.say(
            f"Capture {kind} cuda graph end. Time elapsed: {took_s:.2f} s. mem usage=0.06 GB. "
            f"avail mem={rank.free_gib():.2f} GB."
        )


STAGES: dict[str, Callable[[Rank], None]] = {
    "distributed_init": _distributed_init,
    "target_weights": _target_weights,
    "kv_cache": _kv_cache,
    "graph_capture": _graph_capture,
    "draft_weights": _draft_weights,
    "draft_graph_capture": _draft_graph_capture,
}


def announce(rank: Rank) -> None:
    """The line of rank 0 that ends the start of the schedulers."""
    if rank.number == 0:
        args = rank.args
        rank.say(
            f"max_total_num_tokens={rank.tokens}, "
            f"chunked_prefill_size={args['chunked_prefill_size']}, "
            f"max_prefill_tokens={args['max_prefill_tokens']}, "
            f"max_running_requests={args['max_running_requests'] or 2048}, "
            f"context_len={args['context_length'] or CONTEXT_LEN}, "
            f"available_gpu_mem={rank.free_gib():.2f} GB"
        )
