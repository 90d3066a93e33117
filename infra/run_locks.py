"""Who works on a run: locks that end with their process."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from infra.errors import WorldError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_TRIES = 10
_PAUSE_S = 0.02


class RunHeld(WorldError):
    """Another process works on this run."""


@contextmanager
def alone(run: Path, name: str) -> Iterator[None]:
    """Holds a run as a whole: two processes must not go on with one run at once.

    Args:
        run: Its folder.
        name: What it is called in the error.

    Raises:
        RunHeld: Another process works on it, as a whole or in a lane.
    """
    with _hold(run / "lock") as other:
        if other is not None:
            raise RunHeld(f"{name} is being run by process {other}; wait for it, or stop it")
        for place, pid in lanes(run).items():
            raise RunHeld(
                f"{name} is still at work on {place}, by process {pid}, and ends there after the "
                "trial in flight; wait for it, or stop it"
            )
        yield


@contextmanager
def lane(run: Path, place: str) -> Iterator[None]:
    """Holds the work of one place on a run, beside whoever holds the run.

    Raises:
        RunHeld: Another process is at work there.
    """
    path = _lane(run, place)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with _hold(path) as other:
        if other is not None:
            raise RunHeld(f"{place}: process {other} is at work there")
        yield


def lanes(run: Path) -> dict[str, str]:
    """Places that are being worked on, each with the process."""
    found = {path.stem: _holder(path) for path in sorted((run / "lanes").glob("*.lock"))}
    return {place: pid for place, pid in found.items() if pid is not None}


def is_conducted(run: Path) -> bool:
    """Whether some process holds the run as a whole."""
    return _holder(run / "lock") is not None


@contextmanager
def turn(path: Path) -> Iterator[None]:
    """Waits for its turn at a file that several processes change; the lock lies beside it."""
    with path.with_suffix(".lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _lane(run: Path, place: str) -> Path:
    return run / "lanes" / f"{place}.lock"


@contextmanager
def _hold(path: Path) -> Iterator[str | None]:
    """Holds a lock while the block lasts; yields the process that holds it already, if one does.

    The lock is the kernel's (flock), so it ends with its process, however that dies.
    """
    with path.open("a+") as file:
        # Somebody who only looks has it for a moment.
        if not any(_try(file.fileno(), fcntl.LOCK_EX, again) for again in range(_TRIES)):
            file.seek(0)
            yield file.read() or "?"
            return
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield None


def _holder(path: Path) -> str | None:
    """The process that holds a lock; None: nobody does."""
    try:
        with path.open() as file:
            # Shared: two that look at once do not take each other for a holder.
            return None if _try(file.fileno(), fcntl.LOCK_SH) else file.read() or "?"
    except FileNotFoundError:
        return None


def _try(file: int, how: int, again: int = 0) -> bool:
    if again:
        time.sleep(_PAUSE_S)
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
