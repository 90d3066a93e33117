"""Blocks on the host until something changes, so that one round trip carries a poll."""

from __future__ import annotations

import base64
import os
import time
from typing import Any, NamedTuple, Optional

from infra.agent import claim, folders, jobs, lease, processes, state
from infra.agent.refusal import Refusal

LONGEST_S = 2.0
MOST_BYTES = 262_144
NO_LOG = 1 << 62
"""This offset, or null, means that the log is not wanted."""

_POLL_S = 0.02
_COALESCE_S = 0.05


class View(NamedTuple):
    """What can change, cheap to look at: file stamps and whether processes live."""

    state: str
    engine: bool
    supervisor: bool
    job: str
    job_alive: bool
    result: str

    def token(self) -> str:
        """The view as an opaque string for the next call's ``seen``."""
        return "/".join(str(part) for part in self)


def wait(asked: dict[str, Any]) -> dict[str, Any]:
    """Renews lease and claim, waits for a change, and answers with everything new.

    With ``start`` (name, job, request or none if it lies there already, python) the job is
    started first: one round trip begins a piece of work and brings its first news.

    The end of the engine, a new state and a job's result are answered at once. Log and progress
    are too, but not before ``quiet_s``: a caller that only watches a probe run need not start a
    process on the measured host for every line of its log. A caller that wants a job and no log
    hears of that job's end alone.
    """
    folder = folders.existing_folder(asked["dir"])
    _renew(folder, asked)
    _record_unseen_end(folder)
    offset = NO_LOG if asked["offset"] is None else int(asked["offset"])
    name: Optional[str] = asked.get("job")
    seen = asked.get("seen")
    if asked.get("start"):
        name = asked["start"]["name"]
        jobs.start({"dir": folder, **asked["start"]})
        seen = _begun(seen, _view(folder, name))
    started = time.monotonic()
    until = started + min(float(asked.get("timeout_s", 1.5)), LONGEST_S)
    quiet = started + float(asked.get("quiet_s") or 0)
    log = os.path.join(folder, "server.log")
    job_alone = offset == NO_LOG and name is not None
    while True:
        view, size, now = _view(folder, name), _size(log), time.monotonic()
        if _urgent(view, seen, job_alone=job_alone) or now >= until:
            break
        grown = size != offset and offset < NO_LOG
        if not job_alone and now >= quiet and (grown or view.token() != seen):
            time.sleep(min(_COALESCE_S, max(0.0, until - now)))
            view, size = _view(folder, name), _size(log)
            break
        time.sleep(_POLL_S)
    return _answer(folder, view, name, _read(log, offset, size, asked))


def _renew(folder: str, asked: dict[str, Any]) -> None:
    held = asked.get("claim")
    if held:
        claim.take(held["root"], held["holder"], float(held["lease_s"]), held.get("note"))
    if asked.get("lease_s") is not None:
        lease.renew(folder, float(asked["lease_s"]))


def _record_unseen_end(folder: str) -> None:
    """Records the end of an engine whose supervisor and guard are dead, in their place."""
    known = state.read(folder)
    if known is None or not state.orphaned(folder, known) or processes.alive(known["engine"]):
        return
    message = "the engine ended after its supervisor; nobody saw the exit code"
    end = "stopped" if state.stop_asked(folder) else "exited"
    known.update(phase=end, end_reason=end, message=message)
    known["ended_monotonic"] = time.monotonic()
    state.write(folder, known)


def _begun(seen: Optional[str], view: View) -> str:
    """What the caller has seen, as if it had seen the job begin: its end is news."""
    before = (seen or "").split("/")
    rest = before[:3] if len(before) == len(view) else [str(part) for part in view[:3]]
    return "/".join([*rest, view.job, "True", "-"])


def _urgent(view: View, seen: Optional[str], *, job_alone: bool) -> bool:
    """Whether something changed that nobody should wait for.

    Whoever waits for a job that ends an engine would else pay a round trip for each of its steps.
    """
    if seen is None:
        return True
    before = seen.split("/")
    if len(before) != len(view):
        return True
    now = [str(part) for part in view]
    progress = View._fields.index("job")
    first = progress if job_alone else 0
    return any(now[i] != before[i] for i in range(first, len(now)) if i != progress)


def _view(folder: str, name: Optional[str]) -> View:
    known = state.read(folder)
    engine = processes.alive(known["engine"]) if known else False
    supervisor = processes.alive(known["supervisor"]) if known else False
    stamp = _stamp(state.path(folder))
    if name is None:
        return View(stamp, engine, supervisor, "-", job_alive=False, result="-")
    place = jobs.place(folder, name)
    progress = _stamp(os.path.join(place, "progress.json"))
    result = _stamp(os.path.join(place, "result.json"))
    return View(stamp, engine, supervisor, progress, jobs.alive(place), result)


def _stamp(path: str) -> str:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return "-"
    return f"{status.st_ino:x}.{status.st_mtime_ns:x}.{status.st_size:x}"


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _read(log: str, offset: int, size: int, asked: dict[str, Any]) -> dict[str, Any]:
    """The log from the offset on; from its beginning if it has shrunk below the offset."""
    limit = max(1, min(int(asked.get("max_bytes", MOST_BYTES)), MOST_BYTES))
    if offset >= NO_LOG:
        return {"log": "", "offset": offset, "log_size": size, "truncated": False}
    truncated = size < offset
    start = 0 if truncated else offset
    data = b""
    if size > start:
        with open(log, "rb") as file:
            file.seek(start)
            data = file.read(limit)
    return {
        "log": base64.b64encode(data).decode("ascii"),
        "offset": start + len(data),
        "log_size": max(size, start + len(data)),
        "truncated": truncated,
    }


def _answer(folder: str, view: View, name: Optional[str], log: dict[str, Any]) -> dict[str, Any]:
    known = state.read(folder)
    if known is None and view.state != "-":
        raise Refusal("bad_state", f"{state.path(folder)} is not a JSON object")
    return {
        "state": known,
        "engine_alive": view.engine,
        "supervisor_alive": view.supervisor,
        **log,
        "job": None if name is None else jobs.status(folder, name),
        "seen": view.token(),
        "boot_id": processes.boot_id(),
        "monotonic": time.monotonic(),
        "wall": time.time(),
    }
