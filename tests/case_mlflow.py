"""Asks the product about a case of kind ``mlflow``."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from infra.fits_mlflow import PARAM_LIMIT, TAG_LIMIT, fit
from infra.store import RunFolder, write_value
from infra.tracking import RunEntry, Tracker, TrackingDown
from tasks.publish import publish_missing
from tests.builders import record
from tests.interrupted import interrupted
from tests.scripted_mlflow import ScriptedMlflow

#: What other programs call it -> what the product asks of MLflow in its place.
OURS = {
    "set_experiment": "get_experiment_by_name",
    "get_experiment": "get_experiment_by_name",
    "create_experiment": "create_experiment",
    "start_run": "create_run",
    "create_run": "create_run",
    "end_run": "set_terminated",
    "set_terminated": "set_terminated",
    "log_artifact": "log_artifacts",
    "log_artifacts": "log_artifacts",
    "log_text": "log_artifacts",
    "log_dict": "log_artifacts",
    "search_runs": "search_runs",
}


def mlflow(folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    found = {
        path.stem: json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")
    }
    with tempfile.TemporaryDirectory() as place:
        if "events" in found:
            return _interrupted(Path(place), found["events"])
        if "calls" in found:
            return _calls(Path(place), found["calls"])
    return _fitted(found, given)


def _fitted(found: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    fitted = fit(
        {key: str(value) for key, value in found.get("params", {}).items()},
        [(key, value, 0) for key, value in found.get("metrics", {}).items()],
        {key: str(value) for key, value in found.get("tags", {}).items()},
        param_limit=given.get("server_param_limit", PARAM_LIMIT),
        tag_limit=given.get("server_tag_limit", TAG_LIMIT),
    )
    cut = {key: f"first {limit} characters at most" for key, limit in fitted.cut.items()}
    return {
        "params": {key: cut.get(key, value) for key, value in fitted.params.items()},
        "metrics": {key: value for key, value, _ in fitted.metrics},
        "tags": {key: cut.get(key, value) for key, value in fitted.tags.items()},
        "artifact": next(iter(fitted.artifacts), None),
        "renamed": fitted.renamed,
        "warnings": fitted.warnings,
    }


def _calls(place: Path, calls: list[dict[str, Any]]) -> dict[str, Any]:
    carrying = [call for call in calls if "key" in call]
    if carrying:
        return _carried(carrying)
    troubled = {call.get("process") for call in calls if call.get("raises")}
    ours = [call for call in calls if call.get("process") in troubled]
    script: dict[str, list[str | None]] = {}
    for call in ours:
        script.setdefault(OURS.get(call["call"], "log_batch"), []).append(call.get("raises"))
    asked = next(iter(script), "log_batch")
    client, notes = ScriptedMlflow(script), list[str]()
    run = RunFolder(place / "kimi" / "0001")
    keep = run.next_attempt("b01-base")
    write_value(keep.record, record())
    tracker = Tracker("http://mlflow", note=notes.append, pause=lambda _s: None, client=client)
    failed = publish_missing(run, tracker, notes.append)
    points = Counter((p.key, p.step) for points in client.points.values() for p in points)
    return {
        "attempts": client.calls[asked],
        "logged_once": bool(points) and set(points.values()) == {1},
        "published": failed == 0,
        "experiment_failed": False,
        "kept_locally": keep.finished,
        "fallback": TrackingDown.kept,
        "hints": notes,
        "warnings": notes,
    }


def _carried(calls: list[dict[str, Any]]) -> dict[str, Any]:
    """Every call that carries something is published, to a server with MLflow's own rules."""
    client, notes = ScriptedMlflow(), list[str]()
    tracker = Tracker("http://mlflow", note=notes.append, pause=lambda _s: None, client=client)
    for call in calls:
        held = {call["key"]: call["value"]}
        params = {k: str(v) for k, v in held.items()} if "param" in call["call"] else {}
        tags = {k: str(v) for k, v in held.items()} if "tag" in call["call"] else {}
        metrics = [(k, v, call.get("step", 0)) for k, v in held.items() if "metric" in call["call"]]
        tracker.publish(RunEntry("kimi", "t", "t", params, metrics, tags, None, "FINISHED", 0, 1))
    (run,) = client.runs.values()
    return {
        "params": run.data.params,
        "metrics": run.data.metrics,
        "tags": run.data.tags,
        "runs": len(client.runs),
        "experiment_failed": False,
        "warnings": notes,
    }


def _interrupted(place: Path, events: list[str]) -> dict[str, Any]:
    seen = interrupted(place, events)
    happened = seen.happened
    return {
        "status": seen.mlflow.status,
        "end_time_set": seen.mlflow.end_time is not None,
        "teardown_done_before_end": "reap" in happened
        and happened.index("reap") < happened.index("set_terminated"),
    }
