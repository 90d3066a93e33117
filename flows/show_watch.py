"""How a run looks to whoever watches it, in a terminal of 80 columns or more."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tasks.spans import span

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from flows.done import Done
    from flows.watched import Doing, View
    from tasks.smi_csv import GpuRow

_COLOUR = {"ok": "green", "suspect": "yellow", "failed": "red", "skipped": "dim"}
_AROUND = 9  # lines that are no trials: heading, counts, column names, GPUs, blank ones
_BAR = 20


def view_text(
    view: View, height: int, gpus: Mapping[str, Sequence[GpuRow] | str]
) -> RenderableType:
    """One moment of a run.

    Args:
        view: The moment.
        height: Lines that there are; the newest trials are shown.
        gpus: Host -> its GPUs now, or a sentence why not; empty: not asked for.
    """
    several = len(view.doing) > 1
    parts: list[RenderableType] = [
        Text(f"{view.run}: {view.question}", style="bold", overflow="ellipsis", no_wrap=True),
        Text(_counts(view)),
        Text(""),
        _trials(view, max(3, height - _AROUND - 2 * max(0, len(view.doing) - 1))),
    ]
    if view.doing:
        parts.append(Text(""))
    for one in view.doing:
        parts += _doing(one, f"{one.host}: " if several else "")
    for host, seen in gpus.items():
        said = seen if isinstance(seen, str) else _gpus(seen)
        parts.append(Text(f"{host}: {said}" if several else said))
    return Group(*parts)


def _counts(view: View) -> str:
    found = Counter(one.status for one in view.done)
    said = [f"{found[name]} {name}" for name in _COLOUR if found[name]]
    text = f"{len(view.done)} of {view.planned} trials" + (f": {', '.join(said)}" if said else "")
    if len(view.done) == view.planned:
        return text
    if view.conductor is None:
        return f"{text}; nobody works on it here"
    return f"{text}; {_left(view.left_s)}"


def _left(seconds: float | None) -> str:
    return (
        "time left unknown until a trial is over"
        if seconds is None
        else f"about {span(seconds)} left"
    )


def _trials(view: View, room: int) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), expand=True)
    table.add_column("trial", no_wrap=True, overflow="ellipsis", ratio=5)
    table.add_column("", no_wrap=True, overflow="ellipsis", ratio=6)
    for name, width in (("tok/s", 9), ("accept", 6), ("took", 10)):
        table.add_column(name, justify="right", no_wrap=True, width=width)
    ahead = min(len(view.waiting), max(1, room // 4))
    behind = room - ahead - len(view.doing)
    hidden = len(view.done) - behind
    if hidden > 0:
        table.add_row(Text(f"({hidden + 1} before)", style="dim"))
        behind -= 1
    for one in view.done[len(view.done) - min(behind, len(view.done)) :]:
        table.add_row(*_done_row(one))
    for doing in view.doing:
        table.add_row(*_doing_row(doing, f" on {doing.host}" if len(view.doing) > 1 else ""))
    for trial in view.waiting[:ahead]:
        table.add_row(Text(trial, style="dim"), Text("waiting", style="dim"))
    if len(view.waiting) > ahead:
        table.add_row(Text(f"(and {len(view.waiting) - ahead} more)", style="dim"))
    return table


def _done_row(one: Done) -> tuple[str | Text, ...]:
    state = Text(one.status, style=_COLOUR[one.status])
    if one.note:
        state.append(f" {one.note}", style="dim")
    return (one.trial, state, *_figures(one.tok_s, one.accept_length), span(one.seconds))


def _doing_row(one: Doing, where: str) -> tuple[str | Text, ...]:
    figures = (one.live.tok_s, one.live.accept_length) if one.decodes else (None, None)
    return (
        Text(one.trial, style="bold"),
        Text.assemble((one.stage, "bold cyan"), where),
        *_figures(*figures),
        span(one.seconds),
    )


def _figures(tok_s: float | None, accept_length: float | None) -> tuple[str, str]:
    return (
        "" if tok_s is None else f"{tok_s:,.1f}",
        "" if accept_length is None else f"{accept_length:.2f}",
    )


def _doing(one: Doing, where: str) -> list[Text]:
    """What a trial in flight says of itself."""
    said = one.text
    if one.stage == "wait_ready" and one.live.percent is not None:
        full = _BAR * min(one.live.percent, 100) // 100
        bar = "█" * full + "░" * (_BAR - full)
        said = f"{bar} {one.live.percent} % {one.live.stage}"
    if one.decodes and one.live.running is not None:
        said = f"{said}; {one.live.running} running" if said else f"{one.live.running} running"
    return [Text(where + said, overflow="ellipsis", no_wrap=True)] if said else []


def _gpus(rows: Sequence[GpuRow]) -> str:
    """Memory, power and load of all cards in one line."""
    said = [
        _range([row.used_mib / 1024 for row in rows if row.used_mib is not None], "GiB"),
        _range([row.power_w for row in rows if row.power_w is not None], "W"),
        _range([row.utilization_pct for row in rows if row.utilization_pct is not None], "% busy"),
        _range([row.temperature_c for row in rows if row.temperature_c is not None], "°C"),
    ]
    return f"{len(rows)} GPUs: " + ", ".join(one for one in said if one)


def _range(values: list[float], unit: str) -> str:
    if not values:
        return ""
    low, high = f"{min(values):.0f}", f"{max(values):.0f}"
    return f"{low if low == high else f'{low} to {high}'} {unit}"
