"""The words in which vLLM 0.33 fails: error texts, and the frames above them (composed, not caught)."""

from __future__ import annotations

PLANTED = {
    "arguments": (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
        "  Value error, Invalid repository ID or local directory specified [type=value_error]"
    ),
    "distributed_init": (
        "RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)"
    ),
    "target_weights": (
        "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, "
        "file not fully covered"
    ),
    "kv_cache": (
        "ValueError: No available memory for the cache blocks. Try increasing "
        "`gpu_memory_utilization` when initializing the engine."
    ),
    "graph_capture": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.",
    "draft_weights": (
        "RuntimeError: Model does not support EAGLE3 interface but aux_hidden_state_outputs was "
        "requested"
    ),
    "draft_graph_capture": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.",
    "decode": "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
}
_WHERE = {
    "target_weights": ("worker/gpu_model_runner.py", 4983, "load_model"),
    "draft_weights": ("worker/gpu_model_runner.py", 5013, "load_model"),
    "kv_cache": ("core/kv_cache_utils.py", 714, "check_enough_kv_cache_memory"),
    "graph_capture": ("worker/gpu_model_runner.py", 6488, "capture_model"),
    "draft_graph_capture": ("worker/gpu_model_runner.py", 6488, "capture_model"),
    "decode": ("engine/core.py", 1602, "run_busy_loop"),
}


def traceback(site: str, where: str, text: str) -> str:
    """The whole traceback under the pretend site-packages folder."""
    file, line, function = _WHERE.get(where, ("worker/gpu_worker.py", 402, "init_device"))
    return (
        "Traceback (most recent call last):\n"
        f'  File "{site}/vllm/v1/engine/core.py", line 1571, in run_engine_core\n'
        "    engine_core = EngineCoreProc(*args, engine_index=dp_rank, **kwargs)\n"
        f'  File "{site}/vllm/v1/{file}", line {line}, in {function}\n'
        f"{text}"
    )
