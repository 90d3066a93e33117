"""What a start log says: the facts of one start, and how long silence is still patience."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from configs.values import Value
from tasks.failures import Failure, failure_of
from tasks.log_lines import YEARLESS, moment

if TYPE_CHECKING:
    from collections.abc import Mapping

Framework = Literal["sglang", "vllm"]

STAGE_LIMIT_S: dict[str, float] = {
    "arguments": 300,
    "starting": 600,
    "distributed_init": 900,
    "target_weights": 3600,
    "after_target_weights": 900,
    "kv_cache": 900,
    "graph_capture": 1800,
    "draft_load": 1800,
    "after_draft_load": 900,
    "draft_kv_cache": 900,
    "draft_graph_capture": 1800,
    "kernel_compile": 3600,
    "http_start": 600,
    "warmup": 900,
}
"""Seconds of silence that each stage may take with its processes alive.

A trillion parameters from a network disk are silent for many minutes, DeepGEMM compiles for
twenty (sglang#10424), the warm-up alone may take 600 (sglang's `SGLANG_WARMUP_TIMEOUT`).
"""


class StartFacts(Value):
    """One start of an engine, as its log tells it; None where the log does not say."""

    framework: Framework | None = None
    """Which engine wrote the log."""
    version: str | None = None
    """The engine's version (vLLM prints it, sglang does not)."""
    stage: str = "arguments"
    """The stage that was reached; after a failure, the one in which it happened."""
    progress_percent: int | None = None
    """Progress of the stage's bar, 0 to 100."""
    ready: bool = False
    """The engine's own ready line was seen and nothing failed since."""
    was_ready: bool = False
    """The engine's own ready line was seen while nothing had failed."""
    needs_generate_probe: bool = False
    """The ready line alone is no proof here: ask for one token (vLLM)."""
    failure: Failure | None = None
    """The first cause, if the start or the server failed."""
    warnings: tuple[str, ...] = ()
    """What does not stop the server but belongs beside its numbers."""
    started_at: str | None = None
    """The log's first time."""
    ready_at: str | None = None
    """The time of the ready line."""
    stage_started_at: str | None = None
    """The time at which the stage began."""
    last_progress_at: str | None = None
    """The time of the last sign of work; health checks and access lines are none."""
    bar_elapsed_s: float | None = None
    """Seconds that the stage's progress bar has been running, as it prints them."""
    stage_s: dict[str, float] = {}
    """Seconds spent in each stage that is over."""
    start_s: float | None = None
    """Seconds from the first line to the ready line."""
    distributed_init_s: float | None = None
    """Seconds to connect the ranks (slowest rank)."""
    load_s: float | None = None
    """Seconds to load the target's weights (slowest rank)."""
    draft_load_s: float | None = None
    """Seconds to load the drafter's weights (slowest rank)."""
    capture_s: float | None = None
    """Seconds to capture the target's CUDA graphs (slowest rank, all kinds)."""
    draft_capture_s: float | None = None
    """Seconds to capture the drafter's CUDA graphs (slowest rank, all kinds)."""
    warmup_s: float | None = None
    """Seconds from the open port to the ready line."""
    model_path: str | None = None
    """The target's path in the server's arguments."""
    draft_path: str | None = None
    """The drafter's path in the server's arguments."""
    port: int | None = None
    """The HTTP port in the server's arguments."""
    target_class: str | None = None
    """The target's model class."""
    draft_class: str | None = None
    """The drafter's model class."""
    max_total_num_tokens: int | None = None
    """Tokens in the KV pool that requests share (sglang)."""
    max_running_requests: int | None = None
    """Requests that run at once, as the server decided."""
    max_running_requests_reset_to: int | None = None
    """The limit that sglang set because speculation is on and none was given."""
    context_len: int | None = None
    """Context length in tokens."""
    chunked_prefill_size: int | None = None
    """Tokens of a prefill chunk."""
    available_gpu_mem_gb: float | None = None
    """GPU memory left when the server was up, in GB as sglang counts."""
    free_before_load_gb: float | None = None
    """Least free GPU memory before the weights, over ranks, in GB as sglang counts."""
    kv_cache_tokens: int | None = None
    """Tokens in the target's KV cache."""
    cuda_graph_bs: tuple[int, ...] = ()
    """Batch sizes of the target's decode graphs."""
    cuda_graph_max_bs: int | None = None
    """Largest of them; larger batches run without graphs."""
    nccl_version: str | None = None
    """NCCL version that the engine loaded."""
    custom_all_reduce_disabled: bool = False
    """The engine said that its own all-reduce is off; NCCL does the small ones then."""
    spec_worker: str | None = None
    """Which speculation worker sglang took (`v1`, `v2`), where it says so."""
    undecodable_bytes: int = 0
    """Bytes in the log that were not UTF-8; they were replaced."""
    log_complete: bool = True
    """Every line was read whole: none was cut for its length, none is torn at the log's end."""


def silence_s(facts: StartFacts, now: datetime) -> float | None:
    """Seconds since the last sign of work; a running bar is a sign. None if nothing has a time."""
    signs = [_in_year(moment(facts.last_progress_at), now)]
    began = _in_year(moment(facts.stage_started_at), now)
    if began is not None and facts.bar_elapsed_s is not None:
        signs.append(began + timedelta(seconds=facts.bar_elapsed_s))
    known = [sign for sign in signs if sign is not None]
    if not known:
        return None
    return max(0.0, (now - max(known)).total_seconds())


def _in_year(sign: datetime | None, now: datetime) -> datetime | None:
    """Give a time without a year the one it must be from."""
    if sign is None or sign.year != YEARLESS:
        return sign
    day = sign.replace(year=now.year, day=min(sign.day, 28)) + timedelta(days=max(0, sign.day - 28))
    return day if day <= now + timedelta(days=1) else day.replace(year=now.year - 1)


def stalled(
    facts: StartFacts, silent_s: float, limits: Mapping[str, float] = STAGE_LIMIT_S
) -> Failure | None:
    """Call a start hung whose stage has been silent for longer than its limit.

    Args:
        facts: The start so far; one that failed, is ready or is serving is never called hung.
        silent_s: Seconds without new bytes, or from `silence_s`.
        limits: Seconds per stage; a stage without one may take as long as it likes.
    """
    limit = limits.get(facts.stage)
    if facts.failure is not None or facts.was_ready or limit is None or silent_s <= limit:
        return None
    return failure_of(
        "hang",
        stage=facts.stage,
        last_progress_at=facts.last_progress_at,
        root_line=f"no sign of work for {silent_s:.0f} s in {facts.stage} (limit {limit:.0f} s)",
    )
