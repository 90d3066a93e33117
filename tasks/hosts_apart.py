"""Whether hosts agree: the ratios of each, how far they lie apart, and which host is unlike the others."""

from __future__ import annotations

import math
from statistics import fmean, median
from typing import TYPE_CHECKING, NamedTuple

from tasks import intervals
from tasks.comparable import host_of
from tasks.comparison import setting_label
from tasks.host_effect import Square, between_hosts, over_hosts
from tasks.host_values import HostRatio, HostsCompared, HostSpreads, OddHost

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tasks.host_effect import HostSpread
    from tasks.intervals import Estimate
    from tasks.judge import Block, Series, Setting

    Rung = tuple[str, int]
    """Probe, concurrency."""
    Pair = tuple[Setting, Setting]
    """A setting and its reference."""

FALSE_ALARMS = 0.01
"""Share of sweeps on equal hosts that call any host unlike the others (Bonferroni over settings and
hosts; tests/test_hosts_apart.py counts them)."""


class _Apart(NamedTuple):
    """One setting's log ratios by host, averaged over the ladder."""

    pair: Pair
    by_host: dict[str, list[float]]


def compare_hosts(
    ladder: Mapping[Rung, Series],
    pairs: Mapping[Rung, Sequence[Pair]],
    metric: str,
    margin: float,
    confidence: float,
) -> HostsCompared | None:
    """The hosts held against one another; None for a single one.

    A host is called unlike the others when a setting's ratio on it, averaged over the ladder,
    differs from that on all other hosts by more than the margin and by more than boots of one
    host do, so that of a hundred sweeps on equal hosts one names any.

    Args:
        ladder: (probe, concurrency) -> setting -> block -> log of the leading figure.
        pairs: (probe, concurrency) -> which settings are held against which.
        metric: the figure's name.
        margin: within this ratio either way two figures are the same.
        confidence: of the intervals whose widening is told.
    """
    hosts = sorted({host_of(b) for table in ladder.values() for s in table.values() for b in s})
    if len(hosts) < 2:
        return None
    mean = _over_the_ladder(ladder)
    spread = between_hosts(mean, host_of)
    asked = list(dict.fromkeys(pair for some in pairs.values() for pair in some))
    apart = [one for pair in asked if (one := _apart(mean, pair)) is not None]
    odd = _odd(apart, spread, margin) if spread is not None else ()
    lies = [max(means) - min(means) for one in apart if (means := _means(one))]
    widest = math.expm1(max(lies)) if lies else None
    told = spread is not None and spread.within.df >= 1
    spreads = tuple(
        _spreads(rung, ladder[rung], pairs.get(rung, ()), confidence) for rung in ladder
    )
    return HostsCompared(
        hosts=tuple(hosts),
        metric=metric,
        ratios=tuple(
            ratio
            for rung, table in ladder.items()
            for pair in pairs.get(rung, ())
            for ratio in _ratios(rung, table, pair)
        ),
        spreads=spreads,
        apart=widest,
        odd=odd,
        sentence=_sentence(hosts, odd, widest, margin, told=told) + _few(hosts, spreads),
    )


def _over_the_ladder(ladder: Mapping[Rung, Series]) -> Series:
    """Each boot's mean over the rungs that all boots have: a host is slow as a whole."""
    boots = {(s, b) for table in ladder.values() for s, blocks in table.items() for b in blocks}
    whole = [t for t in ladder.values() if all(b in t.get(s, {}) for s, b in boots)]
    mean: Series = {}
    for setting, block in sorted(boots):
        seen = [t[setting][block] for t in whole or ladder.values() if block in t.get(setting, {})]
        mean.setdefault(setting, {})[block] = fmean(seen)
    return mean


def _apart(mean: Series, pair: Pair) -> _Apart | None:
    ours, theirs = (mean.get(setting, {}) for setting in pair)
    by_host: dict[str, list[float]] = {}
    for block in ours:
        if block in theirs:
            by_host.setdefault(host_of(block), []).append(ours[block] - theirs[block])
    return _Apart(pair, by_host) if len(by_host) > 1 else None


def _means(one: _Apart) -> list[float]:
    return [fmean(values) for values in one.by_host.values()]


def _odd(apart: Sequence[_Apart], spread: HostSpread, margin: float) -> tuple[OddHost, ...]:
    """The hosts that are unlike, by setting: the furthest is taken out before the next is judged.

    Else its weight among the others would make the next one look unlike too. Of two hosts nobody
    can say which one is; so it ends there, unless there were no more from the beginning.
    """
    if spread.within.df < 1:
        return ()
    noise = Square(max(spread.within.value, intervals.NOISE_FLOOR**2), spread.within.df)
    tests = sum(len(one.by_host) if len(one.by_host) > 2 else 1 for one in apart)
    found = []
    for one in apart:
        left = dict(one.by_host)
        while len(left) > 2 or (len(left) == 2 and left == one.by_host):
            odd = max((_unlike(one.pair, h, left, noise, tests) for h in sorted(left)), key=_far)
            if odd.p > FALSE_ALARMS or _far(odd) <= math.log1p(margin):
                break
            found.append(odd)
            del left[odd.host]
    return tuple(sorted(found, key=lambda odd: (-_far(odd), odd.host)))


def _unlike(
    pair: Pair, host: str, by_host: Mapping[str, Sequence[float]], noise: Square, tests: int
) -> OddHost:
    """One host against all the others, by the noise of boots."""
    from scipy import special  # a third of a second, and only needed here

    others = [x for other, values in by_host.items() if other != host for x in values]
    effect = fmean(by_host[host]) - fmean(others)
    error = math.sqrt(2 * noise.value * (1 / len(by_host[host]) + 1 / len(others)))
    p = min(1.0, tests * 2 * float(special.stdtr(noise.df, -abs(effect) / error)))
    (arm, levels), _ = pair
    return OddHost(host=host, arm=arm, levels=dict(levels), ratio=math.exp(effect), p=p)


def _far(odd: OddHost) -> float:
    return abs(math.log(odd.ratio))


def _ratios(rung: Rung, table: Series, pair: Pair) -> list[HostRatio]:
    ours, theirs = (table.get(setting, {}) for setting in pair)
    by_host: dict[str, list[Block]] = {}
    for block in sorted(ours):
        if block in theirs:
            by_host.setdefault(host_of(block), []).append(block)
    (arm, levels), (reference, reference_levels) = pair
    return [
        HostRatio(
            probe=rung[0],
            concurrency=rung[1],
            arm=arm,
            levels=dict(levels),
            reference_arm=reference,
            reference_levels=dict(reference_levels),
            host=host,
            blocks=len(blocks),
            ratio=math.exp(fmean(ours[b] - theirs[b] for b in blocks)),
            reference_value=math.exp(fmean(theirs[b] for b in blocks)),
        )
        for host, blocks in by_host.items()
    ]


def _spreads(rung: Rung, table: Series, pairs: Sequence[Pair], confidence: float) -> HostSpreads:
    spread, noise = between_hosts(table, host_of), intervals.noise(table)
    variance = spread.variance if spread is not None else None
    wider = []
    for ours, theirs in pairs:
        plain = intervals.contrast(table, ours, theirs, noise)
        shared = [host_of(block) for block in table[ours] if block in table[theirs]]
        before, after = (
            _half_width(estimate, confidence)
            for estimate in (plain, over_hosts(plain, (ours, theirs), shared, spread))
        )
        if before and after:
            wider.append(after / before)
    return HostSpreads(
        probe=rung[0],
        concurrency=rung[1],
        sd=None if variance is None else math.sqrt(2 * variance),
        widens=median(wider) if wider else None,
    )


def _half_width(estimate: Estimate | None, confidence: float) -> float | None:
    if estimate is None or estimate.se is None:
        return None
    return estimate.se * intervals.t_quantile((1 + confidence) / 2, estimate.df)


def _sentence(
    hosts: Sequence[str],
    odd: Sequence[OddHost],
    apart: float | None,
    margin: float,
    *,
    told: bool,
) -> str:
    if odd:
        worst = odd[0]
        setting = setting_label(worst.arm, worst.levels)
        change = worst.ratio - 1
        if len(hosts) == 2:
            away = abs(max(worst.ratio, 1 / worst.ratio) - 1)
            return f"{' and '.join(hosts)} differ by {_share(away)} in {setting}: look at both"
        side = "below" if change < 0 else "above"
        more = len({one.host for one in odd}) - 1
        also = (
            f" (and {more} more {'host is' if more == 1 else 'hosts are'} unlike)" if more else ""
        )
        return f"{worst.host} is {_share(abs(change))} {side} the others in {setting}{also}: look at it"
    if apart is None:
        return (
            "no setting ran on two hosts beside its reference, so nothing tells whether they agree"
        )
    if not told:
        return (
            "every host ran one block, so that a host cannot be told from a boot; their ratios lie "
            f"within {_share(apart)}"
        )
    if apart <= margin:
        return f"the hosts agree within {_share(apart)}"
    return f"the hosts lie up to {_share(apart)} apart, which is no more than boots of one host may"


def _few(hosts: Sequence[str], spreads: Sequence[HostSpreads]) -> str:
    """What two hosts cannot tell."""
    wider = [one.widens for one in spreads if one.widens is not None]
    if len(hosts) > 2 or not wider:
        return ""
    return (
        ". Two hosts cannot tell how far hosts of this kind differ: the intervals allow for it, and "
        f"are {median(wider):.1f} times as wide as for these two alone"
    )


def _share(value: float) -> str:
    return f"{value * 100:.0f} %" if value >= 0.0995 else f"{value * 100:.1f} %"
