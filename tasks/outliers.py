"""Outlier boots: a trial that fell out of line with its arm and its block, on every figure at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tasks.intervals import two_way

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from numpy.typing import NDArray

    Table = Mapping[Any, Mapping[Any, float]]
    """Setting -> block -> log of a figure."""
    HostOf = Callable[[Any], Hashable]

# Why, and what it costs and brings, simulated: docs/statistics.md.

LEVEL = 0.02
"""Chance that a night without any outlier loses a boot (Bonferroni over its boots)."""
MOST = 1 / 6
"""At most this share of the boots may be left out: more are no outliers but the noise itself."""
ROUNDING = 1e-9
"""Spread (log scale) below which there is nothing but rounding."""
FEWEST_DF = 3
"""Degrees of freedom below which nobody can say who is out of line."""


class Outlier(NamedTuple):
    """A boot that is left out of all ratios."""

    setting: Any
    block: Any
    effect: float
    """How far it lies from what its setting and block say (mean log ratio over the ladder)."""
    p: float
    """Two-sided, after Bonferroni over the boots."""


def outlier_boots(
    ladder: Iterable[Table], level: float = LEVEL, host_of: HostOf | None = None
) -> tuple[Outlier, ...]:
    """Boots out of line with log figure = setting + block, the worst first.

    A boot is slow or fast as a whole (clocks, a neighbour, an unlucky memory layout), so its
    residuals are averaged over the ladder; the average is judged by its externally studentized
    residual (Cook & Weisberg 1982, 2.2.9), against a t distribution. Two outliers hide each
    other, so the worst one is taken out again and again, and all are outliers up to the last
    that is significant (generalized ESD, Rosner 1983). The rule looks at all boots alike and
    knows neither which arm is which nor what the verdict would be.

    On several hosts a boot is held against its setting on its own host, or a host that is unlike
    the others would lose the very boots that say so. Where nearly every host ran one block, boot
    and host cannot be told apart; then all are held against their setting as on one host.

    Args:
        ladder: one table for each probe and concurrency, all of the same figure.
        level: the chance of losing a boot where there is no outlier.
        host_of: a block's host; None: all of one.
    """
    tables = list(ladder)
    boots = list(dict.fromkeys((s, b) for table in tables for s in table for b in table[s]))
    at = _hosts(boots, host_of)
    most, taken, outliers = int(MOST * len(boots)), list[Outlier](), 0
    while len(taken) < most and (worst := _worst(tables, boots, at)) is not None:
        taken.append(worst)
        boots.remove((worst.setting, worst.block))
        if worst.p <= level:
            outliers = len(taken)
    return tuple(taken[:outliers])


def _hosts(boots: list[tuple[Any, Any]], host_of: HostOf | None) -> HostOf:
    """The host of each block; the same one for all where a host cannot be told from a boot."""
    if host_of is None or len({host_of(b) for _, b in boots}) < 2:
        return _nowhere
    _, design = two_way([((s, host_of(b)), b) for s, b in boots])
    df = len(boots) - int(np.linalg.matrix_rank(design))
    return host_of if df >= FEWEST_DF else _nowhere


def _nowhere(_block: Any) -> Hashable:
    return None


def _worst(tables: list[Table], boots: list[tuple[Any, Any]], host_of: HostOf) -> Outlier | None:
    """The boot that is furthest out of line; None when nothing can be said."""
    if not boots:
        return None
    _, design = two_way([((s, host_of(b)), b) for s, b in boots])
    inverse = np.linalg.pinv(design)
    rest = _mean_residual(tables, boots, design, inverse)
    hat = design @ inverse
    free = 1 - np.diag(hat)
    df = round(len(boots) - float(np.trace(hat)))
    if df < FEWEST_DF:
        return None
    # A boot that alone holds a setting or a block together has no residual: it is never judged.
    judged = free > 1e-6  # rounding
    own = np.where(judged, rest**2 / np.where(judged, free, 1), 0)
    # Exact repetitions leave rounding errors alone, and one of those is always the largest.
    without = np.maximum((float(rest @ rest) - own) / (df - 1), ROUNDING**2)
    size = np.where(judged, np.sqrt(own / without), 0)
    # Of two arms, or two blocks, both boots are equally far out: slow boots are what happens.
    furthest = size >= np.max(size) * (1 - 1e-6)
    at = int(np.argmin(np.where(furthest, rest, np.inf)))
    return Outlier(*boots[at], float(rest[at] / free[at]), _p(float(size[at]), df - 1, len(boots)))


def _mean_residual(
    tables: list[Table],
    boots: list[tuple[Any, Any]],
    design: NDArray[np.float64],
    inverse: NDArray[np.floating[Any]],
) -> NDArray[np.float64]:
    """Residuals of setting + block at each step of the ladder, averaged over the ladder."""
    total, count = np.zeros(len(boots)), np.zeros(len(boots))
    for table in tables:
        here = np.array([b in table.get(s, {}) for s, b in boots])
        if not here.any():
            continue
        # A table that lacks no boot, as nearly all do, needs no inverse of its own.
        x = design[here]
        solved = inverse if here.all() else np.linalg.pinv(x)
        y = np.array([table[s][b] for (s, b), there in zip(boots, here, strict=True) if there])
        total[here] += y - x @ (solved @ y)
        count[here] += 1
    return total / np.maximum(count, 1)


def _p(size: float, df: int, boots: int) -> float:
    from scipy import special  # a third of a second, and only needed here

    return min(1.0, boots * 2 * float(special.stdtr(df, -size)))
