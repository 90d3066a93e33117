"""Failures of memory and disks that an engine's log shows."""

from __future__ import annotations

from tasks.failure_table_form import FailureClass, said, seen

_OOM = (
    r"(?:OutOfMemoryError|CUDA out of memory|CUDA error: out of memory|cudaErrorMemoryAllocation"
    r"|CU(?:BLAS|DNN)_STATUS_ALLOC_FAILED)"
)
_OOM_NUMBERS = (
    r"(?:[\s\S]{0,300}?GPU (?P<gpu>\d{1,15}) has a total capac\w+ of (?P<total_gib>\d{1,9}(?:\.\d{1,15})?) GiB"
    # torch before 2.2
    r"|[\s\S]{0,80}?\(GPU (?P<gpu_b>\d{1,15}); (?P<total_gib_b>\d{1,9}(?:\.\d{1,15})?) GiB total)?"
)
_CAPTURE_HINTS = ("lower --mem-fraction-static", "lower --cuda-graph-max-bs")
_UNBALANCED = r"The memory capacity is unbalanced"
_UNBALANCED_NUMBERS = r"(?:.{0,120}(?:min_per_gpu|pre_model_load)_memory=(?P<min_free_gb>\d{1,9}(?:\.\d{1,15})?), local_gpu_memory=(?P<local_free_gb>\d{1,9}(?:\.\d{1,15})?))?"

MEMORY_FAILURES = (
    FailureClass(
        name="gpus_occupied",
        cause="Somebody else, often an earlier run, holds memory on a GPU.",
        remedy="Find the holders and wait for the release; do not change the experiment's flags.",
        who="host",
        retry="after_gpus_free",
        citation="sglang#1533, sglang#4233, sglang#5426; vllm#20305, vllm#50135",
        signatures=(
            seen(_UNBALANCED + _UNBALANCED_NUMBERS),
            seen(
                r"Free memory on device (?:cuda:(?P<gpu>\d{1,15}) )?\((?P<free_gib>\d{1,9}(?:\.\d{1,15})?)/(?P<total_gib>\d{1,9}(?:\.\d{1,15})?) GiB\)"
                r" on startup is less than desired GPU memory utilization \([\d.]+, (?P<wanted_gib>\d{1,9}(?:\.\d{1,15})?) GiB\)"
            ),
            seen(r"less than desired GPU memory utilization|Error in memory profiling"),
            seen(r"^torch\.AcceleratorError: CUDA error: .*(?:all CUDA-capable devices are busy)"),
        ),
    ),
    FailureClass(
        name="gpu_oom",
        cause="The engine itself wanted more GPU memory than there is.",
        remedy="Lower the memory fraction or the largest CUDA-graph batch.",
        who="user",
        retry="after_change",
        citation="sglang#3430, sglang#5285, sglang#6875, sglang#10088, sglang#23862",
        signatures=(
            seen(
                _OOM + _OOM_NUMBERS,
                "lower --gpu-memory-utilization",
                "lower --max-num-seqs",
                framework="vllm",
            ),
            seen(_OOM + _OOM_NUMBERS, *_CAPTURE_HINTS),
        ),
    ),
    FailureClass(
        name="kv_cache_too_small",
        cause="After the weights no memory is left for the KV cache inside the given fraction.",
        remedy="Raise the memory fraction, or lower the context length or the running requests.",
        who="user",
        retry="after_change",
        citation="sglang#4330, sglang#322; vllm gpu_worker.py",
        signatures=(
            seen(r"Not enough memory[.;] [Pp]lease try to increase", "raise --mem-fraction-static"),
            seen(r"No available memory for the cache blocks", "raise --gpu-memory-utilization"),
            seen(
                r"larger than the (?:available KV cache memory|maximum number of tokens that can be stored in KV)",
                "raise --gpu-memory-utilization",
                "lower --max-model-len",
            ),
        ),
    ),
    FailureClass(
        name="shared_memory_too_small",
        cause="The host's shared memory is full or too small for NCCL.",
        remedy="Start the container with --ipc=host or a larger --shm-size; remove stale segments.",
        who="host",
        retry="after_change",
        citation="sglang#5096, nccl#290, nccl#342",
        signatures=(
            seen(
                r"creating shared memory segment /dev/shm|No space left on device[\s\S]{0,80}/dev/shm"
            ),
            said(r"\S+:\d+:\d+ \[\d+\] .{0,80}NCCL WARN .{0,60}creating shared memory segment"),
        ),
    ),
    FailureClass(
        name="disk_full",
        cause="A disk on the host is full.",
        remedy="Make room (logs, Triton and FlashInfer caches, old runs).",
        who="host",
        retry="after_change",
        signatures=(seen(r"No space left on device|Disk quota exceeded"),),
    ),
    FailureClass(
        name="host_oom_or_killed",
        cause="The host's own memory ran out, or a process was killed with SIGKILL: by the kernel's"
        " out-of-memory killer, or by somebody's clean-up.",
        remedy="Look at dmesg for `Out of memory`, and at other users' clean-up scripts.",
        who="host",
        retry="after_change",
        citation="sglang#15235, sglang#37931, sglang#21331",
        signatures=(
            seen(
                r"Rank \d+ scheduler died during initialization \(exit code:? (?P<exit_code>-9)\)"
            ),
            said(
                r"Rank \d+ scheduler died during initialization \(exit code:? (?P<exit_code>-9)\)"
            ),
            said(
                r"Subprocess (?P<process>\w+) \(pid=\d+\) crashed with exit code (?P<exit_code>-9)\b"
            ),
            said(r"Rank \d+ scheduler is dead[\s\S]*?Exit code: (?P<exit_code>-9)\b"),
            said(r".{0,200}Failed core proc\(s\): \{[^}]{0,200}: (?P<exit_code>-9)\b"),
            seen(r"DefaultCPUAllocator: .{0,40}allocate memory|\[Errno 12\]|^MemoryError"),
            said(r"(?:\S+ line \d+: +\d+ )?Killed(?:$|  )|Out of memory: Killed process"),
        ),
    ),
)
