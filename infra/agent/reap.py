"""The job that ends a trial from outside, with or without its supervisor."""

from __future__ import annotations

import os
import time
from typing import Any

from infra.agent import ending, folders, put_back, release, state
from infra.agent.jobs import Job
from infra.agent.journal import say
from infra.agent.refusal import Refusal

_SETTLE_S = 5.0


def reap(job: Job) -> dict[str, Any]:
    """Ends the asked groups, processes and markers, and waits until the host is free.

    The trial's own state, if the folder holds one, ends as ``stopped``: the supervisor writes it,
    or this job does where no supervisor lives any more.
    """
    folder, asked = job.folder, job.request
    started = time.monotonic()
    groups = list(asked.get("groups") or [])
    known = state.read(folder)
    ours = known is not None and _concerns(known, groups, asked)
    if ours:
        _ask_to_stop(folder)
    ended = ending.end(
        ending.Ours(groups, list(asked.get("processes") or []), list(asked.get("markers") or [])),
        float(asked.get("grace_s") or 0),
    )
    if ours:
        _settle(folder, ended)
    report = release.report(
        ended,
        asked.get("port"),
        float(asked.get("gpu_wait_s") or 0),
        asked.get("free_below_mib"),
        started,
    )
    # No engine reads them any more.
    return {**report, "files": put_back.put_back(asked["ledger"]) if asked.get("ledger") else []}


def _concerns(known: dict[str, Any], groups: list[dict[str, Any]], asked: dict[str, Any]) -> bool:
    engine = known["engine"] or {}
    key = (engine.get("pid"), engine.get("start_ticks"))
    named = any((group["pid"], group["start_ticks"]) == key for group in groups)
    return named or known["trial"] in (asked.get("markers") or [])


def _ask_to_stop(folder: str) -> None:
    """Lets the supervisor know that the end which it is about to see was wished for."""
    try:
        folders.write_json(os.path.join(folder, state.STOP), {"monotonic": time.monotonic()})
    except Refusal as fault:
        say(f"the end will be recorded as unasked: {fault}")


def _settle(folder: str, ended: ending.Ended) -> None:
    """Waits for the supervisor's record of the end, or writes it in the place of a dead one."""
    until = time.monotonic() + _SETTLE_S
    while time.monotonic() < until:
        known = state.read(folder)
        if known is None or known["phase"] in state.OVER:
            return
        if state.orphaned(folder, known):
            _record(folder, known, ended)
            return
        time.sleep(0.05)


def _record(folder: str, known: dict[str, Any], ended: ending.Ended) -> None:
    stopped = not ended.survivors
    message = None if stopped else f"still there after SIGKILL: {ended.survivors}"
    known.update(phase="stopped", end_reason="stopped", message=message)
    known["ended_monotonic"] = time.monotonic()
    state.write(folder, known)
