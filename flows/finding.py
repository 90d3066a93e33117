"""The run that a command of the command line is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console

from configs.read import read_sweep
from infra.places import runs_folder
from infra.store import Store

if TYPE_CHECKING:
    from infra.store import RunFolder

SweepName = Annotated[str, typer.Argument(help="name in configs/sweeps, or a path")]


def find_run(sweep: str, number: int | None) -> RunFolder:
    """A run of a sweep, the latest unless its number is given; exits with 2 where there is none."""
    name = read_sweep(sweep).name if "/" in sweep or sweep.endswith(".yaml") else sweep
    store = Store(runs_folder())
    runs = store.runs(name)
    if number is not None:
        runs = [folder for folder in runs if int(folder.path.name) == number]
    if not runs:
        mistake(f"no run of {name} in {store.root}: `eagle3-sweep run {name}` makes one")
    return runs[-1]


def mistake(text: str) -> NoReturn:
    """Says what a user did wrong, and ends with 2."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(text, markup=False)
    raise typer.Exit(2)
