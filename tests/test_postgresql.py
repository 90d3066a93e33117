"""Prefect and MLflow on a real PostgreSQL with two workers, by the lines of infra/systemd."""

from __future__ import annotations

import os
import shlex
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from infra.services import QUIET, Service, answers, ensure, running, stop
from infra.tracking import Tracker
from tests import rehearsing, sweeping
from tests.agent_host import until
from tests.deployed import Server
from tests.postgresql import Postgres, postgres
from tests.units import moved, settings, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sweeping import Ground

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]
_BOUND_S = 300
"""For two sweeps, one after the other, on a busy machine."""


class Site(NamedTuple):
    """Servers on PostgreSQL, with their database."""

    server: Server
    database: Postgres
    mlflow: str


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with sweeping.ground(tmp_path_factory.mktemp("postgres")) as made:
        made.host_file()
        yield made


@pytest.fixture(scope="module")
def site(ground: Ground) -> Iterator[Site]:
    """Everything up, the commands and the environment as shipped but for places and ports."""
    ports = {"4200": str(rehearsing.free_port()), "5000": str(rehearsing.free_port())}
    with postgres("prefect", "mlflow") as database, pytest.MonkeyPatch.context() as patched:
        places = {
            "/var/lib/eagle3": str(ground.place),
            "/var/run/postgresql": str(database.socket),
            "/opt/eagle3-sweep/.venv/bin/": f"{sys.executable} -m ",
            "127.0.0.1:4200": f"127.0.0.1:{ports['4200']}",
            "127.0.0.1:5000": f"127.0.0.1:{ports['5000']}",
        }
        env = {name: moved(value, places) for name, value in settings().items()}
        env["PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED"] = "false"
        for name, value in env.items():
            patched.setenv(name, value)
        server = Server(env["PREFECT_API_URL"], env)
        mlflow = env["MLFLOW_TRACKING_URI"]
        said: list[str] = []
        names = ["prefect", "mlflow", "worker-1", "worker-2"]

        def begin(name: str, unit: str, port: str | None, ready: str) -> None:
            argv = shlex.split(moved(shlex.join(words(unit)), places))
            argv = [ports.get(word, word).replace("%H-%i", name) for word in argv]
            # One sweep each, so that two at once need both workers.
            argv += ["--limit", "1"] if name.startswith("worker") else []
            here = int(ports[port]) if port else None
            ensure(Service(name, argv, {}, here, lambda: _ready(server, ready)), said.append)

        try:
            begin("prefect", "eagle3-prefect.service", "4200", f"{server.api}/health")
            begin("mlflow", "eagle3-mlflow.service", "5000", f"{mlflow}/health")
            _deploy()
            for name in names[2:]:
                begin(name, "eagle3-worker@.service", None, name)
            yield Site(server, database, mlflow)
        finally:
            for name in reversed(names):
                stop(name, said.append)


def _ready(server: Server, what: str) -> bool:
    if what.startswith("http"):
        return answers(what)
    workers = server.ask("work_pools/eagle3/workers/filter", {})
    return any((w["name"], w["status"]) == (what, "ONLINE") for w in workers)


def _deploy() -> None:
    """`eagle3-sweep deploy`."""
    import subprocess

    argv = [sys.executable, "-c", "from flows.cli import main; main()", "deploy"]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)


def test_two_workers_run_two_sweeps_on_one_host_one_after_the_other(
    site: Site, ground: Ground
) -> None:
    asked = [sweeping.sweep(name, arms="base+tuned") for name in ("first", "second")]
    runs = [site.server.begin(ground, sweep) for sweep in asked]
    # Each has a worker of its own, and both are inside their flow; one waits for the slot.
    until(lambda: all(_state(site, run) == "RUNNING" for run in runs), _BOUND_S)
    ended = [site.server.ended(run, _BOUND_S) for run in runs]
    assert [run["state_type"] for run in ended] == ["COMPLETED"] * 2
    spans = sorted(_span(ground, sweep.name) for sweep in asked)
    assert spans[0][1] <= spans[1][0], "they never overlap"


def _state(site: Site, run: str) -> str:
    return str(site.server.ask(f"flow_runs/{run}")["state_type"])


def _span(ground: Ground, sweep: str) -> tuple[datetime, datetime]:
    """From the first trial's begin to the last one's end."""
    import json

    records = [json.loads(folder.record.read_bytes()) for folder in ground.latest(sweep).trials()]
    begun = [datetime.fromisoformat(record["started_at"]) for record in records]
    ended = [datetime.fromisoformat(record["ended_at"]) for record in records]
    return min(begun), max(ended)


def test_everything_stands_in_postgresql(site: Site, ground: Ground) -> None:
    for found, wanted in (
        (
            site.database.ask(
                "prefect", "SELECT count(*) FROM flow_run WHERE state_type='COMPLETED'"
            ),
            2,
        ),
        (site.database.ask("prefect", "SELECT count(*) FROM deployment"), 6),
        (
            site.database.ask("mlflow", "SELECT count(*) FROM runs WHERE lifecycle_stage='active'"),
            6,
        ),
    ):
        assert int(found) >= wanted
    assert not list(ground.place.rglob("*.db")), "no SQLite beside it"


def test_what_is_published_reads_back(site: Site, ground: Ground) -> None:
    link = Tracker(site.mlflow, note=print).chart_link("first")
    assert link.startswith(site.mlflow)


def test_a_dead_worker_and_its_sweep_are_found_by_the_other_worker(
    site: Site, ground: Ground
) -> None:
    import signal

    from infra.store import read_json

    ground.host_file(lease_s=300)
    ground.plant("target_weights", "hang", rank=3)
    run = site.server.begin(ground, sweeping.sweep("orphan", arms="tuned", silence_s=200))
    until(lambda: sweeping.loads(ground.attempt("orphan")), _BOUND_S)
    flow = int(read_json(ground.latest("orphan").path / "run.json")["pid"])
    taken = Path(f"/proc/{flow}/status").read_text(encoding="utf-8")
    parent = int(next(line for line in taken.splitlines() if line.startswith("PPid:")).split()[1])
    assert parent in {(running(name) or {}).get("pid") for name in ("worker-1", "worker-2")}
    for pid in (parent, flow):
        os.kill(pid, signal.SIGKILL)
    reaper = site.server.start("eagle3-reaper/eagle3-reaper")
    assert site.server.ended(reaper, _BOUND_S)["state_type"] == "COMPLETED"
    assert _state(site, run) == "CRASHED"
    assert ground.empty()
    assert not (ground.root / "claim.json").exists()


def test_the_units_say_what_up_says() -> None:
    shipped = settings()
    assert {name: shipped.get(name) for name in QUIET} == QUIET
