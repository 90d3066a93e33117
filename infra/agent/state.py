"""The state file of a trial: what its supervisor last knew of the engine."""

from __future__ import annotations

import os
from typing import Any, Optional

from infra.agent import folders

STATE = "state.json"
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


def stop_asked(folder: str) -> bool:
    """Whether somebody said that he is ending the engine."""
    return os.path.exists(os.path.join(folder, STOP))
