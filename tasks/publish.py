"""The stage that writes MLflow from the run folder: any time, twice is the same as once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.store import read_json
from infra.tracking import RunEntry, TrackingDown
from tasks import entry
from tasks.record import TrialRecord

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from infra.store import RunFolder, TrialFolder
    from infra.tracking import Tracker

_DONE = "mlflow_run_id"
_MISSED = ".mlflow_missed"


def publish_trial(folder: TrialFolder, tracker: Tracker) -> str:
    """Writes one finished attempt; returns the MLflow run id.

    Raises:
        TrackingDown: MLflow did not take it.
    """
    record = TrialRecord.model_validate_json(folder.record.read_bytes())
    flow = entry.flow_run_at(read_json(folder.path.parents[1] / "run.json"), record.started_at)
    run_id = tracker.publish(
        RunEntry(
            experiment=record.sweep,
            name=entry.run_name(record),
            key=entry.key_of(record),
            params=entry.params_of(record),
            metrics=entry.metrics_of(record),
            tags=entry.linked(entry.tags_of(record), flow),
            artifacts=folder.path,
            status=entry.run_status(record),
            start_ms=entry.millis(record.started_at),
            end_ms=entry.millis(record.ended_at),
        )
    )
    _mark(folder.path / _DONE, run_id, tracker.uri)
    return run_id


def publish_missing(run: RunFolder, tracker: Tracker, note: Callable[[str], None]) -> int:
    """Writes every finished attempt that this MLflow does not have yet; returns how many failed.

    If any did, that is kept in the run folder, and somebody brings them later.
    """
    failed = 0
    for folder in run.trials():
        if not folder.finished or is_published(folder.path, tracker.uri):
            continue
        try:
            publish_trial(folder, tracker)
        except TrackingDown as error:
            failed += 1
            note(f"{folder.path.name} is not in MLflow yet: {error}")
    if failed:
        note_missed(run, tracker.uri)
    return failed


def note_missed(run: RunFolder, uri: str) -> None:
    """Keeps that this MLflow should have got something of a run, and did not take it."""
    (run.path / _MISSED).write_text(uri, encoding="utf-8")


def has_missed(run: RunFolder, uri: str) -> bool:
    """Whether this MLflow did not take something of a run.

    Not the same as what it does not have: a run that was never meant for it stays out of it.
    """
    try:
        return (run.path / _MISSED).read_text(encoding="utf-8") == uri
    except FileNotFoundError:
        return False


def nothing_missed(run: RunFolder) -> None:
    """All of it stands there now."""
    (run.path / _MISSED).unlink(missing_ok=True)


def is_published(path: Path, uri: str) -> bool:
    """Whether this attempt stands in this MLflow."""
    try:
        return (path / f".{_DONE}").read_text(encoding="utf-8").split("\n")[0] == uri
    except FileNotFoundError:
        return False


def published_link(path: Path) -> str | None:
    """The address of an attempt in the MLflow that has it; None where none has, or it has no pages.

    By the run alone (``#/runs/ID``, a route of MLflow's own UI), so that nobody need be asked.
    """
    try:
        uri, run_id, *_rest = (path / f".{_DONE}").read_text(encoding="utf-8").split("\n")
    except (FileNotFoundError, ValueError):
        return None
    return f"{uri.rstrip('/')}/#/runs/{run_id}" if uri.startswith("http") and run_id else None


def _mark(path: Path, run_id: str, uri: str) -> None:
    path.with_name(f".{path.name}").write_text(f"{uri}\n{run_id}\n", encoding="utf-8")
