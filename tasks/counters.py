"""Sums metrics over the ranks of a server, and takes differences of its counters."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tasks.prometheus_text import Exposition, Sample

#: Ranks that work on the same tokens: each repeats the figure, one of them is taken.
SAME_TOKENS = (
    "tp_rank",
    "pp_rank",
    "moe_ep_rank",
    "ep_rank",
    "attn_tp_rank",
    "attn_cp_rank",
    "moe_dp_rank",
    "pid",
)

#: No metric of a server goes beyond this; a figure that does is damage, and sums must stay finite.
BIGGEST = 1e18

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Change:
    """How far a counter went. ``total`` None: there is no such counter, or it was reset."""

    total: float | None = None
    reset: bool = False
    by: dict[str, float] = field(default_factory=dict)


def gauge_by_engine(now: Exposition, *names: str) -> dict[Labels, float]:
    """One finite value per data-parallel rank (sglang#7597).

    With ``--enable-metrics-for-all-schedulers`` every tensor-parallel rank repeats the figure of
    its data-parallel rank; the lowest rank with a figure speaks for all.
    """
    return _one_per_engine(now.named(*names))


def gauge_sum(now: Exposition, *names: str) -> float | None:
    """A gauge added over data-parallel ranks; None if there is no figure."""
    values = gauge_by_engine(now, *names)
    return sum(values.values()) if values else None


def counter_change(
    before: Exposition | None, now: Exposition, *names: str, by: str | None = None
) -> Change:
    """How far a counter went between two looks, or since the server's start.

    A server that was started again between them is seen by a counter that went back or vanished,
    or by another ``_created`` time, even where the new count has passed the old one.

    Args:
        before: the earlier look, or None.
        now: the later look.
        names: names of the counter, the first that is there counts.
        by: a label by which the change is told apart as well.
    """
    after = _one_per_engine(now.named(*names))
    if not after:
        gone = before is not None and bool(before.named(*names))
        return Change(reset=gone)
    start: dict[Labels, float] = {}
    if before is not None:
        start = _one_per_engine(before.named(*names))
        went_back = any(key not in after or after[key] < value for key, value in start.items())
        if went_back or _created_anew(before, now, names):
            return Change(reset=True)
    parts: dict[str, float] = {}
    for key, value in after.items():
        name = dict(key).get(by, "") if by else ""
        parts[name] = parts.get(name, 0.0) + value - start.get(key, 0.0)
    return Change(total=sum(parts.values()), by=parts)


def _created_anew(before: Exposition, now: Exposition, names: Iterable[str]) -> bool:
    for name in names:
        created = name.removesuffix("_total") + "_created"
        then = _one_per_engine(before.named(created))
        later = _one_per_engine(now.named(created))
        if any(key in later and later[key] > value + 1 for key, value in then.items()):
            return True
    return False


def _one_per_engine(samples: Iterable[Sample]) -> dict[Labels, float]:
    chosen: dict[Labels, tuple[tuple[int, ...], float]] = {}
    for sample in samples:
        if math.isnan(sample.value) or abs(sample.value) > BIGGEST:
            continue
        labels = dict(sample.labels)
        key = tuple((k, v) for k, v in sample.labels if k not in SAME_TOKENS)
        order = tuple(_rank(labels.get(name)) for name in SAME_TOKENS)
        if key not in chosen or order < chosen[key][0]:
            chosen[key] = (order, sample.value)
    return {key: value for key, (_, value) in chosen.items()}


def _rank(label: str | None) -> int:
    return int(label) if label is not None and label.isdecimal() and len(label) < 19 else 0
