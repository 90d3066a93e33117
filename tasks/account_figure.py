"""The figure of where the time goes: a user's speed as acceptance times the speed of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tasks.figure_lines import finish_for, lines_of, name_of, paint_for
from tasks.figure_style import (
    Bar,
    Label,
    Look,
    by_concurrency,
    draw_bars,
    name_lines,
    new_figure,
    ratios,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tasks.comparison import Comparison, SpeedAccount


class Part(NamedTuple):
    """A panel: one factor of the change of a user's speed."""

    title: str
    ratio: Callable[[SpeedAccount], float]
    """Against the baseline; above 1 is faster."""
    ends: Callable[[SpeedAccount], tuple[float | None, float | None]]
    """The interval of that ratio alone."""


PARTS = (
    Part("from acceptance", lambda a: a.accept_ratio, lambda a: (a.accept_low, a.accept_high)),
    Part(
        "x  from step time",
        lambda a: 1 / a.step_ratio,
        lambda a: (
            1 / a.step_high if a.step_high else None,
            1 / a.step_low if a.step_low else None,
        ),
    ),
    Part("=  speed of a user", lambda a: a.user_ratio, lambda _: (None, None)),
)
"""On a log scale heights add up: the third is the first plus the second."""


def account_figure(comparison: Comparison, probe: str, look: Look) -> Any | None:
    """Three panels on one scale: acceptance, step time, and their product, a user's speed."""
    accounts = [a for a in comparison.accounts if a.probe == probe]
    if not accounts:
        return None
    paint = paint_for(comparison, probe, look)
    ladder = sorted({a.concurrency for a in accounts})
    values = [
        value
        for part in PARTS
        for a in accounts
        for value in (part.ratio(a), *part.ends(a))
        if value is not None
    ]
    figure = new_figure(11.0, 4.2, look)
    panels = figure.subplots(1, len(PARTS), sharey=True, gridspec_kw={"wspace": 0.12})
    ratios(panels[0], min(values), max(values))
    for axes, part in zip(panels, PARTS, strict=True):
        axes.axhline(1.0, color=look.baseline, linewidth=1.2, zorder=1)
        labels = [Label(1.0, str(comparison.baseline), look.baseline, None)]
        for key, line in lines_of(accounts).items():
            axes.plot(
                [a.concurrency for a in line], [part.ratio(a) for a in line], **paint.line(key)
            )
            if key in paint.strong:
                draw_bars(axes, _bars(line, part, paint.colour(key[0])))
                labels.append(paint.label(part.ratio(line[-1]), key[0], name_of(line[-1])))
        by_concurrency(axes, ladder, part.title, look)
    name_lines(panels[-1], labels, look)
    title = f"Where the time goes against {comparison.baseline}, probe {probe}"
    return finish_for(figure, comparison, title, look, 0.845)


def _bars(line: Sequence[SpeedAccount], part: Part, colour: str) -> Iterator[Bar]:
    for account in line:
        low, high = part.ends(account)
        if low is not None and high is not None:
            yield Bar(account.concurrency, low, high, colour)
