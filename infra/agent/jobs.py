"""Runs one named piece of work detached, once, however often it is asked for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any, NamedTuple, Optional

from infra.agent import folders, processes, state
from infra.agent.refusal import Refusal

KINDS = ("client", "collectives", "drive", "facts", "options", "profile", "reap")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
LOG_TAIL = 2000


class Job(NamedTuple):
    """What a piece of work gets."""

    folder: str
    """The trial's folder."""
    where: str
    """The job's own folder."""
    request: dict[str, Any]


def place(folder: str, name: str) -> str:
    """The folder of a job; ``bad_name`` if the name could lead anywhere else."""
    if not NAME.match(name):
        raise Refusal("bad_name", f"not a job name: {name!r}")
    return os.path.join(folder, "jobs", name)


def alive(where: str) -> bool:
    """Whether the job's process runs."""
    return processes.alive(folders.read_object(os.path.join(where, "pid.json")))


def identities(folder: str) -> list[dict[str, Any]]:
    """The processes of all jobs of a trial, dead or alive."""
    try:
        names = os.listdir(os.path.join(folder, "jobs"))
    except FileNotFoundError:
        return []
    paths = (os.path.join(folder, "jobs", name, "pid.json") for name in names)
    return [ident for ident in map(folders.read_object, paths) if ident is not None]


def status(folder: str, name: str) -> dict[str, Any]:
    """Where a job stands."""
    where = place(folder, name)
    return {
        "name": name,
        "alive": alive(where),
        "progress": folders.read_object(os.path.join(where, "progress.json")),
        "result": folders.read_object(os.path.join(where, "result.json")),
        "log_tail": folders.tail(os.path.join(where, "log"), LOG_TAIL),
    }


def start(asked: dict[str, Any]) -> dict[str, Any]:
    """Starts a job, or tells how the job of that name stands if there is one already.

    A reconnecting controller asks again; a probe that ran twice would be two probes. So a name is
    used once, whatever became of it.
    """
    folder = folders.existing_folder(asked["dir"])
    name, kind = asked["name"], asked["job"]
    if kind not in KINDS:
        raise Refusal("unknown_job", f"no job {kind!r}; there are {', '.join(KINDS)}")
    where = place(folder, name)
    folders.own_folder(os.path.join(folder, "jobs"))
    folders.own_folder(where)
    lock = folders.lock(os.path.join(where, "lock"), wait=False)
    used = any(os.path.exists(os.path.join(where, mark)) for mark in ("pid.json", "result.json"))
    if lock is None or used:
        if lock is not None:
            os.close(lock)
        return {"already": True, **status(folder, name)}
    try:
        _put_request(where, asked.get("request"))
        _spawn(folder, name, kind, asked.get("python") or sys.executable, lock)
    finally:
        os.close(lock)
    return {"already": False, **status(folder, name)}


def _put_request(where: str, request: Optional[dict[str, Any]]) -> None:
    path = os.path.join(where, "request.json")
    if request is not None:
        folders.write_json(path, request)
    elif not os.path.exists(path):
        raise Refusal("no_request", f"{path} does not exist")


def _spawn(folder: str, name: str, kind: str, python: str, lock: int) -> None:
    """Starts the job's process; it inherits the lock, which thus lives as long as it does."""
    where = place(folder, name)
    env = {key: text for key, text in os.environ.items() if key != processes.MARKER}
    if kind != "reap":
        # A reap must not find itself, nor an earlier one, among what it ends.
        known = state.read(folder)
        env[processes.MARKER] = known["trial"] if known else os.path.basename(folder.rstrip("/"))
    path = os.path.join(where, "log")
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    words = folders.dumps({"dir": folder, "name": name, "job": kind})
    try:
        process = subprocess.Popen(
            [python, os.path.abspath(sys.argv[0]), "run-job", words],
            cwd=where,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(lock,),
        )
    except OSError as fault:
        raise Refusal("no_python", f"cannot start {python}: {fault}") from fault
    finally:
        os.close(log)
    folders.write_json(os.path.join(where, "pid.json"), processes.identity(process.pid))
