"""How intervals over several hosts hold: simulated sweeps, and other methods on the same sweeps.

    make host-effect [SEED=1] [N=1000]

Log figures are drawn, and from there on everything is the product's own code (noise, contrast,
between_hosts, over_hosts, Holm, compare_hosts). The other methods are made from the same mean
squares. Writes docs/evidence/host-effect.md and fails when a limit is not kept.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import special

from tasks.host_effect import Square, between_hosts, over_hosts
from tasks.hosts_apart import compare_hosts
from tasks.intervals import alone, contrast, holm, noise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tasks.host_effect import HostSpread
    from tasks.intervals import Estimate
    from tasks.judge import Block, Series, Setting

PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "host-effect.md"
BOOT = 0.02
"""Standard deviation of a boot, as a share of its speed."""
GAIN = 3
"""The faster arm's gain, in the same."""
LAYOUTS = ((4, 4), (3, 3, 2), (2, 2, 2, 2), (3, 2, 2, 1), (1,) * 8)
"""Blocks of each host."""
SPREADS = (0.0, 0.5, 1.0, 2.0)
"""Standard deviation of a ratio between hosts, in that of a boot."""
LADDER = (1, 4, 16)
CHOSEN = "used"


class Scene(NamedTuple):
    """One kind of sweep."""

    layout: tuple[int, ...]
    arms: int = 4
    together: bool = False
    """A host shifts all arms alike against the baseline; else each setting for itself."""


SCENES = (
    *(Scene(layout) for layout in LAYOUTS),
    *(Scene(layout, together=True) for layout in LAYOUTS),
    *(Scene(layout, arms=2) for layout in LAYOUTS),
)


class Seen(NamedTuple):
    """What was seen of one ratio."""

    plain: Estimate
    used: Estimate
    spread: HostSpread
    by_host: dict[str, list[float]]
    """Log ratios of each host's blocks."""


class Tally(NamedTuple):
    """Shares over sweeps, by method."""

    covers: dict[str, float]
    wrong: dict[str, float]
    found: dict[str, float]


def night(scene: Scene, spread: float, gain: float, draw: np.random.Generator) -> list[Series]:
    """One sweep: (arm -> block -> log figure) at each step of the ladder; a host is one on all."""
    hosts = np.repeat(np.arange(len(scene.layout)), scene.layout)
    if scene.together:
        effect = np.tile(draw.normal(size=len(scene.layout)), (scene.arms, 1))
        effect[0] = 0
    else:
        effect = draw.normal(size=(scene.arms, len(scene.layout))) / math.sqrt(2)
    rungs = []
    for _ in LADDER:
        values = BOOT * (draw.normal(size=(scene.arms, len(hosts))) + spread * effect[:, hosts])
        values += draw.normal(size=len(hosts)) * 0.03  # of a block: cancels
        values[1] += gain * BOOT
        rungs.append(
            {
                arm(a): {("run", f"h{hosts[b]}", b): float(values[a, b]) for b in range(len(hosts))}
                for a in range(scene.arms)
            }
        )
    return rungs


def arm(number: int) -> Setting:
    return (f"arm-{number}", ())


def host_of(block: Block) -> str:
    return block[1]


def ratios(rungs: list[Series]) -> list[Seen]:
    """All ratios of a sweep, the first arm's first at each step of the ladder."""
    seen = []
    for table in rungs:
        rest, hosts = noise(table), between_hosts(table, host_of)
        base, *others = table
        for setting in others:
            plain = contrast(table, setting, base, rest)
            shared = [host_of(block) for block in table[setting]]
            used = over_hosts(plain, (setting, base), shared, hosts)
            by_host: dict[str, list[float]] = {}
            for block, value in table[setting].items():
                by_host.setdefault(host_of(block), []).append(value - table[base][block])
            if plain is not None and used is not None and hosts is not None:
                seen.append(Seen(plain, used, hosts, by_host))
    return seen


def hosts_alone(one: Seen) -> Square:
    """The mean square between hosts, pooled over settings, with its own degrees of freedom."""
    return Square(one.spread.between.value * _unequal(one), one.spread.between.df)


def moments(one: Seen) -> Square:
    """Analysis of variance: noise + variance between hosts where positive, after Satterthwaite."""
    between, within = one.spread.between, one.spread.within
    if within.df < 1 or between.value <= within.value:
        return Square((one.plain.sd or 0) ** 2, one.plain.df)
    a = _unequal(one)
    value = a * between.value + (1 - a) * within.value
    parts = (a * between.value) ** 2 / between.df + ((1 - a) * within.value) ** 2 / within.df
    return Square(value, value**2 / parts)


def tested_first(one: Seen) -> Square:
    """Bancroft: pooled with the noise unless a test at 25 % says that hosts differ."""
    between, within = one.spread.between, one.spread.within
    if within.df < 1 or within.value <= 0:
        return hosts_alone(one)
    p = float(special.fdtrc(between.df, within.df, between.value / within.value))
    return hosts_alone(one) if p < 0.25 else Square((one.plain.sd or 0) ** 2, one.plain.df)


def larger(one: Seen) -> Square:
    """The larger of pooled and between hosts, with the degrees of freedom of whichever it is."""
    pooled, hosts = Square((one.plain.sd or 0) ** 2, one.plain.df), hosts_alone(one)
    return max(pooled, hosts, key=lambda square: square.value)


def means_alone(one: Seen) -> Square:
    """Hartung-Knapp: each ratio's own host means, and nothing of the other settings."""
    means = [(len(values), fmean(values)) for values in one.by_host.values()]
    squares = sum(n * (mean - one.plain.effect) ** 2 for n, mean in means) / 2
    return Square(squares / (len(means) - 1) * _unequal(one), len(means) - 1)


def _unequal(one: Seen) -> float:
    """1 with as many blocks on each host; more where a host's blocks weigh more in the mean."""
    counts = [len(values) for values in one.by_host.values()]
    return sum(n * n for n in counts) / sum(counts) / one.spread.share


METHODS: dict[str, Callable[[Seen], Square] | None] = {
    "hosts ignored": lambda one: Square((one.plain.sd or 0) ** 2, one.plain.df),
    "moments": moments,
    "tested first": tested_first,
    "larger of both": larger,
    "hosts alone": hosts_alone,
    "own host means": means_alone,
    CHOSEN: None,
}


def by_method(seen: list[Seen], method: str) -> list[Estimate]:
    """The estimates as a method would have them."""
    variance = METHODS[method]
    if variance is None:
        return [one.used for one in seen]
    squares = [(one, variance(one)) for one in seen]
    return [one.plain._replace(sd=math.sqrt(max(s.value, 1e-12)), df=s.df) for one, s in squares]


def nights(scene: Scene, spread: float, seeds: Iterable[int]) -> list[Tally]:
    """Each seed is a sweep in which nothing differs, and one with a faster arm."""
    tallies = []
    for seed in seeds:
        draw = np.random.default_rng(seed)
        still = ratios(night(scene, spread, 0.0, draw))
        moved = ratios(night(scene, spread, GAIN, draw))
        tally = Tally({}, {}, {})
        for method in METHODS:
            same = by_method(still, method)
            tally.covers[method] = fmean(holds(alone(one, 0.95)) for one in same)
            tally.wrong[method] = float(any(rejected(same)))
            tally.found[method] = fmean(rejected(by_method(moved, method))[:: scene.arms - 1])
        tallies.append(tally)
    return tallies


def holds(interval: tuple[float | None, float | None]) -> bool:
    low, high = interval
    return low is None or high is None or low <= 0 <= high


def rejected(estimates: list[Estimate]) -> list[bool]:
    """Which ratios a family calls other than 1, whatever the margin."""
    return [
        one.p is not None and one.confidence is not None and one.p <= 1 - one.confidence
        for one in holm(estimates, 0.95)
    ]


def named(layout: tuple[int, ...], off: float, seeds: Iterable[int]) -> list[tuple[bool, bool]]:
    """Whether any host is called unlike, and whether the right one is; host 0 is off for arm 1."""
    said = []
    for seed in seeds:
        draw = np.random.default_rng(seed)
        rungs = night(Scene(layout), 0.0, 0.0, draw)
        for table in rungs:
            for block in table[arm(1)]:
                table[arm(1)][block] -= off if host_of(block) == "h0" else 0.0
        ladder = {("load", users): table for users, table in zip(LADDER, rungs, strict=True)}
        pairs = {rung: [(arm(a), arm(0)) for a in (1, 2, 3)] for rung in ladder}
        found = compare_hosts(ladder, pairs, "output_tok_s", 0.02, 0.95)
        odd = found.odd if found else ()
        # Of two hosts nobody knows which one is off.
        right = {"h0"} if len(layout) > 2 else {"h0", "h1"}
        said.append((bool(odd), any(one.host in right and one.arm == "arm-1" for one in odd)))
    return said


def mean(tallies: list[Tally]) -> Tally:
    return Tally(
        *(
            {method: fmean(getattr(one, field)[method] for one in tallies) for method in METHODS}
            for field in Tally._fields
        )
    )


def broken(scene: Scene, found: list[Tally]) -> list[str]:
    """Limits that the method in use does not keep."""
    wrong = max(one.wrong[CHOSEN] for one in found)
    covers = min(one.covers[CHOSEN] for one in found)
    limits = (0.07, 0.88) if scene.together else (0.065, 0.92)
    return [
        f"{title(scene)}: {what} {value:.1%}"
        for what, value, bad in (
            ("wrong in", wrong, wrong > limits[0]),
            ("covers", covers, covers < limits[1]),
        )
        if bad
    ]


def title(scene: Scene) -> str:
    few = len(scene.layout) < 5
    blocks = " + ".join(map(str, scene.layout)) if few else f"{len(scene.layout)} x 1"
    together = ", all arms together" if scene.together else ""
    return f"{blocks}{together}{', two arms' * (scene.arms == 2)}"


TEXT = """\
# How intervals over several hosts hold

Simulated sweeps of eight blocks over several hosts (`benchmarks/host_effect.py`), through the product's own arithmetic; shares of {nights} sweeps each.

    make host-effect SEED={seed} N={nights}

Each sweep: 4 arms unless it says two, three concurrencies, so 9 (3) ratios in the family. A boot varies by {boot:.0%}. A ratio varies from host to host by 0, 0.5, 1 and 2 times as much: the four figures of each cell. Either each setting does so for itself, or a host shifts *all arms together* against the baseline (as a slow CPU does to whatever speculates): the hardest case, since among many settings it looks like the baseline's own affair. A host keeps its ways at all concurrencies; the noise of boots is drawn anew at each, which is the worst case for a family.

- *covers*: 95 % intervals of a ratio alone that hold the truth for hosts of the kind.
- *wrong*: sweeps without any difference in which the family finds one, whatever the margin (promised: about 5 %).
- *found*: an arm that is {gain:.0%} faster is told from the baseline, of all concurrencies.

Hosts that differ by twice the noise of a boot ({twice:.0%} here) are hosts to be looked at, not to be averaged over. The worst *wrong* of the method in use is {worst:.1%}; of the others only *own host means* stays near it, and that one finds little on fewer than eight hosts. Where each setting varies for itself, *hosts alone* would find more on three and four hosts; but what all arms share escapes it, and that is what hosts are likely to do to whatever speculates.

## What is used

| blocks of each host | covers | wrong | found |
|---|---|---|---|
{rows}

## What else was tried, on the same sweeps

The worst *covers* and *wrong* over the four spreads, and *found* on equal hosts.

| blocks of each host | {methods} |
|---|{bars}
{others}

- *hosts ignored*: what is right for these hosts alone: the pooled rest of setting + block.
- *moments*: analysis of variance, the variance between hosts set to zero where negative, Satterthwaite's degrees of freedom.
- *tested first*: pooled unless a test at 25 % says that hosts differ (Bancroft).
- *larger of both*: of the pooled and the mean square between hosts.
- *hosts alone*: the mean square between hosts, pooled over settings. Exact where each setting varies for itself, and blind to what all arms share.
- *own host means*: Student's t over each ratio's own host means (Hartung-Knapp). Always right, and with few hosts it finds nothing.
- *used*: both mean squares mixed in where they are larger, with the degrees of freedom of hosts ([statistics.md](../statistics.md#several-hosts)).

## Which host is unlike

Sweeps on equal hosts in which any host is named, and sweeps in which the first host is {off:.0%} off for one arm and it is named (1 % of false alarms is promised; of two hosts both are named, and where every host ran one block none is).

| blocks of each host | false alarms | named |
|---|---|---|
{unlike}

Took {minutes:.0f} minutes.
"""


def line(scene: Scene, found: list[Tally]) -> str:
    """One row of the method in use."""
    cells = [
        " / ".join(f"{100 * getattr(one, field)[CHOSEN]:.1f}" for one in found) + " %"
        for field in Tally._fields
    ]
    return f"| {title(scene)} | {' | '.join(cells)} |"


def beside(scene: Scene, found: list[Tally]) -> str:
    """The same sweeps under each method."""
    cells = [
        f"{min(100 * t.covers[m] for t in found):.0f}, {max(100 * t.wrong[m] for t in found):.1f}, "
        f"{100 * found[0].found[m]:.0f} %"
        for m in METHODS
    ]
    return f"| {title(scene)} | {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nights", type=int, default=1000)
    asked = parser.parse_args()
    began, workers, off = time.monotonic(), os.cpu_count() or 1, 0.06
    first = asked.seed * 1_000_003
    shares = [range(first + w, first + asked.nights, workers) for w in range(workers)]
    rows, others, unlike, complaints, worst = [], [], [], [], 0.0
    with ProcessPoolExecutor(workers) as pool:
        for scene in SCENES:
            found = []
            for spread in SPREADS:
                parts = pool.map(nights, [scene] * workers, [spread] * workers, shares)
                found.append(mean([one for part in parts for one in part]))
            rows.append(line(scene, found))
            others.append(beside(scene, found))
            complaints += broken(scene, found)
            worst = max(worst, *(one.wrong[CHOSEN] for one in found))
            print(rows[-1], others[-1], sep="\n", flush=True)
        for layout in LAYOUTS:
            said = []
            for shift in (0.0, off):
                parts = pool.map(named, [layout] * workers, [shift] * workers, shares)
                said.append([one for part in parts for one in part])
            alarms, right = fmean(a for a, _ in said[0]), fmean(r for _, r in said[1])
            unlike.append(f"| {title(Scene(layout))} | {alarms:.1%} | {right:.0%} |")
            complaints += [f"{layout}: {alarms:.1%} false alarms"] if alarms > 0.02 else []
            print(unlike[-1], flush=True)
    text = TEXT.format(
        nights=asked.nights,
        seed=asked.seed,
        boot=BOOT,
        twice=2 * BOOT,
        worst=worst,
        gain=GAIN * BOOT,
        off=off,
        rows="\n".join(rows),
        methods=" | ".join(METHODS),
        bars="---|" * len(METHODS),
        others="\n".join(others),
        unlike="\n".join(unlike),
        minutes=(time.monotonic() - began) / 60,
    )
    for complaint in complaints:
        print(f"limit not kept: {complaint}", file=sys.stderr)
    if not complaints:
        PAGE.write_text(text, encoding="utf-8")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
