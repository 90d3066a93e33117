"""The deployment `eagle3-sweep/adhoc`: a sweep by day, by its name or typed into Prefect's form."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from prefect import flow
from prefect.client.schemas.objects import State  # noqa: TC002 - Prefect reads it for its form
from prefect.runtime import flow_run as this_run

from configs.find import stem
from configs.form import SweepForm  # noqa: TC001 - Prefect reads the annotation for its form
from flows.run_sweep import after_the_end, conduct


def _run_name() -> str:
    """A flow run is called after its sweep, however that was given."""
    given = this_run.parameters["sweep"]
    if isinstance(given, str):
        return stem(Path(given))
    return str(given["name"] if isinstance(given, dict) else given.name)


@flow(
    # The same flow to people: its runs stand in one list, under one name.
    name="eagle3-sweep",
    description="Does EAGLE-3 pay? A sweep by its name, or typed in here.",
    flow_run_name=cast("Any", _run_name),
    on_cancellation=[cast("Any", after_the_end)],
    on_crashed=[cast("Any", after_the_end)],
    persist_result=False,
    validate_parameters=True,
)
def adhoc(
    sweep: str | SweepForm = "rehearsal",
    host: str | None = None,
    fresh: bool = False,
) -> State[Any]:
    """Runs what is missing of a sweep, compares, reports.

    Args:
        sweep: Name of a file in configs/sweeps, or a path; or the whole of it, typed in here.
        host: Another host than the sweep's own (name of a file in configs/hosts).
        fresh: Run everything again, instead of going on with the latest run.
    """
    return conduct(sweep if isinstance(sweep, str) else sweep.sweep(), host, fresh=fresh)
