"""How our figures look: light or dark, direct labels, colours for any eyes; PNG or SVG at the end."""

from __future__ import annotations

import math
from io import BytesIO
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Look(NamedTuple):
    """Colours of a figure."""

    ground: str
    ink: str
    faint: str
    axis: str
    grid: str
    band: str
    """Behind what counts as the same."""
    warning: str
    baseline: str
    arms: tuple[str, ...]


# Okabe and Ito's colours, told apart with any colour vision; the baseline is dark grey.
LIGHT = Look(
    ground="#ffffff",
    ink="#222222",
    faint="#6b6b6b",
    axis="#999999",
    grid="#e3e3e3",
    band="#efefef",
    warning="#b00020",
    baseline="#4a4a4a",
    arms=("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
)
# The same hues, lighter: at least 5 : 1 against the ground.
DARK = Look(
    ground="#15181c",
    ink="#e6e6e6",
    faint="#a3a8ae",
    axis="#6f757c",
    grid="#2c3138",
    band="#23282e",
    warning="#ff8a80",
    baseline="#d0d0d0",
    arms=("#2f8fe0", "#e8702a", "#12b886", "#d77fb3", "#f5c542", "#86d0ff"),
)
# Another number than that of the colours: the seventh arm has the first one's colour, no more.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
LINE_GAP = 0.052
"""Height of a line of label text, as a share of the panel's height."""
LOG_FROM = 6.0
"""Values that span more than this factor are drawn on a log scale."""
LONGEST_BAR = 1.5
"""How far beyond all values a bar may reach and still be shown whole, as a factor."""
RATIO_TICKS = (0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0)
MOST_TICKS = 7


class Label(NamedTuple):
    """A name at the right end of a line, behind the line's marker."""

    height: float
    text: str
    colour: str
    marker: str | None
    """None: a plain line, without points."""


class Bar(NamedTuple):
    """An interval, drawn upright at a concurrency."""

    x: float
    low: float
    high: float
    colour: str


def new_figure(width: float, height: float, look: Look) -> Any:
    """An empty figure, in inches; no global state of matplotlib is touched."""
    from matplotlib.figure import Figure  # half a second, and only needed here

    return Figure(figsize=(width, height), facecolor=look.ground)


def finish(figure: Any, title: str, note: str, look: Look, *, alarm: bool, right: float) -> None:
    """Title, a line below it (red for an alarm), margins; ``right`` leaves room for labels."""
    place = {"x": 0.012, "y": 0.985, "ha": "left"}
    figure.suptitle(title, **place, fontsize=13, fontweight="bold", color=look.ink)
    colour = look.warning if alarm else look.faint
    figure.text(0.012, 0.915, note, fontsize=9.5, color=colour, va="top")
    figure.subplots_adjust(top=0.78, bottom=0.13, left=0.065, right=right)


def png(figure: Any) -> bytes:
    """The figure as PNG, the same bytes for the same figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # see new_figure

    buffer = BytesIO()
    FigureCanvasAgg(figure).print_png(buffer, metadata={"Software": None})
    return buffer.getvalue()


def svg(figure: Any) -> bytes:
    """The figure as SVG, letters as outlines: no font is needed where it is read.

    The same bytes for the same figure: ids come from a salt and not from a random number, which
    can only be said as a setting of matplotlib, here for this one call.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # see new_figure

    buffer = BytesIO()
    with rc_context({"svg.hashsalt": "figure", "svg.fonttype": "path"}):
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def draw_bars(axes: Any, bars: Iterable[Bar]) -> None:
    """Intervals as upright bars with short ends."""
    for bar in bars:
        axes.plot(
            [bar.x, bar.x],
            [bar.low, bar.high],
            color=bar.colour,
            linewidth=1.6,
            marker="_",
            markersize=6,
            markeredgewidth=1.6,
            zorder=2,
        )


def name_lines(axes: Any, labels: Sequence[Label], look: Look) -> None:
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
        _name_line(axes, label, share, look)


def _name_line(axes: Any, label: Label, share: float, look: Look) -> None:
    """Marker in the line's colour, text in ink: pale colours are hard to read as letters."""
    where: dict[str, Any] = {
        "xycoords": "axes fraction",
        "textcoords": "offset points",
        "annotation_clip": False,
    }
    from matplotlib.transforms import ScaledTranslation  # see new_figure

    shift = ScaledTranslation(12 / 72, 0, axes.figure.dpi_scale_trans)
    axes.plot(
        [1.0],
        [share],
        transform=axes.transAxes + shift,
        clip_on=False,
        color=label.colour,
        marker=label.marker or "_",
        markersize=6.5 if label.marker else 9,
        markeredgewidth=1.0 if label.marker else 1.6,
        linestyle="none",
        zorder=5,
    )
    axes.annotate(
        label.text,
        (1.0, share),
        xytext=(20, 0),
        va="center",
        linespacing=1.05,
        color=look.ink,
        fontsize=9.5,
        **where,
    )


def by_concurrency(axes: Any, ladder: Sequence[int], title: str, look: Look) -> None:
    """A log axis with the measured concurrencies and nothing else on it."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(ladder), [str(c) for c in ladder])
    axes.set_xticks([], minor=True)
    axes.set_xlim(ladder[0] / 1.3, ladder[-1] * 1.3)
    plain(axes, "users (requests in flight)", title, look)


def plain(axes: Any, x: str, title: str, look: Look) -> None:
    """Few lines; what the heights are stands above the panel, where it can be read."""
    axes.set_facecolor(look.ground)
    axes.set_xlabel(x, color=look.ink, fontsize=10)
    axes.set_title(title, loc="left", color=look.ink, fontsize=10.5, pad=8)
    axes.grid(axis="y", color=look.grid, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", colors=look.ink, labelsize=10, length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(look.axis)


def heights(axes: Any, values: Sequence[float], ends: Sequence[float]) -> None:
    """A scale for positive values: from zero, or logarithmic when they span too much.

    Bars that end at ``ends`` are shown as far as they do not squeeze the values.
    """
    low, high = min(values), max(values)
    logarithmic = high / low > LOG_FROM
    low = max(min([low, *ends]), low / LONGEST_BAR)
    high = min(max([high, *ends]), high * LONGEST_BAR)
    if not logarithmic:
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


def ratios(axes: Any, low: float, high: float) -> None:
    """A log scale for ratios, with 1 on it: as far up to the double as down to the half."""
    low, high = min(low, 0.98), max(high, 1.02)
    room = (high / low) ** 0.06
    low, high = low / room, high * room
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    ticks = [tick for tick in RATIO_TICKS if low <= tick <= high]
    if len(ticks) < MOST_TICKS // 2:
        ticks = _even_ticks(low, high)
    axes.set_yticks(ticks, [f"x {tick:g}" for tick in ticks])
    axes.set_yticks([], minor=True)


def _even_ticks(low: float, high: float) -> list[float]:
    """Round numbers at even distances, as many as can be read."""
    for step in (0.01, 0.02, 0.05, 0.1):
        ticks = [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
        if len(ticks) <= MOST_TICKS:
            break
    return ticks
