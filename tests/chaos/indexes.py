"""Rows: MLflow is down, slow, or its database is locked; the folder is the truth all the same."""

from __future__ import annotations

import os
import sqlite3
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from flows import services
from flows.runs import read_records
from infra.services import QUIET, ensure
from infra.services import stop as stop_service
from tests import rehearsing, sweeping
from tests.chaos.scene import nothing_left, scene, short
from tests.chaos.table import row
from tests.openssh import Relay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.sweeping import Command, Ground

# One retry of a request, as on a controller that is set up for nights; three would be a minute.
_ENV = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "6"}
_BOUND_S = 240.0
_WELL = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3", "MLFLOW_HTTP_REQUEST_TIMEOUT": "60"}
"""Once MLflow is well again it may be as slow as this machine."""


class Index(NamedTuple):
    """An MLflow server, behind a relay that can be cut or frozen."""

    relay: Relay
    database: Path

    @property
    def env(self) -> dict[str, str]:
        """For a command that shall use it."""
        return _ENV | {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{self.relay.port}"}

    def entries(self, holder: str) -> list[tuple[str, str, str]]:
        """Trial, attempt and status of every run of a sweep run, as MLflow has them."""
        with sqlite3.connect(self.database) as known:
            rows = known.execute(
                "select run_uuid, key, value from tags where run_uuid in "
                "(select run_uuid from tags where key = 'sweep_run' and value = ?)",
                (holder,),
            ).fetchall()
            ends = dict(known.execute("select run_uuid, status from runs").fetchall())
        known.close()
        runs: dict[str, dict[str, str]] = {}
        for run, key, value in rows:
            runs.setdefault(run, {})[key] = value
        assert all(ends[run] != "RUNNING" for run in runs)
        return sorted(
            (tags["eagle3.key"], tags["status"], ends[run])
            for run, tags in runs.items()
            if tags.get("kind") == "trial"
        )


@contextmanager
def index(place: Path) -> Iterator[Index]:
    """An MLflow server of its own for a row."""
    said: list[str] = []
    before = os.environ.get("EAGLE3_HOME")
    os.environ["EAGLE3_HOME"] = str(place)
    try:
        port = rehearsing.free_port()
        service = services._mlflow(QUIET | _ENV, port, f"http://127.0.0.1:{port}")
        ensure(service, said.append)
        with Relay(port) as relay:
            yield Index(relay, place / "mlflow.db")
    finally:
        stop_service("mlflow", said.append)
        if before is None:
            del os.environ["EAGLE3_HOME"]
        else:
            os.environ["EAGLE3_HOME"] = before


def agrees(ground: Ground, kept: Index, name: str = "night") -> int:
    """MLflow has every attempt of the folder once, with its status; returns how many."""
    run = ground.latest(name)
    folder = sorted(
        (f"{run.holder}/{f.trial}/a{f.attempt}", _status(f.record)) for f in run.trials()
    )
    found = kept.entries(run.holder)
    assert [(key, status) for key, status, _ in found] == folder, (found, folder)
    return len(folder)


def _status(record: Path) -> str:
    import json

    return str(json.loads(record.read_bytes())["status"])


def _published(ground: Ground, kept: Index) -> int:
    """`eagle3-sweep publish`, twice; what MLflow has afterwards."""
    for _ in range(2):
        with ground.command("publish", "night", **kept.env | _WELL) as command:
            assert command.ended(_BOUND_S) == 0, command.text
        count = agrees(ground, kept)
    return count


def _disturbed(
    place: Path,
    begin: Callable[[Index], Any],
    end: Callable[[Index], Any],
    moments: tuple[str, str],
) -> str:
    """A sweep of two blocks during which MLflow is disturbed from one moment to another."""
    with scene(place) as ground, index(place) as kept:

        def reached(moment: str, command: Command) -> None:
            if moment == "the start":
                return
            done = {"the first trial": 1, "the end": 2}[moment]
            command.reaches(lambda: len(sweeping.finished(ground, "night")) >= done)

        asked = short(arms="base", blocks=2)
        ground.host_file()
        path = str(ground.sweep_file(asked))
        if moments[0] == "the start":
            begin(kept)
        with ground.command("run", path, **kept.env) as command, ExitStack() as undo:
            if moments[0] != "the start":
                reached(moments[0], command)
                begin(kept)
            undo.callback(end, kept)
            if moments[1] != "never":
                reached(moments[1], command)
                undo.close()
            code = command.ended(_BOUND_S)
            text = command.text
        assert code == 0, text
        assert "Traceback" not in text
        records = read_records(ground.latest("night"))
        assert {record.status for record in records} <= sweeping.MEASURED
        assert len(records) == 2
        nothing_left(ground)
        count = _published(ground, kept)
        missed = sum("is not in MLflow yet" in line for line in text.splitlines())
        return (
            f"night went on, {missed} times without MLflow; publish brought {count}, twice is once"
        )


def _down(kept: Index) -> None:
    kept.relay.cut(and_refuse=10**6)


def _up(kept: Index) -> None:
    kept.relay.cut()


def _slow(kept: Index) -> None:
    kept.relay.freeze()


def _quick(kept: Index) -> None:
    kept.relay.cut()
    kept.relay.thaw()


class _Lock:
    """Holds MLflow's database for itself, as another writer that hangs."""

    def __init__(self) -> None:
        self._held: sqlite3.Connection | None = None

    def take(self, kept: Index) -> None:
        self._held = sqlite3.connect(
            kept.database, isolation_level=None, timeout=30, check_same_thread=False
        )
        self._held.execute("begin exclusive")

    def give(self, _kept: Index) -> None:
        if self._held is not None:
            self._held.close()
        self._held = None


@row("mlflow", "down from before the start to the end of the first trial")
def down_at_the_start(place: Path) -> str:
    return _disturbed(place, _down, _up, ("the start", "the first trial"))


@row("mlflow", "down from the end of the first trial on")
def down_later(place: Path) -> str:
    return _disturbed(place, _down, _up, ("the first trial", "never"))


@row("mlflow", "takes every request and answers none, from the first trial on")
def slow_later(place: Path) -> str:
    return _disturbed(place, _slow, _quick, ("the first trial", "never"))


@row("mlflow", "database locked at the start")
def locked_at_the_start(place: Path) -> str:
    lock = _Lock()
    return _disturbed(place, lock.take, lock.give, ("the start", "the first trial"))


@row("mlflow", "database locked from the end of the first trial on")
def locked_later(place: Path) -> str:
    lock = _Lock()
    return _disturbed(place, lock.take, lock.give, ("the first trial", "never"))
