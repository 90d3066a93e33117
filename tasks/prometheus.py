"""What the metrics of a server say of speculation, throughput and load: now, or between two looks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from configs.values import Value
from tasks.counters import Change, Labels, counter_change, gauge_by_engine, gauge_sum
from tasks.prometheus_text import Exposition, read_prometheus

if TYPE_CHECKING:
    from collections.abc import Mapping

Engine = Literal["sglang", "vllm"]

_VLLM = "vllm:spec_decode_num_"
_DRAFTS = (f"{_VLLM}drafts_total", f"{_VLLM}drafts")
_DRAFT_TOKENS = (f"{_VLLM}draft_tokens_total", f"{_VLLM}draft_tokens")
_ACCEPTED = (f"{_VLLM}accepted_tokens_total", f"{_VLLM}accepted_tokens")
_PER_POSITION = (f"{_VLLM}accepted_tokens_per_pos_total", f"{_VLLM}accepted_tokens_per_pos")
_GENERATED = {
    "sglang": ("sglang:generation_tokens_total",),
    "vllm": ("vllm:generation_tokens_total", "vllm:generation_tokens"),
}
_VERIFY_CALLS = ("sglang:spec_verify_calls_total", "sglang:spec_verify_calls")
_RUNNING = {
    "sglang": ("sglang:num_running_reqs", "sglang:num_running_req"),
    "vllm": ("vllm:num_requests_running",),
}
_QUEUED = {
    "sglang": ("sglang:num_queue_reqs", "sglang:num_queue_req"),
    "vllm": ("vllm:num_requests_waiting",),
}
_HINTS = {
    "sglang": "start the server with --enable-metrics",
    "vllm": "start the server without --disable-log-stats",
}


class MetricsReading(Value):
    """What the metrics say. None: they do not."""

    valid: bool = True
    """Whether the figures may be used."""
    reason: str | None = None
    """Why not: ``counter_reset``."""
    error: str | None = None
    """Why there are none: ``metrics_disabled``, ``not_metrics`` or ``no_samples``."""
    hints: tuple[str, ...] = ()
    """What to change so that there are some."""
    accept_len: float | None = None
    """Accept length with the bonus token, tokens/step."""
    accept_len_scope: Literal["window", "last_interval", "since_start"] | None = None
    """What the accept length is over."""
    draft_accept_rate: float | None = None
    """Accepted / proposed drafts, 1."""
    per_position: tuple[float, ...] = ()
    """Share of verify steps that accepted the draft at each position, 1."""
    drafts: int | None = None
    """Verify steps."""
    draft_tokens: int | None = None
    """Proposed drafts."""
    accepted: int | None = None
    """Accepted drafts, without bonus tokens."""
    generation_tokens: int | None = None
    """Generated tokens, in the window or since start."""
    gen_throughput: float | None = None
    """Generated tokens/s of the last interval, data-parallel ranks added."""
    running_req: int | None = None
    """Requests being decoded."""
    queue_req: int | None = None
    """Requests that wait."""
    warnings: tuple[str, ...] = ()
    """What to know before using the figures."""


def read_metrics(
    text: str, engine: Engine, *, before: str | None = None, status: int | None = 200
) -> MetricsReading:
    """Read one answer of ``/metrics``, or what happened between two.

    Args:
        text: the body, the later one of two.
        engine: whose metrics they are.
        before: the body of an earlier look; without it counters are since the server's start.
        status: HTTP status of the body.
    """
    now = read_prometheus(text)
    if not now.samples:
        if status == 404 or '"detail"' in text:
            return MetricsReading(error="metrics_disabled", hints=(_HINTS[engine],))
        return MetricsReading(error="not_metrics" if now.unreadable_lines else "no_samples")
    earlier = read_prometheus(before) if before is not None else None
    load = {
        "running_req": _whole(gauge_sum(now, *_RUNNING[engine])),
        "queue_req": _whole(gauge_sum(now, *_QUEUED[engine])),
        "gen_throughput": gauge_sum(now, "sglang:gen_throughput"),
    }
    speculation = _sglang(earlier, now) if engine == "sglang" else _vllm(earlier, now)
    return speculation.model_copy(update=load)


def _vllm(before: Exposition | None, now: Exposition) -> MetricsReading:
    changes = {
        "drafts": counter_change(before, now, *_DRAFTS),
        "draft_tokens": counter_change(before, now, *_DRAFT_TOKENS),
        "accepted": counter_change(before, now, *_ACCEPTED),
        "generation_tokens": counter_change(before, now, *_GENERATED["vllm"]),
    }
    positions = counter_change(before, now, *_PER_POSITION, by="position")
    if _reset(*changes.values(), positions):
        return MetricsReading(valid=False, reason="counter_reset")
    counts = {name: _whole(change.total) for name, change in changes.items()}
    drafts, accepted = counts["drafts"], counts["accepted"]
    proposed = counts["draft_tokens"]
    warnings = []
    if drafts is None:
        warnings.append("no speculative counters: speculation is off, or its metrics are")
    elif drafts == 0:
        warnings.append("no speculative steps in this window")
    return MetricsReading(
        accept_len=1 + accepted / drafts if accepted is not None and drafts else None,
        accept_len_scope=_scope(before) if accepted is not None and drafts else None,
        draft_accept_rate=accepted / proposed if accepted is not None and proposed else None,
        per_position=_shares(positions, drafts),
        warnings=tuple(warnings),
        **counts,
    )


def _shares(positions: Change, drafts: int | None) -> tuple[float, ...]:
    """Accepted per position / drafts, by position; empty where nothing was drafted."""
    if not drafts:
        return ()
    numbered = {int(key): value for key, value in positions.by.items() if key.isdecimal()}
    return tuple(numbered[position] / drafts for position in sorted(numbered))


def _sglang(before: Exposition | None, now: Exposition) -> MetricsReading:
    generated = counter_change(before, now, *_GENERATED["sglang"])
    steps = counter_change(before, now, *_VERIFY_CALLS)
    if _reset(generated, steps):
        return MetricsReading(valid=False, reason="counter_reset")
    tokens, drafts = _whole(generated.total), _whole(steps.total)
    figures = {"generation_tokens": tokens, "drafts": drafts}
    if before is not None and drafts == 0:
        return MetricsReading(**figures, warnings=("no speculative steps in this window",))
    if before is not None and drafts and tokens is not None:
        # Both counters move when a request ends (0.5.13 and later).
        possible = tokens >= drafts
        return MetricsReading(
            accept_len=tokens / drafts if possible else None,
            accept_len_scope="window" if possible else None,
            **figures,
        )
    length, warnings = _gauge_length(now)
    if before is not None and length is not None:
        warnings.append(
            "no verify-step counter (before 0.5.13): accept length of the last interval"
        )
    return MetricsReading(
        accept_len=length,
        accept_len_scope="last_interval" if length is not None else None,
        warnings=tuple(warnings),
        **figures,
    )


def _gauge_length(now: Exposition) -> tuple[float | None, list[str]]:
    """The accept-length gauge over data-parallel ranks, weighted by their verify steps.

    A rank makes throughput / length steps a second, so that the mean over steps is the summed
    throughput over the summed steps.
    """
    lengths = gauge_by_engine(now, "sglang:spec_accept_length")
    usable = {key: value for key, value in lengths.items() if value >= 1}
    if not usable:
        if not now.named("sglang:spec_accept_length"):
            return None, []
        return None, ["no accept length: no acceptance yet, or speculation is off"]
    return _mean_over_steps(usable, gauge_by_engine(now, "sglang:gen_throughput")), []


def _mean_over_steps(lengths: Mapping[Labels, float], speeds: Mapping[Labels, float]) -> float:
    weights = {key: speeds.get(key, 0.0) for key in lengths}
    if sum(weights.values()) <= 0:
        return sum(lengths.values()) / len(lengths)
    steps = sum(weights[key] / length for key, length in lengths.items())
    return sum(weights.values()) / steps


def _scope(before: Exposition | None) -> Literal["window", "since_start"]:
    return "since_start" if before is None else "window"


def _reset(*changes: Change) -> bool:
    return any(change.reset for change in changes)


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
