"""What hosts do to a ratio: its variance from host to host, and intervals that hold for other hosts too."""

from __future__ import annotations

import math
from collections import Counter
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tasks.intervals import MOST_FURTHER_BLOCKS, interval_of, two_way, verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from tasks.intervals import Estimate, Judged, Table

    HostOf = Callable[[Any], Hashable]
    """A block's host."""

# The method, what it was held against and how often it errs: docs/statistics.md and
# docs/evidence/host-effect.md.

HOST_PRIOR_DF = 1
"""Weight, in degrees of freedom, of what is known without the hosts against what they show; from
simulation. A larger one wins power with two hosts and loses cover where hosts differ."""


class Square(NamedTuple):
    """A variance with its degrees of freedom."""

    value: float
    df: float


class HostSpread(NamedTuple):
    """The variance of one figure between hosts, of a single trial: setting x host interaction.

    A host that is faster for all settings alike is no part of it: that cancels in every ratio.
    """

    hosts: int
    between: Square
    """Mean square of the interaction: noise + ``share`` * variance between hosts."""
    within: Square
    """Mean square of what setting x host + block leave; 0 degrees of freedom: one block a host."""
    share: float
    """Blocks of a host that stand behind the mean square; with equal numbers, that number."""
    own: Mapping[Any, float]
    """Each setting's own ``between``."""

    @property
    def variance(self) -> float | None:
        """Variance of a setting from host to host without the noise; None: not to be told apart."""
        if self.within.df < 1:
            return None
        return max(self.between.value - self.within.value, 0.0) / self.share


def between_hosts(table: Table, host_of: HostOf) -> HostSpread | None:
    """How much settings vary from host to host; None on a single host.

    Least squares twice: setting + block, as for the noise, and setting x host + block. What the
    second takes from the rest of the first is the interaction (analysis of variance, unbalanced:
    its expectation is found from the projections themselves). Each setting's own part solves the
    same equations as in :func:`tasks.intervals.noise`, with hosts in the place of blocks.

    Args:
        table: setting -> block -> log of a figure.
        host_of: a block's host.
    """
    cells = [(s, b, y) for s, series in table.items() for b, y in series.items()]
    hosts = {host_of(b) for _, b, _ in cells}
    if len(hosts) < 2:
        return None
    of_settings, coarse = two_way([(s, b) for s, b, _ in cells])
    of_pairs, fine = two_way([((s, host_of(b)), b) for s, b, _ in cells])
    few, many = _basis(coarse), _basis(fine)
    df, df_fine = many.shape[1] - few.shape[1], len(cells) - many.shape[1]
    if df < 1:
        return None
    y = np.array([value for _, _, value in cells])
    rest = y - many @ (many.T @ y)
    apart = y - few @ (few.T @ y) - rest
    spread: NDArray[np.float64] = of_pairs - few @ (few.T @ of_pairs)
    share = float((spread * of_pairs).sum()) / df
    settings = list(dict.fromkeys(s for s, _, _ in cells))
    pair_setting = of_pairs.T @ of_settings > 0
    shares = of_settings.T @ spread**2 @ pair_setting
    own = np.linalg.lstsq(shares, of_settings.T @ apart**2, rcond=1e-9)[0] * share
    return HostSpread(
        hosts=len(hosts),
        between=Square(float(apart @ apart) / df, df),
        within=Square(float(rest @ rest) / df_fine if df_fine else 0.0, df_fine),
        share=share,
        own={s: max(float(v), 0.0) for s, v in zip(settings, own, strict=True)},
    )


def over_hosts(
    estimate: Estimate | None,
    pair: tuple[Hashable, Hashable],
    blocks: Iterable[Hashable],
    spread: HostSpread | None,
) -> Estimate | None:
    """The estimate as one for all hosts of this kind, not for these alone.

    Only ever widens. The variance between hosts is looked at twice, pooled over all settings and
    in the pair itself, since a host that is unlike the others for one setting, or for the baseline
    alone, is lost among many; both weigh by their degrees of freedom against what is known without
    them. These are few, and bound those of the whole.

    Args:
        estimate: from :func:`tasks.intervals.contrast`.
        pair: the setting and its reference.
        blocks: the host of each block that holds both.
        spread: of the table that the estimate is from; None: a single host, nothing changes.
    """
    if estimate is None or spread is None or estimate.sd is None:
        return estimate
    count = Counter(blocks)
    of_a_host = _of_a_host(count.values())
    values = [spread.own.get(setting, 0.0) for setting in pair]
    squares = sum(v * v for v in values)
    settings = len(spread.own)
    # Satterthwaite, as for the noise; two settings alone share theirs.
    kinds = min(sum(values) ** 2 / squares, settings - 1) if squares else 0.0
    own = Square(sum(values) / 2, kinds * (len(count) - 1))
    found = widened(
        Square(estimate.sd**2, estimate.df),
        (_at(spread.between, of_a_host, spread), _at(own, of_a_host, spread)),
    )
    within = min(spread.within.value, found.value) if spread.within.df >= 1 else found.value
    return estimate._replace(
        sd=math.sqrt(found.value),
        df=found.df,
        hosts=len(count),
        between=found.value - within,
    )


def widened(known: Square, hosts: Sequence[Square]) -> Square:
    """What is known without the hosts, widened by what they show, one view after the other.

    The degrees of freedom are those of the hosts (and of the prior), whether or not their spread
    is the larger one: that it is small on few hosts says little.
    """
    value, df = known
    for number, seen in enumerate(hosts):
        if number and (seen.df <= 0 or seen.value <= value):
            continue
        weight = HOST_PRIOR_DF + seen.df
        value = max(value, (HOST_PRIOR_DF * value + seen.df * seen.value) / weight)
        df = min(df, weight)
    return Square(value, df)


def between_differences(
    differences: Mapping[Any, Mapping[Any, float]], host_of: HostOf
) -> dict[Any, tuple[Square, Square]]:
    """For log ratios inside blocks: the variances by which :func:`widened` widens each of them.

    Pooled over all that are given, then its own; nothing for what ran on a single host.

    Args:
        differences: setting -> block -> log ratio.
        host_of: a block's host.
    """
    tables = {key: _by_host(values, host_of) for key, values in differences.items()}
    several = {key: table for key, table in tables.items() if len(table) > 1}
    if not several:
        return {}
    blocks = {key: [len(values) for values in table.values()] for key, table in several.items()}
    squares = {key: _between(table) for key, table in several.items()}
    df = {key: len(table) - 1 for key, table in several.items()}
    inside = [
        math.fsum((x - fmean(v)) ** 2 for x in v) for t in tables.values() for v in t.values()
    ]
    inside_df = sum(len(v) - 1 for t in tables.values() for v in t.values())
    spread = HostSpread(
        hosts=max(map(len, several.values())),
        between=Square(sum(squares.values()) / sum(df.values()), sum(df.values())),
        within=Square(sum(inside) / inside_df if inside_df else 0.0, inside_df),
        share=sum(sum(n) - _of_a_host(n) for n in blocks.values()) / sum(df.values()),
        own={key: squares[key] / df[key] for key in several},
    )
    return {
        key: (
            _at(spread.between, _of_a_host(blocks[key]), spread),
            _at(Square(spread.own[key], df[key]), _of_a_host(blocks[key]), spread),
        )
        for key in several
    }


def further_hosts(judged: Judged, margin: float) -> int | None:
    """Further hosts, with as many blocks each as the present ones, that would decide.

    None when no number up to fifty blocks would do, when no noise is known, and on a single host,
    which says nothing of others.
    """
    estimate = judged.estimate
    if estimate.sd is None or judged.confidence is None or estimate.hosts < 2:
        return None
    a_host = estimate.blocks / estimate.hosts
    free = max(estimate.df - HOST_PRIOR_DF, 0.0) / (estimate.hosts - 1)
    for more in range(1, math.floor(MOST_FURTHER_BLOCKS / a_host) + 1):
        later = estimate._replace(
            blocks=round(estimate.blocks + more * a_host), df=estimate.df + more * free
        )
        low, high = interval_of(later, 1 - judged.confidence)
        if verdict(judged._replace(estimate=later, low=low, high=high), margin) != "undecided":
            return more
    return None


def _at(square: Square, of_a_host: float, spread: HostSpread) -> Square:
    """A mean square between hosts for a mean over blocks that are spread over them otherwise."""
    noise = spread.within.value if spread.within.df >= 1 else 0.0
    more = of_a_host / spread.share - 1
    return Square(square.value + more * max(square.value - noise, 0.0), square.df)


def _of_a_host(counts: Collection[int]) -> float:
    """Blocks that share a host with a block, itself included, on average."""
    return sum(n * n for n in counts) / sum(counts)


def _by_host(values: Mapping[Any, float], host_of: HostOf) -> dict[Hashable, list[float]]:
    found: dict[Hashable, list[float]] = {}
    for block, value in values.items():
        found.setdefault(host_of(block), []).append(value)
    return found


def _between(by_host: Mapping[Hashable, Sequence[float]]) -> float:
    """Sum of squares of the hosts' means about the mean over blocks."""
    mean = fmean(x for values in by_host.values() for x in values)
    return math.fsum(len(values) * (fmean(values) - mean) ** 2 for values in by_host.values())


def _basis(design: NDArray[np.float64]) -> NDArray[np.float64]:
    """Orthonormal columns that span a design: the projection without its square matrix."""
    columns, sizes, _ = np.linalg.svd(design, full_matrices=False)
    found: NDArray[np.float64] = columns[:, sizes > sizes[0] * 1e-9]
    return found
