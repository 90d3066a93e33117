"""What the rows share: a host behind a relay, and the questions that each of them asks at the end."""

from __future__ import annotations

import gzip
import json
import os
import pwd
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests import rehearsing, sweeping
from tests.openssh import Relay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from configs.sweep import Sweep
    from tests.sweeping import Ground, Tried

LEASE_S = 60.0
QUICK = 16.0
"""Times faster than the truth: rows are about order, not about numbers."""
LONG: dict[str, Any] = {"per_slot": 24}
"""A probe of some seconds, where something is to happen in its middle."""
SLOW: dict[str, Any] = {"time_scale": 4.0}


@contextmanager
def scene(place: Path, *, patched: bool = True, **changed: Any) -> Iterator[Ground]:
    """A pretend host for one row; at its end nothing of it may be left."""
    with sweeping.ground(place, **{"time_scale": QUICK, **changed}) as ground:
        if patched:
            rehearsing.patch(ground.folder)
        yield ground


@contextmanager
def behind_relay(ground: Ground) -> Iterator[tuple[Relay, dict[str, Any]]]:
    """A relay in front of a host's SSH, and what to change in the host file to go through it."""
    with Relay(ground.ready.port) as relay:
        connect = ground.host.connect.model_copy(update={"port": relay.port})
        yield relay, {"connect": connect, "lease_s": LEASE_S}


def short(name: str = "night", **more: Any) -> Sweep:
    """One arm, one probe, unless more is said.

    On a machine that is busy with something else the load client is late; that is not the
    question here, and a second attempt for it would blur what a fault leads to.
    """
    asked = sweeping.sweep(name, **{"arms": "tuned", "patches": "", **more})
    return asked.model_copy(update={"tolerate": {"client_was_the_bottleneck": "a shared machine"}})


def nothing_left(ground: Ground, *, claim: bool = False) -> None:
    """No engine, no GPU memory, no process of ours, no lock."""
    assert ground.empty(), (ground.engines(), ground.holders())
    assert ours_on(ground) == []
    if not claim:
        assert not (ground.root / "claim.json").exists()


def ours_on(ground: Ground) -> list[str]:
    """Living processes of any trial on a host: its home and the trial's mark in their environment."""
    home, found = f"HOME={ground.ready.home}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "environ").read_bytes().split(b"\0")
            if home in words and any(word.startswith(b"EAGLE3_SWEEP_TRIAL=") for word in words):
                found.append(f"{entry.name} {(entry / 'comm').read_text().strip()}")
        except OSError:
            continue
    return found


def launched_once(tried: Tried) -> None:
    """One engine was started for an attempt, and its log is one log from its first line on."""
    text = (tried.folder / "server.log").read_text()
    assert text.count("server_args=") == 1
    assert text.count("ready to roll") == 1


def whole(tried: Tried) -> None:
    """Every request of the probe was measured, once."""
    (measured,) = tried.record.measurements
    rows = samples(tried.folder)
    assert measured.completed == measured.requested == len(rows)
    assert len({row["id"] for row in rows}) == len(rows)


def samples(attempt: Path) -> list[Any]:
    """The rows that an attempt's probe left here."""
    path = attempt / "samples" / "probe-load-c2.jsonl.gz"
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


class Once:
    """Does something the first time that these words are said; then its end knows that it was."""

    def __init__(self, words: str, do: Callable[[], object]) -> None:
        self._words, self._do = words, do
        self.done = False

    def __call__(self, text: str) -> None:
        if not self.done and self._words in text:
            self.done = True
            self._do()


def later(seconds: float, do: Callable[[], object]) -> threading.Timer:
    """Does something beside us, a little later."""
    timer = threading.Timer(seconds, do)
    timer.daemon = True
    timer.start()
    return timer


def user() -> str:
    """Who we are."""
    return pwd.getpwuid(os.getuid()).pw_name


PROBING = "probe:load: probe-load-c2"
"""What is said while the probe runs."""
