"""Pretend GPU memory: one file per holder, gone when the holder is dead.

``gpu/<index>/<pid>-<start ticks>`` holds the MiB of a living process. ``planted-<label>`` is a
holder put there by a test: JSON with ``mib``, ``pid`` and ``name`` (no pid: memory in use that
no visible process explains).
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from infra.rehearsal.knobs import write_atomically

GPUS = 8
TOTAL_MIB = 97_887
IDLE_MIB = 4


@dataclass(frozen=True)
class Holder:
    """Memory of one GPU that somebody holds.

    Attributes:
        mib: size.
        pid: the process, None when nobody is visible.
        name: its name as nvidia-smi prints it.
    """

    mib: int
    pid: int | None
    name: str


def start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/<pid>/stat; None for a dead process (a zombie holds no memory)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    rest = stat[stat.rindex(b")") + 2 :].split()
    return None if rest[0] in (b"Z", b"X") else int(rest[19])


def hold(folder: Path, gpu: int, mib: int) -> None:
    """Say that this process now holds so much of a GPU."""
    pid = os.getpid()
    path = folder / "gpu" / str(gpu) / f"{pid}-{start_ticks(pid)}"
    write_atomically(path, str(mib))


def plant(
    folder: Path, gpu: int, label: str, mib: int, *, pid: int | None = None, name: str = "python3"
) -> Path:
    """Put a holder of somebody else on a GPU; delete the returned file to let it go."""
    path = folder / "gpu" / str(gpu) / f"planted-{label}"
    # Whole or not at all: an nvidia-smi may look at any moment.
    write_atomically(path, json.dumps({"mib": mib, "pid": pid, "name": name}))
    return path


def _planted(path: Path) -> Holder | None:
    try:
        told = json.loads(path.read_text())
    except FileNotFoundError:
        return None  # let go of between the listing and this look
    return Holder(mib=told["mib"], pid=told["pid"], name=told["name"])


def _process_name(pid: int) -> str:
    try:
        args = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "[Not Found]"
    return args[0].decode(errors="replace").strip() or "[Not Found]"


def _living(path: Path, release_delay_s: float) -> Holder | None:
    """The holder behind one file; drops the file of a dead one after the release delay."""
    pid, ticks = (int(part) for part in path.name.split("-"))
    try:
        mib = int(path.read_text() or 0)
        if start_ticks(pid) == ticks:
            return Holder(mib=mib, pid=pid, name=_process_name(pid))
        if release_delay_s > 0:
            seen_dead = path.with_name(f".dead-{path.name}")
            if not seen_dead.exists():
                seen_dead.touch()
            if time.time() - seen_dead.stat().st_mtime < release_delay_s:
                return Holder(mib=mib, pid=None, name="")
            seen_dead.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
    except FileNotFoundError:
        pass  # another reader dropped it first
    return None


def holders(folder: Path, gpu: int, release_delay_s: float = 0.0) -> list[Holder]:
    """Who holds memory of one GPU now."""
    found: list[Holder] = []
    for path in sorted((folder / "gpu" / str(gpu)).iterdir()):
        if path.name.startswith("."):
            continue
        planted = path.name.startswith("planted-")
        holder = _planted(path) if planted else _living(path, release_delay_s)
        if holder is not None:
            found.append(holder)
    return found


def used_mib(found: list[Holder]) -> int:
    """Memory in use as nvidia-smi shows it: the holders plus what an idle card shows."""
    return IDLE_MIB + sum(holder.mib for holder in found)
