"""Trials on a rehearsal host, watched from beside: when what happened, and what it cost in SSH."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from flows.conduct import Conductor
from flows.outcome import Hands
from flows.question import pose
from flows.runs import open_run
from infra.connect import address
from infra.host_agent import HostAgent
from infra.rehearsal import hosting
from infra.ssh import SshShell
from tests import rehearsing, sweeping

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from configs.host import Host
    from configs.sweep import Sweep
    from infra.shell import Output, Shell
    from tasks.record import TrialRecord
    from tests.sweeping import Ground

_LOOK_S = 0.004
_READY = b"The server is fired up and ready to roll!"


class Calls(NamedTuple):
    """What went over SSH."""

    commands: int = 0
    puts: int = 0
    gets: int = 0
    received: int = 0
    """Bytes of output and of files."""

    @property
    def total(self) -> int:
        return self.commands + self.puts + self.gets

    def since(self, before: Calls) -> Calls:
        return Calls(*(now - then for now, then in zip(self, before, strict=True)))


class Counting:
    """A shell that counts what passes through it."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self.calls = Calls()

    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0) -> Output:
        return self._counted(self._shell.run(argv, timeout_s=timeout_s))

    def ask(self, program: Sequence[str], line: str, *, timeout_s: float = 30.0) -> Output:
        return self._counted(self._shell.ask(program, line, timeout_s=timeout_s))

    def _counted(self, done: Output) -> Output:
        size = len(done.out.encode()) + len(done.err.encode())
        now = self.calls
        self.calls = now._replace(commands=now.commands + 1, received=now.received + size)
        return done

    def put(self, data: bytes, path: str, *, mode: int = 0o600) -> None:
        self.calls = self.calls._replace(puts=self.calls.puts + 1)
        self._shell.put(data, path, mode=mode)

    def get(self, path: str) -> bytes:
        data = self._shell.get(path)
        now = self.calls
        self.calls = now._replace(gets=now.gets + 1, received=now.received + len(data))
        return data

    def close(self) -> None:
        self._shell.close()


@contextmanager
def ground(place: Path, delay_ms: float = 0.0, **knobs: Any) -> Iterator[Ground]:
    """A quick pretend host behind a line with a delay each way."""
    settings = {"time_scale": sweeping.TIME_SCALE, "start_s": 0.4, **knobs}
    place.mkdir(parents=True, exist_ok=True)
    folder = rehearsing.build(place / "host", **settings)
    with hosting.serving(folder, delay_ms=delay_ms) as ready:
        yield sweeping.Ground(place, ready, settings["time_scale"])


class Watch:
    """Looks at an attempt's folder on the host, as fast as it can without being in the way."""

    def __init__(self, ground: Ground, name: str) -> None:
        self._ground, self._name = ground, name
        self.ready_at: float | None = None
        self.least_left_s: float | None = None
        self.renewals = 0
        self.attempt: Path | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        last = None
        while not self._over.wait(_LOOK_S):
            if self.attempt is None:
                found = self._ground.attempt(self._name)
                self.attempt = found if found.is_dir() else None
                continue
            last = self._lease(self.attempt, last)
            if self.ready_at is None and _READY in _bytes(self.attempt / "server.log"):
                self.ready_at = time.monotonic()

    def _lease(self, attempt: Path, last: float | None) -> float | None:
        state = _object(attempt / "state.json")
        if state.get("phase") != "running":
            return last
        deadline = _object(attempt / "lease.json").get("deadline_monotonic")
        if deadline is None:
            return last
        left = deadline - time.monotonic()
        self.least_left_s = min(left, self.least_left_s or left)
        self.renewals += deadline != last
        return float(deadline)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


@dataclass
class Ran:
    """One trial that was run, with what was noted on the way."""

    record: TrialRecord
    attempt: Path
    began: float
    ended: float
    calls: Calls
    failed_at: dict[str, float] = field(default_factory=dict)


def run_one(ground: Ground, asked: Sweep, **changed: Any) -> Ran:
    """Runs a sweep of one trial as the command line does."""
    question = pose(asked, str(ground.host_file(**changed)))
    shells: list[Counting] = []
    began: list[tuple[float, Calls]] = []
    ended: list[tuple[float, Calls]] = []
    failed_at: dict[str, float] = {}

    def connect(spec: Host) -> HostAgent:
        shells.append(Counting(SshShell(address(spec))))
        return HostAgent(shells[-1], spec, patience_s=20)

    def runner(_trial: str) -> sweeping.Noting:
        began.append((time.monotonic(), shells[-1].calls if shells else Calls()))
        return sweeping.Noting(lambda _text: None, failed_at)

    def say(text: str) -> None:
        if text.startswith("b01-"):
            ended.append((time.monotonic(), shells[-1].calls))

    with open_run(ground.runs, question, fresh=True) as run:
        outcome = Conductor(question, run, Hands(connect, runner, None, say)).conduct()
    trial = outcome.records[0].trial
    # The runner of the arrival comes first. A failed attempt is followed by another: not ours.
    (start, before), (end, after) = began[1], ended[0]
    record = ground.tried(outcome, trial, 1).record
    attempt = ground.root / "trials" / f"{run.holder}.{trial}.a1"
    return Ran(record, attempt, start, end, after.since(before), failed_at)


class Trial(NamedTuple):
    """What a trial took."""

    own_s: float
    to_warm_up_s: float
    calls: Calls
    stages: dict[str, float]


def measure(place: Path, delay_ms: float, runs: int) -> list[Trial]:
    """Whole trials of a drafter with its patch, one after another."""
    found = []
    with ground(place, delay_ms) as here:
        for number in range(runs):
            name = f"own-{number}"
            with Watch(here, name) as watch:
                ran = run_one(here, sweeping.sweep(name, arms="tuned"))
            state = _object(ran.attempt / "state.json")
            assert watch.ready_at is not None, (ran.record.status, ran.record.failure)
            start_s = watch.ready_at - state["started_monotonic"]
            jobs = [_traffic(ran.attempt / "jobs" / job) for job in ("warm-load", "probe-load-c2")]
            traffic_s = sum(end - begin for begin, end in jobs)
            found.append(
                Trial(
                    ran.ended - ran.began - start_s - traffic_s,
                    jobs[0][0] - watch.ready_at,
                    ran.calls,
                    {stage.name: stage.seconds for stage in ran.record.stages},
                )
            )
    return found


def _traffic(job: Path) -> tuple[float, float]:
    """When a job sent its first request, and when its last one was done."""
    zero = _object(job / "result.json")["started_monotonic"]
    rows = [json.loads(line) for line in (job / "samples.jsonl").read_bytes().splitlines()]
    return zero + min(row["sent"] for row in rows), zero + max(row["done"] for row in rows)


class Death(NamedTuple):
    """How soon an engine's death was known, and on record."""

    known_s: float
    record_s: float


def deaths(place: Path, delay_ms: float, runs: int) -> list[Death]:
    """Engines killed under load, all of their processes at once."""
    found = []
    with ground(place, delay_ms) as here:
        for number in range(runs):
            name = f"dead-{number}"
            killed: list[float] = []
            over = threading.Event()

            def kill(name: str = name, killed: list[float] = killed, over=over) -> None:
                while not over.wait(_LOOK_S):
                    attempt = here.attempt(name)
                    if sweeping.probes(attempt):
                        os.killpg(_object(attempt / "state.json")["engine"]["pgid"], signal.SIGKILL)
                        killed.append(time.monotonic())
                        return

            killer = threading.Thread(target=kill, daemon=True)
            killer.start()
            ran = run_one(here, sweeping.sweep(name, arms="tuned", tokens=96, per_slot=4))
            over.set()
            killer.join()
            failure = ran.record.failure
            if killed and failure is not None and failure.stage == "probe":
                at = ran.failed_at["probe:load"]
                found.append(Death(at - killed[0], ran.ended - killed[0]))
    assert found, "no engine was killed in time"
    return found


class Leased(NamedTuple):
    """How near a lease came to its end."""

    least_left_s: float
    renewals: int


def leases(place: Path, delay_ms: float, lease_s: float, runs: int) -> list[Leased]:
    """Trials over a slow line."""
    found = []
    with ground(place, delay_ms, start_s=4.0) as here:
        for number in range(runs):
            name = f"lease-{number}"
            asked = sweeping.sweep(name, arms="tuned", tokens=192, per_slot=8)
            with Watch(here, name) as watch:
                ran = run_one(here, asked, lease_s=lease_s)
            assert ran.record.status in sweeping.MEASURED, ran.record.failure
            assert watch.least_left_s is not None
            found.append(Leased(watch.least_left_s, watch.renewals))
    return found
