"""Looks at the processes of all hosts, again and again, from outside: which engine is alive where."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

_EVERY_S = 0.25
_MARK = b"EAGLE3_SWEEP_TRIAL="


class Together(NamedTuple):
    """Engines of more than one trial at once on a host."""

    host: str
    marks: tuple[str, ...]


class Sightings:
    """A thread that looks until its block ends."""

    def __init__(self, homes: Mapping[str, str]) -> None:
        """Homes: host -> the home of a login there."""
        self._homes = {f"HOME={home}".encode(): host for host, home in homes.items()}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on)
        self.looks = 0
        self.last: dict[tuple[str, str], float] = {}
        """Host and mark of every trial whose engine was seen -> when it was seen last."""
        self.together: set[Together] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _look_on(self) -> None:
        while not self._over.wait(_EVERY_S):
            self.looks += 1
            for host, marks in engines(self._homes).items():
                self.last.update(dict.fromkeys(((host, mark) for mark in marks), time.monotonic()))
                if len(marks) > 1:
                    self.together.add(Together(host, tuple(sorted(marks))))


def engines(homes: Mapping[bytes, str]) -> dict[str, set[str]]:
    """Host -> the trials of which an engine's process is alive there, now."""
    found: dict[str, set[str]] = defaultdict(set)
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if b"sglang" not in (entry / "cmdline").read_bytes():
                continue
            words = (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # gone meanwhile, or another user's
            continue
        host = next((homes[word] for word in words if word in homes), None)
        mark = next((word for word in words if word.startswith(_MARK)), None)
        if host is not None and mark is not None:
            found[host].add(mark.removeprefix(_MARK).decode())
    return found
