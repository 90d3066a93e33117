"""Figures of a comparison as PNG: speed against concurrency with the crossover, and acceptance."""

from __future__ import annotations

import math
import re
from statistics import fmean
from typing import TYPE_CHECKING, Any

from tasks.comparison import setting_label
from tasks.decision import REHEARSAL
from tasks.figure_style import (
    BASELINE,
    COLOURS,
    FAINT,
    Label,
    by_concurrency,
    finish,
    heights,
    line_style,
    name_lines,
    new_figure,
    plain,
    png,
)
from tasks.metrics import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.comparison import Cell, Comparison, Standing

Key = tuple[str, str]
"""Arm, and the label of one of its settings."""


def draw_figures(comparison: Comparison) -> dict[str, bytes]:
    """All figures by file name; none where there is nothing to draw."""
    figures: dict[str, bytes] = {}
    for probe in dict.fromkeys(s.probe for s in comparison.standings):
        name = re.sub(r"[^A-Za-z0-9_.]+", "-", probe)
        for kind, data in (
            ("speed", speed_figure(comparison, probe)),
            ("acceptance", acceptance_figure(comparison, probe)),
        ):
            if data is not None:
                figures[f"{kind}-{name}.png"] = data
    return figures


def speed_figure(comparison: Comparison, probe: str) -> bytes | None:
    """Left the speed of every setting against concurrency, right its ratio to the baseline.

    One colour an arm. Where an arm has several levels, the fastest of them is drawn strong and
    named, the others thin. Bars are the intervals of the verdicts.
    """
    metric = comparison.metrics[0]
    standings = [s for s in comparison.standings if s.probe == probe and _value(s, metric)]
    if not standings:
        return None
    shown, colours = _shown(standings, metric), _colours(standings)
    ladder = sorted({s.concurrency for s in standings})
    figure = new_figure(12.0, 4.9)
    left, right = figure.subplots(1, 2, gridspec_kw={"wspace": 0.58})
    labels: list[Label] = []
    for key, line in _lines(standings).items():
        ys = [value for s in line if (value := _value(s, metric))]
        left.plot([s.concurrency for s in line], ys, **_style(key, colours, shown))
        if key in shown:
            labels.append(Label(ys[-1], _name(line[-1].arm, line[-1].levels), colours[key[0]]))
    heights(left, [value for s in standings if (value := _value(s, metric))])
    by_concurrency(left, ladder, f"{metric}, {BY_NAME[metric].unit}")
    name_lines(left, labels)
    cells = [
        c for c in comparison.cells if (c.contrast, c.metric, c.probe) == ("arm", metric, probe)
    ]
    _ratios(right, comparison, cells, colours, shown)
    by_concurrency(right, ladder, f"ratio to {comparison.baseline} (ring: break-even, users)")
    _finish(figure, comparison, f"Speed against concurrency, probe {probe}", right=0.86)
    return png(figure)


def acceptance_figure(comparison: Comparison, probe: str) -> bytes | None:
    """Share of verify steps that accepted at least k drafts, at the lowest concurrency."""
    mine = [s for s in comparison.standings if s.probe == probe and s.accept_at_k]
    if not mine:
        return None
    lowest = min(s.concurrency for s in mine)
    at_lowest = [s for s in mine if s.concurrency == lowest]
    colours = _colours([s for s in comparison.standings if s.probe == probe])
    shown = _shown(at_lowest, "accept_length")
    figure = new_figure(8.0, 4.4)
    axes = figure.subplots()
    labels: list[Label] = []
    for s in at_lowest:
        key, shares = _key(s), s.accept_at_k or ()
        axes.plot(range(1, len(shares) + 1), shares, **_style(key, colours, shown))
        if key in shown:
            length = f": {s.accept_length:.2f}" if s.accept_length else ""
            labels.append(Label(shares[-1], s.arm + length, colours[s.arm]))
    depth = max(len(s.accept_at_k or ()) for s in at_lowest)
    axes.set_xticks(range(1, depth + 1))
    axes.set_xlim(0.8, depth + 0.2)
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:.0%}")
    plain(axes, "k", "share of verify steps that accepted at least k drafts; arm: accept length")
    name_lines(axes, labels)
    people = "1 user" if lowest == 1 else f"{lowest} users"
    _finish(figure, comparison, f"Accepted drafts, probe {probe}, {people}", right=0.78)
    return png(figure)


def _ratios(
    axes: Any,
    comparison: Comparison,
    cells: Sequence[Cell],
    colours: dict[str, str],
    shown: set[Key],
) -> None:
    """Ratio lines with interval bars, the margin as a band, the crossover as a ring."""
    margin = comparison.same_margin
    axes.axhspan(1 / (1 + margin), 1 + margin, color="#efefef", zorder=0)
    axes.axhline(1.0, color=BASELINE, linewidth=1.2, zorder=1)
    lines: dict[Key, list[Cell]] = {}
    for cell in sorted(cells, key=lambda c: c.concurrency):
        lines.setdefault(_key(cell), []).append(cell)
    named = [key for key in lines if key in shown]
    crossed = any(c.reference_levels for c in cells)
    base = f"{comparison.baseline}{chr(10) + 'same levels' if crossed else ''}"
    labels = [Label(1.0, base, BASELINE)] if cells else []
    for key, line in lines.items():
        # Side by side, so that bars do not hide each other.
        shift = 1.035 ** (named.index(key) - (len(named) - 1) / 2) if key in named else 1.0
        xs = [c.concurrency * shift for c in line]
        axes.plot(xs, [c.ratio for c in line], **_style(key, colours, shown))
        if key not in shown:
            continue
        for x, c in zip(xs, line, strict=True):
            if c.low is not None and c.high is not None:
                axes.plot([x, x], [c.low, c.high], color=colours[key[0]], linewidth=1.6, zorder=2)
        labels.append(Label(line[-1].ratio, _name(line[-1].arm, line[-1].levels), colours[key[0]]))
    _ratio_limits(axes, cells)
    rings = [
        (x.concurrency, colours[x.arm])
        for x in comparison.crossovers
        if cells and (x.metric, x.probe) == (cells[0].metric, cells[0].probe) and _key(x) in shown
    ]
    _rings(axes, rings)
    name_lines(axes, labels)
    if cells and all(c.low is None for c in cells):
        axes.text(0.02, 0.96, "one block: no intervals", transform=axes.transAxes, color=FAINT)


def _ratio_limits(axes: Any, cells: Sequence[Cell]) -> None:
    """Show every point, but let no bar of a hopeless cell squeeze the rest."""
    points = [c.ratio for c in cells] + [1.0]
    room = max(max(points) - min(points), 0.08)
    low = min(points + [c.low for c in cells if c.low is not None])
    high = max(points + [c.high for c in cells if c.high is not None])
    axes.set_ylim(
        max(low, min(points) - room) - 0.1 * room, min(high, max(points) + room) + 0.12 * room
    )


def _rings(axes: Any, rings: Sequence[tuple[float, str]]) -> None:
    """Break-even points on the line of the baseline, numbers above and below in turn."""
    for i, (concurrency, colour) in enumerate(sorted(rings)):
        axes.plot(
            [concurrency],
            [1.0],
            marker="o",
            markersize=11,
            markerfacecolor="none",
            markeredgecolor=colour,
            markeredgewidth=1.5,
            linestyle="none",
            zorder=4,
        )
        axes.annotate(
            f"{concurrency:.0f}",
            (concurrency, 1.0),
            xytext=(0, -19 if i % 2 == 0 else 10),
            textcoords="offset points",
            ha="center",
            fontsize=9.5,
            fontweight="bold",
            color=colour,
            zorder=5,
        )


def _shown(standings: Sequence[Standing], metric: str) -> set[Key]:
    """Of each arm the setting that is best over its ladder."""
    sign = -1 if BY_NAME[metric].better == "lower" else 1
    best: dict[str, tuple[float, Key]] = {}
    for key, line in _lines(standings).items():
        score = sign * fmean(math.log(value) for s in line if (value := _value(s, metric)))
        if key[0] not in best or score > best[key[0]][0]:
            best[key[0]] = (score, key)
    return {key for _, key in best.values()}


def _lines(standings: Sequence[Standing]) -> dict[Key, list[Standing]]:
    lines: dict[Key, list[Standing]] = {}
    for s in sorted(standings, key=lambda s: s.concurrency):
        lines.setdefault(_key(s), []).append(s)
    return lines


def _key(of: Any) -> Key:
    return of.arm, setting_label(of.arm, of.levels)


def _name(arm: str, levels: dict[str, str]) -> str:
    """The arm, its levels below it: a bare "ll" would be read as a two."""
    shown = ", ".join(f"{factor}={level}" for factor, level in sorted(levels.items()))
    return f"{arm}\n{shown}" if shown else arm


def _value(standing: Standing, metric: str) -> float | None:
    """A standing's figure; of a time the median."""
    name = {"ttft_s": "ttft_p50_s", "tpot_s": "tpot_p50_s"}.get(metric, metric)
    value: float | None = getattr(standing, name, None)
    return value


def _colours(standings: Sequence[Standing]) -> dict[str, str]:
    arms = list(dict.fromkeys(s.arm for s in standings if not s.baseline))
    colours = {s.arm: BASELINE for s in standings if s.baseline}
    return colours | {arm: COLOURS[i % len(COLOURS)] for i, arm in enumerate(arms)}


def _style(key: Key, colours: dict[str, str], shown: set[Key]) -> dict[str, Any]:
    return line_style(colours[key[0]], list(colours).index(key[0]), strong=key in shown)


def _finish(figure: Any, comparison: Comparison, title: str, *, right: float) -> None:
    where = f"{comparison.host_class or 'no host'}, {', '.join(comparison.sweeps)}"
    note = f"{REHEARSAL} - {where}" if comparison.rehearsal else where
    finish(figure, title, note, alarm=comparison.rehearsal, right=right)
