"""MLflow is an index written from the run folder: twice is once, and its absence costs seconds."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from infra.tracking import RunEntry, Tracker, TrackingDown, tracking_uri
from tests.openssh import free_port
from tests.scripted_mlflow import ScriptedMlflow

if TYPE_CHECKING:
    from pathlib import Path

LOCKED = "mlflow.exceptions.MlflowException: (sqlite3.OperationalError) database is locked"
RACE = "(sqlite3.OperationalError) duplicate column name: step"


def entry(**fields: Any) -> RunEntry:
    values: dict[str, Any] = {
        "experiment": "kimi",
        "name": "kimi-0001/0001 b01-base",
        "key": "kimi-0001/b01-base/a1",
        "params": {"asked.tp-size": "8"},
        "metrics": [("load/output_tok_s", 500.0, 1), ("load/output_tok_s", 2300.0, 8)],
        "tags": {"status": "ok"},
        "artifacts": None,
        "status": "FINISHED",
        "start_ms": 1_000,
        "end_ms": 2_000,
    }
    return RunEntry(**(values | fields))


def tracker(client: ScriptedMlflow, notes: list[str] | None = None) -> Tracker:
    said = notes if notes is not None else []
    return Tracker("http://mlflow", note=said.append, pause=lambda _s: None, client=client)


def test_published_twice_is_one_run_with_each_point_once():
    client = ScriptedMlflow()
    first, second = (tracker(client).publish(entry()) for _ in range(2))
    assert first == second
    assert len(client.runs) == 1
    assert [(p.step, p.value) for p in client.points["load/output_tok_s"]] == [
        (1, 500.0),
        (8, 2300.0),
    ]
    assert client.runs[first].info.status == "FINISHED"
    assert client.runs[first].info.end_time == 2_000


def test_a_server_that_is_down_gives_no_link_and_a_night_ends_without_one():
    from flows.run_sweep import _charts

    client = ScriptedMlflow({"get_experiment_by_name": ["Max retries exceeded with url"] * 9})
    tracker = Tracker("http://mlflow", pause=lambda _s: None, client=client)
    with pytest.raises(TrackingDown, match="Max retries exceeded"):
        tracker.chart_link("night")
    assert _charts("night", tracker) == ""


def test_a_locked_database_is_tried_again_and_logged_once():
    client = ScriptedMlflow({"log_batch": [LOCKED, LOCKED]})
    notes: list[str] = []
    tracker(client, notes).publish(entry())
    assert client.calls["log_batch"] == 3
    assert client.calls["create_run"] == 1
    assert len(client.points["load/output_tok_s"]) == 2
    assert all("database is locked" in note for note in notes)


def test_two_processes_on_a_new_database_are_survived_with_advice():
    client = ScriptedMlflow({"get_experiment_by_name": [RACE]})
    notes: list[str] = []
    tracker(client, notes).publish(entry())
    assert client.calls["get_experiment_by_name"] == 2
    assert any("create the database once before starting parallel runs" in n for n in notes)


def test_an_experiment_that_another_process_made_meanwhile_is_used():
    client = ScriptedMlflow({"create_experiment": ["RESOURCE_ALREADY_EXISTS: already exists"]})
    assert tracker(client).publish(entry())
    assert len(client.experiments) == 1


def test_what_does_not_pass_is_told_at_once():
    client = ScriptedMlflow({"log_batch": ["PERMISSION_DENIED\nmore"] * 9})
    with pytest.raises(TrackingDown, match=r"http://mlflow: PERMISSION_DENIED$"):
        tracker(client).publish(entry())
    assert client.calls["log_batch"] == 1


def test_a_database_that_stays_locked_is_given_up():
    client = ScriptedMlflow({"log_batch": [LOCKED] * 99})
    with pytest.raises(TrackingDown, match="locked"):
        tracker(client).publish(entry())
    assert client.calls["log_batch"] == 4


def test_params_are_never_changed_only_added():
    client = ScriptedMlflow()
    run_id = tracker(client).publish(entry(params={"num_draft_tokens": "24"}))
    tracker(client).publish(entry(params={"num_draft_tokens": "5"}))
    assert client.runs[run_id].data.params == {
        "num_draft_tokens": "24",
        "effective.num_draft_tokens": "5",
    }


@pytest.mark.parametrize("limit", [500, 250])
def test_an_older_server_gets_shorter_params_and_the_whole_text_as_a_file(limit):
    client = ScriptedMlflow()
    notes: list[str] = []
    client.param_limit = limit
    run_id = tracker(client, notes).publish(entry(params={"command": "x" * 3000, "a": "1"}))
    assert {k: len(v) for k, v in client.runs[run_id].data.params.items()} == {
        "command": limit,
        "a": 1,
    }
    assert "command.txt" in client.files[run_id]
    assert any("command cut in params" in note for note in notes)


def test_a_store_of_files_that_is_down_leaves_a_run_with_numbers_and_an_end(tmp_path):
    client = ScriptedMlflow({"log_artifacts": ["OSError: no such bucket"]})
    with pytest.raises(TrackingDown, match="no such bucket"):
        tracker(client).publish(entry(artifacts=tmp_path, status="KILLED"))
    (run,) = client.runs.values()
    assert (run.info.status, run.info.end_time) == ("KILLED", 2_000)
    assert client.points["load/output_tok_s"]
    tracker(client).publish(entry(artifacts=tmp_path, status="KILLED"))
    assert len(client.runs) == 1


def test_a_server_that_is_away_is_not_asked_again_for_every_trial():
    client = ScriptedMlflow({"get_experiment_by_name": ["Max retries exceeded with url"] * 9})
    night = tracker(client)
    for _trial in range(3):
        with pytest.raises(TrackingDown):
            night.publish(entry())
    assert client.calls["get_experiment_by_name"] == 1


def test_a_server_that_came_back_is_asked_at_the_end_of_the_night():
    client = ScriptedMlflow({"get_experiment_by_name": ["Max retries exceeded with url"]})
    night = tracker(client)
    with pytest.raises(TrackingDown):
        night.publish(entry())
    night.ask_again()
    assert night.publish(entry()) in client.runs


def test_nothing_is_known_of_mlflow_unless_it_is_named_or_was_started(tmp_path, monkeypatch):
    monkeypatch.setenv("EAGLE3_HOME", str(tmp_path))
    assert tracking_uri() is None
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://lab:5000")
    assert tracking_uri() == "http://lab:5000"


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """A real MLflow on SQLite, made once: its migrations take seconds."""
    from mlflow import MlflowClient

    folder = tmp_path_factory.mktemp("mlflow")
    client = MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    client.create_experiment("warm", artifact_location=f"{folder}/artifacts/warm")
    yield client, folder
    client._tracking_client.store._dispose_engine()


@pytest.fixture
def real(database):
    client, folder = database
    name = f"e{len(client.search_experiments())}"
    client.create_experiment(name, artifact_location=f"{folder}/artifacts/{name}")
    return Tracker(f"sqlite:///{folder}/mlflow.db", client=client), client, name


def attempt_folder(path: Path) -> Path:
    (path / "samples").mkdir(parents=True)
    (path / "record.json").write_text("{}")
    (path / "samples" / "load.jsonl.gz").write_bytes(b"x")
    (path / ".mlflow_run_id").write_text("hidden\n")
    return path


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_real_mlflow_takes_a_trial_and_taking_it_again_changes_nothing(real, tmp_path):
    night, client, name = real
    published = entry(
        experiment=name,
        artifacts=attempt_folder(tmp_path / "t.a1"),
        metrics=[
            ("load/output_tok_s", 500.0, 1),
            ("load/output_tok_s", 2300.0, 8),
            ("load/c8_output_tok_s", 2300.0, 0),
            ("load/accept_length", None, 8),
            ("load/ttft", float("nan"), 8),
        ],
        params={"asked.tp-size": "8", "command": "x" * 9000, "empty": ""},
        tags={"mlflow.note.content": "**ok**", "status": "ok"},
        status="KILLED",
    )
    run_id = night.publish(published)
    assert night.publish(published) == run_id
    run = client.get_run(run_id)
    history = client.get_metric_history(run_id, "load/output_tok_s")
    assert [(p.step, p.value) for p in history] == [(1, 500.0), (8, 2300.0)]
    assert "load/ttft" not in run.data.metrics
    assert run.data.tags["not_finite"] == "load/ttft"
    assert len(run.data.params["command"]) == 6000
    assert run.data.params["empty"] == ""
    assert (run.info.status, run.info.start_time, run.info.end_time) == ("KILLED", 1_000, 2_000)
    assert run.info.run_name == published.name
    found = {file.path for file in client.list_artifacts(run_id)}
    assert {"record.json", "samples", "command.txt"} <= found
    assert client.search_runs([run.info.experiment_id], "tags.status = 'ok'")
    night.publish(published._replace(params={"asked.tp-size": "4"}, status="FINISHED"))
    again = client.get_run(run_id)
    assert again.data.params["effective.asked.tp-size"] == "4"
    assert again.info.status == "FINISHED"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_real_mlflow_takes_every_name_that_we_make_fit(real):
    night, client, name = real
    wild = ["a//b", "../x", "/abs", "tok/s@c=8", "", ".", "é", "k" * 400, "a:b c"]
    run_id = night.publish(
        entry(
            experiment=name,
            params={key: str(n) for n, key in enumerate(wild)},
            metrics=[(key, float(n), 0) for n, key in enumerate(wild)],
            tags={key: str(n) for n, key in enumerate(wild)},
        )
    )
    data = client.get_run(run_id).data
    assert sorted(data.params.values()) == sorted(str(n) for n in range(len(wild)))
    assert sorted(data.metrics.values()) == [float(n) for n in range(len(wild))]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_experiment_that_was_deleted_in_the_ui_is_brought_back(real):
    night, client, name = real
    night.publish(entry(experiment=name))
    client.delete_experiment(night.experiment(name))
    with pytest.raises(TrackingDown):
        night.publish(entry(experiment=name))
    assert night.publish(entry(experiment=name))


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_server_that_is_down_costs_seconds_not_the_night(monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # three by default: 13 s
    night = Tracker(f"http://127.0.0.1:{free_port()}")
    began = time.monotonic()
    with pytest.raises(TrackingDown, match=r"127\.0\.0\.1"):
        night.publish(entry())
    assert time.monotonic() - began < 10
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    began = time.monotonic()
    with pytest.raises(TrackingDown):
        night.publish(entry())
    assert time.monotonic() - began < 0.1
