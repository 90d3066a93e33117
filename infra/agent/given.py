"""What the living processes of a trial were given: chosen variables of their environments.

An engine changes its own environment before it starts its ranks; what they have counts, not what
the launcher was asked for. Only names that are asked for are told, so no secret leaves the host.
"""

from __future__ import annotations

import os
from typing import Any, Optional

from infra.agent import folders, processes, state

_LIMIT = 4 << 20


def given(asked: dict[str, Any]) -> dict[str, Any]:
    """Each process of the trial with the asked variables; None for one that is not set there."""
    folder = folders.existing_folder(asked["dir"])
    names = [str(name) for name in asked["names"]]
    known = state.read(folder)
    marker = known["trial"] if known else os.path.basename(folder.rstrip("/"))
    table = processes.table()
    found = processes.environments(
        process for process in table.values() if process.uid == os.getuid()
    )
    told = []
    for pid, environment in found.items():
        if environment.marker != marker:
            continue
        values = values_of(pid, names)
        if values is not None:
            told.append({"pid": pid, "title": _title(pid), "values": values})
    return {"processes": sorted(told, key=lambda one: one["pid"])}


def values_of(pid: int, names: list[str]) -> Optional[dict[str, Optional[str]]]:
    """The variables in a process's environment; None if it cannot be read any more."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            raw = file.read(_LIMIT)
    except OSError:
        return None
    have = dict(
        entry.decode("utf-8", "replace").split("=", 1)
        for entry in raw.split(b"\0")
        if b"=" in entry
    )
    return {name: have.get(name) for name in names}


def _title(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(4096).replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""
