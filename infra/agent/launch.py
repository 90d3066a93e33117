"""What to start, and the start itself: the engine as the leader of its own session."""

from __future__ import annotations

import os
import subprocess
from typing import Any, NamedTuple, Optional

from infra.agent import processes
from infra.agent.refusal import Refusal


class Launch(NamedTuple):
    """What launch.json says."""

    trial: str
    argv: list[str]
    env: dict[str, str]
    unset: list[str]
    cwd: Optional[str]
    lease_s: float
    grace_s: float
    port: Optional[int]
    gpu_wait_s: float
    free_below_mib: Optional[float]

    @classmethod
    def read(cls, value: Any) -> Launch:
        """Builds a launch from JSON; ``bad_launch`` if a field is missing or of the wrong kind."""
        try:
            launch = cls(
                trial=str(value["trial"]),
                argv=[str(word) for word in value["argv"]],
                env={str(name): str(text) for name, text in (value.get("env") or {}).items()},
                unset=[str(name) for name in value.get("unset") or []],
                cwd=value.get("cwd"),
                lease_s=float(value["lease_s"]),
                grace_s=float(value["grace_s"]),
                port=value.get("port"),
                gpu_wait_s=float(value.get("gpu_wait_s") or 0),
                free_below_mib=value.get("free_below_mib"),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as fault:
            raise Refusal("bad_launch", f"launch.json: {type(fault).__name__} {fault}") from fault
        if not launch.argv or not launch.trial:
            raise Refusal("bad_launch", "launch.json: argv and trial must not be empty")
        return launch


def start_engine(folder: str, launch: Launch) -> int:
    """Starts the engine with its log in the trial's folder; returns its pid (also pgid and sid).

    ``SPT_NOENV`` keeps setproctitle from overwriting the environment in memory, where the marker
    is read (setproctitle 1.3: SPT_NOENV).

    Raises:
        OSError: The program or the working folder is not there.
        ValueError: A word or a variable holds a NUL.
    """
    env = {name: text for name, text in os.environ.items() if name not in launch.unset}
    env.update(PYTHONUNBUFFERED="1")
    env.update(launch.env)
    env.update({processes.MARKER: launch.trial, "SPT_NOENV": "1"})
    path = os.path.join(folder, "server.log")
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        process = subprocess.Popen(
            launch.argv,
            cwd=launch.cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    finally:
        os.close(log)
    # Or this object, when it is forgotten, would collect the exit code that the watch is after.
    process.returncode = 0
    return process.pid
