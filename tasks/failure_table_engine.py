"""Failures of kernels, ports, communication and processes that an engine's log shows."""

from __future__ import annotations

from tasks.failure_table_form import FailureClass, said, seen

_SIGNALS = r"exit code:? ?(?P<exit_code>-?\d{1,15})"
_OTHER_BACKEND = "set --attention-backend triton or flashinfer"

ENGINE_FAILURES = (
    FailureClass(
        name="patch_broken_module",
        cause="The target's model file does not import: the patch or an earlier edit broke it.",
        remedy="Restore the file from the package and patch again.",
        who="us",
        retry="after_change",
        citation="sglang registry.py:49, registry.py:107",
        signatures=(),
    ),
    FailureClass(
        name="unsupported_architecture",
        cause="This engine version has no code for the model's architecture.",
        remedy="Take an engine version that has it (MLA drafters: sglang 0.5.12 or newer).",
        who="engine",
        retry="after_change",
        citation="sglang registry.py:49",
        signatures=(
            seen(r"Model architectures? \['(?P<target_class>\w+)'.{0,200}not supported"),
            seen(r"model type `(?P<target_class>[\w.-]+)` but Transformers does not recognize"),
        ),
    ),
    FailureClass(
        name="port_in_use",
        cause="Another process listens on the port; its answers would be measured instead.",
        remedy="Take a free port, or stop the other server.",
        who="host",
        retry="after_change",
        citation="sglang#22779, sglang#9396, vllm#15987",
        signatures=(
            said(
                r"\[Errno 98\] error while attempting to bind on address \('[^']*', (?P<port>\d{1,15})"
            ),
            seen(
                r"\[Errno 98\] (?:error while attempting to bind on address \('[^']*', (?P<port>\d{1,15}))?"
            ),
            seen(r"Address already in use \(addr='tcp://[^']{0,80}:(?P<port>\d{1,15})'"),
            seen(r"[. ]port: (?P<port>\d{1,15}), .{0,160}(?:EADDRINUSE|address already in use)"),
            seen(
                r"[Pp]ort (?P<port>\d{1,15})? ?is already in use|Address already in use|EADDRINUSE"
            ),
            seen(r"\w+ at (?:port )?(?P<port>\d{1,15}) is not available"),
        ),
    ),
    FailureClass(
        name="too_few_gpus",
        cause="The parallel sizes ask for more GPUs than the process can see.",
        remedy="Lower --tp-size, or show it more GPUs (CUDA_VISIBLE_DEVICES).",
        who="user",
        retry="after_change",
        citation="sglang 0.5.12 log, tensor parallelism 2 on one GPU",
        signatures=(
            seen(r"invalid device ordinal"),
            seen(
                r"(?:World size|world_size) .{0,60}(?:larger|greater) than .{0,40}(?:available|GPUs)"
            ),
        ),
    ),
    FailureClass(
        name="driver_problem",
        cause="The driver is missing, too old, or does not match the libraries.",
        remedy="Mend the driver on the host (a mismatch after an update: reboot).",
        who="host",
        retry="after_change",
        citation="CUDA runtime API, cudaError_t",
        signatures=(
            seen(r"NVIDIA driver on your system is too old|driver version is insufficient"),
            seen(
                r"no CUDA-capable device is detected|No CUDA GPUs are available|Found no NVIDIA driver"
            ),
            seen(r"CUDA error: (?:initialization error|system not yet initialized|unknown error)"),
            seen(r"Driver/library version mismatch"),
        ),
    ),
    FailureClass(
        name="gpu_fault",
        cause="A GPU failed (fell off the bus, uncorrectable memory error, NVLink).",
        remedy="Look at dmesg for Xid lines; have the GPU reset or replaced.",
        who="host",
        retry="no",
        citation="NVIDIA Xid catalogue",
        signatures=(
            seen(r"uncorrectable (?:ECC|NVLink) error|GPU is lost|fallen off the bus"),
            seen(r"CUDA error: (?:unspecified launch failure|hardware stack error)"),
        ),
    ),
    FailureClass(
        name="illegal_memory_access",
        cause="A kernel read or wrote outside its memory: an engine's fault, or a wrong context.",
        remedy="Try another attention backend; report it with the command.",
        who="engine",
        retry="same_once",
        citation="sglang#9388, sglang#20043, sglang#6309",
        signatures=(
            seen(r"illegal memory access|device-side assert triggered|misaligned address"),
            seen(r"ScatterGatherKernel.{0,80}index out of bounds"),
        ),
    ),
    FailureClass(
        name="kernel_library_missing",
        cause="The installed kernel library lacks what the chosen backend needs.",
        remedy="Name another attention backend, or install the kernel package for this GPU.",
        who="host",
        retry="after_change",
        citation="sglang 0.5.12 log, FA3 absent from sgl_kernel",
        signatures=(
            seen(r"Can not import FA3 in sgl_kernel", _OTHER_BACKEND),
            seen(r"cannot import name 'flash_\w+' from 'sgl_kernel'", _OTHER_BACKEND),
            seen(r"from 'sgl_kernel'|No module named '(?:sgl_kernel|flashinfer|flash_attn)\b"),
            seen(r"undefined symbol|cannot open shared object file"),
            seen(r"\[sgl_kernel\] CRITICAL|Could not load any common_ops"),
        ),
    ),
    FailureClass(
        name="kernel_build_failed",
        cause="A kernel that is compiled at the first start did not compile.",
        remedy="Read the compiler's lines; clear the kernel cache (~/.cache/flashinfer, ~/.triton).",
        who="host",
        retry="after_change",
        citation="flashinfer jit, torch cpp_extension",
        signatures=(
            seen(
                r"Ninja build failed|Error building extension|Error compiling objects|NVCC failed"
            ),
        ),
    ),
    FailureClass(
        name="gpu_unsupported",
        cause="A kernel was not built for this GPU's architecture, or needs more shared memory.",
        remedy="Install the build for this architecture, or name another backend.",
        who="engine",
        retry="after_change",
        citation="sglang#17908, sglang#14322, sglang#27962, vllm#23781",
        signatures=(
            seen(r"no kernel image is available for execution"),
            seen(r"OutOfResources: out of resource: shared memory"),
        ),
    ),
    FailureClass(
        name="nccl_timeout",
        cause="A collective did not finish: a rank is gone or peer-to-peer access does not work.",
        remedy="Look for the rank that stopped first; try NCCL_P2P_DISABLE=1 to tell.",
        who="host",
        retry="same_once",
        citation="sglang#3783, sglang#3836, pytorch#118369",
        signatures=(
            seen(r"Watchdog caught collective operation timeout|watchdog got stuck"),
            said(
                r"(?:\[[^\]]{0,80}\] ?){0,3}(?:Process group watchdog .{0,60}: )?(?:Watchdog caught collective operation timeout|watchdog got stuck)"
            ),
            seen(r"Timed out waiting \d+ms for (?:recv|send)|DistStoreError: Timed out"),
        ),
    ),
    FailureClass(
        name="nccl_error",
        cause="NCCL refused: an environment setting, the driver, or memory.",
        remedy="Start once with NCCL_DEBUG=INFO and compare the NCCL variables of this arm.",
        who="user",
        retry="after_change",
        citation="vllm#6574; NCCL env docs; nccl 2.28.9 log with NCCL_ALGO=Tree",
        signatures=(
            seen(
                r"NCCL error|ncclUnhandledCudaError|ncclInvalidUsage|ncclSystemError|ncclInternalError"
            ),
        ),
    ),
    FailureClass(
        name="rank_load_timeout",
        cause="Some ranks were not done loading when the others had waited long enough.",
        remedy="Raise --dist-timeout; look for a slow disk or a rank out of memory.",
        who="host",
        retry="same_once",
        citation="sglang#5457",
        signatures=(seen(r"other ranks that didn't finish loading"),),
    ),
    FailureClass(
        name="warmup_failed",
        cause="The server came up, but its own first request failed.",
        remedy="Try once more; then --skip-server-warmup shows whether only the warm-up is at fault.",
        who="engine",
        retry="same_once",
        citation="sglang#13187, sglang#8115; sglang http_server.py",
        signatures=(
            said(r"Initialization failed\. (?:warmup|warm up) error"),
            seen(r"^\S+", frames=r"in _(?:wait_and_warmup|execute_server_warmup)"),
        ),
    ),
    FailureClass(
        name="hang",
        cause="The scheduler made no step for as long as its watchdog allows.",
        remedy="Look at the last step's kind (kernel compile, long prefill, verify); raise"
        " --watchdog-timeout only for a compile.",
        who="engine",
        retry="after_change",
        citation="sglang#35822, sglang#7553, sglang#3752, sglang#29144",
        signatures=(
            said(r"(?:\w+ )?[Ww]atchdog timeout \((?!.*self\.soft=True)"),
            seen(r"RPC call to \w+ timed out|EngineDeadError.{0,80}timed out"),
        ),
    ),
    FailureClass(
        name="kv_pool_leak",
        cause="The scheduler counted its cache and found pages missing: a fault of the engine.",
        remedy="Take another release; until then a smaller load or no radix cache may avoid it.",
        who="engine",
        retry="same_once",
        citation="sglang scheduler.py check_memory",
        signatures=(seen(r"(?:pool|allocator|KV cache)\w* .{0,20}(?:memory )?leak detected"),),
    ),
    FailureClass(
        name="not_a_number",
        cause="The model's output holds NaN or infinity.",
        remedy="Look at the KV cache type and the attention backend; compare without speculation.",
        who="engine",
        retry="after_change",
        citation="torch.multinomial",
        signatures=(
            seen(r"probability tensor contains either|Detected errors during sampling! NaN"),
        ),
    ),
    FailureClass(
        name="native_crash",
        cause="A process crashed outside Python (segmentation fault, abort, bus error).",
        remedy="Keep the core's backtrace; a bus error often means /dev/shm is full.",
        who="engine",
        retry="same_once",
        citation="signal(7)",
        signatures=(
            said(r"Fatal Python error: (?P<field>[\w ]+)"),
            said(r"(?:Segmentation fault|Bus error|Aborted|Floating point exception)\b"),
            said(r"!+ ?(?:Segfault|Segmentation fault) encountered"),
            said(
                r"(?:Rank \d+ scheduler died|Subprocess (?P<process>\w+) \(pid=\d+\) crashed).*?"
                r"exit code:? (?P<exit_code>-(?:4|6|7|8|11))\b"
            ),
            seen(
                r"Rank \d+ scheduler died during initialization"
                r" \(exit code:? (?P<exit_code>-(?:4|6|7|8|11))\)"
            ),
            said(r"Rank \d+ scheduler is dead[\s\S]*?Exit code: (?P<exit_code>-(?:4|6|7|8|11))\b"),
            said(r".{0,200}Failed core proc\(s\): \{[^}]{0,200}: (?P<exit_code>-(?:4|6|7|8|11))\b"),
        ),
    ),
    FailureClass(
        name="scheduler_dead",
        cause="A scheduler process ended while the server's parent lived on.",
        remedy="Read the lines above its end; look at dmesg.",
        who="engine",
        retry="same_once",
        citation="sglang#6624, sglang#20287",
        signatures=(
            seen(r"Rank \d+ scheduler died during initialization(?:.{0,20}?" + _SIGNALS + ")?"),
            said(r"Rank \d+ scheduler (?:is dead|died during)(?:.*?" + _SIGNALS + ")?"),
            said(r"Subprocess (?P<process>\w+) \(pid=\d+\) crashed with " + _SIGNALS),
        ),
    ),
    FailureClass(
        name="terminated",
        cause="Somebody asked the engine to stop (SIGTERM) while it was needed.",
        remedy="Find out who stopped it: another controller, a time limit, a container stop.",
        who="host",
        retry="same_once",
        citation="sglang 0.5.12 log, SIGTERM",
        signatures=(
            said(r"SIGTERM received\.|Gracefully exiting\.\.\. Remaining"),
            seen(r"^KeyboardInterrupt"),
        ),
    ),
)
