"""Who runs on this host, read from /proc; a pid is one of ours only with its start time.

Linux gives pid numbers out again. A process is named by its pid, its start in clock ticks after
boot (field 22 of /proc/PID/stat) and the boot id; only the three together identify it.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
from collections.abc import Iterable
from typing import Any, NamedTuple, Optional

MARKER = "EAGLE3_SWEEP_TRIAL"
"""Environment variable that every process of a trial inherits; its value is the trial's id."""

GONE = "ZX"
"""States of processes that hold neither memory nor ports: zombie, dead."""

_ENVIRON_LIMIT = 4 << 20
_STUCK_AFTER_S = 1.5
_stuck: set[tuple[int, int]] = set()
"""Processes whose environment could not be read in time; they are not asked again."""


class Process(NamedTuple):
    """One row of the process table."""

    pid: int
    ppid: int
    pgid: int
    sid: int
    uid: int
    state: str
    start_ticks: int
    comm: str

    @property
    def key(self) -> tuple[int, int]:
        """What stays the same over its life and is never reused within one boot."""
        return self.pid, self.start_ticks


def boot_id() -> str:
    """The kernel's random name of this boot."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def parse_stat(raw: bytes) -> tuple[int, str, str, list[bytes]]:
    """Splits /proc/PID/stat into pid, comm, state and the fields from the fourth on.

    The comm may hold spaces, brackets and newlines; the last bracket closes it (proc(5)).
    """
    head, _, rest = raw.rpartition(b")")
    pid, _, comm = head.partition(b" (")
    fields = rest.split()
    return int(pid), comm.decode("utf-8", "replace"), fields[0].decode("ascii"), fields[1:]


def look(pid: int) -> Optional[Process]:
    """One process, or None if there is none of that number."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            number, comm, state, fields = parse_stat(file.read())
        with open(f"/proc/{pid}/status", "rb") as file:
            uid = _real_uid(file.read())
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    ppid, pgid, sid = int(fields[0]), int(fields[1]), int(fields[2])
    return Process(number, ppid, pgid, sid, uid, state, int(fields[18]), comm)


def _real_uid(status: bytes) -> int:
    # /proc/PID itself belongs to root for processes that may not be dumped; the status says who.
    at = status.index(b"\nUid:")
    return int(status[at + 5 : status.index(b"\n", at + 1)].split()[0])


def table() -> dict[int, Process]:
    """Every visible process by pid."""
    found = (look(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def identity(pid: int) -> dict[str, Any]:
    """The identity of a process that exists now.

    Raises:
        ProcessLookupError: There is no such process.
    """
    process = look(pid)
    if process is None:
        raise ProcessLookupError(pid)
    return {"pid": pid, "start_ticks": process.start_ticks, "boot_id": boot_id()}


def find(ident: Optional[dict[str, Any]]) -> Optional[Process]:
    """The very process that an identity names, zombies included; None if it is gone."""
    if not ident or ident.get("boot_id") != boot_id():
        return None
    process = look(int(ident["pid"]))
    return process if process is not None and process.start_ticks == ident["start_ticks"] else None


def alive(ident: Optional[dict[str, Any]]) -> bool:
    """Whether that very process still runs (a zombie does not)."""
    process = find(ident)
    return process is not None and process.state not in GONE


def lineage(processes: dict[int, Process]) -> set[int]:
    """This process and its ancestors: never to be signalled by us."""
    pids, pid = set(), os.getpid()
    while pid and pid not in pids:
        pids.add(pid)
        pid = processes[pid].ppid if pid in processes else 0
    return pids | {1}


def send(process: Process, number: int) -> bool:
    """Signals exactly this process, and nobody who got its number later.

    Where the kernel has pidfds (5.3), the handle is opened first and the start time checked
    after, so that no recycling can come between; elsewhere the check is the last thing before.

    Returns:
        Whether the signal was delivered; False if the process is gone or not ours.
    """
    fd = _pidfd(process.pid)
    try:
        now = look(process.pid)
        if now is None or now.key != process.key:
            return False
        if fd is None:
            os.kill(process.pid, number)
        else:
            signal.pidfd_send_signal(fd, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        if fd is not None:
            os.close(fd)
    return True


def _pidfd(pid: int) -> Optional[int]:
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None


class Environment(NamedTuple):
    """What a process's environment says about its trial."""

    marker: Optional[str]
    blank: bool
    """Nothing to be read: another user's, overwritten by a process title, or stuck."""


def environments(processes: Iterable[Process]) -> dict[int, Environment]:
    """Reads the marker of each process, without ever being stuck on one.

    The kernel takes the memory lock of the process to read its environment; a process that hangs
    in a driver can hold it for ever. So a helper thread reads, and is left behind if it stalls.
    """
    keys = {process.pid: process.key for process in processes if process.state not in GONE}
    found = {pid: Environment(None, blank=True) for pid, key in keys.items() if key in _stuck}
    waiting = [pid for pid in keys if pid not in found]
    while waiting:
        answers: queue.Queue[tuple[int, Environment]] = queue.Queue()
        threading.Thread(target=_read_environments, args=(waiting, answers), daemon=True).start()
        try:
            for _ in range(len(waiting)):
                pid, environment = answers.get(timeout=_STUCK_AFTER_S)
                found[pid] = environment
        except queue.Empty:
            stuck = next(pid for pid in waiting if pid not in found)
            _stuck.add(keys[stuck])
            found[stuck] = Environment(None, blank=True)
        waiting = [pid for pid in waiting if pid not in found]
    return found


def _read_environments(pids: list[int], answers: queue.Queue[tuple[int, Environment]]) -> None:
    for pid in pids:
        answers.put((pid, _environment(pid)))


def _environment(pid: int) -> Environment:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            raw = file.read(_ENVIRON_LIMIT)
    except OSError:
        return Environment(None, blank=True)
    return parse_environment(raw)


def parse_environment(raw: bytes) -> Environment:
    """Finds the marker in the NUL-separated environment of a process."""
    prefix = MARKER.encode() + b"="
    for entry in raw.split(b"\0"):
        if entry.startswith(prefix):
            return Environment(entry[len(prefix) :].decode("utf-8", "replace"), blank=False)
    return Environment(None, blank=not raw.strip(b"\0"))
