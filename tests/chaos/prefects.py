"""Rows: the flow, its worker or its server are killed or stopped, as a deployment runs them."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flows import services
from infra.rehearsal import faults
from infra.services import ensure, running, stop
from infra.store import read_json
from tests import sweeping
from tests.agent_host import until
from tests.chaos.kills import lapses
from tests.chaos.scene import LONG, SLOW, later, nothing_left, scene, short
from tests.chaos.table import row
from tests.deployed import deployed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.deployed import Server
    from tests.sweeping import Ground

_LEASE_S = 10.0
_OUTAGE_S = 120.0


@contextmanager
def served(place: Path, **host: Any) -> Iterator[tuple[Ground, Server]]:
    """A host, and Prefect with a worker for it."""
    with scene(place, **SLOW) as ground:
        ground.host_file(**host)
        with deployed(ground) as server:
            yield ground, server


def _flow_pid(ground: Ground, name: str = "night") -> int:
    return int(read_json(ground.latest(name).path / "run.json")["pid"])


def _kill_worker() -> None:
    known = running("worker")
    assert known is not None
    os.kill(known["pid"], signal.SIGKILL)


def _record(ground: Ground, attempt: int) -> Any:
    path = ground.latest("night").path / f"trials/b01-tuned.a{attempt}/record.json"
    return json.loads(path.read_bytes())


@row("killed", "SIGKILL of the flow process, its Prefect worker lives")
def flow_killed(place: Path) -> str:
    with served(place, lease_s=60) as (ground, server):
        run = server.begin(ground, short(**LONG))
        until(lambda: sweeping.probes(ground.attempt("night")), 90)
        os.kill(_flow_pid(ground), signal.SIGKILL)
        killed = time.monotonic()
        ended = server.ended(run, 90)
        assert ended["state_type"] == "CRASHED"
        until(ground.empty, 60)
        seconds = time.monotonic() - killed
        until(lambda: next(ground.latest("night").trials()).finished, 30)
        assert _record(ground, 1)["failure"]["failure_class"] == "cancelled"
        until(lambda: not (ground.root / "claim.json").exists(), 30)
        nothing_left(ground)
        return f"the worker's hook freed the host {seconds:.1f} s after the kill, and recorded it"


@row("killed", "SIGKILL of the Prefect worker alone")
def worker_killed(place: Path) -> str:
    with served(place, lease_s=60) as (ground, server):
        run = server.begin(ground, short(**LONG))
        until(lambda: sweeping.probes(ground.attempt("night")), 90)
        _kill_worker()
        ended = server.ended(run, 120)
        until(lambda: next(ground.latest("night").trials()).finished, 60)
        until(lambda: not (ground.root / "claim.json").exists(), 60)
        nothing_left(ground)
        # Whether the flow outlives its worker is Prefect's business; what it leaves is ours.
        outcome = ground.run(short(**LONG))
        (record,) = outcome.records
        assert record.status in sweeping.MEASURED, record.failure
        nothing_left(ground)
        how = f"skipped as {record.status}" if outcome.skipped else f"resumed as a{record.attempt}"
        return f"the flow run ended {ended['state_type']}, the host is free; run again: {how}"


@row("killed", "SIGKILL of flow and worker, and nobody comes back")
def both_killed(place: Path) -> str:
    with served(place, lease_s=_LEASE_S) as (ground, server):
        server.begin(ground, short(**LONG))
        until(lambda: sweeping.probes(ground.attempt("night")), 90)
        attempt = ground.attempt("night")
        _kill_worker()
        os.kill(_flow_pid(ground), signal.SIGKILL)
        seconds = lapses(ground, attempt, time.monotonic())
        outcome = ground.run(short(**LONG), lease_s=_LEASE_S)
        assert outcome.records[0].status in sweeping.MEASURED, outcome.records[0].failure
        nothing_left(ground)
        return f"free {seconds:.1f} s after the kill (lease {_LEASE_S:g} s); run again it resumed"


def _cancelled(ground: Ground, server: Server, name: str, reached: Any) -> str:
    before = ground.source.read_bytes()
    # So that the trial cannot come to its end before the word to cancel reaches it.
    if name.endswith("probe"):
        ground.plant("decode", "hang", after_requests=6)
    else:
        ground.plant("target_weights", "hang", rank=3)
    asked = short(name, patches="kimi_k25_eagle3", silence_s=100, **LONG)
    run = server.begin(ground, asked)
    until(lambda: reached(server, run, ground.attempt(name)), 90)
    server.cli("flow-run", "cancel", run)
    began = time.monotonic()
    ended = server.ended(run, 90)
    assert ended["state_type"] == "CANCELLED", ended["state"]
    seconds = time.monotonic() - began
    (folder,) = ground.latest(name).trials()
    until(lambda: folder.finished, 60)
    failure = json.loads(folder.record.read_bytes())["failure"]
    assert failure["failure_class"] == "cancelled"
    until(lambda: not (ground.root / "claim.json").exists(), 30)
    nothing_left(ground)
    assert ground.source.read_bytes() == before
    faults.write(ground.folder, [])
    return f"{failure['stage']} {seconds:.0f} s"


def _task(stage: str) -> Any:
    """Whether a stage has begun, as Prefect shows it."""

    def reached(server: Server, run: str, _attempt: Path) -> bool:
        return any(task["name"].startswith(f"{stage} ") for task in server.tasks(run))

    return reached


@row("cancelled", "`prefect flow-run cancel` in survey, start, probe; MLflow ends KILLED")
def cancelled_in_prefect(place: Path) -> str:
    moments = {
        "survey": _task("survey"),
        "start": lambda _server, _run, attempt: sweeping.loads(attempt),
        "probe": lambda _server, _run, attempt: sweeping.probes(attempt),
    }
    database = f"sqlite:///{place}/index.db"
    with scene(place, patched=False, **SLOW) as ground:
        ground.host_file(lease_s=60)
        before = os.environ.get("MLFLOW_TRACKING_URI")
        os.environ["MLFLOW_TRACKING_URI"] = database
        try:
            with deployed(ground) as server:
                found = [
                    _cancelled(ground, server, f"night-{name}", reached)
                    for name, reached in moments.items()
                ]
                killed = [
                    _killed_in_mlflow(place / "index.db", f"night-{name}") for name in moments
                ]
        finally:
            if before is None:
                del os.environ["MLFLOW_TRACKING_URI"]
            else:
                os.environ["MLFLOW_TRACKING_URI"] = before
    assert killed == ["KILLED"] * len(moments)
    return f"torn down in {', '.join(found)}; each KILLED in MLflow"


def _killed_in_mlflow(database: Path, sweep: str) -> str:
    """How the only run of a sweep stands in MLflow, once the hook has written it."""
    import sqlite3

    def status() -> str:
        with sqlite3.connect(database) as known:
            rows = known.execute(
                "select r.status from runs r join experiments e using (experiment_id) "
                "where e.name = ? and r.status != 'RUNNING'",
                (sweep,),
            ).fetchall()
        known.close()
        return str(rows[0][0]) if rows else ""

    return str(until(status, 90))


@row("prefect", "server down for two minutes in the middle of a trial")
def server_down(place: Path) -> str:
    with served(place, lease_s=60) as (ground, server):
        # About a minute of load: on a quick machine the flow comes to its end in the outage.
        asked = short(tokens=96, per_slot=500)
        run = server.begin(ground, asked)
        until(lambda: sweeping.loads(ground.attempt("night")), 90)
        stop("prefect", lambda _text: None)
        down = time.monotonic()
        port = int(server.api.rsplit(":", 1)[1].split("/")[0])
        back = later(
            _OUTAGE_S,
            lambda: ensure(services._prefect(server.env, port, server.api), lambda _text: None),
        )
        until(lambda: sweeping.finished(ground, "night"), 300)
        record = _record(ground, 1)
        seconds = time.monotonic() - down
        back.join()
        ended = server.ended(run, 200)
        assert record["status"] in sweeping.MEASURED, record["failure"]
        assert ended["state_type"] == "COMPLETED", ended["state"]
        nothing_left(ground)
        return (
            f"away {_OUTAGE_S:g} s; the trial ended {record['status']} {seconds:.0f} s after it "
            f"went; the flow run {ended['state_type']}"
        )
