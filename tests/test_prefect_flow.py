"""The flow as people run it: a deployment, a worker, a server; completed, failed, cancelled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from flows import services
from flows.conduct import Counts
from infra.services import QUIET, ensure
from tests import rehearsing, sweeping
from tests.agent_host import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from configs.sweep import Sweep
    from tests.sweeping import Ground

pytestmark = pytest.mark.slow
_NAME = "eagle3-sweep/eagle3-sweep"
_OVER = {"COMPLETED", "FAILED", "CANCELLED", "CRASHED"}
_STAGES = ["claim", "survey", "clean_gpus", "patch", "clear_pycache", "check_drafter", "launch"]
_STAGES += ["wait_ready", "verify", "warm_up", "probe:load", "tear_down"]


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

    def start(self, **parameters: Any) -> str:
        """Runs the deployment; the id of its flow run."""
        deployment = self.ask(f"deployments/name/{_NAME}")["id"]
        made = self.ask(f"deployments/{deployment}/create_flow_run", {"parameters": parameters})
        return str(made["id"])

    def begin(self, ground: Ground, asked: Sweep) -> str:
        """Starts a sweep on a host; the id of its flow run."""
        host = ground.place / "configs" / "hosts" / "box.yaml"
        return self.start(sweep=str(ground.sweep_file(asked)), host=str(host))

    def sweep(self, ground: Ground, asked: Sweep) -> Run:
        """A sweep from its start to its end."""
        run = self.begin(ground, asked)
        return Run(self.ended(run), self.tasks(run), self.logs(run))

    def ended(self, run: str) -> Any:
        """The flow run, once it has come to its end."""

        def over() -> Any:
            found = self.ask(f"flow_runs/{run}")
            return found if found["state_type"] in _OVER else None

        return until(over, 60)

    def tasks(self, run: str) -> list[Any]:
        """The task runs of a flow run, in their order."""
        found = self.ask("task_runs/filter", {"flow_runs": {"id": {"any_": [run]}}})
        return sorted(found, key=lambda task: task["expected_start_time"])

    def logs(self, run: str) -> str:
        """What a flow run and its tasks logged."""
        return "\n".join(
            line["message"]
            for line in self.ask("logs/filter", {"logs": {"flow_run_id": {"any_": [run]}}})
        )


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with sweeping.ground(tmp_path_factory.mktemp("prefect")) as made:
        made.host_file()
        yield made


@pytest.fixture(scope="module")
def server(ground: Ground) -> Iterator[Server]:
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("EAGLE3_HOME", str(ground.place))
        port = rehearsing.free_port()
        api = f"http://127.0.0.1:{port}/api"
        env = {
            **QUIET,
            "EAGLE3_HOME": str(ground.place),
            "PREFECT_HOME": str(ground.place / "prefect"),
            "PREFECT_API_URL": api,
        }
        made = Server(api, env)
        try:
            ensure(services._prefect(env, port, api), said.append)
            made.ask("work_pools/", {"name": services.POOL, "type": "process"})
            with subprocess.Popen(
                [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"],
                env={**os.environ, **env},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            ) as deploy:
                ensure(services._worker(env, api), said.append)
                out, _ = deploy.communicate()
            assert deploy.returncode == 0, out.decode()
            yield made
        finally:
            services.down(said.append)


@pytest.fixture(scope="module")
def partial(server: Server, ground: Ground) -> Run:
    """One arm is measured, the other one misses the engine's hooks."""
    return server.sweep(ground, sweeping.sweep("partial", arms="base+tuned", patches=""))


def test_what_could_be_measured_completes_and_says_what_failed(partial: Run) -> None:
    state = partial.flow_run["state"]
    assert (state["type"], state["name"]) == ("COMPLETED", "Partial")
    assert "(1 ok, 1 failed)" in state["message"]
    assert partial.flow_run["name"] == "partial"


def test_every_stage_is_a_task_run_of_its_name(partial: Run) -> None:
    wanted = {f"{name} b01-base" for name in _STAGES}
    # A set: on a busy machine the trial may have been tried once more.
    assert {task["name"] for task in partial.tasks if task["name"].endswith("b01-base")} == wanted
    assert {t["state_type"] for t in partial.tasks if t["name"] in wanted} == {"COMPLETED"}


def test_a_known_failure_is_a_failed_task_without_a_traceback(partial: Run) -> None:
    (failed,) = (task for task in partial.tasks if task["state_type"] != "COMPLETED")
    assert failed["name"] == "wait_ready b01-tuned"
    assert failed["state_type"] == "FAILED"
    assert "missing_interface" in failed["state"]["message"]
    assert "Traceback" not in partial.logs
    assert "tear_down b01-tuned" in {task["name"] for task in partial.tasks}


def test_one_host_is_one_slot(server: Server, partial: Run) -> None:
    limit = server.ask("v2/concurrency_limits/host-box")
    assert (limit["limit"], limit["active"], limit["active_slots"]) == (1, True, 0)


def test_a_cancelled_run_leaves_nothing(server: Server, ground: Ground) -> None:
    before = ground.source.read_bytes()
    ground.plant("target_weights", "hang", rank=3)
    run = server.begin(ground, sweeping.sweep("cancelled", arms="tuned", silence_s=60))
    until(lambda: sweeping.loads(ground.attempt("cancelled")), 60)
    services._prefect_cli(server.env, "flow-run", "cancel", run)
    ended = server.ended(run)
    assert ended["state_type"] == "CANCELLED"
    assert "tear_down b01-tuned" in {task["name"] for task in server.tasks(run)}
    (folder,) = ground.latest("cancelled").trials()
    failure = json.loads(folder.record.read_bytes())["failure"]
    assert (failure["stage"], failure["failure_class"]) == ("wait_ready", "cancelled")
    assert ground.empty()
    assert ground.source.read_bytes() == before
    assert not (ground.root / "claim.json").exists()


@pytest.mark.parametrize(
    ("counts", "ends"),
    [
        (Counts(ok=2, suspect=0, failed=0, skipped=0), ("COMPLETED", "Completed")),
        (Counts(ok=1, suspect=0, failed=1, skipped=1), ("COMPLETED", "Partial")),
        (Counts(ok=0, suspect=1, failed=0, skipped=0), ("COMPLETED", "Completed")),
        (Counts(ok=0, suspect=0, failed=2, skipped=1), ("FAILED", "Failed")),
    ],
)
def test_a_run_that_measured_something_completes(counts: Counts, ends: tuple[str, str]) -> None:
    from flows.run_sweep import verdict_state

    outcome = SimpleNamespace(counts=lambda: counts, report=SimpleNamespace(sentence="It pays."))
    state = verdict_state(outcome)  # type: ignore[arg-type]
    assert (state.type.value, state.name) == ends
    assert counts.text() in str(state.message)
