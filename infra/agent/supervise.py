"""Starts the supervisor of a trial's engine, exactly one, detached from whoever asked for it."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from typing import Any, Optional

from infra.agent import ending, folders, lease, processes, state
from infra.agent.journal import say, say_fault
from infra.agent.launch import Launch, start_engine
from infra.agent.refusal import Refusal
from infra.agent.watch import Watch

STARTED_WITHIN_S = 5.0

_PR_SET_CHILD_SUBREAPER = 36


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
    lock = folders.lock(os.path.join(folder, state.LOCK), wait=False)
    if lock is None:
        raise _already(_await_state(folder))
    known = state.read(folder)
    if known is not None and (
        processes.alive(known["supervisor"]) or processes.alive(known["engine"])
    ):
        raise _already(known)
    launch = _take_launch(folder, known)
    for name in (state.STATE, state.STOP):
        folders.forget(os.path.join(folder, name))
    lease.renew(folder, launch.lease_s)
    _detach(folder, launch, lock)
    first = _await_state(folder)
    if first is None:
        # If the disk is full, that is why, and this refuses with it.
        lease.renew(folder, launch.lease_s)
        log = folders.tail(os.path.join(folder, "supervise.log"), 2000)
        raise Refusal("supervisor_lost", "the supervisor wrote no state in time", log_tail=log)
    return {"state": first}


def _already(known: Optional[dict[str, Any]]) -> Refusal:
    return Refusal("already_supervised", "this trial was launched before", state=known)


def _take_launch(folder: str, known: Optional[dict[str, Any]]) -> Launch:
    """Reads launch.json and removes it at once: it may hold secrets."""
    path = os.path.join(folder, "launch.json")
    try:
        value = folders.read_json(path)
    except ValueError as fault:
        raise Refusal("bad_launch", f"launch.json is not JSON: {fault}") from fault
    finally:
        folders.forget(path)
    if value is None:
        if known is not None:
            raise _already(known)
        raise Refusal("no_launch", f"{path} does not exist")
    return Launch.read(value)


def _await_state(folder: str) -> Optional[dict[str, Any]]:
    until = time.monotonic() + STARTED_WITHIN_S
    while True:
        known = state.read(folder)
        if known is not None or time.monotonic() >= until or not state.supervised(folder):
            return known or state.read(folder)
        time.sleep(0.01)


def _detach(folder: str, launch: Launch, lock: int) -> None:
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
        say_fault()
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


def guard(folder: str, launch: Launch) -> None:
    """Waits for the supervisor, and takes its place if it dies before its work is done.

    The lease is worth as much as the process that enforces it. The guard adopts the orphaned
    processes of the trial (as their subreaper) and goes on from the state file.
    """
    become_subreaper()
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    child = os.fork()
    if not child:
        become_subreaper()
        begin(folder, launch)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        say(f"supervisor {child} died (wait status {status}); taking over")
        try:
            adopt(folder, launch)
        except BaseException:
            # Better no engine than one without a lease.
            ending.end(ending.Ours(markers=[launch.trial], ancestors=[os.getpid()]), 0.0)
            raise


def become_subreaper() -> None:
    """Makes orphans below us our children, so that none is lost and none stays a zombie.

    Without it (no ctypes, or a kernel that refuses) session ids and markers still find them.
    """
    try:
        import ctypes  # not in every build of Python

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (ImportError, OSError, AttributeError) as fault:
        say(f"no subreaper: {fault}")


def begin(folder: str, launch: Launch) -> None:
    """The supervisor's life: start the engine, record it, watch it to its end."""
    known: dict[str, Any] = {
        "trial": launch.trial,
        "phase": "running",
        "supervisor": processes.identity(os.getpid()),
        "engine": None,
        "boot_id": processes.boot_id(),
        "started_monotonic": time.monotonic(),
        "started_wall": time.time(),
        "exit_code": None,
        "ended_monotonic": None,
        "end_reason": None,
        "message": None,
    }
    # A disposition that is ignored would be inherited by the engine; a handler is not.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        pid = start_engine(folder, launch)
    except (OSError, ValueError) as fault:
        known.update(phase="exited", end_reason="launch_failed", message=str(fault))
        known["ended_monotonic"] = time.monotonic()
        state.write(folder, known)
        return
    known["engine"] = {**processes.identity(pid), "pgid": pid, "sid": pid}
    Watch(folder, launch, known).run()


def adopt(folder: str, launch: Launch) -> None:
    """Goes on where a dead supervisor stopped; without a state there is nothing but to clean up."""
    known = state.read(folder)
    if known is None or known["engine"] is None:
        ending.end(ending.Ours(markers=[launch.trial], ancestors=[os.getpid()]), 0.0)
        return
    known["supervisor"] = processes.identity(os.getpid())
    Watch(folder, launch, known).run()
