"""Figures of a comparison: speed against concurrency with the crossover, acceptance, where time goes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from tasks.account_figure import account_figure
from tasks.decision import users
from tasks.figure_lines import (
    Key,
    Paint,
    finish_for,
    key_of,
    lines_of,
    name_of,
    paint_for,
    value_of,
)
from tasks.figure_style import (
    DARK,
    LIGHT,
    LINE_GAP,
    Bar,
    Label,
    Look,
    by_concurrency,
    draw_bars,
    heights,
    name_lines,
    new_figure,
    plain,
    png,
    svg,
)
from tasks.metrics import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tasks.comparison import Cell, Comparison, Crossover


class Picture(NamedTuple):
    """A figure for a page that follows the reader's colour scheme, as SVG."""

    light: bytes
    dark: bytes


def draw_figures(comparison: Comparison) -> dict[str, bytes]:
    """All figures as PNG on white, by file name; none where there is nothing to draw."""
    return {f"{name}.png": png(figure) for name, figure in _figures(comparison, LIGHT)}


def draw_pictures(comparison: Comparison) -> dict[str, Picture]:
    """The same figures for a page, under the same file names."""
    pairs = zip(_figures(comparison, LIGHT), _figures(comparison, DARK), strict=True)
    return {f"{name}.png": Picture(svg(light), svg(dark)) for (name, light), (_, dark) in pairs}


def _figures(comparison: Comparison, look: Look) -> Iterator[tuple[str, Any]]:
    """Every figure there is to draw, with its name."""
    kinds = {"speed": speed_figure, "acceptance": acceptance_figure, "steps": account_figure}
    for probe in dict.fromkeys(s.probe for s in comparison.standings):
        name = re.sub(r"[^A-Za-z0-9_.]+", "-", probe)
        for kind, draw in kinds.items():
            figure = draw(comparison, probe, look)
            if figure is not None:
                yield f"{kind}-{name}", figure


def speed_figure(comparison: Comparison, probe: str, look: Look) -> Any | None:
    """Left the speed of every setting against concurrency, right its ratio to the baseline.

    One colour and marker an arm. Where an arm has several levels, the fastest of them is drawn
    strong and named, the others thin. Bars are the intervals of the verdicts: as ratios, and left
    as that ratio times the baseline's speed in the same blocks. Rings and dotted lines are
    crossovers.
    """
    metric = comparison.metrics[0]
    standings = [s for s in comparison.standings if s.probe == probe and value_of(s, metric)]
    if not standings:
        return None
    paint = paint_for(comparison, probe, look)
    ladder = sorted({s.concurrency for s in standings})
    cells = [
        c for c in comparison.cells if (c.contrast, c.metric, c.probe) == ("arm", metric, probe)
    ]
    crossings = [
        x
        for x in comparison.crossovers
        if (x.metric, x.probe) == (metric, probe) and key_of(x) in paint.strong
    ]
    figure = new_figure(11.0, 4.7, look)
    left, right = figure.subplots(1, 2, gridspec_kw={"wspace": 0.62})
    labels: list[Label] = []
    shifts = _shifts(cells, paint)
    for key, line in lines_of(standings).items():
        xs = [s.concurrency * shifts.get(key, 1.0) for s in line]
        ys = [value for s in line if (value := value_of(s, metric))]
        left.plot(xs, ys, **paint.line(key))
        if key in paint.strong:
            labels.append(paint.label(ys[-1], key[0], name_of(line[-1])))
    bars = list(_bars(cells, paint, absolute=True))
    heights(
        left,
        [value for s in standings if (value := value_of(s, metric))],
        [end for bar in bars for end in (bar.low, bar.high)],
    )
    by_concurrency(left, ladder, f"{metric}, {BY_NAME[metric].unit}", look)
    draw_bars(left, bars)
    _verticals(left, crossings, paint)
    name_lines(left, labels, look)
    _ratios(right, comparison, cells, crossings, paint)
    title = f"ratio to {comparison.baseline}"
    by_concurrency(right, ladder, title + (" (ring: break-even)" if crossings else ""), look)
    return finish_for(figure, comparison, f"Speed against users, probe {probe}", look, 0.845)


def acceptance_figure(comparison: Comparison, probe: str, look: Look) -> Any | None:
    """Share of verify steps that accepted at least k drafts, at the lowest concurrency."""
    mine = [s for s in comparison.standings if s.probe == probe and s.accept_at_k]
    if not mine:
        return None
    lowest = min(s.concurrency for s in mine)
    at_lowest = [s for s in mine if s.concurrency == lowest]
    paint = paint_for(comparison, probe, look)
    figure = new_figure(11.0, 4.2, look)
    axes = figure.subplots()
    labels: list[Label] = []
    for s in at_lowest:
        key, shares = key_of(s), s.accept_at_k or ()
        axes.plot(range(1, len(shares) + 1), shares, **paint.line(key))
        if key in paint.strong:
            length = f": {s.accept_length:.2f}" if s.accept_length else ""
            labels.append(paint.label(shares[-1], s.arm, s.arm + length))
    depth = max(len(s.accept_at_k or ()) for s in at_lowest)
    axes.set_xticks(range(1, depth + 1))
    axes.set_xlim(0.8, depth + 0.2)
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:.0%}")
    title = "share of verify steps that accepted at least k drafts; arm: accept length"
    plain(axes, "k", title, look)
    name_lines(axes, labels, look)
    title = f"Accepted drafts, probe {probe}, {users(lowest)}"
    return finish_for(figure, comparison, title, look, 0.8)


def _ratios(
    axes: Any,
    comparison: Comparison,
    cells: Sequence[Cell],
    crossings: Sequence[Crossover],
    paint: Paint,
) -> None:
    """Ratio lines with interval bars, the margin as a band, the crossover as a ring."""
    margin = comparison.same_margin
    axes.axhspan(1 / (1 + margin), 1 + margin, color=paint.look.band, zorder=0)
    axes.axhline(1.0, color=paint.look.baseline, linewidth=1.2, zorder=1)
    crossed = any(c.reference_levels for c in cells)
    base = f"{comparison.baseline}{chr(10) + 'same levels' if crossed else ''}"
    labels = [Label(1.0, base, paint.look.baseline, None)] if cells else []
    shifts = _shifts(cells, paint)
    for key, line in lines_of(cells).items():
        xs = [c.concurrency * shifts.get(key, 1.0) for c in line]
        axes.plot(xs, [c.ratio for c in line], **paint.line(key))
        if key in paint.strong:
            labels.append(paint.label(line[-1].ratio, key[0], name_of(line[-1])))
    draw_bars(axes, _bars(cells, paint, absolute=False))
    _ratio_limits(axes, cells)
    _verticals(axes, crossings, paint)
    _rings(axes, crossings, paint)
    name_lines(axes, labels, paint.look)
    if cells and all(c.low is None for c in cells):
        where = {"transform": axes.transAxes, "color": paint.look.faint}
        axes.text(0.02, 0.96, "one block: no intervals", **where)


def _bars(cells: Sequence[Cell], paint: Paint, *, absolute: bool) -> Iterator[Bar]:
    """Intervals of the strong settings; ``absolute`` in the metric's unit, else as ratios."""
    shifts = _shifts(cells, paint)
    for cell in cells:
        key = key_of(cell)
        if key not in paint.strong or cell.low is None or cell.high is None:
            continue
        unit = cell.reference_value if absolute else 1.0
        x = cell.concurrency * shifts.get(key, 1.0)
        yield Bar(x, cell.low * unit, cell.high * unit, paint.colour(cell.arm))


def _shifts(cells: Sequence[Cell], paint: Paint) -> dict[Key, float]:
    """Strong settings stand side by side, so that bars do not hide each other."""
    named = [key for key in dict.fromkeys(map(key_of, cells)) if key in paint.strong]
    return {key: 1.035 ** (i - (len(named) - 1) / 2) for i, key in enumerate(named)}


def _ratio_limits(axes: Any, cells: Sequence[Cell]) -> None:
    """Show every point, but let no bar of a hopeless cell squeeze the rest."""
    points = [c.ratio for c in cells] + [1.0]
    room = max(max(points) - min(points), 0.08)
    low = min(points + [c.low for c in cells if c.low is not None])
    high = max(points + [c.high for c in cells if c.high is not None])
    axes.set_ylim(
        max(low, min(points) - room) - 0.1 * room, min(high, max(points) + room) + 0.12 * room
    )


def _verticals(axes: Any, crossings: Sequence[Crossover], paint: Paint) -> None:
    """Where an arm breaks even, through both panels."""
    for x in crossings:
        style = {"linestyle": (0, (2, 3)), "linewidth": 1.2, "zorder": 1}
        axes.axvline(x.concurrency, color=paint.colour(x.arm), **style)


def _rings(axes: Any, crossings: Sequence[Crossover], paint: Paint) -> None:
    """Break-even points on the line of the baseline, their numbers at the top of the dots."""
    for i, x in enumerate(sorted(crossings, key=lambda x: x.concurrency)):
        colour = paint.colour(x.arm)
        axes.plot(
            [x.concurrency],
            [1.0],
            marker="o",
            markersize=11,
            markerfacecolor="none",
            markeredgecolor=colour,
            markeredgewidth=1.8,
            linestyle="none",
            zorder=4,
        )
        axes.annotate(
            f"{'' if x.firm else 'about '}{users(x.concurrency)}",
            (x.concurrency, 0.99 - i * LINE_GAP),
            xycoords=axes.get_xaxis_transform(),
            xytext=(-5, 0),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=9.5,
            fontweight="bold",
            color=paint.look.ink,
            bbox={"facecolor": paint.look.ground, "edgecolor": "none", "pad": 0.5, "alpha": 0.7},
            zorder=5,
        )
