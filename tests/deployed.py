"""A Prefect server with a worker and our deployments, as people have it; for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from flows import services
from infra.services import QUIET, ensure
from tests import rehearsing
from tests.agent_host import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from configs.sweep import Sweep
    from tests.pooling import Several
    from tests.sweeping import Ground

_NAME = "eagle3-sweep/eagle3-sweep"
_OVER = {"COMPLETED", "FAILED", "CANCELLED", "CRASHED"}


class Run(NamedTuple):
    """A flow run that ended."""

    flow_run: Any
    tasks: list[Any]
    logs: str


class Server(NamedTuple):
    """A Prefect server with a worker and our deployments."""

    api: str
    env: dict[str, str]

    def ask(self, path: str, body: Any = None) -> Any:
        """A request to its API; asked again while its database is busy (503)."""

        def answered() -> Any:
            data = None if body is None else json.dumps(body).encode()
            headers = {"Content-Type": "application/json"}
            request = urllib.request.Request(f"{self.api}/{path}", data, headers)
            try:
                with urllib.request.urlopen(request, timeout=20) as answer:
                    return [json.load(answer)]
            except urllib.error.HTTPError as error:
                with error:
                    if error.code != 503:
                        raise
                return []

        return until(answered)[0]

    def start(self, name: str = _NAME, planned: datetime | None = None, **parameters: Any) -> str:
        """Runs a deployment, now or as if a schedule had asked for it then; its flow run's id."""
        deployment = self.ask(f"deployments/name/{name}")["id"]
        body: dict[str, Any] = {"parameters": parameters}
        if planned is not None:
            details = {"scheduled_time": planned.isoformat()}
            body["state"] = {"type": "SCHEDULED", "state_details": details}
        return str(self.ask(f"deployments/{deployment}/create_flow_run", body)["id"])

    def cli(self, *words: str) -> None:
        """`prefect`, against this server."""
        argv = [sys.executable, "-m", "prefect", "--no-prompt", *words]
        subprocess.run(argv, check=True, env={**os.environ, **self.env}, stdin=subprocess.DEVNULL)

    def begin(self, ground: Ground, asked: Sweep) -> str:
        """Starts a sweep on a host; the id of its flow run."""
        host = ground.place / "configs" / "hosts" / "box.yaml"
        return self.start(sweep=str(ground.sweep_file(asked)), host=str(host))

    def sweep(self, ground: Ground, asked: Sweep) -> Run:
        """A sweep from its start to its end."""
        run = self.begin(ground, asked)
        ended = self.ended(run)
        # What it logged comes in batches, the last one after its end.
        until(lambda: any(_is_last(line) for line in self._lines(run)))
        return Run(ended, self.tasks(run), self.logs(run))

    def ended(self, run: str, within_s: float = 150) -> Any:
        """The flow run, once it has come to its end."""

        def over() -> Any:
            found = self.ask(f"flow_runs/{run}")
            return found if found["state_type"] in _OVER else None

        return until(over, within_s)

    def tasks(self, run: str) -> list[Any]:
        """The task runs of a flow run, in their order."""
        found = self.ask("task_runs/filter", {"flow_runs": {"id": {"any_": [run]}}})
        return sorted(found, key=lambda task: task["expected_start_time"])

    def logs(self, run: str) -> str:
        """What a flow run and its tasks logged."""
        return "\n".join(line["message"] for line in self._lines(run))

    def _lines(self, run: str) -> list[Any]:
        return list(self.ask("logs/filter", {"logs": {"flow_run_id": {"any_": [run]}}}))


def _is_last(line: Any) -> bool:
    return line["task_run_id"] is None and line["message"].startswith("Finished in state ")


@contextmanager
def deployed(ground: Ground | Several) -> Iterator[Server]:
    """A server, a worker and our deployments, for sweeps on one host; ended with the block."""
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("EAGLE3_HOME", str(ground.place))
        port = rehearsing.free_port()
        api = f"http://127.0.0.1:{port}/api"
        env = {
            **QUIET,
            # What is tested is started by its test, not by the clock.
            "PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED": "false",
            "EAGLE3_HOME": str(ground.place),
            "PREFECT_HOME": str(ground.place / "prefect"),
            "PREFECT_API_URL": api,
        }
        made = Server(api, env)
        try:
            ensure(services._prefect(env, port, api), said.append)
            services._prepare(env, said.append)
            ensure(services._worker(env, api), said.append)
            yield made
        finally:
            services.down(said.append)
