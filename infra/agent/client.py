"""The job that runs somebody else's load generator, and ends it when nobody wants its result."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import Any

from infra.agent import folders, lease, processes, state, web
from infra.agent.jobs import NAME, Job
from infra.agent.refusal import Refusal

SAID = "client.log"
_LOOK_S = 0.1
_GRACE_S = 3.0
_TAIL = 4000
_BEARER = "Bearer "


def run_client(job: Job) -> dict[str, Any]:
    """Runs a program in the job's folder until it ends.

    The request says ``argv``; ``env``, what is added to the environment; ``files``, texts to lay
    into the folder, by name; ``headers_path`` with the engine's key, which the program gets as
    ``OPENAI_API_KEY`` (an argument would be shown by ``ps``); ``timeout_s``.

    Returns:
        ``exit`` (the exit code), ``seconds``, and ``said``, the end of its output; all of that is
        in ``client.log``.

    Raises:
        Refusal: ``not_started``, ``no_headers``, ``bad_name``, ``engine_gone``, ``lease_expired``,
            ``deadline``.
    """
    asked = job.request
    for name, text in asked["files"].items():
        if not NAME.match(name):
            raise Refusal("bad_name", f"not a file name: {name!r}")
        folders.write_bytes(os.path.join(job.where, name), text.encode(), durable=False)
    began = time.monotonic()
    process = _started(job, {**asked["env"], **_key(asked)})
    try:
        _watch(job, process, began + float(asked["timeout_s"]))
    finally:
        _end(process)
    return {
        "exit": process.returncode,
        "seconds": time.monotonic() - began,
        "said": folders.tail(os.path.join(job.where, SAID), _TAIL),
    }


def _key(asked: dict[str, Any]) -> dict[str, str]:
    told = web.secret_headers(asked).get("Authorization", "")
    return {"OPENAI_API_KEY": told[len(_BEARER) :]} if told.startswith(_BEARER) else {}


def _started(job: Job, env: dict[str, str]) -> subprocess.Popen[bytes]:
    argv = [str(word) for word in job.request["argv"]]
    path = os.path.join(job.where, SAID)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return subprocess.Popen(
            argv,
            cwd=job.where,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as fault:
        raise Refusal("not_started", f"cannot start {argv[0]}: {fault}") from fault
    finally:
        os.close(log)


def _watch(job: Job, process: subprocess.Popen[bytes], until: float) -> None:
    """Waits for the program's end; finds reasons not to wait any longer."""
    engine = (state.read(job.folder) or {}).get("engine")
    while True:
        try:
            process.wait(_LOOK_S)
        except subprocess.TimeoutExpired:
            if time.monotonic() > until:
                said = folders.tail(os.path.join(job.where, SAID), 300)
                raise Refusal("deadline", f"it did not end in time: {said}") from None
            if engine is not None and not processes.alive(engine):
                raise Refusal("engine_gone", f"engine {engine['pid']} is gone") from None
            if lease.expired(job.folder):
                raise Refusal("lease_expired", "nobody renewed the trial's lease") from None
        else:
            return


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the program and what it started, if it runs; its group is its own session."""
    if process.poll() is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(_GRACE_S)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
        else:
            return
