"""`eagle3-sweep history`: what an arm did over the nights, and whether accept length or step moved."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from pathlib import Path  # noqa: TC003 - typer reads the annotation
from typing import TYPE_CHECKING, Annotated

import typer

from configs.problems import ConfigError, Problem
from flows.runs import RecordUnreadable, read_records
from flows.terminal import say
from infra.places import runs_folder
from infra.store import Store
from tasks.comparison import setting_label
from tasks.history import change_lines, date_of, histories, of_arms, regression_sentences
from tasks.nights import differences

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from configs.sweep import Sweep
    from tasks.history import History
    from tasks.nights import Night, Rung
    from tasks.record import TrialRecord

_FACTS = 6
_COLUMNS = "{:17} {:28} {:>5} {:>8} {:>9} {:>9}"


def history(
    arm: Annotated[str, typer.Argument(help="an arm, or arm+level")],
    *,
    sweep: Annotated[str | None, typer.Option(help="this sweep's runs alone")] = None,
    runs: Annotated[
        list[Path] | None, typer.Option(help="another folder of runs; may be given again")
    ] = None,
) -> None:
    """How an arm did over the nights, and since when its accept length or step time is another."""
    stores = [Store(path) for path in runs or [runs_folder()]]
    found = histories(record for store in stores for record in records_of(store, sweep))
    mine = of_arms(found, arm)
    if not mine:
        known = ", ".join(dict.fromkeys(each.stretch.arm for each in found)) or "none"
        where = ", ".join(str(store.root) for store in stores)
        message = f"no ok trial of it in {where}: known arms are {known}"
        raise ConfigError([Problem(arm, "", message)])
    for line in history_lines(mine):
        say(line)


def records_of(store: Store, sweep: str | None = None) -> Iterator[TrialRecord]:
    """The trials of every run, the last attempt of each; runs of another version are left out."""
    for run in store.all_runs() if sweep is None else store.runs(sweep):
        with suppress(RecordUnreadable):
            yield from read_records(run)


def morning_regressions(store: Store, sweep: Sweep) -> list[str]:
    """What became worse of a sweep's canary, as far as it is new since last night: for a message.

    Args:
        store: All run folders.
        sweep: The sweep whose runs are looked at; without a canary nothing is.
    """
    if sweep.canary is None:
        return []
    found = histories(records_of(store, sweep.name))
    return regression_sentences(of_arms(found, sweep.canary))


def history_lines(found: Sequence[History]) -> Iterator[str]:
    """Each stretch of nights with its changes; between two, what is another thing from then on."""
    for before, here in pairwise([None, *found]):
        assert here is not None  # only the first is  # noqa: S101
        stretch = here.stretch
        nights = "1 night" if len(stretch.nights) == 1 else f"{len(stretch.nights)} nights"
        label = setting_label(stretch.arm, stretch.levels)
        pretend = ", rehearsal" if stretch.rehearsal else ""
        yield f"{label} on {stretch.host}{pretend}: {nights} of fingerprint {stretch.fingerprint}"
        if before is not None and _same_place(before, here):
            changed = differences(before.stretch.facts, stretch.facts)
            yield from (f"  from here on {line}" for line in changed[:_FACTS])
            if len(changed) > _FACTS:
                yield f"  and {len(changed) - _FACTS} more facts"
        yield from _table(stretch.nights)
        yield from (f"  {line}" for line in change_lines(here))
        yield ""


def _same_place(before: History, here: History) -> bool:
    one, other = before.stretch, here.stretch
    return (one.arm, one.levels, one.host) == (other.arm, other.levels, other.host)


def _table(nights: Sequence[Night]) -> Iterator[str]:
    """One line a night, at the measurement with most users of those that every night has."""
    rungs = set.intersection(*(set(night.figures["step_s"]) for night in nights))
    if not rungs:
        yield "  no measurement that every night has"
        return
    rung = max(rungs, key=lambda rung: (rung.concurrency, rung.probe))
    yield "  " + _COLUMNS.format("night", f"run, at {rung}", "boots", "accept", "step ms", "tok/s")
    for night in nights:
        yield "  " + _COLUMNS.format(date_of(night), night.run, night.boots, *_figures(night, rung))


def _figures(night: Night, rung: Rung) -> tuple[str, str, str]:
    step, accept = night.figures["step_s"][rung], night.figures["accept_length"].get(rung)
    speed = f"{accept / step:.1f}" if accept else "unknown"
    return f"{accept:.3f}" if accept else "unknown", f"{1000 * step:.2f}", speed
