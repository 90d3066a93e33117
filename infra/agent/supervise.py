"""Starts the supervisor of a trial's engine, exactly one, detached from whoever asked for it."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
import traceback
from typing import Any, Optional

from infra.agent import folders, lease, processes, watch
from infra.agent.refusal import Refusal

STARTED_WITHIN_S = 5.0


def supervise(asked: dict[str, Any]) -> dict[str, Any]:
    """Starts the engine that launch.json describes under a supervisor and a lease.

    Returns:
        The first state, once it is written.

    Raises:
        Refusal: ``already_supervised`` (with the state) if an engine or supervisor of this folder
            lives, or if the launch was consumed by an earlier call; ``no_launch``; ``bad_launch``;
            ``supervisor_lost`` if no state appears.
    """
    folders.own_folder(asked["root"])
    folder = folders.existing_folder(asked["dir"])
    lock = folders.lock(os.path.join(folder, "supervise.lock"), wait=False)
    if lock is None:
        raise _already(_await_state(folder))
    state = watch.read_state(folder)
    if state is not None and (
        processes.alive(state["supervisor"]) or processes.alive(state["engine"])
    ):
        raise _already(state)
    launch = _take_launch(folder, state)
    for name in (watch.STATE, watch.STOP):
        folders.forget(os.path.join(folder, name))
    lease.renew(folder, launch.lease_s)
    _detach(folder, launch, lock)
    state = _await_state(folder)
    if state is None:
        log = folders.tail(os.path.join(folder, "supervise.log"), 2000)
        raise Refusal("supervisor_lost", "the supervisor wrote no state in time", log_tail=log)
    return {"state": state}


def _already(state: Optional[dict[str, Any]]) -> Refusal:
    return Refusal("already_supervised", "this trial was launched before", state=state)


def _take_launch(folder: str, state: Optional[dict[str, Any]]) -> watch.Launch:
    """Reads launch.json and removes it at once: it may hold secrets."""
    path = os.path.join(folder, "launch.json")
    try:
        value = folders.read_json(path)
    except ValueError as fault:
        raise Refusal("bad_launch", f"launch.json is not JSON: {fault}") from fault
    finally:
        folders.forget(path)
    if value is None:
        if state is not None:
            raise _already(state)
        raise Refusal("no_launch", f"{path} does not exist")
    return watch.Launch.read(value)


def _await_state(folder: str) -> Optional[dict[str, Any]]:
    until = time.monotonic() + STARTED_WITHIN_S
    while True:
        state = watch.read_state(folder)
        if state is not None or time.monotonic() >= until:
            return state
        time.sleep(0.01)


def _detach(folder: str, launch: watch.Launch, lock: int) -> None:
    """Forks the guard into its own session; the caller returns at once."""
    sys.stdout.flush()
    if os.fork():
        os.close(lock)
        return
    try:
        os.setsid()
        _redirect(os.path.join(folder, "supervise.log"), keep=lock)
        guard(folder, launch)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _redirect(log: str, keep: int) -> None:
    """Lets go of every stream of the caller, so that his SSH channel closes."""
    nothing = os.open(os.devnull, os.O_RDWR)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for fd, source in ((0, nothing), (1, out), (2, out)):
        os.dup2(source, fd)
    held = fcntl.fcntl(keep, fcntl.F_DUPFD_CLOEXEC, 3)
    os.dup2(held, 3, inheritable=False)
    os.closerange(4, 4096)


def guard(folder: str, launch: watch.Launch) -> None:
    """Waits for the supervisor, and takes its place if it dies before its work is done.

    The lease is worth as much as the process that enforces it. The guard adopts the orphaned
    processes of the trial (as their subreaper) and goes on from the state file.
    """
    watch.become_subreaper()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    child = os.fork()
    if not child:
        watch.launch(folder, launch)
        sys.stdout.flush()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        print(f"supervisor {child} died (wait status {status}); taking over", flush=True)
        watch.adopt(folder, launch)
