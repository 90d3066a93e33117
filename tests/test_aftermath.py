"""However a trial is interrupted: the host is cleaned first, then the record, then MLflow."""

from __future__ import annotations

import pytest

from configs.plan import make_plan
from configs.read import read_host, read_sweep
from flows.aftermath import clean_up_run
from infra.errors import ContactLost
from infra.store import Store, write_json, write_value
from tests.interrupted import interrupted

ENDS = [
    (["start_run", "launch", "ready", "SIGTERM"], "cancelled", "KILLED"),
    (["start_run", "launch", "SIGINT"], "cancelled", "KILLED"),
    (["start_run", "SIGTERM"], "cancelled", "KILLED"),
    (["start_run", "launch", "ready", "SIGKILL"], "cancelled", "KILLED"),
    (["start_run", "launch", "error in our code"], "unknown_exception", "FAILED"),
    (["start_run", "launch", "ready", "end"], None, "FINISHED"),
]


@pytest.mark.parametrize(("events", "failure", "status"), ENDS)
def test_the_engine_is_ended_before_the_run_is(tmp_path, events, failure, status):
    seen = interrupted(tmp_path, events)
    assert (seen.record.failure and seen.record.failure.failure_class) == failure
    assert seen.mlflow.status == status
    assert seen.mlflow.end_time is not None
    assert seen.happened.index("reap") < seen.happened.index("set_terminated")
    assert seen.verified == ("no own process left", "GPU memory released")


def test_an_interruption_goes_on_up_after_the_tear_down(tmp_path):
    happened = interrupted(tmp_path, ["start_run", "launch", "SIGTERM"]).happened
    assert happened.index("reap") < happened.index("SystemExit")
    assert happened.index("release") < happened.index("SystemExit")


def test_a_host_that_does_not_answer_is_said_with_what_will_end_the_engine(tmp_path):
    sweep, host = read_sweep("rehearsal"), read_host("rehearsal")
    run = Store(tmp_path).new_run("rehearsal")
    write_value(run.path / "sweep.json", sweep)
    write_value(run.path / "plan.json", make_plan(sweep))
    hosts = {host.name: host.model_dump(mode="json")}
    write_json(run.path / "run.json", {"uid": "ab12", "pid": 1, "hosts": hosts})
    attempt = run.next_attempt(make_plan(sweep).trials[0].id)

    def away(_host):
        raise ContactLost("no route")

    said: list[str] = []
    clean_up_run(run, said.append, reach=away)
    assert "could not be cleaned (no route)" in said[0]
    assert "the lease ends the engine there; and the next run finds its state file" in said[0]
    assert attempt.finished
