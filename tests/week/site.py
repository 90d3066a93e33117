"""Everything of the week, started for real: PostgreSQL, Prefect, MLflow, two workers, four hosts."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from configs.read import to_yaml
from flows.services import POOL
from infra.rehearsal import hosting
from infra.services import Service, answers, ensure, running, stop
from tests import rehearsing, sweeping
from tests.deployed import Server
from tests.postgresql import Postgres, postgres
from tests.units import moved, settings, words
from tests.webhook import receiver
from tests.week.quick import deployments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from configs.sweep import Sweep
    from tests.sweeping import Ground
    from tests.webhook import Received
    from tests.week.quick import Week

HOSTS = ("box-1", "box-2", "box-3", "box-4")
WORKERS = ("worker-1", "worker-2")
_SERVERS = ("prefect", "mlflow")
_UNITS = {"prefect": "eagle3-prefect.service", "mlflow": "eagle3-mlflow.service"}
_SCALE = 8.0
_LEASE_S = 20.0
_HOOK = "EAGLE3_WEEK_URL"
# `up` asks for work every two seconds too; as shipped for systemd it is every ten.
_QUICK = {"PREFECT_WORKER_QUERY_SECONDS": "2", "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}


class Site:
    """What stands, and how to ask it."""

    def __init__(
        self,
        place: Path,
        database: Postgres,
        grounds: Mapping[str, Ground],
        hook: Received,
        say: Callable[[str], None],
    ) -> None:
        self.place, self.database, self.grounds, self.hook = place, database, grounds, hook
        self._say = say
        self._ports = {"4200": str(rehearsing.free_port()), "5000": str(rehearsing.free_port())}
        self._places = {
            "/var/lib/eagle3": str(place),
            "/var/run/postgresql": str(database.socket),
            "/opt/eagle3-sweep/.venv/bin/": f"{sys.executable} -m ",
            **{f"127.0.0.1:{port}": f"127.0.0.1:{here}" for port, here in self._ports.items()},
        }
        shipped = {name: moved(value, self._places) for name, value in settings().items()}
        self.env = shipped | _QUICK | {_HOOK: hook.url}
        self.server = Server(self.env["PREFECT_API_URL"], self.env)
        self.mlflow = self.env["MLFLOW_TRACKING_URI"]

    def start(self, name: str) -> None:
        """Starts a server or a worker, by the command of its unit."""
        argv = shlex.split(
            moved(shlex.join(words(_UNITS.get(name, "eagle3-worker@.service"))), self._places)
        )
        argv = [self._ports.get(word, word).replace("%H-%i", name) for word in argv]
        port = {"prefect": "4200", "mlflow": "5000"}.get(name)
        here = int(self._ports[port]) if port else None
        ensure(Service(name, argv, self.env, here, lambda: self._ready(name)), self._say)

    def stop(self, name: str) -> None:
        """Ends one of them, as systemd does."""
        stop(name, self._say)

    def _ready(self, name: str) -> bool:
        if name in _SERVERS:
            return answers(
                {"prefect": f"{self.server.api}/health", "mlflow": f"{self.mlflow}/health"}[name]
            )
        found = self.server.ask("work_pools/eagle3/workers/filter", {})
        return running(name) is not None and any(
            (w["name"], w["status"]) == (name, "ONLINE") for w in found
        )

    def command(self, *argv: str) -> None:
        """A command of ours or of Prefect's, in the folder of the week."""
        subprocess.run(
            argv,
            check=True,
            cwd=self.place,
            env={**os.environ, **self.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    def rows(self, database: str, query: str) -> list[list[str]]:
        """What a database itself says."""
        text = self.database.ask(database, query)
        return [line.split("|") for line in text.splitlines()]

    def deploy(self, week: Week) -> None:
        """`eagle3-sweep deploy`, then the nights are switched on as docs/operate.md says."""
        (self.place / "prefect.yaml").write_text(deployments(week), encoding="utf-8")
        self.command(sys.executable, "-c", "from flows.cli import main; main()", "deploy")
        (night,) = self.server.ask("deployments/name/eagle3-sweep/overnight")["schedules"]
        words = ["deployment", "schedule", "resume", "eagle3-sweep/overnight", night["id"]]
        self.command(sys.executable, "-m", "prefect", "--no-prompt", *words)

    def rest(self) -> None:
        """No worker takes anything any more: the week is over, the schedules are not."""
        self.command(sys.executable, "-m", "prefect", "--no-prompt", "work-pool", "pause", POOL)


def sweep(name: str) -> Sweep:
    """Four blocks on four hosts, three arms."""
    asked = sweeping.sweep(name, arms="base+tuned+custom", blocks=len(HOSTS), per_slot=3)
    return asked.model_copy(
        update={
            "hosts": HOSTS,
            "tolerate": {"client_was_the_bottleneck": "a shared machine"},
        }
    )


@contextmanager
def site(place: Path, name: str, say: Callable[[str], None]) -> Iterator[Site]:
    """Servers and hosts, up; ended with the block. Workers are started by whoever has deployed."""
    with ExitStack() as stack:
        patched = stack.enter_context(pytest.MonkeyPatch.context())
        for variable in [
            key for key in os.environ if key.startswith(("EAGLE3_", "MLFLOW_", "PREFECT_"))
        ]:
            patched.delenv(variable)
        for variable in [key for key in os.environ if key.lower().endswith("_proxy")]:
            patched.delenv(variable)
        database = stack.enter_context(postgres("prefect", "mlflow"))
        hook = stack.enter_context(receiver())
        grounds = {host: _host(place, host, stack) for host in HOSTS}
        made = Site(place, database, grounds, hook, say)
        patched.setenv("EAGLE3_HOME", str(place))
        _write(place / "configs" / "sweeps" / f"{name}.yaml", to_yaml(sweep(name)))
        told = {"to": {"hook": {"kind": "webhook", "url_from": _HOOK}}}
        lists = {key: ["hook"] for key in ("morning", "host_lost")}
        _write(place / "configs" / "notices.yaml", json.dumps(told | lists))
        try:
            for server in _SERVERS:
                made.start(server)
            yield made
        finally:
            for service in (*WORKERS, *reversed(_SERVERS)):
                stop(service, say)


def _host(place: Path, name: str, stack: ExitStack) -> Ground:
    folder = rehearsing.build(place / "hosts" / name, time_scale=_SCALE, start_s=0.6)
    ready = stack.enter_context(hosting.serving(folder, name=name))
    ground = sweeping.Ground(place, ready, _SCALE)
    ground.host = ground.host.model_copy(update={"name": name, "lease_s": _LEASE_S})
    _write(place / "configs" / "hosts" / f"{name}.yaml", to_yaml(ground.host))
    return ground


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
