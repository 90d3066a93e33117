"""Every recorded failure gets its right name, and echoes and harmless words get none."""

from pathlib import Path

import pytest

from tasks.failures import Failure, Scene, classify
from tasks.start_facts import Framework
from tasks.start_log import StartLog, read_start

ROOT = Path(__file__).parent
REAL = ROOT / "fixtures" / "real"

RECORDED = {
    "algorithm-eagle-with-eagle3-head": None,
    "card-held-by-another-process": None,
    "drafter-missing-tensor": None,
    "default-attention-backend-without-fa3": "kernel_library_missing",
    "drafter-absolute-d2t": "illegal_memory_access",
    "drafter-aux-layer-out-of-range": "aux_width_mismatch",
    "drafter-eagle1-weights": "draft_shape_mismatch",
    "drafter-hidden-size-mismatch": "draft_shape_mismatch",
    "drafter-no-architecture": "draft_config_invalid",
    "drafter-no-config": "draft_config_invalid",
    "drafter-no-dtype": "draft_config_invalid",
    "drafter-path-missing": "draft_path_missing",
    "drafter-short-context": "draft_context_too_short",
    "drafter-smaller-draft-vocabulary": "draft_shape_mismatch",
    "drafter-truncated-safetensors": "weights_unreadable",
    "drafter-two-layer-ids": "draft_shape_mismatch",
    "kv-cache-too-small": "kv_cache_too_small",
    "model-path-missing": "model_path_missing",
    "no-set_eagle3_layers_to_capture": "missing_interface",
    "oom-mem-fraction-0.999": "gpu_oom",
    "port-in-use": "port_in_use",
    "scheduler-killed": "host_oom_or_killed",
    "sigterm": "terminated",
    "tp-2-on-one-gpu": "too_few_gpus",
    "unknown-flag": "bad_arguments",
}


def verdict(*records: str, framework: Framework = "sglang", ended: bool = False) -> Failure | None:
    log = StartLog(framework)
    log.feed("\n".join(records).encode())
    return log.finish(ended=ended).failure


def failure(*records: str, framework: Framework = "sglang", ended: bool = False) -> Failure:
    found = verdict(*records, framework=framework, ended=ended)
    assert found is not None
    return found


def crash(*body: str, rank: str = "TP0", second: int = 4) -> list[str]:
    return [
        (
            f"[2026-03-04 09:20:0{second} {rank}] Scheduler hit an exception:"
            " Traceback (most recent call last):"
        ),
        *body,
        "",
    ]


SIGQUIT = "[2026-03-04 09:22:10] Received sigquit from a child process. It usually means the child"


@pytest.mark.parametrize(("name", "expected"), RECORDED.items())
def test_recorded_failures_have_their_names(name, expected):
    facts = read_start((REAL / "failures" / f"{name}.log").read_bytes())
    found = None if facts.failure is None else facts.failure.failure
    assert found == expected
    assert facts.ready == (expected is None)


def test_every_recorded_failure_is_tested():
    assert {path.stem for path in (REAL / "failures").glob("*.log")} == set(RECORDED)


def test_nccl_setting_that_nccl_refuses():
    facts = read_start((REAL / "nccl" / "algo-Tree.log").read_bytes())
    assert facts.failure is not None
    assert facts.failure.failure == "nccl_error"
    assert facts.failure.stage == "graph_capture"
    assert facts.failure.first_failing_rank == "TP0"


def test_sound_servers_have_no_failure_but_their_end():
    for name in ("base", "eagle3-good", "eagle3-weak", "deep-eagle3-good"):
        log = (REAL / f"{name}.log").read_bytes()
        up = read_start(log[: log.index(b"SIGTERM received") - 30])
        assert up.ready
        assert up.failure is None


def test_eight_ranks_with_one_cause_are_one_failure():
    records = []
    for rank in (2, 0, 1, 3, 4, 5, 6, 7):
        records += crash("torch.OutOfMemoryError: CUDA out of memory.", rank=f"TP{rank}")
    found = failure(*records, SIGQUIT)
    assert found.first_failing_rank == "TP2"
    assert found.failing_ranks == ("TP2", "TP0", "TP1", "TP3", "TP4", "TP5", "TP6", "TP7")


def test_a_lost_peer_is_an_echo_and_alone_it_is_engine_dead():
    echo = "torch.distributed.DistBackendError: NCCL error in: a.cpp:94, remote process exited or there was a network error"
    found = failure(*crash(echo), *crash("KeyError: 'd2t'", rank="TP6", second=5), SIGQUIT)
    assert (found.failure, found.root_line, found.first_failing_rank) == (
        "unknown_exception",
        "KeyError: 'd2t'",
        "TP6",
    )
    assert failure(*crash(echo), SIGQUIT).failure == "engine_dead"
    assert failure(SIGQUIT).failure == "engine_dead"


def test_ranks_that_write_at_once_do_not_mix():
    first, second = crash("ValueError: a", rank="TP0"), crash("KeyError: 'b'", rank="TP1")
    assert failure(first[0], second[0], "KeyError: 'b'", SIGQUIT).first_failing_rank == "TP1"


def test_vllm_worker_cause_is_found_under_its_echoes():
    found = failure(
        "(Worker_TP1 pid=9) ERROR 05-02 08:00:10 [multiproc_executor.py:1] WorkerProc failed to start.",
        "(Worker_TP1 pid=9) ERROR 05-02 08:00:10 [multiproc_executor.py:1] Traceback (most recent call last):",
        '(Worker_TP1 pid=9) ERROR 05-02 08:00:10 [multiproc_executor.py:1]   File "/v/a.py", line 3, in f',
        "(Worker_TP1 pid=9) ERROR 05-02 08:00:10 [multiproc_executor.py:1] torch.OutOfMemoryError: CUDA"
        " out of memory. Tried to allocate 2 GiB. GPU 1 has a total capacity of 79.10 GiB of which",
        "(EngineCore_DP0 pid=8) ERROR 05-02 08:00:11 [core.py:1] EngineCore failed to start.",
        "(EngineCore_DP0 pid=8) ERROR 05-02 08:00:11 [core.py:1] Traceback (most recent call last):",
        "(EngineCore_DP0 pid=8) ERROR 05-02 08:00:11 [core.py:1] Exception: WorkerProc initialization"
        " failed due to an exception in a background process. See stack trace for root cause.",
        "(APIServer pid=5) RuntimeError: Engine core initialization failed. See root cause above.",
        framework="vllm",
    )
    assert (found.failure, found.first_failing_rank, found.gpu) == ("gpu_oom", "Worker_TP1", 1)


def test_memory_of_another_process_is_not_our_oom():
    text = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB. GPU 3 has a total"
        " capacity of 79.10 GiB of which 1.00 GiB is free. Process 77 has 60.00 GiB memory in use."
        " Including non-PyTorch memory, this process has 18.00 GiB memory in use."
    )
    found = failure(*crash(text), SIGQUIT)
    assert (found.failure, found.retry, found.gpu) == ("gpus_occupied", "after_gpus_free", 3)
    own = text.replace(
        " Including non-PyTorch memory, this process has 18.00 GiB memory in use.", ""
    )
    assert failure(*crash(own), SIGQUIT).failure == "gpu_oom"


def test_a_request_that_fails_is_no_failure_until_the_engine_ends():
    records = (
        "[2026-03-04 09:21:46] The server is fired up and ready to roll!",
        "[2026-03-04 09:22:00] Exception in ASGI application: Traceback (most recent call last):",
        '  File "/opt/a.py", line 1, in f',
        "ValueError: bad request",
    )
    assert verdict(*records) is None
    assert failure(*records, ended=True).failure == "unknown_exception"


def test_a_broken_patch_is_ours_and_an_old_engine_is_not():
    text = "ValueError: Model architectures ['KimiK25ForConditionalGeneration'] are not supported for now."
    ignored = (
        "[2026-03-04 09:12:05] Ignore import error when loading sglang.srt.models.{}: bad syntax"
    )
    assert failure(ignored.format("kimi_k25"), *crash(text)).failure == "patch_broken_module"
    assert failure(ignored.format("gizmo"), *crash(text)).failure == "unsupported_architecture"


def test_dead_schedulers_are_told_apart_by_their_signal():
    died = "[2026-03-04 09:16:10] Rank 0 scheduler died during initialization (exit code: {})."
    dead = (
        "[2026-03-04 09:16:10] Rank 0 scheduler is dead. Please check if there are relevant logs."
    )
    code = "[2026-03-04 09:16:12] Exit code: {}"
    for one, expected in ((-9, "host_oom_or_killed"), (-11, "native_crash"), (3, "scheduler_dead")):
        found = failure(died.format(one))
        assert (found.failure, found.exit_code) == (expected, one)
        assert failure(dead, code.format(one)).failure == expected
    assert failure(*crash("KeyError: 'x'"), dead, code.format(-9)).failure == "unknown_exception"


def test_a_soft_watchdog_only_warns():
    line = "[2026-03-04 09:28:05 TP0] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft={})"
    assert verdict(line.format(True)) is None
    assert failure(line.format(False)).failure == "hang"


def test_a_traceback_that_was_cut_off_is_still_a_failure():
    found = failure(*crash('  File "/opt/sglang/srt/a.py", line 1, in load')[:2], SIGQUIT)
    assert found.failure == "unknown_exception"
    assert found.root_line == "traceback cut off at srt/a.py in load"


def test_old_text_of_a_short_drafter_context_is_the_drafters_only_after_the_target():
    text = (
        "ValueError: User-specified context_length (32768) is greater than the derived"
        " context_length (2048). This may lead to incorrect model outputs or CUDA errors."
    )
    loaded = "[2026-03-04 09:12:32 TP0] Load weight end. elapsed=4.0 s, type=LlamaForCausalLM"
    again = "[2026-03-04 09:12:33 TP0] Load weight begin. avail mem=9.00 GB"
    found = failure(loaded, again, *crash(text))
    assert (found.failure, found.draft_context) == ("draft_context_too_short", 2048)
    assert failure(*crash(text)).failure == "context_too_long"


def test_the_asked_paths_tell_whose_path_is_missing():
    text = "OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/d'."
    scene = Scene(model_path="/m", draft_path="/d")
    drafter = classify(text, scene)
    target = classify(text, scene._replace(draft_path="/e"))
    assert drafter is not None
    assert target is not None
    assert drafter.row.name == "draft_path_missing"
    assert target.row.name == "model_path_missing"


def test_an_uncaught_exception_of_the_native_side_is_read():
    head = "terminate called after throwing an instance of 'c10::AcceleratorError'"
    found = failure(head, "  what():  CUDA error: an illegal memory access was encountered")
    assert found.failure == "illegal_memory_access"
    assert failure(head, "  what():  std::bad_alloc").failure == "native_crash"
    echo = "  what():  [Rank 1] NCCL error: remote process exited or there was a network error"
    assert failure(*crash("KeyError: 'x'"), head, echo).root_line == "KeyError: 'x'"
    assert failure(head, echo).failure == "engine_dead"


def test_hints_are_in_the_flags_of_the_engine_that_failed():
    text = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 4; 79.15 GiB total capacity; 1 GiB free)"
    ours = failure(*crash(text))
    assert (ours.gpu, ours.total_gib) == (4, 79.15)
    assert "lower --mem-fraction-static" in ours.hints
    theirs = failure(
        f"(APIServer pid=5) Traceback (most recent call last):\n(APIServer pid=5) {text}",
        framework="vllm",
    )
    assert "lower --gpu-memory-utilization" in theirs.hints


def test_a_dead_child_in_the_parents_traceback_is_read_and_is_an_echo_of_an_earlier_cause():
    text = (
        "RuntimeError: Rank 0 scheduler died during initialization (exit code: {}). If exit code is"
        " -9 (SIGKILL), a common cause is the OS OOM killer."
    )
    parent = ("Traceback (most recent call last):", '  File "/opt/sglang/srt/e.py", line 1, in f')
    for code, name in ((-9, "host_oom_or_killed"), (-11, "native_crash"), (-3, "scheduler_dead")):
        found = failure(*parent, text.format(code))
        assert (found.failure, found.exit_code) == (name, code)
    assert failure(*crash("KeyError: 'x'"), *parent, text.format(-9)).root_line == "KeyError: 'x'"


def test_vllm_refusals_of_the_speculative_config():
    head = "(APIServer pid=51) Traceback (most recent call last):"
    frame = '(APIServer pid=51)   File "/v/vllm/engine/arg_utils.py", line 9, in create_speculative_config'
    error = "(APIServer pid=51) pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig"
    for reason, name, field in (
        (
            "Eagle3 is only supported for ['llama'] models. Got x='kimi_k25'",
            "missing_interface",
            None,
        ),
        (
            "Expected num_speculative_tokens to be greater than zero (0).",
            "bad_arguments",
            "num_speculative_tokens",
        ),
        (
            "'tensor_parallel_size' is not a valid argument in the",
            "bad_arguments",
            "tensor_parallel_size",
        ),
        (
            "Target and draft model should have the same vocabulary size.",
            "draft_shape_mismatch",
            None,
        ),
        ("Invalid repository ID or local directory specified: '/d'.", "draft_path_missing", None),
    ):
        found = failure(
            head, frame, error, f"(APIServer pid=51)   Value error, {reason}", framework="vllm"
        )
        assert (found.failure, found.field) == (name, field)
        assert found.stage == "arguments"
