"""How noisy a host is by itself, and what a sweep on it could find."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from tasks import intervals
from tasks.compare import log_series

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.record import TrialRecord

BLOCKS = (3, 5, 8)


class Floor(NamedTuple):
    """The noise of one figure at one concurrency."""

    probe: str
    concurrency: int
    metric: str
    boots: int
    """Trials that it was measured with."""
    varies: float
    """From boot to boot, standard deviation as a share of the figure."""
    finds: tuple[float | None, ...]
    """Smallest change that a sweep finds four times in five, for each of the numbers of blocks."""


def noise_floor(
    records: Sequence[TrialRecord],
    metrics: Sequence[str],
    *,
    arms: int = 4,
    confidence: float = 0.95,
    margin: float = 0.02,
) -> tuple[Floor, ...]:
    """Noise by probe, concurrency and figure, from trials that differ in nothing.

    What a sweep would find is for one that stays on a single host: copies cannot show whether a
    ratio differs from host to host.

    Args:
        records: ok trials of arms that are copies of one another.
        metrics: figures to look at.
        arms: of the sweep whose chances are told, the baseline among them.
        confidence: of all of its verdicts together.
        margin: what it calls the same.
    """
    series = {
        (probe, c, metric): table
        for metric in metrics
        for (probe, c), table in log_series(records, metric).items()
    }
    rungs = {probe: len({c for p, c, _ in series if p == probe}) for probe, _, _ in series}
    found = []
    for (probe, c, metric), table in series.items():
        spread = intervals.noise(table)
        if spread.df < 1:
            continue
        family = (arms - 1) * rungs[probe] * len(metrics)
        found.append(
            Floor(
                probe=probe,
                concurrency=c,
                metric=metric,
                boots=sum(spread.blocks.values()),
                varies=spread.sd,
                finds=tuple(
                    _finds(spread.sd, blocks, arms, 1 - (1 - confidence) / family, margin)
                    for blocks in BLOCKS
                ),
            )
        )
    return tuple(found)


def _finds(sd: float, blocks: int, arms: int, level: float, margin: float) -> float | None:
    """The ratio above 1 that such a sweep finds at Holm's first step, its hardest."""
    estimate = intervals.Estimate(
        effect=0.0,
        blocks=blocks,
        sd=sd,
        df=(arms - 1) * (blocks - 1),
        df_per_block=arms - 1,
        own_noise=False,
    )
    size = intervals.detectable(intervals.Judged(estimate, level, None, None, None), margin)
    return None if size is None else math.exp(size)
