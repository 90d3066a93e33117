"""An interval for a ratio of sums whose parts come in clusters: acceptance over prompts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tasks.intervals import t_quantile

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

LEAST_CLUSTERS = 3
"""With fewer, an interval says nothing that a reader could use."""


class Part(NamedTuple):
    """What one request adds to numerator and denominator, and the prompt that it came from."""

    cluster: Hashable
    numerator: float
    denominator: float


def ratio_interval(parts: Iterable[Part], confidence: float = 0.95) -> tuple[float, float] | None:
    """An interval for sum(numerators) / sum(denominators) over clusters drawn from more of them.

    The linearised ratio estimator (Cochran, Sampling Techniques, 6.4 with whole clusters as
    units): with r the ratio, each cluster's residual is numerator - r * denominator, and the
    variance of r is m / (m - 1) * sum(residual**2) / sum(denominator)**2 over m clusters; Student's t
    with m - 1 degrees of freedom. Verify steps of one answer are no independent draws, nor are
    answers to one prompt: only prompts are.

    Args:
        parts: one for each request; those of one prompt share a cluster.
        confidence: of the interval.

    Returns:
        None with fewer than three clusters, or nothing to divide by.
    """
    sums: dict[Hashable, list[float]] = {}
    for part in parts:
        held = sums.setdefault(part.cluster, [0.0, 0.0])
        held[0] += part.numerator
        held[1] += part.denominator
    table = np.array(list(sums.values()), dtype=float).reshape(-1, 2)
    count, whole = len(table), float(table[:, 1].sum())
    if count < LEAST_CLUSTERS or whole <= 0:
        return None
    ratio = float(table[:, 0].sum()) / whole
    residuals = table[:, 0] - ratio * table[:, 1]
    error = math.sqrt(count / (count - 1) * float(residuals @ residuals)) / whole
    half = t_quantile((1 + confidence) / 2, count - 1) * error
    return ratio - half, ratio + half
