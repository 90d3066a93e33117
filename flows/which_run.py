"""Which run a command is about: the latest of a sweep, or the one with a number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from configs.read import read_sweep
from flows.terminal import mistake
from infra.places import runs_folder
from infra.store import Store

if TYPE_CHECKING:
    from infra.store import RunFolder


def find_run(sweep: str, number: int | None) -> RunFolder:
    """The run of a sweep by its number, else the latest; ends the command where there is none."""
    name = read_sweep(sweep).name if "/" in sweep or sweep.endswith(".yaml") else sweep
    store = Store(runs_folder())
    runs = store.runs(name)
    if number is not None:
        runs = [folder for folder in runs if int(folder.path.name) == number]
    if not runs:
        mistake(f"no run of {name} in {store.root}: `eagle3-sweep run {name}` makes one")
    return runs[-1]
