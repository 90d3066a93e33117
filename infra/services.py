"""Starts and stops what runs beside a sweep on one machine: Prefect, MLflow, a worker, the rehearsal.

Every service is a process of its own session with a state file (pid, start time, port, command);
it is recognised by pid and start time, never by name, and only what was started here is stopped.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from infra.errors import WorldError
from infra.places import state_folder
from infra.store import read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LOOPBACK = "127.0.0.1"
_START_S = 180.0

# In one place: no telemetry, leases that survive a server restart, one MLflow process and not
# fourteen (3.2 GB), no ghost servers. Measured with prefect 3.9.1 and mlflow 3.17.2.
QUIET = {
    "DO_NOT_TRACK": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_ENABLED": "false",
    "PREFECT_CLI_PROMPT": "false",
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": (
        "prefect.server.concurrency.lease_storage.filesystem"
    ),
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    # Every minute: the reaper tells a dead run from a living one by it (180 s otherwise).
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "60",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
}


# What this process started, so that it can collect it.
_children: dict[int, subprocess.Popen[bytes]] = {}


class ServiceDown(WorldError):
    """A service did not come up; the message ends with where its log is."""


class Service(NamedTuple):
    """One process to run."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    port: int | None
    ready: Callable[[], bool]


def service_file(name: str) -> Path:
    """The state file of a service."""
    return state_folder() / "services" / f"{name}.json"


def running(name: str) -> dict[str, Any] | None:
    """The state of a service that lives, by pid and start time; None where there is none."""
    known = read_json(service_file(name))
    if known and known["start_ticks"] is not None and _lives(known):
        return known
    return None


def ensure(service: Service, say: Callable[[str], None]) -> bool:
    """Starts a service unless it runs; waits until it answers. True if it was started now.

    Raises:
        ServiceDown: It died, did not answer in time, or its port is another program's.
    """
    file = service_file(service.name)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with file.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two who start it at once share it
        if running(service.name) is not None:
            if service.ready():
                say(f"{service.name}: up already")
                return False
            stop(service.name, say)
        _start_and_wait(service, file.with_suffix(".log"), say)
    return True


def _start_and_wait(service: Service, log: Path, say: Callable[[str], None]) -> None:
    if service.port is not None and free_port(service.port) != service.port:
        raise ServiceDown(f"{service.name}: port {service.port} is another program's")
    process = _start(service, log)
    write_json(
        service_file(service.name),
        {
            "name": service.name,
            "pid": process.pid,
            "start_ticks": start_ticks(process.pid),
            "port": service.port,
            "argv": list(service.argv),
        },
    )
    began = time.monotonic()
    while not service.ready():
        if process.poll() is not None:
            raise ServiceDown(
                f"{service.name} ended at once (exit {process.returncode}): see {log}"
            )
        if time.monotonic() - began > _START_S:
            raise ServiceDown(f"{service.name} did not answer within {_START_S:g} s: see {log}")
        time.sleep(0.2)
    say(f"{service.name}: up in {time.monotonic() - began:.1f} s")


def _start(service: Service, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as out:
        try:
            process = subprocess.Popen(
                list(service.argv),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **service.env},
                start_new_session=True,
            )
        except OSError as error:
            raise ServiceDown(f"{service.name} cannot be started: {error}; log: {log}") from error
    _children[process.pid] = process
    return process


def stop(name: str, say: Callable[[str], None], *, patience_s: float = 20.0) -> None:
    """Ends a service that was started here: its session, politely, then for good.

    Raises:
        ServiceDown: Something of it is still there after SIGKILL.
    """
    known = running(name)
    if known is not None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            _signal(known["pid"], number)
            if _gone_within(known, patience_s):
                break
        else:
            raise ServiceDown(f"{name}: process {known['pid']} cannot be ended")
        say(f"{name}: stopped")
    service_file(name).unlink(missing_ok=True)


def _gone_within(known: Mapping[str, Any], seconds: float) -> bool:
    """Whether the process and all of its group have ended."""
    deadline = time.monotonic() + seconds
    child = _children.get(known["pid"])
    while _lives(known) or _group_lives(known["pid"]):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
        if child is not None:
            child.poll()
    if child is not None:
        child.wait()
        del _children[known["pid"]]
    return True


def free_port(preferred: int) -> int:
    """The preferred port if nobody listens there, else a free one."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise ServiceDown("no free port on loopback")


def port_of(name: str, preferred: int) -> int:
    """The port of a service that runs, or one to start it on."""
    known = running(name)
    return int(known["port"]) if known else free_port(preferred)


def answers(url: str) -> bool:
    """Whether an HTTP server answers 200 there."""
    try:
        with urllib.request.urlopen(url, timeout=2) as response:  # noqa: S310 - loopback only
            return bool(response.status == 200)
    except (OSError, ValueError):
        return False


def module(*words: str) -> list[str]:
    """This Python, running a module."""
    return [sys.executable, "-m", *words]


def _signal(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return


def _lives(known: Mapping[str, Any]) -> bool:
    return bool(start_ticks(known["pid"]) == known["start_ticks"])


def _group_lives(pgid: int) -> bool:
    """Whether a process of this group lives; its number is not given away before."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        fields = _stat(stat)
        if fields and fields[0] != "Z" and int(fields[2]) == pgid:
            return True
    return False


def start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/<pid>/stat; None for a process that is gone or a zombie."""
    fields = _stat(Path(f"/proc/{pid}/stat"))
    return None if not fields or fields[0] == "Z" else int(fields[19])


def _stat(path: Path) -> list[str]:
    """The fields after the name (which may hold anything); empty for a process that is gone."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def read_ready(path: Path) -> dict[str, Any] | None:
    """The rehearsal host's address file; None where there is none, or half a one."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
