"""How a screen looks in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tasks.reduce_path import WORDS
from tasks.screen_report import decision
from tasks.screen_sizes import size_words

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tasks.screen import LevelScreen, Screen

_MOST_COLUMNS = 6


def screen_text(screen: Screen) -> RenderableType:
    """Times, what carries decode, findings, and the sentence last, where the eye rests."""
    parts: list[RenderableType] = [_times(screen), Text("")]
    for arm, path in screen.paths.items():
        used = " and ".join(WORDS[kind] for kind in path.kinds(screen.sizes.bytes))
        sure = "proven" if path.proven else "told from its flags"
        sure += "" if path.sure else " alone, so not certain"
        parts.append(Text(f"{arm}: decode reduces through {used} ({sure})"))
    parts += [
        Text(f"{finding.name}: {finding.where}: {finding.evidence}", style="yellow")
        for finding in screen.findings
    ]
    parts += [
        Text(f"{screen.factor}={name} is left out: {why}") for name, why in screen.dropped.items()
    ]
    parts += [Text(note) for note in screen.notes]
    return Group(*parts, Text(decision(screen), style="bold"))


def _times(screen: Screen) -> Table:
    title = f"{screen.factor}: microseconds of an all-reduce, median over rounds"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    timed = next((one for one in screen.levels if one.times), None)
    shown = _picked(timed)
    for head in (
        "level",
        *(size_words(timed.times[i].size_bytes) for i in shown if timed),
        "ratio",
    ):
        table.add_column(head, justify="left" if head == "level" else "right", no_wrap=True)
    ratios = dict(screen.ranking())
    for one in screen.levels:
        cells = [f"{one.times[i].median_us:.2f}" if one.times else "-" for i in shown]
        ratio = ratios.get(one.level)
        style = "" if one.level in screen.kept else "dim"
        table.add_row(one.level, *cells, "-" if ratio is None else f"{ratio:.3f}", style=style)
    return table


def _picked(timed: LevelScreen | None) -> list[int]:
    """Some of the sizes, the smallest and the largest among them."""
    if timed is None:
        return []
    last = len(timed.times) - 1
    many = min(_MOST_COLUMNS, len(timed.times))
    return sorted({round(i * last / max(1, many - 1)) for i in range(many)})
