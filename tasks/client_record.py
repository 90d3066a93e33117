"""What is kept of a run of the engine's own load generator; it is no measurement of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from configs.values import Value
from tasks.bench_result import BenchResult

if TYPE_CHECKING:
    from collections.abc import Iterator


class ClientRun(Value):
    """One run of ``sglang.bench_serving`` or ``vllm bench serve``, beside one measurement."""

    probe: str
    of: str
    """The probe whose traffic it repeats, by the name that its measurements bear."""
    concurrency: int
    requests: int
    """That it was asked to send."""
    tool: str
    """What ran: ``sglang.bench_serving``, ``sglang.benchmark.serving``, ``vllm bench serve``."""
    release: str | None = None
    """Of the engine it came with."""
    command: tuple[str, ...] = ()
    """Its argv; the prompts are in a file beside it."""
    result: BenchResult | None = None
    """What it said, in the host's time; None: it left no result."""
    seconds: float | None = None
    """Its whole run, its imports included (s, the host's clock)."""
    acceptance_of: str = ""
    """What its accept length is the accept length of."""
    every_rank: bool = True
    """False: its accept length is that of data-parallel rank 0 alone."""
    unmatched: tuple[str, ...] = ()
    """What of the probe it does in another way."""
    trouble: str | None = None
    """Why there is no result; None: there is one."""

    @property
    def usable(self) -> BenchResult | None:
        """The result, if its figures may be used."""
        return self.result if self.result is not None and self.result.valid else None


def in_host_time(told: BenchResult, time_scale: float) -> BenchResult:
    """The same where the host runs faster than its truth (the rehearsal host)."""
    slower = {
        name: value * time_scale
        for name in (
            "duration_s",
            "mean_ttft_ms",
            "median_ttft_ms",
            "p99_ttft_ms",
            "median_tpot_ms",
            "median_itl_ms",
        )
        if (value := getattr(told, name)) is not None
    }
    rates = {
        name: value / time_scale
        for name in ("request_throughput", "output_throughput")
        if (value := getattr(told, name)) is not None
    }
    return told.model_copy(update=slower | rates)


def client_figures(run: ClientRun) -> Iterator[tuple[str, float | None]]:
    """Names and values for an index, under a prefix of their own: ``client_output_tok_s``, ..."""
    told = run.usable
    if told is None:
        return
    yield "client_output_tok_s", told.output_throughput
    yield "client_ttft_s_p50", seconds_of(told.median_ttft_ms)
    yield "client_ttft_s_p99", seconds_of(told.p99_ttft_ms)
    yield "client_tpot_s_p50", seconds_of(told.median_tpot_ms)
    yield "client_accept_length", told.accept_len
    yield "client_completed", None if told.completed is None else float(told.completed)


def seconds_of(ms: float | None) -> float | None:
    """Milliseconds as seconds."""
    return None if ms is None else ms / 1000
