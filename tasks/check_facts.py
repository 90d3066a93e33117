"""What the guards look at: plain values, so that each guard can be tried without a host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tasks.host_clock import Span
    from tasks.record import Measurement
    from tasks.smi_csv import GpuRow


@dataclass(frozen=True)
class DecodeFacts:
    """What the engine's decode log lines said during a probe."""

    lines: int
    outside_graph: int
    """Lines with ``cuda graph: False``."""
    most_running: int | None = None
    most_queued: int | None = None
    waiting_below_limit: int = 0
    """Lines with requests in the queue while the rank ran fewer than it may."""


@dataclass(frozen=True)
class ProbeFacts:
    """A measurement, and what is needed to judge it. None: unknown, and then not judged."""

    measurement: Measurement
    speculating: bool
    draft_steps: int | None = None
    """K: most drafts that one verify step may accept."""
    simulated: float | None = None
    """The accept length that the engine was told to pretend; None: acceptance is real."""
    cold: bool = False
    """The prefix cache was emptied before."""
    distinct_prompts: int | None = None
    notes: tuple[str, ...] = ()
    """What was odd about the rows (tasks/samples)."""
    decode: DecodeFacts | None = None
    gpus: tuple[GpuRow, ...] = ()
    """The GPUs as nvidia-smi showed them while the last requests ran."""


@dataclass(frozen=True)
class ServerFacts:
    """What is known of the server and its host."""

    speculating: bool
    """Whether speculation was asked for."""
    speculation_active: bool | None = None
    max_running_requests: int | None = None
    """The limit in effect, added over data-parallel ranks."""
    graph_max_bs: int | None = None
    """Largest batch of one rank with a CUDA graph."""
    ranks: int = 1
    """Data-parallel ranks, among which requests are shared out."""
    asked: Mapping[str, str] = field(default_factory=dict)
    effective: Mapping[str, str] = field(default_factory=dict)
    foreign_processes: tuple[str, ...] = ()
    """GPU processes that arrived during the trial, in words."""
    clock: Span | None = None
    """The trial's time on the host's clock and on ours."""
    unstable: tuple[str, ...] = ()
    """Probes whose warm-up did not settle, in words."""


@dataclass(frozen=True)
class Evidence:
    """All that the guards look at."""

    server: ServerFacts
    probes: tuple[ProbeFacts, ...]
