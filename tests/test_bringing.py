"""What MLflow missed while it was down is brought later, and nothing that was never meant for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from flows.bringing import bring_missed
from infra.store import RunFolder, Store, write_json, write_value
from infra.tracking import NOTE, Tracker
from tasks.publish import publish_missing
from tasks.reporting import write_report
from tests.builders import record
from tests.scripted_mlflow import ScriptedMlflow
from tests.sweeps import sweep

if TYPE_CHECKING:
    from pathlib import Path

DOWN = ["Max retries exceeded with url"] * 99


def tracker(client: Any) -> Tracker:
    return Tracker("http://mlflow", pause=lambda _s: None, client=client)


def night(store: Store, tracker: Tracker | None) -> RunFolder:
    """A run of two trials with its report, published as far as that goes."""
    run = store.new_run("two-drafters")
    write_json(run.path / "run.json", {"id": run.id, "uid": f"uid{run.path.name}"})
    write_value(run.path / "sweep.json", sweep())
    made = [record(arm, 1).model_copy(update={"sweep_run": run.holder}) for arm in ("base", "a")]
    for one in made:
        write_value(run.next_attempt(one.trial).record, one)
    if tracker is not None:
        publish_missing(run, tracker, print)
    write_report(run, sweep(), made, tracker, print)
    return run


def reports(client: ScriptedMlflow) -> list[str]:
    keys = [run.data.tags["eagle3.key"] for run in client.runs.values()]
    return [key for key in keys if key.endswith("/report")]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs")


def test_a_night_without_mlflow_is_brought_when_it_is_back_and_once(store: Store) -> None:
    run = night(store, tracker(ScriptedMlflow({"get_experiment_by_name": DOWN})))
    still = ScriptedMlflow({"get_experiment_by_name": DOWN})
    assert bring_missed(print, store, tracker(still)) == 0
    client, said = ScriptedMlflow(), list[str]()
    assert bring_missed(said.append, store, tracker(client)) == 1
    assert len(client.runs) == 3
    assert reports(client) == [f"{run.holder}/report"]
    assert said == [f"{run.id}: MLflow has what it missed"]
    assert bring_missed(print, store, tracker(client)) == 0
    assert len(client.runs) == 3


def test_what_was_never_meant_for_this_mlflow_stays_out_of_it(store: Store) -> None:
    night(store, None)
    client = ScriptedMlflow()
    assert bring_missed(print, store, tracker(client)) == 0
    assert not client.calls


def test_a_report_alone_is_brought_too(store: Store) -> None:
    client = ScriptedMlflow({"log_artifacts": [None, None, "OSError: no such bucket"]})
    night(store, tracker(client))
    assert bring_missed(print, store, tracker(client)) == 1


def test_the_experiment_goes_on_to_show_the_latest_night(store: Store) -> None:
    night(store, tracker(ScriptedMlflow({"get_experiment_by_name": DOWN})))
    client = ScriptedMlflow()
    latest = night(store, tracker(client))
    assert bring_missed(print, store, tracker(client)) == 1
    assert len(reports(client)) == 2
    notes = [e.tags[NOTE] for e in client.experiments.values() if NOTE in e.tags]
    assert [f"({latest.id})" in note for note in notes] == [True]


def test_a_run_that_is_at_work_publishes_itself(store: Store) -> None:
    run = night(store, tracker(ScriptedMlflow({"get_experiment_by_name": DOWN})))
    client = ScriptedMlflow()
    with run.alone():
        assert bring_missed(print, store, tracker(client)) == 0
    assert not client.runs
