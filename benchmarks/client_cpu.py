"""Runs a load client on its own cores and counts the CPU seconds of its whole process tree."""

from __future__ import annotations

import bisect
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

LOOK_S = 0.02
"""Short, since a client may use its whole core right up to the first request."""
FAMILY_S = 0.5
"""How often new children are looked for: each look reads the process table."""


@dataclass(frozen=True)
class Spent:
    """What one run of a client took."""

    seconds: float
    cpu_s: float
    """Of the process and every descendant that was waited for, by ``wait4``: from start to end."""
    marks: tuple[tuple[float, float], ...]
    """(monotonic time, CPU seconds of the tree until then), by each process's own CPU clock."""
    output: str

    def between(self, began: float, ended: float) -> float:
        """CPU seconds in a stretch of time, interpolated between the marks."""
        return self._at(ended) - self._at(began)

    def _at(self, when: float) -> float:
        times = [at for at, _ in self.marks]
        after = bisect.bisect(times, when)
        if after in (0, len(times)):
            return self.marks[min(after, len(times) - 1)][1]
        (t0, c0), (t1, c1) = self.marks[after - 1], self.marks[after]
        return c0 + (c1 - c0) * (when - t0) / (t1 - t0)


class Failed(Exception):
    """A client ended badly; the message is what it said last."""


class _Tree:
    """The CPU seconds of a process and its descendants, the dead ones with their last figure."""

    def __init__(self, root: int) -> None:
        self.seen: dict[int, float] = {root: 0.0}
        self.marks: list[tuple[float, float]] = []
        self._looked = float("-inf")

    def look(self) -> None:
        now = time.monotonic()
        if now - self._looked >= FAMILY_S:
            self._looked = now
            self._find_children()
        for pid in self.seen:
            try:
                # clock_getcpuclockid(3): all threads of the process, ended ones too, in nanoseconds.
                self.seen[pid] = time.clock_gettime((~pid << 3) | 2)
            except OSError:
                continue
        self.marks.append((time.monotonic(), sum(self.seen.values())))

    def _find_children(self) -> None:
        parents = {}
        for place in Path("/proc").iterdir():
            if place.name.isdigit():
                try:
                    stat = (place / "stat").read_bytes()
                except OSError:
                    continue
                parents[int(place.name)] = int(stat.rpartition(b")")[2].split()[1])
        found = True
        while found:
            found = {p for p, parent in parents.items() if parent in self.seen} - self.seen.keys()
            self.seen.update(dict.fromkeys(found, 0.0))


def run(
    command: list[str],
    folder: Path,
    cores: set[int],
    environment: dict[str, str],
    limit_s: float = 240,
) -> Spent:
    """Runs one client to its end.

    Args:
        command: its command line.
        folder: its working folder; what it says goes to ``said`` there.
        cores: the only ones that it and its children may use.
        environment: on top of ours.
        limit_s: it is killed after that.

    Raises:
        Failed: exit code other than 0, or too slow.
    """
    said = folder / "said"
    own = os.sched_getaffinity(0)
    began = time.monotonic()
    with said.open("wb") as out:
        os.sched_setaffinity(0, cores)  # inherited; and it is this thread that starts the client
        try:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        finally:
            os.sched_setaffinity(0, own)
    tree, ended = _Tree(process.pid), threading.Event()
    watcher = threading.Thread(target=_watch, args=(tree, ended))
    killer = threading.Timer(limit_s, os.killpg, (process.pid, signal.SIGKILL))
    watcher.start()
    killer.start()
    try:
        _, status, usage = os.wait4(process.pid, 0)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    finally:
        killer.cancel()
        ended.set()
        watcher.join()
    process.returncode = code = os.waitstatus_to_exitcode(status)
    text = said.read_text(errors="replace")
    if code != 0:
        raise Failed(f"exit {code}: " + "\n".join(text.splitlines()[-8:]))
    return Spent(
        seconds=time.monotonic() - began,
        cpu_s=usage.ru_utime + usage.ru_stime,
        marks=tuple(tree.marks),
        output=text,
    )


def _watch(tree: _Tree, ended: threading.Event) -> None:
    while not ended.wait(LOOK_S):
        tree.look()
