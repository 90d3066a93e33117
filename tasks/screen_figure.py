"""The figure of a screen: microseconds of an all-reduce against its size, one line a level."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tasks.figure_style import (
    LIGHT,
    MARKERS,
    Bar,
    Label,
    Look,
    draw_bars,
    finish,
    heights,
    name_lines,
    new_figure,
    plain,
    png,
)
from tasks.screen_sizes import size_words

if TYPE_CHECKING:
    from tasks.screen import LevelScreen, Screen


def screen_figure(screen: Screen, look: Look = LIGHT) -> bytes | None:
    """The figure as PNG; None where nothing was timed.

    Bars are the intervals of the medians. A dropped level is drawn thin; the reference is grey.
    """
    timed = [one for one in screen.levels if one.times]
    if not timed:
        return None
    figure = new_figure(9.5, 4.7, look)
    axes = figure.subplots()
    values = [time.median_us for one in timed for time in one.times]
    bars = [
        bar
        for index, one in enumerate(timed)
        for bar in _bars(one, _colour(index, one, screen, look))
    ]
    heights(axes, values, [end for bar in bars for end in (bar.low, bar.high)])
    labels = []
    for index, one in enumerate(timed):
        colour = _colour(index, one, screen, look)
        marker = MARKERS[index % len(MARKERS)]
        strong = one.level in screen.kept
        axes.plot(
            [time.size_bytes for time in one.times],
            [time.median_us for time in one.times],
            color=colour,
            marker=marker,
            markersize=5,
            linewidth=2.0 if strong else 0.8,
            linestyle="-" if strong else (0, (3, 2)),
        )
        name = one.level if strong else f"{one.level} (left out)"
        labels.append(Label(one.times[-1].median_us, name, colour, marker))
    _sizes(axes, timed[0], look)
    draw_bars(axes, bars)
    name_lines(axes, labels, look)
    note = f"{screen.host}, {screen.tp} GPUs; {screen.timed_note}"
    if screen.rehearsal:
        note = f"REHEARSAL: no claim about any GPU. {note}"
    title = f"All-reduce under the levels of {screen.factor}, at the sizes of decode"
    finish(figure, title, note, look, alarm=screen.rehearsal, right=0.76)
    return png(figure)


def _sizes(axes: Any, one: LevelScreen, look: Look) -> None:
    sizes = [time.size_bytes for time in one.times]
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [size_words(size) for size in sizes], rotation=30)
    axes.set_xticks([], minor=True)
    axes.set_xlim(sizes[0] / 1.2, sizes[-1] * 1.2)
    plain(axes, "", "microseconds a call, median over rounds", look)


def _colour(index: int, one: LevelScreen, screen: Screen, look: Look) -> str:
    return look.baseline if one.level == screen.reference else look.arms[index % len(look.arms)]


def _bars(one: LevelScreen, colour: str) -> list[Bar]:
    return [
        Bar(time.size_bytes, time.low_us, time.high_us, colour)
        for time in one.times
        if time.low_us is not None and time.high_us is not None
    ]
