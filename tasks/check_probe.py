"""Guards on a measurement: was the traffic what it was meant to be, and the acceptance real."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tasks.odd_answers import CUT_SHORT, FAILED
from tasks.samples import BEYOND_CONTEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tasks.check_facts import ProbeFacts, ServerFacts
    from tasks.check_limits import Limits


def _not_working(p: ProbeFacts, _s: ServerFacts, limits: Limits) -> str | None:
    length = p.measurement.accept_length
    made_up = not p.speculating or p.simulated is not None
    if made_up or length is None or length > limits.accept_length_floor:
        return None
    return f"accept length {length:.3f}"


def _too_good(p: ProbeFacts, _s: ServerFacts, limits: Limits) -> str | None:
    length, steps = p.measurement.accept_length, p.draft_steps
    if not p.speculating or p.simulated is not None or length is None or not steps:
        return None
    ceiling = steps + limits.accept_length_headroom
    return f"accept length {length:.3f} of at most {steps + 1}" if length >= ceiling else None


def _not_simulated(p: ProbeFacts, _s: ServerFacts, limits: Limits) -> str | None:
    length, asked = p.measurement.accept_length, p.simulated
    if asked is None or length is None or abs(length / asked - 1) <= limits.simulated_share:
        return None
    return f"accept length {length:.3f}, to be simulated {asked:g}"


def _loops(p: ProbeFacts, _s: ServerFacts, limits: Limits) -> str | None:
    ratio = p.measurement.unique_ngram_ratio
    if ratio is None or ratio >= limits.unique_ngram_ratio:
        return None
    return f"half of the answers have at most {ratio:.0%} distinct 4-grams"


def _outside_graphs(p: ProbeFacts, s: ServerFacts, limits: Limits) -> str | None:
    each = math.ceil(p.measurement.concurrency / s.ranks)
    if s.graph_max_bs is not None and each > s.graph_max_bs:
        of = f" on each of {s.ranks} ranks" if s.ranks > 1 else ""
        return f"{each} users{of}, but CUDA graphs for at most {s.graph_max_bs} requests"
    if p.decode is None or not p.decode.lines:
        return None
    share = p.decode.outside_graph / p.decode.lines
    if share <= limits.outside_graph_share:
        return None
    return f"{p.decode.outside_graph} of {p.decode.lines} decode log lines without a CUDA graph"


def _failed(p: ProbeFacts, _s: ServerFacts, _limits: Limits) -> str | None:
    m = p.measurement
    missing = m.requested - m.completed - m.failed
    parts = [f"{m.failed} failed"] * (m.failed > 0) + [f"{missing} left no row"] * (missing > 0)
    if not parts:
        return None
    named = _matching(p.notes, (FAILED,))
    return f"of {m.requested} requests {', '.join(parts)}" + (f" ({named})" if named else "")


def _retracted(p: ProbeFacts, _s: ServerFacts, _limits: Limits) -> str | None:
    count = p.measurement.retractions
    return f"requests were taken back {count} times" if count else None


def _pinned(p: ProbeFacts, s: ServerFacts, _limits: Limits) -> str | None:
    limit, concurrency = s.max_running_requests, p.measurement.concurrency
    if limit is None:
        return None
    if concurrency > limit:
        return f"{concurrency} users, but the server runs at most {limit} requests at once"
    d = p.decode
    if d is None or not d.most_queued or (d.most_running or 0) < limit:
        return None
    return f"{d.most_running} requests running (limit {limit}), {d.most_queued} queued"


def _starved(p: ProbeFacts, _s: ServerFacts, limits: Limits) -> str | None:
    d = p.decode
    if d is None or d.waiting_below_limit <= limits.queued_share * d.lines:
        return None
    return f"{d.waiting_below_limit} of {d.lines} decode log lines, up to {d.most_queued} waiting"


def _context(p: ProbeFacts, _s: ServerFacts, _limits: Limits) -> str | None:
    return _matching(p.notes, (CUT_SHORT, BEYOND_CONTEXT))


def _cached(p: ProbeFacts, _s: ServerFacts, limits: Limits) -> str | None:
    cached, prompts = p.measurement.cached_tokens, p.measurement.prompt_tokens
    if not p.cold or cached is None or not prompts or cached <= limits.cached_share * prompts:
        return None
    return f"{cached} of {prompts} prompt tokens ({cached / prompts:.0%}) came from the cache"


def _client(p: ProbeFacts, _s: ServerFacts, limits: Limits) -> str | None:
    client, e2e = p.measurement.client, p.measurement.e2e_s
    if client is None:
        return None
    allowed = max(limits.client_lag_s, limits.client_lag_share * e2e.p50 if e2e else 0.0)
    parts = [
        f"{name} {value:.3f} s"
        for name, value in (
            ("loop lag p99", client.loop_lag_p99_s),
            ("send delay p99", client.send_delay_p99_s),
        )
        if value > allowed
    ]
    if client.cpu_share > limits.client_cpu_share:
        parts.append(f"{client.cpu_share:.0%} of a core")
    return ", ".join(parts) or None


def _no_window(p: ProbeFacts, _s: ServerFacts, _limits: Limits) -> str | None:
    m = p.measurement
    return None if m.window_s else f"{m.concurrency} in flight was not held in {m.full_s:.1f} s"


def _few_requests(p: ProbeFacts, _s: ServerFacts, limits: Limits) -> str | None:
    m = p.measurement
    if m.completed >= limits.requests_per_slot * m.concurrency:
        return None
    return f"{m.completed} completed requests for {m.concurrency} slots"


def _few_prompts(p: ProbeFacts, _s: ServerFacts, limits: Limits) -> str | None:
    count = p.distinct_prompts
    if not p.speculating or count is None or count >= limits.distinct_prompts:
        return None
    return f"{count} different prompt{'s' if count != 1 else ''}"


def _short(p: ProbeFacts, _s: ServerFacts, limits: Limits) -> str | None:
    m = p.measurement
    if not p.speculating or not m.completed:
        return None
    mean = m.completion_tokens / m.completed
    return f"{mean:.1f} tokens per answer" if mean < limits.output_tokens else None


def _counts_missing(p: ProbeFacts, _s: ServerFacts, _limits: Limits) -> str | None:
    if not p.speculating or p.measurement.accept_length is not None:
        return None
    return "neither the requests nor the counters say what was accepted"


def _counts_disagree(p: ProbeFacts, _s: ServerFacts, _limits: Limits) -> str | None:
    return _matching(p.notes, ("disagree", "more drafts accepted", "or accepted drafts missing"))


def _damaged(p: ProbeFacts, _s: ServerFacts, _limits: Limits) -> str | None:
    return _matching(p.notes, ("torn", "more than once"))


def _matching(notes: Iterable[str], words: Sequence[str]) -> str | None:
    return "; ".join(note for note in notes if any(word in note for word in words)) or None


PROBE_LOOKS: tuple[tuple[str, Callable[[ProbeFacts, ServerFacts, Limits], str | None]], ...] = (
    ("requests_failed", _failed),
    ("samples_damaged", _damaged),
    ("no_steady_window", _no_window),
    ("too_few_requests", _few_requests),
    ("drafter_not_working", _not_working),
    ("acceptance_too_good", _too_good),
    ("simulation_not_in_effect", _not_simulated),
    ("outputs_loop", _loops),
    ("counts_missing", _counts_missing),
    ("counts_disagree", _counts_disagree),
    ("too_few_prompts", _few_prompts),
    ("outputs_too_short", _short),
    ("outside_cuda_graphs", _outside_graphs),
    ("requests_retracted", _retracted),
    ("pinned_at_server_limit", _pinned),
    ("queued_for_kv_cache", _starved),
    ("context_exceeded", _context),
    ("cached_prompts", _cached),
    ("client_was_the_bottleneck", _client),
)
