"""The words in which SGLang 0.5.9 fails: error texts and the frames above them.

Only what a reader of logs goes by is kept: the lines that start, locate and end a failure.
Frames name the file and function that fail in 0.5.9; they are composed, not caught.
"""

from __future__ import annotations

from dataclasses import dataclass

_RUN = ("managers/scheduler.py", 3151, "run_scheduler_process", "scheduler = Scheduler(")
_INIT = ("managers/scheduler.py", 368, "__init__", "self.init_model_worker()")
_TARGET = ("managers/scheduler.py", 567, "init_model_worker", "self.init_tp_model_worker()")
_DRAFT = ("managers/scheduler.py", 569, "init_model_worker", "self.maybe_init_draft_worker()")
_WORKER = ("managers/tp_worker.py", 247, "__init__", "self._init_model_runner()")
_RUNNER = (
    "model_executor/model_runner.py",
    413,
    "__init__",
    "self.initialize(min_per_gpu_memory)",
)
_EAGLE = "speculative/eagle_worker.py"

Frame = tuple[str, int, str, str]

FRAMES: dict[str, tuple[Frame, ...]] = {
    "distributed_init": (
        _RUN, _INIT, _TARGET, _WORKER,
        ("model_executor/model_runner.py", 391, "__init__",
         "min_per_gpu_memory = self.init_torch_distributed()"),
    ),
    "target_weights": (
        _RUN, _INIT, _TARGET, _WORKER, _RUNNER,
        ("model_executor/model_runner.py", 548, "initialize", "self.load_model()"),
    ),
    "kv_cache": (
        _RUN, _INIT, _TARGET, _WORKER, _RUNNER,
        ("model_executor/model_runner.py", 605, "initialize",
         "self.init_memory_pool(min_per_gpu_memory)"),
    ),
    "graph_capture": (
        _RUN, _INIT, _TARGET, _WORKER, _RUNNER,
        ("model_executor/model_runner.py", 612, "initialize", "self.init_device_graphs()"),
        ("model_executor/cuda_graph_runner.py", 365, "__init__",
         "self.model_runner.model.set_eagle3_layers_to_capture()"),
    ),
    "draft_weights": (_RUN, _INIT, _DRAFT, (_EAGLE, 139, "__init__", "super().__init__(")),
    "embed_and_head": (
        _RUN, _INIT, _DRAFT,
        (_EAGLE, 157, "__init__",
         "embed, head = self.target_worker.model_runner.model.get_embed_and_head()"),
    ),
    "draft_graph_capture": (
        _RUN, _INIT, _DRAFT, (_EAGLE, 252, "init_cuda_graphs", "EAGLEDraftCudaGraphRunner(self)"),
    ),
    "recv_requests": (
        ("managers/scheduler.py", 3181, "run_scheduler_process", "scheduler.event_loop_normal()"),
        ("managers/scheduler.py", 1101, "event_loop_normal", "recv_reqs = self.recv_requests()"),
        ("utils/common.py", 1193, "broadcast_pyobj",
         "dist.broadcast(tensor_size, src=src, group=dist_group)"),
    ),
    "decode": (
        ("managers/scheduler.py", 3181, "run_scheduler_process", "scheduler.event_loop_normal()"),
        ("managers/scheduler.py", 1106, "event_loop_normal", "result = self.run_batch(batch)"),
        ("managers/scheduler.py", 2312, "run_batch", "forward_batch_generation("),
    ),
}  # fmt: skip

CAPTURE_ADVICE = (
    "Possible solutions:\n"
    "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
    "2. set --cuda-graph-max-bs to a smaller value (e.g., 16)\n"
    "3. disable torch compile by not using --enable-torch-compile\n"
    "4. disable CUDA graph by --disable-cuda-graph. (Not recommended. Huge performance loss)\n"
    "Open an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose \n"
)


@dataclass(frozen=True)
class Failure(Exception):
    """What ends a pretend process: where, and the exception as Python prints it."""

    where: str
    text: str

    def traceback(self, site: str) -> str:
        """The whole traceback under the pretend site-packages folder."""
        lines = ["Traceback (most recent call last):"]
        for file, line, function, code in FRAMES.get(self.where, FRAMES["decode"]):
            lines += [f'  File "{site}/sglang/srt/{file}", line {line}, in {function}']
            lines += [f"    {code}"]
        return "\n".join([*lines, self.text, ""])


def out_of_memory(gpu: int, want_gib: float, total_gib: float, used_gib: float) -> str:
    """What torch says when a card is full."""
    return (
        f"CUDA out of memory. Tried to allocate {want_gib:.2f} GiB. GPU {gpu} has a total "
        f"capacity of {total_gib:.2f} GiB of which {max(0.0, total_gib - used_gib):.2f} GiB is "
        f"free. Including non-PyTorch memory, this process has {used_gib:.2f} GiB memory in use. "
        f"Of the allocated memory {used_gib - 0.74:.2f} GiB is allocated by PyTorch, and 211.50 "
        "MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large "
        "try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  "
        "See documentation for Memory Management  "
        "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
    )


def oom(where: str, gpu: int, want_gib: float, total_gib: float, used_gib: float) -> Failure:
    """A full card at one stage; graph capture wraps the text and adds its advice."""
    text = out_of_memory(gpu, want_gib, total_gib, used_gib)
    if where in ("graph_capture", "draft_graph_capture"):
        return Failure(where, f"Exception: Capture cuda graph failed: {text}\n{CAPTURE_ADVICE}")
    return Failure(where, f"torch.OutOfMemoryError: {text}")


def missing_path(path: str) -> str:
    """What transformers says when a model folder does not exist."""
    return (
        "OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': "
        f"'{path}'. Use `repo_type` argument if needed."
    )


def no_model_type(path: str) -> str:
    """What transformers says when a folder's config names no model type."""
    return (
        f"ValueError: Unrecognized model in {path}. Should have a `model_type` key in its "
        "config.json."
    )


PLANTED: dict[str, str] = {
    "arguments": "ValueError: Unknown attention backend requested by the rehearsal",
    "distributed_init": (
        "torch.distributed.DistBackendError: NCCL error in: "
        "/pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, unhandled cuda error (run with "
        "NCCL_DEBUG=INFO for details), NCCL version 2.27.5\nncclUnhandledCudaError: Call to CUDA "
        "function failed.\nLast error:\nCuda failure 'peer access is not supported between these "
        "two devices'"
    ),
    "target_weights": (
        "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, "
        "file not fully covered"
    ),
    "kv_cache": (
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current "
        "value: self.server_args.mem_fraction_static=0.85"
    ),
    "graph_capture": (
        "Exception: Capture cuda graph failed: CUDA error: an illegal memory access was "
        "encountered\n" + CAPTURE_ADVICE
    ),
    "draft_weights": (
        "AssertionError: Attempted to load weight (torch.Size([32000, 7168])) into parameter "
        "(torch.Size([32000, 4096]))"
    ),
    "draft_graph_capture": (
        "Exception: Capture cuda graph failed: CUDA error: an illegal memory access was "
        "encountered\n" + CAPTURE_ADVICE
    ),
    "decode": (
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
        "CUDA kernel errors might be asynchronously reported at some other API call, so the "
        "stacktrace below might be incorrect.\nFor debugging consider passing "
        "CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side "
        "assertions.\n"
    ),
}
