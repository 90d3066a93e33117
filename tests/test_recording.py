"""The job that has an engine record steps: what it waits for, and how it gives up."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from infra.agent import recording
from infra.agent.jobs import Job
from infra.agent.refusal import Refusal
from tasks.profile_rows import read_trace, unpack
from tests.agent_host import until
from tests.rehearsing import Engine, build, closed_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with Engine(build(tmp_path_factory.mktemp("recorded"))) as made:
        yield made.ready()


@pytest.fixture
def job(tmp_path: Path, engine: Engine) -> Job:
    """A recording beside a load that is as large as it should be."""
    (tmp_path / "jobs" / "inside").mkdir(parents=True)
    (tmp_path / "jobs" / "load").mkdir()
    progress = {"in_flight": 2, "tokens": 40}
    (tmp_path / "jobs" / "load" / "progress.json").write_text(json.dumps(progress))
    request = {
        "port": engine.port,
        "headers_path": None,
        "start": {"num_steps": 6, "activities": ["CPU", "GPU"]},
        "load": "load",
        "in_flight": 2,
        "tokens": 32,
        "ranks": 8,
        "timeout_s": 30.0,
        "keep_trace": False,
    }
    return Job(str(tmp_path), str(tmp_path / "jobs" / "inside"), request)


def asking(job: Job, **changed: Any) -> Job:
    return job._replace(request={**job.request, **changed})


def post(engine: Engine, path: str, **body: Any) -> int:
    url = f"http://127.0.0.1:{engine.port}{path}"
    asked = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def once_recording(engine: Engine, what: Callable[[], Any]) -> threading.Thread:
    """Does something as soon as the engine has begun another recording."""
    before = engine.log.count("Profiling starts.")

    def wait() -> None:
        until(lambda: engine.log.count("Profiling starts.") > before, 60)
        what()

    return threading.Thread(target=wait)


def test_steps_of_a_running_load_are_recorded_and_the_load_is_ended(job, engine, tmp_path):
    load = threading.Thread(target=lambda: asyncio.run(closed_loop(engine.port, 2, 1, 400)))
    load.start()
    found = recording.record(job)
    load.join(30)
    assert len(found["files"]) == 8
    assert found["whole"]
    assert found["whole_load"]
    trace = read_trace(unpack((tmp_path / "jobs/inside/profile.jsonl.gz").read_bytes()))
    assert trace.gpu.size == found["rows"] > 0
    assert (tmp_path / "jobs" / "load" / "enough").exists()
    assert not (tmp_path / "jobs" / "inside" / "traces").exists()


def test_traces_are_left_where_they_are_wanted(job, engine, tmp_path):
    over = tmp_path / "jobs" / "load" / "result.json"
    thread = once_recording(engine, lambda: over.write_text("{}"))
    thread.start()
    found = recording.record(asking(job, keep_trace=True))
    thread.join(30)
    assert not found["whole_load"], "the load was over first: recording was ended by hand"
    assert {p.name for p in (tmp_path / "jobs/inside/traces").iterdir()} == set(found["files"])
    assert found["rows"] == 0, "an engine without work takes no steps"


def test_an_engine_that_refuses_is_quoted(job, engine, tmp_path):
    assert post(engine, "/start_profile", output_dir=str(tmp_path / "other")) == 200
    try:
        with pytest.raises(Refusal, match="/start_profile: 500"):
            recording.record(job)
    finally:
        assert post(engine, "/stop_profile") == 200
    assert (tmp_path / "jobs" / "load" / "enough").exists(), "the load is ended whatever happens"


def test_a_load_that_is_over_is_not_recorded(job, tmp_path):
    (tmp_path / "jobs" / "load" / "result.json").write_text("{}")
    with pytest.raises(Refusal, match="ended before anything"):
        recording.record(job)


@pytest.mark.parametrize("changed", [{"in_flight": 3}, {"tokens": 999}])
def test_a_load_that_never_gets_large_enough_is_given_up(job, changed):
    with pytest.raises(Refusal, match="waited in vain for the load"):
        recording.record(asking(job, timeout_s=0.3, **changed))


def test_missing_ranks_are_waited_for_and_then_named(job, engine):
    thread = once_recording(engine, lambda: post(engine, "/stop_profile"))
    thread.start()
    with pytest.raises(Refusal, match=r"waited in vain for a trace; traces: .*TP-7"):
        recording.record(asking(job, ranks=9, timeout_s=4.0))
    thread.join(10)
