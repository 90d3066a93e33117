"""The state file of a trial: what its supervisor last knew of the engine."""

from __future__ import annotations

import os
from typing import Any, Optional

from infra.agent import folders, processes

STATE = "state.json"
LOCK = "supervise.lock"
"""Held by supervisor and guard as long as they live."""
STOP = "stop.json"
"""Written by who is about to end the engine, so that the end is recorded as asked for."""

OVER = ("exited", "stopped")
"""Phases after which nothing happens any more."""


def path(folder: str) -> str:
    """Where a trial's state lies."""
    return os.path.join(folder, STATE)


def read(folder: str) -> Optional[dict[str, Any]]:
    """The trial's state; None before there is one."""
    return folders.read_object(path(folder))


def write(folder: str, state: dict[str, Any]) -> None:
    """Writes the trial's state atomically."""
    folders.write_json(path(folder), state)


def supervised(folder: str) -> bool:
    """Whether a supervisor, or the guard that would take its place, is at work on the trial."""
    lock = folders.lock(os.path.join(folder, LOCK), wait=False)
    if lock is None:
        return True
    os.close(lock)
    return False


def orphaned(folder: str, known: Optional[dict[str, Any]]) -> bool:
    """Whether the state will stay as it is because whoever would write it is dead.

    Asked last is the file itself: a supervisor may write its last word and go between the reading
    of ``known`` and the look at its process, and that word holds the exit code.
    """
    return (
        known is not None
        and known["phase"] not in OVER
        and not processes.alive(known["supervisor"])
        and not supervised(folder)
        and (read(folder) or known)["phase"] not in OVER
    )


def stop_asked(folder: str) -> bool:
    """Whether somebody said that he is ending the engine."""
    return os.path.exists(os.path.join(folder, STOP))
