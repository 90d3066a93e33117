"""What the statistics lines of one probe or one log add up to."""

from __future__ import annotations

from typing import Literal

from configs.values import Value

RateDefinition = Literal["len_over_draft_tokens", "drafts_accepted_over_proposed"]
"""How the engine computes the rate that it prints.

sglang up to 0.5.10 divides accepted drafts *and the bonus token* by steps times draft tokens; from
0.5.11 on accepted drafts by proposed ones (sglang#23530; scheduler_metrics_mixin.py of both).
vLLM has always done the latter. Printed rates are therefore not comparable across releases;
`draft_accept_rate` is recomputed and is.
"""


class DroppedSample(Value):
    """An interval that was left out, and why."""

    gen_throughput: float | None
    """Its tokens per second as printed."""
    reason: str
    """Why it says nothing about steady decoding."""


class DecodeSummary(Value):
    """Decoding as the engine's own log saw it; None where the log does not say."""

    samples: int
    """Intervals in the log."""
    samples_used: int
    """Intervals that count."""
    dropped: tuple[DroppedSample, ...] = ()
    """The others (at most 100 are listed)."""
    cumulative: bool = False
    """The counts run since the server's start (vLLM V0)."""
    accept_len_mean: float | None = None
    """Tokens per verify step, bonus token included."""
    reported_rate_mean: float | None = None
    """Mean of the rate as printed, whatever it means."""
    rate_definition: RateDefinition | None = None
    """What the printed rate means."""
    draft_accept_rate: float | None = None
    """Accepted / proposed drafts, recomputed; None for trees (topk > 1)."""
    accepted: int | None = None
    """Accepted drafts, where they are counted."""
    drafted: int | None = None
    """Proposed drafts, where they are counted."""
    emitted: int | None = None
    """Emitted tokens, where they are counted (vLLM V0)."""
    printed_length_includes_bonus: bool | None = None
    """Whether the printed acceptance length counts the bonus token (vLLM changed that)."""
    accept_by_position: tuple[float, ...] = ()
    """Share of verify steps that accepted the draft at each position."""
    gen_throughput_mean: float | None = None
    """Tokens per second, summed over data-parallel ranks."""
    running_req: int | None = None
    """Requests that ran together (median), summed over data-parallel ranks."""
    queue_req_max: int | None = None
    """Most requests that waited on one rank."""
    graph_used_share: float | None = None
    """Share of the intervals whose batch ran in CUDA graphs."""
    accept_len_by_token_range: dict[str, float] | None = None
    """Acceptance within and beyond the drafter's context."""
    warnings: tuple[str, ...] = ()
    """What belongs beside these numbers."""
    verdict: Literal["drafter_not_working"] | None = None
    """Set when nothing is accepted."""
    hints: tuple[str, ...] = ()
    """Where to look then."""


class DecodeSetting(Value):
    """What is known of the server whose log is read; each may be unknown."""

    version: str | None = None
    """The engine's version."""
    num_draft_tokens: int | None = None
    """sglang's draft tokens per step (steps + 1 for a chain)."""
    num_speculative_tokens: int | None = None
    """vLLM's drafts per step, without the bonus token."""
    topk: int | None = None
    """Width of the draft tree; 1 is a chain."""
    draft_context: int | None = None
    """The context that the drafter was made for, in tokens."""
    busy_before: bool = False
    """The server was decoding when the log begins, so the first interval holds no idle time."""
