"""Acceptance from vLLM's own counts, whose wording and meaning changed three times."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.decode_lines import DraftCounts


# The printed length has two decimals.
_WHOLE = 0.01


def counts_fields(
    counts: Sequence[DraftCounts], num_speculative_tokens: int | None
) -> dict[str, object]:
    """Sum up the counts of a log; fields of `DecodeSummary`.

    V0 prints totals since the start, so its last line speaks; V1 prints what came since the line
    before, so its lines add up. Steps are drafts proposed / drafts per step. The acceptance
    length is 1 + accepted / steps; V0's `accepted` also counts tokens after the first mismatch
    (vllm#9565), so there it is emitted / steps.
    """
    lines = [line for line in counts if line.drafted > 0]
    if not lines:
        return {"accepted": 0, "drafted": 0, "cumulative": any(c.cumulative for c in counts)}
    cumulative = lines[-1].cumulative
    lines = lines[-1:] if cumulative else [line for line in lines if not line.cumulative]
    accepted = sum(line.accepted for line in lines)
    drafted = sum(line.drafted for line in lines)
    emitted = lines[-1].emitted if cumulative else None
    per_step = lines[-1].speculative_tokens or num_speculative_tokens or _per_step(lines)
    steps = drafted / per_step if per_step else None
    rates = [line.printed_rate for line in lines if line.printed_rate is not None]
    return {
        "cumulative": cumulative,
        "accepted": accepted,
        "drafted": drafted,
        "emitted": emitted,
        "accept_len_mean": _length(accepted, emitted, steps),
        "draft_accept_rate": accepted / drafted,
        "reported_rate_mean": fmean(rates) if rates else None,
        "rate_definition": "drafts_accepted_over_proposed",
        "printed_length_includes_bonus": _bonus(lines, per_step),
        "accept_by_position": _positions(lines),
    }


def _length(accepted: int, emitted: int | None, steps: float | None) -> float | None:
    if not steps:
        return None
    return emitted / steps if emitted is not None else 1.0 + accepted / steps


def _per_step(lines: Sequence[DraftCounts]) -> int | None:
    """Find the drafts per step where nothing says them, from the printed length.

    The length is accepted drafts per step, since vllm#24127 plus one for the bonus token; so one
    of two divisions gives a whole number. None where neither does or both do.
    """
    line = lines[-1]
    if line.printed_length is None or not line.accepted:
        return None
    found = set()
    for bonus in (0.0, 1.0):
        drafts = (line.printed_length - bonus) * line.drafted / line.accepted
        if drafts >= 1 and abs(drafts - round(drafts)) < _WHOLE * drafts:
            found.add(round(drafts))
    return found.pop() if len(found) == 1 else None


def _bonus(lines: Sequence[DraftCounts], per_step: int | None) -> bool | None:
    """Tell from the counts whether the printed length counts the bonus token."""
    votes = [
        abs(line.printed_length - 1.0 - mean) < abs(line.printed_length - mean)
        for line in lines
        if line.printed_length is not None and per_step
        for mean in (line.accepted * per_step / line.drafted,)
    ]
    return None if not votes else sum(votes) * 2 > len(votes)


def _positions(lines: Sequence[DraftCounts]) -> tuple[float, ...]:
    depth = max(len(line.positions) for line in lines)
    known = [line for line in lines if depth and len(line.positions) == depth]
    weight = sum(line.drafted for line in known)
    return tuple(
        sum(line.positions[k] * line.drafted for line in known) / weight for k in range(depth)
    )
