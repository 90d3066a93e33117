"""The launch flags of SGLang 0.5.9 that the pretend engine takes, and what it makes of them.

Names, defaults and the speculation rules follow ``srt/server_args.py`` of the 0.5.9 wheel;
flags that the pretend engine has no use for are taken and shown in ``/server_info`` unchanged.
"""

from __future__ import annotations

import argparse
from typing import Any

VERSION = "0.5.9"
CONTEXT_LEN = 262_144

_OFF = """
skip_tokenizer_init trust_remote_code is_embedding grpc_mode skip_server_warmup
enable_fp32_lm_head quantize_and_serve enable_dynamic_chunking enable_priority_scheduling
disable_hybrid_swa_memory stream_output sleep_on_idle log_requests show_time_cost enable_metrics
enable_metrics_for_all_schedulers enable_request_time_stats_logging enable_trace
export_metrics_to_file enable_cache_report disable_flashinfer_autotune enable_multi_layer_eagle
enable_flashinfer_allreduce_fusion enable_eplb enable_hierarchical_cache enable_lmcache
enable_double_sparsity disable_radix_cache disable_cuda_graph disable_cuda_graph_padding
enable_profile_cuda_graph enable_cudagraph_gc enable_nccl_nvls enable_symm_mem
disable_custom_all_reduce enable_mscclpp enable_torch_symm_mem disable_overlap_schedule
enable_mixed_chunk enable_dp_attention enable_dp_lm_head enable_two_batch_overlap
enable_single_batch_overlap enable_torch_compile enable_piecewise_cuda_graph enable_nan_detection
enable_p2p_check triton_attention_reduce_in_fp32 enable_memory_saver allow_auto_truncate
enable_custom_logit_processor flashinfer_mla_disable_ragged disable_shared_experts_fusion
disable_chunked_prefix_cache disable_fast_image_processor keep_mm_feature_on_device
enable_return_hidden_states enable_deterministic_inference enable_fused_qk_norm_rope encoder_only
language_only weight_loader_disable_mmap enable_pdmux enable_prefix_mm_cache mm_enable_dp_encoder
"""
_TEXT_UNSET = """
tokenizer_path revision warmups quantization quantization_param_path device download_dir
log_level_http crash_dump_folder kv_events_config api_key admin_api_key served_model_name
chat_template completion_template reasoning_parser tool_call_parser tool_server dist_init_addr
preferred_sampling_params attention_backend decode_attention_backend prefill_attention_backend
sampling_backend grammar_backend mm_attention_backend nsa_prefill_backend nsa_decode_backend
speculative_algorithm speculative_draft_model_path speculative_draft_model_revision
speculative_draft_load_format speculative_token_map speculative_draft_attention_backend
speculative_moe_runner_backend speculative_moe_a2a_backend speculative_draft_model_quantization
deepep_config rl_on_policy_target
"""
_NUMBER_UNSET = """
context_length nccl_port max_running_requests max_queued_requests max_total_tokens
chunked_prefill_size prefill_max_requests page_size pp_max_micro_batch_size random_seed
dist_timeout speculative_num_steps speculative_eagle_topk speculative_num_draft_tokens
moe_dense_tp_size cuda_graph_max_bs piecewise_cuda_graph_max_tokens
"""
_SET: dict[str, str | int | float] = {
    "tokenizer_mode": "auto",
    "tokenizer_worker_num": 1,
    "load_format": "auto",
    "model_loader_extra_config": "{}",
    "model_impl": "auto",
    "host": "127.0.0.1",
    "port": 30000,
    "dtype": "auto",
    "kv_cache_dtype": "auto",
    "max_prefill_tokens": 16384,
    "schedule_policy": "fcfs",
    "schedule_conservativeness": 1.0,
    "radix_eviction_policy": "lru",
    "tp_size": 1,
    "pp_size": 1,
    "stream_interval": 1,
    "watchdog_timeout": 300.0,
    "base_gpu_id": 0,
    "gpu_id_step": 1,
    "log_level": "info",
    "log_requests_level": 2,
    "decode_log_interval": 40,
    "weight_version": "default",
    "file_storage_path": "sglang_storage",
    "sampling_defaults": "model",
    "dp_size": 1,
    "load_balance_method": "auto",
    "nnodes": 1,
    "node_rank": 0,
    "json_model_override_args": "{}",
    "fp8_gemm_runner_backend": "auto",
    "speculative_accept_threshold_single": 1.0,
    "speculative_accept_threshold_acc": 1.0,
    "speculative_attention_mode": "prefill",
    "speculative_ngram_min_match_window_size": 1,
    "speculative_ngram_max_match_window_size": 12,
    "speculative_ngram_min_bfs_breadth": 1,
    "speculative_ngram_max_bfs_breadth": 10,
    "speculative_ngram_match_type": "BFS",
    "speculative_ngram_branch_length": 18,
    "speculative_ngram_capacity": 10_000_000,
    "ep_size": 1,
    "moe_a2a_backend": "none",
    "moe_runner_backend": "auto",
    "cpu_offload_gb": 0,
    "torch_compile_max_bs": 32,
    "triton_attention_num_kv_splits": 8,
    "num_continuous_decode_steps": 1,
    "scheduler_recv_interval": 1,
    "disaggregation_mode": "null",
}
_ALIASES = {
    "model_path": ["--model"],
    "tp_size": ["--tensor-parallel-size"],
    "dp_size": ["--data-parallel-size"],
    "pp_size": ["--pipeline-parallel-size"],
    "ep_size": ["--expert-parallel-size", "--ep"],
    "dist_init_addr": ["--nccl-init-addr"],
    "speculative_draft_model_path": ["--speculative-draft-model"],
}
_CHOICES = {
    "speculative_algorithm": ["EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM"],
    "speculative_attention_mode": ["prefill", "decode"],
    "speculative_ngram_match_type": ["BFS", "PROB"],
    "attention_backend": [
        "triton", "torch_native", "flex_attention", "nsa", "cutlass_mla", "fa3", "fa4",
        "flashinfer", "flashmla", "trtllm_mla", "trtllm_mha", "dual_chunk_flash_attn", "aiter",
        "wave", "intel_amx", "ascend", "intel_xpu",
    ],
}  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """The command line, abbreviations included, as argparse has them by default."""
    made = argparse.ArgumentParser(prog="launch_server.py")

    def add(name: str, **options: Any) -> None:
        flags = ["--" + name.replace("_", "-"), *_ALIASES.get(name, [])]
        if name in _CHOICES:
            options["choices"] = _CHOICES[name]
        made.add_argument(*flags, dest=name, **options)

    add("model_path", type=str, required=True)
    for name in _OFF.split():
        add(name, action="store_true")
    for name in _TEXT_UNSET.split():
        add(name, type=str)
    for name in _NUMBER_UNSET.split():
        add(name, type=int)
    add("mem_fraction_static", type=float)
    add("cuda_graph_bs", type=int, nargs="+")
    for name, default in _SET.items():
        add(name, type=type(default), default=default)
    return made


def graph_sizes(largest: int, *, speculation: bool) -> list[int]:
    """The batch sizes that 0.5.9 captures up to a limit."""
    if speculation:
        sizes = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8)]
        sizes += range(272, largest + 1, 16)
    else:
        sizes = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16)]
        sizes += range(512, largest + 1, 32)
    return [size for size in sizes if size <= largest]


def _settle_speculation(args: dict[str, Any], warnings: list[str]) -> None:
    if args["speculative_algorithm"] == "NEXTN":
        args["speculative_algorithm"] = "EAGLE"
    if args["max_running_requests"] is None:
        args["max_running_requests"] = 48
        warnings.append(
            "Max running requests is reset to 48 for speculative decoding. You can override "
            "this by explicitly setting --max-running-requests."
        )
    args["disable_overlap_schedule"] = True
    if args["speculative_algorithm"] == "NGRAM":
        args["speculative_eagle_topk"] = args["speculative_ngram_max_bfs_breadth"]
        args["speculative_num_draft_tokens"] = (
            args["speculative_num_draft_tokens"] or args["speculative_ngram_max_match_window_size"]
        )
        warnings.append(
            "The overlap scheduler and mixed chunked prefill are disabled because of using ngram "
            "speculative decoding."
        )
        return
    warnings.append(
        "Overlap scheduler is disabled when spec v2 is off or using unsupported speculative "
        "algorithm. You can set env SGLANG_ENABLE_SPEC_V2=True to enable the experimental "
        "overlap scheduler. "
    )
    if args["speculative_draft_model_path"] is not None:
        args["speculative_draft_model_revision"] = "main"
    if args["speculative_num_steps"] is None:
        unset = (args["speculative_eagle_topk"], args["speculative_num_draft_tokens"])
        if unset != (None, None):
            raise AssertionError
        args["speculative_num_steps"] = 3
        args["speculative_eagle_topk"] = 1
        args["speculative_num_draft_tokens"] = 4
    topk, steps = args["speculative_eagle_topk"], args["speculative_num_steps"]
    if topk == 1 and args["speculative_num_draft_tokens"] != steps + 1:
        warnings.append(
            "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when "
            "speculative_eagle_topk == 1"
        )
        args["speculative_num_draft_tokens"] = steps + 1


def settle(namespace: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """The effective settings and the warnings that 0.5.9 logs while it finds them.

    Raises:
        AssertionError: top-k or draft tokens without steps (0.5.9 asserts without a text).
    """
    args = dict(vars(namespace))
    warnings: list[str] = []
    args["tokenizer_path"] = args["tokenizer_path"] or args["model_path"]
    args["served_model_name"] = args["served_model_name"] or args["model_path"]
    args["device"] = args["device"] or "cuda"
    args["attention_backend"] = args["attention_backend"] or "triton"
    args["sampling_backend"] = args["sampling_backend"] or "flashinfer"
    args["grammar_backend"] = args["grammar_backend"] or "xgrammar"
    args["page_size"] = args["page_size"] or 1
    args["chunked_prefill_size"] = args["chunked_prefill_size"] or 8192
    args["random_seed"] = args["random_seed"] if args["random_seed"] is not None else 511_738_281
    if args["mem_fraction_static"] is None:
        args["mem_fraction_static"] = 0.85
    speculates = args["speculative_algorithm"] is not None
    if speculates:
        _settle_speculation(args, warnings)
    if args["cuda_graph_bs"]:
        args["cuda_graph_max_bs"] = max(args["cuda_graph_bs"])
    else:
        args["cuda_graph_max_bs"] = args["cuda_graph_max_bs"] or 512
        args["cuda_graph_bs"] = graph_sizes(args["cuda_graph_max_bs"], speculation=speculates)
    return args, warnings
