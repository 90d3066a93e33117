"""Waits until what processes held is free again: the port and the memory of the GPUs."""

from __future__ import annotations

import pwd
import time
from typing import Any, NamedTuple, Optional

from infra.agent import commands, ports, processes
from infra.agent.ending import Ended

GPU_ROWS = "index,uuid,memory.used,memory.total,utilization.gpu"
APP_ROWS = "gpu_uuid,pid,process_name,used_memory"

_SMI_TIMEOUT_S = 10.0
_ROUND_S = 0.2


class Gpus(NamedTuple):
    """What nvidia-smi says about the memory of the GPUs."""

    rows: list[str]
    free: Optional[bool]
    """None: unknown, because there is no (working) nvidia-smi or it does not tell."""
    final: bool
    """Asking again will not change the answer."""
    apps: frozenset[int] = frozenset()
    """Who computes on a GPU."""


def smi(kind: str, fields: str, timeout_s: float = _SMI_TIMEOUT_S) -> dict[str, Any]:
    """One query of nvidia-smi as plain comma-separated rows; ``kind`` is gpu or compute-apps."""
    argv = ["nvidia-smi", f"--query-{kind}={fields}", "--format=csv,noheader,nounits"]
    return commands.run(argv, timeout_s)


def app_pids(rows: str) -> set[int]:
    """The pids in an answer to ``--query-compute-apps=gpu_uuid,pid,…``."""
    cells = (line.split(",") for line in rows.splitlines())
    return {int(row[1]) for row in cells if len(row) > 1 and row[1].strip().isdigit()}


def gpus(pids: set[int], free_below_mib: Optional[float]) -> Gpus:
    """Whether none of the pids is on a GPU, and each GPU's memory is below the bound if given."""
    apps, cards = smi("compute-apps", APP_ROWS), smi("gpu", GPU_ROWS)
    rows = cards["stdout"].splitlines()
    if apps["exit"] != 0 or cards["exit"] != 0:
        late = "timeout" in (apps["error"], cards["error"])
        return Gpus(rows, None, final=not late)
    there = frozenset(app_pids(apps["stdout"]))
    free = not pids & there
    if free_below_mib is None or not free:
        return Gpus(rows, free, free, there)
    used = [_number(row.split(",")[2]) for row in rows if row.count(",") >= 2]
    if any(mib is not None and mib > free_below_mib for mib in used):
        return Gpus(rows, free=False, final=False, apps=there)
    return Gpus(rows, None if None in used else True, final=True, apps=there)


def _others(pids: frozenset[int]) -> list[dict[str, Any]]:
    """Whoever computes on a GPU and is none of ours, with name and owner as far as they show."""
    rows = []
    for pid in sorted(pids):
        process = processes.look(pid)
        comm, uid = (process.comm, process.uid) if process else (None, None)
        rows.append({"pid": pid, "comm": comm, "uid": uid, "user": user_name(uid)})
    return rows


def user_name(uid: Optional[int]) -> Optional[str]:
    """The user's name; None in containers that run under a number without a name."""
    try:
        return None if uid is None else pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def _number(cell: str) -> Optional[float]:
    try:
        return float(cell)
    except ValueError:
        return None


def report(
    ended: Ended,
    port: Optional[int],
    gpu_wait_s: float,
    free_below_mib: Optional[float],
    started: float,
) -> dict[str, Any]:
    """Polls until all is free or ``gpu_wait_s`` is over, and tells how the host was left."""
    until = time.monotonic() + gpu_wait_s
    while True:
        port_free = ports.is_free(port) if port else None
        cards = gpus(ended.pids, free_below_mib)
        done = port_free is not False and cards.final
        if done or time.monotonic() >= until:
            break
        time.sleep(_ROUND_S)
    return {
        "outcome": _outcome(ended, port_free, cards.free),
        "signalled": ended.signalled,
        "zombies": ended.zombies,
        "survivors": ended.survivors,
        "port_free": port_free,
        "gpu_free": cards.free,
        "gpus": cards.rows,
        "others": _others(cards.apps - ended.pids),
        "seconds": time.monotonic() - started,
    }


def _outcome(ended: Ended, port_free: Optional[bool], gpu_free: Optional[bool]) -> str:
    if ended.survivors:
        return "survivors"
    if gpu_free is False:
        return "gpu_memory_held"
    return "port_held" if port_free is False else "clean"
