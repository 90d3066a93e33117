"""Estimates over blocks on the log scale, with pooled noise, Holm's correction and verdicts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    Table = Mapping[Any, Mapping[Any, float]]
    """Setting -> block -> log of a figure."""

# The method, its assumptions and its simulated error rates: docs/statistics.md.

NOISE_FLOOR = 0.001
"""Spread below which we believe no repetition (log scale, so 0.1 %): the steadiest server in the
record varied by 0.11 % (vllm#53436). Without it, a replayed result would prove anything."""
WIDEST = math.log(10.0)
"""An interval that reaches beyond a factor of 10 is not stated."""
PRIOR_DF = 4
"""Weight of the pooled variance against two settings' own; from simulation, docs/statistics.md."""
CLEARLY = 1.3
"""Own variance raised the pooled one by this factor: worth a word in the report."""
MOST_FURTHER_BLOCKS = 50
POWER = 0.8

Verdict = Literal["better", "worse", "same", "undecided"]


@dataclass(frozen=True)
class Noise:
    """Residual spread of one figure over settings and blocks: log value = setting + block + rest."""

    sd: float
    """Pooled over settings, of a single trial."""
    df: int
    """Residual degrees of freedom; 0: no noise is known."""
    df_per_block: int
    """What each further block would add."""
    own: Mapping[Any, float]
    """Each setting's own residual variance."""
    blocks: Mapping[Any, int]


class Estimate(NamedTuple):
    """A log ratio over the blocks that hold both settings."""

    effect: float
    blocks: int
    sd: float | None
    """Spread of a single trial that was used; None with no noise known."""
    df: float
    df_per_block: float
    own_noise: bool
    """The two settings are clearly noisier than the rest, which widened the interval."""
    hosts: int = 1
    """Hosts that the blocks ran on."""
    between: float = 0.0
    """Part of the variance that comes from the hosts (tasks/host_effect): more blocks on the same
    ones do not make it smaller."""

    @property
    def se(self) -> float | None:
        """Standard error of the effect: two trials in each block."""
        return None if self.sd is None else self.sd * math.sqrt(2 / self.blocks)

    def later(self, more: int) -> Estimate:
        """The same after further blocks on the same hosts."""
        blocks = self.blocks + more
        if self.hosts == 1 or self.sd is None:
            return self._replace(blocks=blocks, df=self.df + more * self.df_per_block)
        variance = self.sd**2 + self.between * more / self.blocks
        return self._replace(blocks=blocks, sd=math.sqrt(variance))


class Judged(NamedTuple):
    """An estimate with the interval at the level at which it was tested."""

    estimate: Estimate
    confidence: float | None
    p: float | None
    low: float | None
    high: float | None


def noise(table: Table) -> Noise:
    """Fit setting + block effects by least squares and look at what is left.

    Blocks may lack settings (failed trials). The pooled variance is the residual sum of squares
    over its degrees of freedom. Each setting's own variance solves E[SS_s] = sum_t M_st var_t,
    where M sums the squared entries of the residual projection over the cells of s and t
    (MINQUE(0), C. R. Rao 1971).
    """
    cells = [(s, b, y) for s, series in table.items() for b, y in series.items()]
    settings = list(dict.fromkeys(s for s, _, _ in cells))
    count = {s: len(table[s]) for s in settings}
    if not cells:
        return Noise(0.0, 0, 0, {}, {})
    of_settings, design = two_way([(s, b) for s, b, _ in cells])
    residual_maker = np.eye(len(cells)) - design @ np.linalg.pinv(design)
    df = round(float(np.trace(residual_maker)))
    if df < 1:
        return Noise(0.0, 0, len(settings) - 1, {}, count)
    rest = residual_maker @ np.array([y for _, _, y in cells])
    pooled = float(rest @ rest) / df
    member = of_settings.T
    shares: NDArray[np.float64] = member @ residual_maker**2 @ member.T
    # Two settings alone cannot be told apart: the least-norm solution gives each the pooled one.
    own = np.linalg.lstsq(shares, member @ rest**2, rcond=1e-9)[0]
    return Noise(
        sd=max(math.sqrt(pooled), NOISE_FLOOR),
        df=df,
        df_per_block=len(settings) - 1,
        own={s: max(float(v), 0.0) for s, v in zip(settings, own, strict=True)},
        blocks=count,
    )


def two_way(
    cells: Sequence[tuple[Hashable, Hashable]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The design of setting + block: a row for each (setting, block), settings as they appear.

    Returns:
        The indicators of the settings alone, and those of settings and blocks side by side.
    """
    parts = []
    for side in (0, 1):
        names = list(dict.fromkeys(cell[side] for cell in cells))
        parts.append(np.eye(len(names))[[names.index(cell[side]) for cell in cells]])
    return parts[0], np.hstack(parts)


def contrast(
    table: Table,
    setting: Hashable,
    reference: Hashable,
    spread: Noise,
) -> Estimate | None:
    """Mean over shared blocks of log(setting) - log(reference); None without a shared block.

    The pooled spread assumes that all settings are equally noisy. So that a noisy one does not
    borrow the steadiness of the others, the spread of the two settings themselves is mixed in
    where it is the larger one: the pooled variance weighs like 4 degrees of freedom, their own
    like what it has (a moderated variance, after Smyth 2004, with a fixed prior weight).
    """
    ours, theirs = table.get(setting, {}), table.get(reference, {})
    shared = [block for block in ours if block in theirs]
    if not shared:
        return None
    effect = float(np.mean([ours[b] - theirs[b] for b in shared]))
    if spread.df < 1:
        return Estimate(effect, len(shared), None, 0, spread.df_per_block, own_noise=False)
    pooled = spread.sd**2
    pair = [spread.own.get(setting, 0.0), spread.own.get(reference, 0.0)]
    own = sum(pair) / 2
    if own <= pooled * (1 + 1e-9):
        return Estimate(
            effect, len(shared), spread.sd, spread.df, spread.df_per_block, own_noise=False
        )
    # Satterthwaite: degrees of freedom of a sum of variances.
    per_block = min(sum(pair) ** 2 / sum(v * v for v in pair), spread.df_per_block)
    own_df = per_block * (len(shared) - 1)
    mixed = moderated(pooled, own, own_df)
    return Estimate(
        effect,
        len(shared),
        math.sqrt(mixed),
        min(PRIOR_DF + own_df, spread.df),
        per_block,
        own_noise=mixed > CLEARLY * pooled,
    )


def moderated(pooled: float, own: float, own_df: float) -> float:
    """A variance between the pooled one, which weighs like 4 degrees of freedom, and the own one."""
    return (PRIOR_DF * pooled + own_df * own) / (PRIOR_DF + own_df)


def holm(estimates: Sequence[Estimate], confidence: float) -> list[Judged]:
    """Judge a family of estimates so that all verdicts hold together at this confidence.

    Holm's step-down procedure (1979): the k-th smallest p-value is tested at
    (1 - confidence) / (m - k + 1) until one fails. Each interval is drawn at the level at which
    its estimate was tested, so interval and verdict never contradict each other. Estimates
    without known noise are not tested and do not count.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, is {confidence}")
    tested = [i for i, estimate in enumerate(estimates) if estimate.se is not None]
    p_values = {i: _p_value(estimates[i]) for i in tested}
    alpha = 1 - confidence
    judged = [Judged(estimate, None, None, None, None) for estimate in estimates]
    left, failed = len(tested), False
    for i in sorted(tested, key=lambda i: p_values[i]):
        level = alpha / left
        low, high = interval_of(estimates[i], level)
        judged[i] = Judged(estimates[i], 1 - level, p_values[i], low, high)
        failed = failed or p_values[i] > level
        left -= not failed
    return judged


def alone(estimate: Estimate, confidence: float) -> tuple[float | None, float | None]:
    """The interval of one estimate for itself, uncorrected for how many there are (log scale)."""
    return interval_of(estimate, 1 - confidence)


def verdict(judged: Judged, margin: float, *, higher_is_better: bool = True) -> Verdict:
    """What an interval says.

    same: the whole interval lies within the margin either way. better, worse: the interval
    excludes 1 on that side and the estimate is beyond the margin. Everything else, and whatever
    has no interval, is undecided.
    """
    low, high, effect = judged.low, judged.high, judged.estimate.effect
    if low is None or high is None:
        return "undecided"
    same = math.log1p(margin)
    if -same <= low and high <= same:
        return "same"
    if low > 0 and effect > same:
        return "better" if higher_is_better else "worse"
    if high < 0 and effect < -same:
        return "worse" if higher_is_better else "better"
    return "undecided"


def further_blocks(judged: Judged, margin: float) -> int | None:
    """Further blocks on the same hosts that would decide, if effect and spread stay as they are.

    None when no number up to 50 would do, or when no noise is known.
    """
    estimate = judged.estimate
    if estimate.sd is None or judged.confidence is None:
        return None
    for more in range(MOST_FURTHER_BLOCKS + 1):
        later = estimate.later(more)
        low, high = interval_of(later, 1 - judged.confidence)
        if verdict(judged._replace(estimate=later, low=low, high=high), margin) != "undecided":
            return more
    return None


def detectable(judged: Judged, margin: float) -> float | None:
    """Smallest log ratio that this test would call better in four sweeps of five.

    Never below the margin: what is smaller is the same by agreement.
    """
    se = judged.estimate.se
    if se is None or judged.confidence is None:
        return None
    df = judged.estimate.df
    size = (t_quantile((1 + judged.confidence) / 2, df) + t_quantile(POWER, df)) * se
    return max(size, math.log1p(margin)) if size < WIDEST else None


def interval_of(estimate: Estimate, level: float) -> tuple[float | None, float | None]:
    """The interval that misses the truth in this share of cases (log scale)."""
    se = estimate.se
    if se is None:
        return None, None
    half = t_quantile(1 - level / 2, estimate.df) * se
    if not half + abs(estimate.effect) < WIDEST:
        return None, None
    return estimate.effect - half, estimate.effect + half


def _p_value(estimate: Estimate) -> float:
    from scipy import special  # a third of a second, and only needed here

    se = estimate.se
    if se is None:
        raise ValueError("an estimate without noise has no p-value")
    return float(2 * special.stdtr(estimate.df, -abs(estimate.effect) / se))


def t_quantile(quantile: float, df: float) -> float:
    """Student's t: the value that it stays below with this probability."""
    from scipy import special  # a third of a second, and only needed here

    return float(special.stdtrit(df, quantile))
