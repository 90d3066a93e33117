"""Faults drawn at random over whole sweeps, and what must be true at the end of each.

One seed is one order of faults and pauses; what they hit depends on the machine's speed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from flows.runs import read_records, read_run_plan
from infra.agent import kin, processes
from infra.rehearsal import faults, hosting, memory, strange
from tests import rehearsing, sweeping
from tests.agent_host import is_alive, until
from tests.chaos.hosts import somebody
from tests.chaos.scene import later, ours_on, short
from tests.openssh import Relay

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from configs.sweep import Sweep
    from infra.store import RunFolder
    from tasks.record import Failure, TrialRecord
    from tests.sweeping import Command

_SCALE = 8.0
_LEASE_S = 12.0
_PER_SWEEP = 10
"""Faults in one sweep: with more, nothing would ever come to its end."""
_PAUSE_S = (0.1, 3.0)
_TRIES = 6
_RUN_S = 400.0
_BEFORE_LAUNCH = {"claim", "survey", "clean_gpus", "patch", "clear_pycache", "check_drafter"}
_PASSES = {
    "cancelled",
    "foreign_gpu_process",
    "gpu_memory_held",
    "host_claimed",
    "host_rebooted",
    "lease_expired",
    "ssh_lost",
}


class Lottery:
    """A pretend host with its controller, and everything that can happen to them."""

    def __init__(self, place: Path, seed: int, stack: ExitStack) -> None:
        self.draw = random.Random(seed)
        self.place = place
        folder = rehearsing.build(place / "host", time_scale=_SCALE, start_s=0.4)
        self._door = ExitStack()
        stack.callback(self._close)
        ready = self._door.enter_context(hosting.serving(folder))
        self.ground = sweeping.Ground(place, ready, _SCALE)
        self.relay = stack.enter_context(Relay(ready.port))
        self.before = self.ground.source.read_bytes()
        self.database = place / "index.db"
        self.command: Command | None = None
        self._timers: list[threading.Timer] = []
        self._strangers = ExitStack()
        stack.callback(self._strangers.close)

    def _close(self) -> None:
        self._door.close()

    @property
    def happenings(self) -> dict[str, Callable[[], None]]:
        """What may be drawn."""
        return {
            "the sweep is killed": lambda: self._to_sweep(signal.SIGKILL),
            "the sweep is stopped": lambda: self._to_sweep(signal.SIGTERM),
            "the line is cut": self.relay.cut,
            "the line is silent": self._silence,
            "sshd is restarted": self._restart,
            "the host is rebooted": self._reboot,
            "the engine is killed": lambda: self._kill("engine"),
            "a scheduler is killed": self._kill_scheduler,
            "the supervisor is killed": lambda: self._kill("supervisor"),
            "the engine will fail": self._plan_failure,
            "a stranger comes and goes": self._stranger,
            "MLflow's database is locked": self._lock,
            "the host's clock is set": self._set_clock,
        }

    def _to_sweep(self, number: signal.Signals) -> None:
        if self.command is not None and self.command.process.poll() is None:
            self.command.signal(number)

    def _after(self, low: float, high: float, do: Callable[[], object]) -> None:
        self._timers.append(later(self.draw.uniform(low, high), do))

    def _silence(self) -> None:
        self.relay.freeze()
        self._after(0.5, 6.0, self.relay.thaw)

    def _restart(self) -> None:
        self._door.close()
        port = self.ground.ready.port
        self._door.enter_context(hosting.serving(self.ground.folder, port=port))

    def _reboot(self) -> None:
        ready = json.loads((self.ground.folder / "ready.json").read_text())
        hosting.reboot(hosting.Host(folder=self.ground.folder, **ready))
        self.relay.cut()

    def _states(self) -> list[Any]:
        found = []
        for path in (self.ground.root / "trials").glob("*/state.json"):
            with contextlib.suppress(OSError, ValueError):
                found.append(json.loads(path.read_text()))
        return [state for state in found if state["engine"] and is_alive(state["engine"]["pid"])]

    def _kill(self, whom: str) -> None:
        for state in self._states():
            process = processes.look(state[whom]["pid"])
            if process is not None and process.start_ticks == state[whom]["start_ticks"]:
                processes.send(process, signal.SIGKILL)

    def _kill_scheduler(self) -> None:
        for state in self._states():
            pids = kin.children(state["engine"]["pid"])
            if pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.draw.choice(sorted(pids)), signal.SIGKILL)

    def _plan_failure(self) -> None:
        starts = [(stage, what) for stage in faults.START_STAGES for what in ("die", "hang")]
        runs = [
            (stage, what)
            for stage in ("ready", "decode")
            for what in ("die", "hang", "no_tokens", "sigkill_scheduler")
        ]
        stage, what = self.draw.choice(starts + runs)
        self.ground.plant(stage, what, rank=self.draw.randrange(8))

    def _stranger(self) -> None:
        pid = self._strangers.enter_context(somebody())
        gpu = self.draw.randrange(8)
        planted = memory.plant(self.ground.folder, gpu, f"s{pid}", 4000, pid=pid)
        self._after(0.5, 4.0, lambda: planted.unlink(missing_ok=True))

    def _lock(self) -> None:
        if not self.database.exists():
            return
        held = sqlite3.connect(
            self.database, isolation_level=None, timeout=5, check_same_thread=False
        )
        with contextlib.suppress(sqlite3.OperationalError):
            held.execute("begin exclusive")
        self._after(0.5, 6.0, held.close)

    def _set_clock(self) -> None:
        strange.tell(self.ground.folder, clock_s=self.draw.choice([-3600, 0, 3600]))

    def heal(self) -> None:
        """The end of everything that was planned or is still under way."""
        for timer in self._timers:
            timer.join(15)
        self._timers.clear()
        self.relay.thaw()
        faults.write(self.ground.folder, [])
        self._strangers.close()

    def start(self, asked: Sweep) -> Command:
        """`eagle3-sweep run`, through the relay."""
        connect = self.ground.host.connect.model_copy(update={"port": self.relay.port})
        self.ground.host_file(connect=connect, lease_s=_LEASE_S)
        env = {"MLFLOW_TRACKING_URI": f"sqlite:///{self.database}"}
        return self.ground.command("run", str(self.ground.sweep_file(asked)), **env)

    def night(self, name: str, most: int) -> int:
        """One sweep with so many faults at most, then to its end without any; how many were."""
        blocks = self.draw.choice((1, 1, 2))
        arms: dict[str, Any] = {"arms": "base+tuned", "patches": "kimi_k25_eagle3"}
        asked = short(name, silence_s=4, gpu_free_s=5, blocks=blocks, **arms)
        drawn, pause = 0, threading.Event()
        for _ in range(_TRIES):
            undisturbed = drawn >= most
            with self.start(asked) as self.command:
                self._under_way()
                while self.command.process.poll() is None and drawn < most:
                    pause.wait(self.draw.uniform(*_PAUSE_S))
                    if self.command.process.poll() is None:
                        what = self.draw.choice(sorted(self.happenings))
                        print(f"  {name}: {what}", flush=True)
                        self.happenings[what]()
                        drawn += 1
                if drawn >= most:
                    self.heal()
                self.command.ended(_RUN_S)
            if undisturbed:
                break
        self.heal()
        return drawn

    def _under_way(self) -> None:
        """Waits until a sweep has its run folder: faults that find nothing to hit are none."""
        command = self.command
        assert command is not None
        until(lambda: "run night" in command.text or command.process.poll() is not None, 60)

    def broken(self, name: str) -> list[str]:
        """What should be true at the end of a sweep and is not."""
        ground, run = self.ground, self.ground.runs.latest(name)
        if run is None:
            return ["no run folder"]
        said = _records(run)
        try:
            until(lambda: ground.empty() and not ours_on(ground), _LEASE_S + 15)
        except AssertionError:
            said.append(f"left on the host: {ours_on(ground)} {ground.holders()}")
        if (ground.root / "claim.json").exists():
            said.append("the host's lock is held")
        if ground.source.read_bytes() != self.before:
            said.append("the engine's source is not as it was")
        return said + self._index(run)

    def _index(self, run: RunFolder) -> list[str]:
        """Where MLflow and the folder say different things."""
        with self.ground.command(
            "publish", run.path.parent.name, MLFLOW_TRACKING_URI=f"sqlite:///{self.database}"
        ) as command:
            if command.ended(_RUN_S) != 0:
                return [f"publish: {command.text[-300:]}"]
        with sqlite3.connect(self.database) as known:
            rows = known.execute(
                "select k.value, s.value from tags k join tags s using (run_uuid) "
                "where k.key = 'eagle3.key' and s.key = 'status' and k.value like ?",
                (f"{run.holder}/%",),
            ).fetchall()
        known.close()
        folder = sorted(
            (
                f"{run.holder}/{one.trial}/a{one.attempt}",
                json.loads(one.record.read_bytes())["status"],
            )
            for one in run.trials()
            if one.finished
        )
        found = sorted((str(key), str(status)) for key, status in rows)
        return [] if found == folder else [f"MLflow has {found}, the folder {folder}"]


def _records(run: RunFolder) -> list[str]:
    """Whether every planned trial has exactly one record that stands."""
    said = [f"{one.path.name} has no record" for one in run.trials() if not one.finished]
    records = read_records(run)
    said += [
        f"no fault explains this end: {_end(record)}: {record.failure.stage}: {record.failure.message}"
        for record in records
        if record.failure is not None and not _explained(record.failure)
    ]
    names = [record.trial for record in records]
    planned = [trial.id for trial in read_run_plan(run).trials]
    if sorted(names) != sorted(planned):
        said.append(f"records of {names}, planned {planned}")
    return said


def _explained(failure: Failure) -> bool:
    """Whether a fault that is drawn can end a trial so.

    None touches engine source, drafter or flags: a refusal of those has no cause.
    """
    if failure.failure_class == "unknown_exception":
        return False
    return failure.stage not in _BEFORE_LAUNCH or failure.failure_class in _PASSES


def _end(record: TrialRecord) -> str:
    failure = f" ({record.failure.failure_class})" if record.failure else ""
    return f"{record.trial}.a{record.attempt} {record.status}{failure}"


def play(place: Path, seed: int, count: int) -> int:
    """Draws so many faults; returns 1 if anything that must hold was broken."""
    began, drawn, night, broken = time.monotonic(), 0, 0, []
    with ExitStack() as stack:
        lottery = Lottery(place, seed, stack)
        while drawn < count:
            night += 1
            name = f"night-{night}"
            drawn += lottery.night(name, min(_PER_SWEEP, count - drawn))
            found = lottery.broken(name)
            broken += [f"{name}: {text}" for text in found]
            run = lottery.ground.latest(name)
            ends = [_end(record) for record in read_records(run)]
            print(f"{name}: {drawn} faults so far; {', '.join(ends)}; broken: {found or 'none'}")
    seconds = time.monotonic() - began
    print(f"\nseed {seed}: {drawn} faults, {night} sweeps, {seconds:.0f} s, {len(broken)} broken")
    for text in broken:
        print(f"  {text}")
    return 1 if broken else 0
