"""How our figures look: light ground, direct labels, colours for any eyes; PNG bytes at the end."""

from __future__ import annotations

import math
from io import BytesIO
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

# Okabe and Ito's colours, told apart with any colour vision; the baseline is dark grey.
BASELINE = "#4a4a4a"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
INK = "#222222"
FAINT = "#777777"
WARNING = "#b00020"
GRID = "#e3e3e3"
LINE_GAP = 0.052
"""Height of a line of label text, as a share of the panel's height."""
LOG_FROM = 6.0
"""Values that span more than this factor are drawn on a log scale."""


class Label(NamedTuple):
    """A name at the right end of a line."""

    height: float
    text: str
    colour: str


def new_figure(width: float, height: float) -> Any:
    """An empty figure, in inches; no global state of matplotlib is touched."""
    from matplotlib.figure import Figure  # half a second, and only needed here

    return Figure(figsize=(width, height), facecolor="white")


def finish(figure: Any, title: str, note: str, *, alarm: bool, right: float) -> None:
    """Title, a line below it (red for an alarm), margins; ``right`` leaves room for labels."""
    figure.suptitle(title, x=0.012, y=0.985, ha="left", fontsize=13, fontweight="bold", color=INK)
    figure.text(0.012, 0.915, note, fontsize=9, color=WARNING if alarm else FAINT, va="top")
    figure.subplots_adjust(top=0.79, bottom=0.13, left=0.07, right=right)


def png(figure: Any) -> bytes:
    """The figure as PNG, the same bytes for the same figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # see new_figure

    canvas = FigureCanvasAgg(figure)
    buffer = BytesIO()
    canvas.print_png(buffer, metadata={"Software": None})
    return buffer.getvalue()


def line_style(colour: str, place: int, *, strong: bool) -> dict[str, Any]:
    """A named line, or a thin one beside it."""
    if not strong:
        return {"color": colour, "linewidth": 1.0, "alpha": 0.35, "zorder": 2}
    marker = MARKERS[place % len(MARKERS)]
    return {"color": colour, "linewidth": 2.2, "marker": marker, "markersize": 6, "zorder": 3}


def name_lines(axes: Any, labels: Sequence[Label]) -> None:
    """Names at the right end of the lines, pushed apart until none covers another."""
    low, high = axes.get_ylim()
    log = axes.get_yscale() == "log"
    if log:
        low, high = math.log(low), math.log(high)
    ends = [math.log(label.height) if log else label.height for label in labels]
    shares = [(min(max(end, low), high) - low) / (high - low) for end in ends]
    tall = [LINE_GAP * (1 + label.text.count("\n")) for label in labels]
    order = sorted(range(len(labels)), key=lambda i: shares[i])
    for _ in range(200):
        for a, b in pairwise(order):
            lack = (tall[a] + tall[b]) / 2 - (shares[b] - shares[a])
            if lack > 1e-9:
                shares[a], shares[b] = shares[a] - lack / 2, shares[b] + lack / 2
    for label, share in zip(labels, shares, strict=True):
        axes.annotate(
            label.text,
            (1.0, share),
            xycoords="axes fraction",
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            linespacing=1.05,
            color=label.colour,
            fontsize=9.5,
            annotation_clip=False,
        )


def by_concurrency(axes: Any, ladder: Sequence[int], title: str) -> None:
    """A log axis with the measured concurrencies and nothing else on it."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(ladder), [str(c) for c in ladder])
    axes.set_xticks([], minor=True)
    axes.set_xlim(ladder[0] / 1.3, ladder[-1] * 1.3)
    plain(axes, "users (requests in flight)", title)


def plain(axes: Any, x: str, title: str) -> None:
    """Few lines; what the heights are stands above the panel, where it can be read."""
    axes.set_xlabel(x, color=INK, fontsize=10)
    axes.set_title(title, loc="left", color=INK, fontsize=10.5, pad=8)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", colors=INK, labelsize=10, length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#999999")


def heights(axes: Any, values: Sequence[float]) -> None:
    """A scale for positive values: from zero, or logarithmic when they span too much."""
    low, high = min(values), max(values)
    if high / low <= LOG_FROM:
        axes.set_ylim(0, high * 1.08)
        return
    axes.set_yscale("log")
    axes.set_ylim(low / 1.25, high * 1.25)
    ticks = [
        step * 10.0**power
        for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for step in (1, 2, 5)
        if low / 1.25 <= step * 10.0**power <= high * 1.25
    ]
    axes.set_yticks(ticks, [f"{tick:,g}" for tick in ticks])
    axes.set_yticks([], minor=True)
