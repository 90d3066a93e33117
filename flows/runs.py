"""The run folder of a sweep, as flows use it: which one to go on with, what is in it."""

from __future__ import annotations

import gc
import os
import secrets
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from configs.plan import Plan
from configs.sweep import Sweep
from configs.values import Value
from infra.errors import WorldError
from infra.store import read_json, write_json, write_value
from tasks.record import TrialRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flows.question import Question
    from infra.store import RunFolder, Store

V = TypeVar("V", bound=Value)


class RecordUnreadable(WorldError):
    """A record does not have the shape that this version knows."""


@contextmanager
def open_run(
    store: Store,
    question: Question,
    *,
    fresh: bool = False,
    flow_run: str | None = None,
    flow_url: str = "",
) -> Iterator[RunFolder]:
    """The run folder to go on with, held: the latest of this very plan, or a new one.

    Args:
        store: All run folders.
        question: The sweep with everything it names.
        fresh: Forget earlier runs of this plan, but for what this very flow run began: one that was
            cut off and is begun again goes on.
        flow_run: Id of the Prefect flow run; its hooks find the folder by it.
        flow_url: Its page.

    Raises:
        RunHeld: Another process works on this run.
    """
    plan = question.plan
    run = _begun_by(store, plan, flow_run) if fresh else store.latest(plan.sweep, plan.digest)
    if run is None:
        run = store.new_run(plan.sweep)
        write_value(run.path / "sweep.json", question.sweep)
        write_value(run.path / "plan.json", plan)
    with run.alone():
        known = read_json(run.path / "run.json")
        write_json(
            run.path / "run.json",
            {
                "id": run.id,
                "uid": known.get("uid") or secrets.token_hex(4),
                "prefect": [
                    *known.get("prefect", []),
                    *([_begun(flow_run, flow_url)] if flow_run else []),
                ],
                "flow_runs": [*known.get("flow_runs", []), *([flow_run] if flow_run else [])],
                "pid": os.getpid(),
                "hosts": {
                    name: host.model_dump(mode="json") for name, host in question.hosts.items()
                },
            },
        )
        yield run


def _begun_by(store: Store, plan: Plan, flow_run: str | None) -> RunFolder | None:
    """The run of this plan that a flow run has begun before."""
    for run in store.runs(plan.sweep) if flow_run else ():
        known = read_json(run.path / "run.json").get("flow_runs", [])
        if flow_run in known and read_json(run.path / "plan.json").get("digest") == plan.digest:
            return run
    return None


def began_at(run: RunFolder, flow_run: str | None) -> datetime | None:
    """When a flow run first began to work here; None if it did not."""
    for entry in read_json(run.path / "run.json").get("prefect", []):
        if entry["id"] == flow_run:
            return datetime.fromisoformat(entry["began"])
    return None


def conducted_since(run: RunFolder) -> datetime | None:
    """When the flow run that conducts a run first began to; None if none of Prefect's does."""
    known = read_json(run.path / "run.json").get("flow_runs", [])
    return began_at(run, known[-1]) if known else None


def _begun(flow_run: str, url: str) -> dict[str, str]:
    """A flow run that begins to work here; what it publishes links to it."""
    return {"id": flow_run, "url": url, "began": datetime.now(UTC).isoformat(timespec="seconds")}


def read_records(run: RunFolder) -> list[TrialRecord]:
    """The last finished attempt of every trial, in the order of the plan.

    Raises:
        RecordUnreadable: A record is of another version, or damaged; says which and why.
    """
    with _collector_paused():
        found = [_read_record(run, trial, raw) for trial, raw in run.records().items()]
    return sorted(found, key=lambda record: record.order)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """While very many values are made, all of them to stay: no cycle can be found among them.

    The collector would look at all of them again and again: 10,000 records took 2.2 s, not 0.7 s.
    Nor does it afterwards: what is there is set aside, and freed by its count alone.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_on:
            gc.enable()


def _read_record(run: RunFolder, trial: str, raw: bytes) -> TrialRecord:
    try:
        return TrialRecord.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RecordUnreadable(
            f"{run.path}/trials/{trial}: record.json cannot be read ({where}: {first['msg']}): "
            "written by another version; move it away, or run with --fresh"
        ) from error


def read_run_plan(run: RunFolder) -> Plan:
    """The plan of a run.

    Raises:
        RecordUnreadable: It is of another version.
    """
    return _read_value(Plan, run, "plan.json")


def read_run_sweep(run: RunFolder) -> Sweep:
    """The sweep of a run, as it was then.

    Raises:
        RecordUnreadable: It is of another version.
    """
    return _read_value(Sweep, run, "sweep.json")


def _read_value(model: type[V], run: RunFolder, name: str) -> V:
    try:
        return model.model_validate_json((run.path / name).read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RecordUnreadable(
            f"{run.path}: {name} cannot be read ({where}: {first['msg']}): written by another "
            "version; move the run away, or run with --fresh"
        ) from error


def of_flow_run(store: Store, flow_run: str) -> RunFolder | None:
    """The run folder that a Prefect flow run worked on."""
    for folder in store.all_runs():
        if flow_run in read_json(folder.path / "run.json").get("flow_runs", []):
            return folder
    return None
