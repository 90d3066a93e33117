"""Sums over decode intervals: means, the meaning of the printed rate, warnings, the verdict."""

from __future__ import annotations

import re
from statistics import fmean, median
from typing import TYPE_CHECKING, NamedTuple

from tasks.decode_counts import counts_fields
from tasks.decode_summary import DecodeSetting, DecodeSummary, DroppedSample, RateDefinition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tasks.decode_lines import DecodeSample, DraftCounts

NOTHING_ACCEPTED = 1.02
"""An accept length up to this is that of no drafter at all."""

NOT_WORKING_HINTS = (
    "--speculative-algorithm EAGLE with an Eagle3 drafter",
    "drafter checkpoint without lm_head",
    "wrong aux layers",
    "wrong chat template",
)
"""Where a healthy server with a useless drafter has come from.

sglang#27908, sglang#21272, sgl-project/SpecForge#310, vllm#50170.
"""

_DROP_BEYOND_CONTEXT = 0.6
_ALL_ACCEPTED = 0.1
_VERSION = re.compile(r"v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})")
_REDEFINED = (0, 5, 11)


class Gathered(NamedTuple):
    """What a log's statistics lines were.

    Attributes:
        used: Intervals that count.
        counts: vLLM's speculation counts.
        dropped: Intervals that were left out.
        seen: All intervals.
        retractions: Times that requests were thrown out for want of KV memory.
    """

    used: Sequence[DecodeSample]
    counts: Sequence[DraftCounts]
    dropped: tuple[DroppedSample, ...]
    seen: int
    retractions: int


def summarize(gathered: Gathered, setting: DecodeSetting) -> DecodeSummary:
    """Sum up the intervals of a log."""
    used = gathered.used
    fields = _means(used, setting)
    if gathered.counts:
        fields |= counts_fields(gathered.counts, setting.num_speculative_tokens)
    samples = len(gathered.counts) if gathered.counts else gathered.seen
    length = fields.get("accept_len_mean")
    useless = isinstance(length, float) and length <= NOTHING_ACCEPTED
    return DecodeSummary.model_validate(
        {
            name: round(value, 4) if isinstance(value, float) else value
            for name, value in fields.items()
        }
        | {
            "samples": samples,
            "samples_used": len(gathered.counts) if gathered.counts else len(used),
            "dropped": gathered.dropped,
            "warnings": _warnings(gathered, setting),
            "verdict": "drafter_not_working" if useless else None,
            "hints": NOT_WORKING_HINTS if useless else (),
        }
    )


def _means(used: Sequence[DecodeSample], setting: DecodeSetting) -> dict[str, object]:
    lengths = [s.accept_length for s in used if s.accept_length is not None]
    rates = [s.accept_rate for s in used if s.accept_rate is not None]
    graphs = [s.graph for s in used if s.graph is not None]
    queues = [s.queued for s in used if s.queued is not None]
    length = fmean(lengths) if lengths else None
    return {
        "accept_len_mean": length,
        "reported_rate_mean": fmean(rates) if rates else None,
        "rate_definition": _rate_definition(used, setting),
        "draft_accept_rate": _chain_rate(length, setting),
        "gen_throughput_mean": _summed(used, "gen_throughput", fmean),
        "running_req": _whole(_summed(used, "running", median)),
        "queue_req_max": max(queues) if queues else None,
        "graph_used_share": sum(graphs) / len(graphs) if graphs else None,
        "accept_len_by_token_range": _by_range(used, setting.draft_context),
    }


def _summed(
    used: Sequence[DecodeSample], name: str, centre: Callable[[list[float]], float]
) -> float | None:
    """Take each data-parallel rank's centre and add them up: each prints its own share."""
    groups: dict[str, list[float]] = {}
    for sample in used:
        value = getattr(sample, name)
        if value is not None:
            groups.setdefault(sample.group, []).append(value)
    return float(sum(centre(values) for values in groups.values())) if groups else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _chain_rate(length: float | None, setting: DecodeSetting) -> float | None:
    """(length - 1) / (draft tokens - 1), the same in all releases; trees have no such rate."""
    drafts = setting.num_draft_tokens
    if length is None or drafts is None or drafts < 2 or (setting.topk or 1) > 1:
        return None
    return max(0.0, length - 1.0) / (drafts - 1)


def _rate_definition(used: Sequence[DecodeSample], setting: DecodeSetting) -> RateDefinition | None:
    """Tell what the printed rate means: by the figures, else by the release."""
    pairs = [
        (s.accept_length, s.accept_rate)
        for s in used
        if s.accept_length is not None and s.accept_rate is not None
    ]
    if not pairs:
        return None
    drafts = setting.num_draft_tokens
    if drafts is not None and drafts >= 2:
        old = sum(abs(length / drafts - rate) for length, rate in pairs)
        new = sum(abs((length - 1) / (drafts - 1) - rate) for length, rate in pairs)
        # A full acceptance gives 1.0 by both.
        if abs(old - new) > 0.01 * len(pairs):
            return "len_over_draft_tokens" if old < new else "drafts_accepted_over_proposed"
    version = _VERSION.match(setting.version or "")
    if version is None:
        return None
    old_release = tuple(int(part) for part in version.groups()) < _REDEFINED
    return "len_over_draft_tokens" if old_release else "drafts_accepted_over_proposed"


def _ranges(used: Sequence[DecodeSample], context: int | None) -> tuple[list[float], list[float]]:
    """Split accept lengths by tokens per running request, within and beyond a context."""
    within: list[float] = []
    beyond: list[float] = []
    for sample in used:
        if context is None or sample.tokens is None or sample.accept_length is None:
            continue
        per_request = sample.tokens / max(1, sample.running or 1)
        (within if per_request <= context else beyond).append(sample.accept_length)
    return within, beyond


def _by_range(used: Sequence[DecodeSample], context: int | None) -> dict[str, float] | None:
    within, beyond = _ranges(used, context)
    found = {
        f"<={context}": round(fmean(within), 3) if within else None,
        f">{context}": round(fmean(beyond), 3) if beyond else None,
    }
    return {name: value for name, value in found.items() if value is not None} or None


def _warnings(gathered: Gathered, setting: DecodeSetting) -> tuple[str, ...]:
    used = gathered.used
    warnings = []
    eager = [sample.running or 0 for sample in used if sample.graph is False]
    if eager:
        warnings.append(f"cuda graphs not used at batch {max(eager)}")
    if any(sample.queued for sample in used):
        warnings.append("requests were queued: server-side limit reached")
    if gathered.retractions or any(sample.retracted for sample in used):
        warnings.append("requests were retracted: KV cache full")
    lengths = [sample.accept_length for sample in used if sample.accept_length is not None]
    drafts = setting.num_draft_tokens
    if lengths and drafts is not None and drafts > 1 and fmean(lengths) >= drafts - _ALL_ACCEPTED:
        warnings.append(
            f"all {drafts} draft tokens are accepted: repeated text, or acceptance is simulated"
        )
    within, beyond = _ranges(used, setting.draft_context)
    if within and beyond:
        lost = fmean(beyond) - 1 < _DROP_BEYOND_CONTEXT * (fmean(within) - 1)
        if lost:
            warnings.append(
                f"acceptance drops beyond the drafter's {setting.draft_context}-token context"
            )
    return tuple(warnings)
