"""From samples to figures: what one probe measured at one concurrency."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from tasks import acceptance
from tasks.record import ClientHealth, Lengths, Measurement, Percentiles, Sample
from tasks.window import steady_window, tokens_in

if TYPE_CHECKING:
    from collections.abc import Sequence

LOOP_CHECK_TOKENS = 32
"""Shorter outputs say nothing about loops."""


def measure(
    samples: Sequence[Sample],
    probe: str,
    concurrency: int,
    speculating: bool,
    client: ClientHealth | None = None,
    *,
    draft_steps: int | None = None,
    counters: acceptance.CounterCounts | None = None,
    requested: int | None = None,
    claimed: bool = True,
) -> Measurement:
    """Everything that one probe says at one concurrency; what is unknown is None.

    Times and acceptance are over completed requests only, so that failures dilute nothing; the
    meaning of each figure is in tasks/metrics.py.

    Args:
        samples: the probe's requests, failed ones included, in any order.
        probe: the probe's name.
        concurrency: requests that were to be in flight.
        speculating: whether the server speculates; if not, the accept length is 1 by definition
            unless the counts say otherwise (a finding of its own, see tasks/check.py).
        client: how the load client did.
        draft_steps: deepest accepted draft that is possible (K), for accept_at_k.
        counters: growth of the engine's counters over the probe, all ranks; used where the
            requests give no counts, and else set beside theirs.
        requested: requests that were to be sent; default: as many as there are samples.
        claimed: False for prompts whose acceptance says nothing (random tokens): then no figure
            that rests on it is given, whatever was counted.

    Raises:
        ValueError: there are no samples at all.
    """
    if not samples:
        raise ValueError(f"{probe} at {concurrency}: no samples")
    ordered = sorted(samples, key=lambda s: (s.sent_s, s.id))
    completed = [s for s in ordered if s.error is None and s.last_s is not None]
    window = steady_window(ordered, concurrency)
    full_s = max(s.done_s for s in ordered) - min(s.sent_s for s in ordered)
    counts = acceptance.of_probe(completed, counters) if claimed else acceptance.NOT_CLAIMED
    accept_length = counts.accept_length
    if accept_length is None and not speculating:
        accept_length = 1.0
    speeds = [speed for s in completed if (speed := user_speed(s)) is not None]
    user_tok_s = float(np.mean(speeds)) if speeds else None
    at_k = acceptance.accept_at_k(counts.histogram, draft_steps)
    tokens = sum(s.completion_tokens for s in ordered)
    return Measurement(
        probe=probe,
        concurrency=concurrency,
        requested=len(ordered) if requested is None else requested,
        completed=len(completed),
        failed=len(ordered) - len(completed),
        window_s=window.length_s if window else None,
        full_s=full_s,
        output_tok_s=tokens_in(ordered, window) / window.length_s if window else None,
        full_output_tok_s=tokens / full_s if full_s > 0 else None,
        user_tok_s=user_tok_s,
        step_s=accept_length / user_tok_s if accept_length and user_tok_s else None,
        ttft_s=_percentiles([s.first_s - s.sent_s for s in completed if s.first_s is not None]),
        tpot_s=_percentiles([1.0 / speed for speed in speeds]),
        e2e_s=_percentiles([s.done_s - s.sent_s for s in completed]),
        prompt_tokens=_sum_known([s.prompt_tokens for s in completed]),
        completion_tokens=sum(s.completion_tokens for s in completed),
        cached_tokens=_sum_known([s.cached_tokens for s in completed]),
        verify_steps=counts.verify_steps,
        accepted=counts.accepted,
        proposed=counts.proposed,
        histogram=counts.histogram,
        accept_length=accept_length,
        draft_accept_rate=counts.draft_accept_rate,
        accept_at_k=at_k,
        accept_at_k_conditional=acceptance.conditional(at_k),
        by_kind=acceptance.parts(completed) if claimed else (),
        counts_from=counts.source,
        retractions=_sum_known([s.retractions for s in ordered if s.retractions is not None]),
        server_accept_length=None,
        counter_accept_length=_of_counters(counters) if claimed else None,
        natural_stops=sum(s.finish == "stop" for s in completed),
        output_tokens=_lengths([s.completion_tokens for s in completed]),
        finish_reasons=dict(Counter(sorted(s.finish or "unknown" for s in completed))),
        unique_ngram_ratio=_median_loop_ratio(completed),
        output_shas={s.id: s.output_sha for s in completed if s.output_sha is not None},
        client=client,
    )


def _of_counters(counters: acceptance.CounterCounts | None) -> float | None:
    """The accept length by real counters, not by the server's average."""
    return counters.accept_length if counters and counters.source == "counters" else None


def user_speed(sample: Sample) -> float | None:
    """Tokens per second that one user saw, (tokens - 1) / (last - first token time).

    A first chunk of several tokens is taken off whole, since only its last token's time is
    known; with one token in it, as engines send it, this is the usual formula. None for an
    output of one chunk.
    """
    if sample.first_s is None or sample.last_s is None or not sample.last_s > sample.first_s:
        return None
    first = sample.chunks[0][1] if sample.chunks else 1
    after = sample.completion_tokens - first
    return after / (sample.last_s - sample.first_s) if after > 0 else None


def _percentiles(values: Sequence[float]) -> Percentiles | None:
    if not values:
        return None
    p50, p90, p99 = (float(p) for p in np.percentile(values, (50, 90, 99)))
    return Percentiles(p50=p50, p90=p90, p99=p99)


def _lengths(values: Sequence[int]) -> Lengths | None:
    if not values:
        return None
    p50, p90 = (float(p) for p in np.percentile(values, (50, 90)))
    return Lengths(p50=p50, p90=p90)


def _sum_known(values: Sequence[int | None]) -> int | None:
    """The sum if all are known and there are any."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _median_loop_ratio(samples: Sequence[Sample]) -> float | None:
    ratios = [
        s.unique_ngram_ratio
        for s in samples
        if s.unique_ngram_ratio is not None and s.completion_tokens >= LOOP_CHECK_TOKENS
    ]
    return float(np.median(ratios)) if ratios else None
