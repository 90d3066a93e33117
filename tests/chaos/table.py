"""The faults that a night must survive, what must hold, and the rows that show it."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FAULTS = {
    "killed": (
        "SIGKILL of the flow process; of the Prefect worker; of both, and nobody comes back",
        "the lease ends on the host within lease + 10 s, all of ours gone; the next run resumes",
    ),
    "cancelled": (
        "cancel, during every stage",
        "teardown runs, the MLflow run ends KILLED, nothing is left on the host",
    ),
    "contact": (
        "SSH connection cut, packets dropped silently, sshd restarted",
        "reconnect; the running engine is used on, no second launch; a probe is collected whole",
    ),
    "reboot": (
        "host rebooted",
        "failed(host_rebooted), cleaned, retried as a new attempt",
    ),
    "engine": (
        "engine dies, hangs, answers without tokens, or one scheduler is killed",
        "class and first cause in a second (death) or the stated bound (hang); partial samples kept",
    ),
    "mlflow": (
        "MLflow down, slow, or database locked",
        "the night goes on; the folder is complete; publish brings MLflow up to date, twice is once",
    ),
    "prefect": ("Prefect server down in the middle", "the trial in flight ends well"),
    "disk": (
        "disk full on the host; on the controller",
        "a clear class; nothing half-written is read as whole",
    ),
    "strangers": (
        "somebody else's process on the GPUs: before, and arriving in the middle",
        "refuse or mark suspect, name pid and owner, touch nothing of theirs",
    ),
    "two": (
        "two sweeps against one host",
        "one waits or refuses; a dead holder's lock is taken over; never two engines",
    ),
    "ports": (
        "the engine's port or NCCL port is taken",
        "another port, or a clear refusal before the model loads",
    ),
    "clock": (
        "clocks of controller and host differ by an hour",
        "no wrong age, lease or order",
    ),
    "processes": (
        "PID reused, zombie, unkillable process",
        "identity by start time and boot id; reported, bounded, no endless wait",
    ),
}
"""Key -> the fault, what must hold."""


class Row(NamedTuple):
    """One fault at one moment."""

    fault: str
    """Key of FAULTS."""
    moment: str
    play: Callable[[Path], str]
    """Does it in an empty folder, asserts what must hold, and returns that in words."""
    fast: bool
    """Also in `make test`."""
    why_not: Callable[[], str | None]
    """Why this machine cannot play it; None if it can."""

    @property
    def id(self) -> str:
        """For pytest."""
        return f"{self.fault}: {self.moment}"


ROWS: list[Row] = []


def row(
    fault: str,
    moment: str,
    *,
    fast: bool = False,
    why_not: Callable[[], str | None] = lambda: None,
) -> Callable[[Callable[[Path], str]], Callable[[Path], str]]:
    """Puts a function into the table."""
    assert fault in FAULTS, fault

    def put(play: Callable[[Path], str]) -> Callable[[Path], str]:
        ROWS.append(Row(fault, moment, play, fast, why_not))
        return play

    return put


def no_small_disk() -> str | None:
    """Why no disk of a chosen size can be mounted here."""
    if os.getuid() != 0:
        return "mounting a small disk needs root"
    done = subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True)
    return "no right to mount here" if done.returncode else None
