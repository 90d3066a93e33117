"""What the guards look at: plain values, so that each guard can be tried without a host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tasks.record import Measurement


@dataclass(frozen=True)
class DecodeFacts:
    """What the engine's decode log lines said during a probe."""

    lines: int
    outside_graph: int
    """Lines with ``cuda graph: False``."""
    most_running: int | None = None
    most_queued: int | None = None


@dataclass(frozen=True)
class ProbeFacts:
    """A measurement, and what is needed to judge it. None: unknown, and then not judged."""

    measurement: Measurement
    speculating: bool
    draft_steps: int | None = None
    """K: most drafts that one verify step may accept."""
    cold: bool = False
    """The prefix cache was emptied before."""
    distinct_prompts: int | None = None
    notes: tuple[str, ...] = ()
    """What was odd about the rows (tasks/samples)."""
    decode: DecodeFacts | None = None


@dataclass(frozen=True)
class ServerFacts:
    """What is known of the server and its host."""

    speculating: bool
    """Whether speculation was asked for."""
    speculation_active: bool | None = None
    max_running_requests: int | None = None
    """The limit in effect."""
    asked: Mapping[str, str] = field(default_factory=dict)
    effective: Mapping[str, str] = field(default_factory=dict)
    clock_reasons: Mapping[str, str | int] = field(default_factory=dict)
    """GPU -> clocks_event_reasons.active, as nvidia-smi prints it, under load."""
    foreign_processes: tuple[str, ...] = ()
    """GPU processes that arrived during the trial, in words."""
    unstable: tuple[str, ...] = ()
    """Probes whose warm-up did not settle, in words."""


@dataclass(frozen=True)
class Evidence:
    """All that the guards look at."""

    server: ServerFacts
    probes: tuple[ProbeFacts, ...]
