"""The figure of what a decode step is made of: a bar a setting, all bars of one length."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from tasks.comparison import setting_label
from tasks.decision import users
from tasks.figure_lines import finish_for
from tasks.figure_style import DARK, LIGHT, Look, new_figure, plain, png, svg
from tasks.figures import Picture
from tasks.inside import side_by_side
from tasks.kernel_table import CATEGORIES, TITLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tasks.comparison import Comparison
    from tasks.inside import Inside
    from tasks.record import TrialRecord

_LEAST_NAMED = 0.045
"""A narrower piece has no room for its figure."""
_ROW = 0.42
_MOST_BARS = 24


class _Piece(NamedTuple):
    title: str
    share: float
    colour: str
    hatch: str | None = None


def inside_figures(comparison: Comparison, records: Sequence[TrialRecord]) -> dict[str, bytes]:
    """A PNG for each profile, by file name; none where there is nothing to draw."""
    return {f"{name}.png": png(f) for name, f in _figures(comparison, records, LIGHT)}


def inside_pictures(comparison: Comparison, records: Sequence[TrialRecord]) -> dict[str, Picture]:
    """The same for the page."""
    dark = dict(_figures(comparison, records, DARK))
    return {
        f"{name}.png": Picture(svg(light), svg(dark[name]))
        for name, light in _figures(comparison, records, LIGHT)
    }


def _figures(
    comparison: Comparison, records: Sequence[TrialRecord], look: Look
) -> Iterator[tuple[str, Any]]:
    lines = side_by_side(records)
    for probe in dict.fromkeys(line.probe for line in lines):
        mine = [line for line in lines if line.probe == probe][:_MOST_BARS]
        name = re.sub(r"[^A-Za-z0-9_.]+", "-", probe)
        yield f"inside-{name}", _draw(comparison, probe, mine, look)


def _draw(comparison: Comparison, probe: str, lines: Sequence[Inside], look: Look) -> Any:
    figure = new_figure(11.0, 2.6 + _ROW * len(lines), look)
    axes = figure.subplots()
    named: dict[str, _Piece] = {}
    for row, line in enumerate(reversed(lines)):
        left = 0.0
        for piece in _pieces(line, look):
            style = {"edgecolor": look.ground, "linewidth": 0.8, "hatch": piece.hatch}
            axes.barh(row, piece.share, left=left, height=0.72, color=piece.colour, **style)
            if piece.share >= _LEAST_NAMED:
                axes.text(
                    left + piece.share / 2,
                    row,
                    f"{100 * piece.share:.1f}",
                    ha="center",
                    va="center",
                    fontsize=9,
                    color=look.ink,
                    bbox={"facecolor": look.ground, "edgecolor": "none", "pad": 1.2, "alpha": 0.75},
                )
            left += piece.share
            if piece.share > 0:
                named.setdefault(piece.title, piece)
    labels = [f"{setting_label(x.arm, x.levels)}, {users(x.concurrency)}" for x in reversed(lines)]
    axes.set_yticks(range(len(lines)), labels)
    axes.set_xlim(0, 1)
    axes.set_ylim(-0.6, len(lines) - 0.4)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:.0%}")
    plain(axes, "share of the GPU time of a step", "", look)
    axes.grid(visible=False)
    order = [t for t in (*TITLES.values(), "draft model", "idle") if t in named]
    handles = [_patch(named[title], look) for title in order]
    legend = axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=5,
        frameon=False,
        fontsize=9.5,
        labelcolor=look.ink,
        handlelength=1.2,
        columnspacing=1.4,
    )
    legend.set_zorder(5)
    finish_for(figure, comparison, f"What a step is made of, probe {probe}", look, 0.975)
    height = 2.6 + _ROW * len(lines)
    figure.subplots_adjust(
        top=1 - 1.45 / height, bottom=0.55 / height, left=_margin(labels), right=0.975
    )
    return figure


def _margin(labels: Sequence[str]) -> float:
    """Room for the longest name, as a share of the width."""
    return min(0.4, 0.03 + 0.0072 * max(map(len, labels)))


def _patch(piece: _Piece, look: Look) -> Any:
    from matplotlib.patches import Patch  # see figure_style.new_figure

    return Patch(
        facecolor=piece.colour, edgecolor=look.ground, hatch=piece.hatch, label=piece.title
    )


def _pieces(line: Inside, look: Look) -> list[_Piece]:
    """The target's share of each kind, the drafter's whole, what is idle: all of the bar."""
    blue, vermilion, green, purple, orange, sky = look.arms
    colours = {
        "all_reduce": vermilion,
        "exchange": orange,
        "attention": blue,
        "gemm": green,
        "norm": sky,
        "sampling": purple,
        "memory": look.axis,
        "other": look.warning,
    }
    pieces = [_Piece(TITLES[c], line.target.of(c), colours[c]) for c in CATEGORIES]
    drafter = line.drafter.total if line.drafter else 0.0
    return [
        *pieces,
        _Piece("draft model", drafter, look.baseline, "///"),
        _Piece("idle", line.idle, look.grid),
    ]
