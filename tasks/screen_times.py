"""From the rounds of a collectives job to a median and an interval for every level and size."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Any

from tasks.screen import SizeTime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tasks.screen_sizes import Sizes

CONFIDENCE = 0.95


def size_times(level: Mapping[str, Any], sizes: Sizes) -> tuple[SizeTime, ...]:
    """Median and interval at every size; none for a level without rounds.

    Args:
        level: One level of a collectives job's result: ``passes``, each a list of rounds, each
            the microseconds a call of every size.
        sizes: What was measured.
    """
    passes = [rounds for rounds in level.get("passes", ()) if rounds]
    found = []
    for index, (rows, size) in enumerate(zip(sizes.rows, sizes.bytes, strict=True)):
        by_pass = [[float(times[index]) for times in rounds] for rounds in passes]
        every = [time for times in by_pass for time in times]
        if not every:
            return ()
        low, high = median_interval(every)
        if low is not None and high is not None:
            # Processes that are started anew differ by more than the rounds within them.
            middles = [statistics.median(times) for times in by_pass]
            low, high = min(low, *middles), max(high, *middles)
        found.append(
            SizeTime(
                size_bytes=size,
                rows=rows,
                median_us=statistics.median(every),
                low_us=low,
                high_us=high,
                rounds=len(every),
            )
        )
    return tuple(found)


def median_interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """A 95 % interval of the median from the order of the values alone; None below six of them.

    The k-th smallest and k-th largest value enclose the median unless fewer than k values lie on
    one side of it, which has a binomial probability: no shape of the distribution is assumed.
    """
    ordered = sorted(values)
    count = len(ordered)
    k, outside = 0, 0.0
    while True:
        outside += 2 * math.comb(count, k) / 2**count
        if outside > 1 - CONFIDENCE:
            break
        k += 1
    if k == 0:
        return None, None
    return ordered[k - 1], ordered[count - k]
