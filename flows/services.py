"""What `up` starts and sets up on one machine, and what `down` ends."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from infra.places import runs_folder, state_folder
from infra.services import (
    LOOPBACK,
    QUIET,
    Service,
    ServiceDown,
    answers,
    ensure,
    module,
    port_of,
    read_ready,
    running,
    stop,
)

if TYPE_CHECKING:
    from collections.abc import Callable

POOL = "eagle3"
MLFLOW_STORE = "MLFLOW_BACKEND_STORE_URI"
"""MLflow's own variable for its database; set to use another one than a file in our folder."""
_ORDER = ("rehearsal", "mlflow", "prefect", "worker")


class Up(NamedTuple):
    """What is up, and how to reach it."""

    prefect_api: str
    prefect_ui: str
    mlflow: str
    env: dict[str, str]
    """What a shell needs in its environment to talk to these."""


def up(say: Callable[[str], None], *, rehearsal: bool = True) -> Up:
    """Starts what is not up yet and prepares Prefect for the deployments; twice is once.

    Raises:
        ServiceDown: One of them did not come up; says where its log is.
    """
    home = state_folder()
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    ports = {"prefect": port_of("prefect", 4200), "mlflow": port_of("mlflow", 5000)}
    api = f"http://{LOOPBACK}:{ports['prefect']}/api"
    mlflow = f"http://{LOOPBACK}:{ports['mlflow']}"
    env = {
        **QUIET,
        "EAGLE3_HOME": str(home),
        "EAGLE3_RUNS": str(runs_folder()),
        "PREFECT_HOME": str(home / "prefect"),
        "PREFECT_API_URL": api,
        "MLFLOW_TRACKING_URI": mlflow,
        "PYTHONPATH": os.pathsep.join(
            filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")])
        ),
    }
    if rehearsal:
        ensure(_rehearsal(env), say)
    # One after the other: each is ready before the next is started.
    for service in (_mlflow(env, ports["mlflow"], mlflow), _prefect(env, ports["prefect"], api)):
        ensure(service, say)
    _prepare(env, say)
    ensure(_worker(env, api), say)
    ui = api.removesuffix("/api")
    return Up(prefect_api=api, prefect_ui=ui, mlflow=mlflow, env=env)


def down(say: Callable[[str], None]) -> None:
    """Ends what `up` started, and nothing else."""
    for name in reversed(_ORDER):
        stop(name, say)


def shell_lines(found: Up) -> list[str]:
    """What to put into a shell to use `prefect` and `mlflow` against these servers."""
    names = ("EAGLE3_HOME", "PREFECT_HOME", "PREFECT_API_URL", "MLFLOW_TRACKING_URI")
    return [f"export {name}={found.env[name]}" for name in names]


def _rehearsal(env: dict[str, str]) -> Service:
    folder = state_folder() / "rehearsal"
    ready = folder / "ready.json"

    def listens() -> bool:
        known, found = running("rehearsal"), read_ready(ready)
        return known is not None and found is not None and found.get("pid") == known["pid"]

    return Service(
        "rehearsal",
        module("infra.rehearsal", "serve", "--folder", str(folder)),
        env,
        None,
        listens,
    )


def _mlflow(env: dict[str, str], port: int, url: str) -> Service:
    home = state_folder()
    argv = module("mlflow", "server", "--workers", "1", "--host", LOOPBACK, "--port", str(port))
    argv += ["--artifacts-destination", str(home / "mlflow-artifacts")]
    # In the environment and not among the arguments: an address of PostgreSQL holds a password.
    store = os.environ.get(MLFLOW_STORE) or f"sqlite:///{home}/mlflow.db"
    more = {MLFLOW_STORE: store}
    return Service("mlflow", argv, env | more, port, lambda: answers(f"{url}/health"))


def _prefect(env: dict[str, str], port: int, api: str) -> Service:
    argv = module("prefect", "server", "start", "--host", LOOPBACK, "--port", str(port))
    ui = {"PREFECT_UI_API_URL": api}
    return Service("prefect", argv, env | ui, port, lambda: answers(f"{api}/health"))


def _worker(env: dict[str, str], api: str) -> Service:
    argv = module("prefect", "worker", "start", "--pool", POOL, "--name", "eagle3-local")
    quick = {"PREFECT_WORKER_QUERY_SECONDS": "2"}

    def online() -> bool:
        import urllib.request

        request = urllib.request.Request(  # noqa: S310 - loopback only
            f"{api}/work_pools/{POOL}/workers/filter",
            data=b"{}",
            headers={"Content-Type": "application/json"},
        )
        try:
            # The address is the loopback one that `up` built.
            with urllib.request.urlopen(request, timeout=3) as response:  # noqa: S310
                workers = json.load(response)
        except (OSError, ValueError):
            return False
        return any(w["name"] == "eagle3-local" and w["status"] == "ONLINE" for w in workers)

    return Service("worker", argv, env | quick, None, online)


def _prepare(env: dict[str, str], say: Callable[[str], None]) -> None:
    """Pool, queues, slots, notices and deployments, by a process that has these servers' settings.

    Raises:
        ServiceDown: It could not be done; says why.
    """
    done = subprocess.run(
        module("flows.prefect_ground"),
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **env},
    )
    for line in done.stdout.splitlines():
        say(line)
    if done.returncode != 0:
        raise ServiceDown(done.stderr.strip())
