"""Watches one engine: its end, the lease, requests to stop; and writes what happens to state.json."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import time
from typing import Any, NamedTuple, Optional

from infra.agent import ending, folders, lease, processes, release
from infra.agent.refusal import Refusal

STATE = "state.json"
STOP = "stop.json"
"""Written by who asks for the end, so that the end is recorded as asked for."""

TICK_S = 0.25
EXPIRED_GRACE_S = 3.0
"""Nobody waits for an engine whose lease ran out: a short grace, so that the end is in time."""

WRITE_FOR_S = 60.0
"""How long to go on trying to record the end on a full disk."""

_PR_SET_CHILD_SUBREAPER = 36


class Launch(NamedTuple):
    """What launch.json says, without what only the start needs."""

    trial: str
    argv: list[str]
    env: dict[str, str]
    unset: list[str]
    cwd: Optional[str]
    lease_s: float
    grace_s: float
    port: Optional[int]
    gpu_wait_s: float
    free_below_mib: Optional[float]

    @classmethod
    def read(cls, value: Any) -> Launch:
        """Builds a launch from JSON; ``bad_launch`` if a field is missing or of the wrong kind."""
        try:
            return cls(
                trial=str(value["trial"]),
                argv=[str(word) for word in value["argv"]],
                env={str(name): str(text) for name, text in value.get("env", {}).items()},
                unset=[str(name) for name in value.get("unset", [])],
                cwd=value.get("cwd"),
                lease_s=float(value["lease_s"]),
                grace_s=float(value["grace_s"]),
                port=value.get("port"),
                gpu_wait_s=float(value.get("gpu_wait_s") or 0),
                free_below_mib=value.get("free_below_mib"),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as fault:
            raise Refusal("bad_launch", f"launch.json: {type(fault).__name__} {fault}") from fault


def read_state(folder: str) -> Optional[dict[str, Any]]:
    """The trial's state; None before there is one."""
    return folders.read_object(os.path.join(folder, STATE))


def become_subreaper() -> None:
    """Makes orphans below us our children, so that none is lost and none stays a zombie.

    Without it (no ctypes, or a kernel that refuses) session ids and markers still find them.
    """
    try:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (OSError, AttributeError) as fault:
        print(f"no subreaper: {fault}", flush=True)


class Alarm:
    """Sleeps until a signal or a timeout; SIGTERM and SIGINT are remembered as wishes to stop."""

    def __init__(self) -> None:
        self.stop_asked = False
        self._read, write = os.pipe()
        for fd in (self._read, write):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        # Handlers, not SIG_IGN or masks: those would be inherited by the engine.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGHUP, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def _ask(self, *_: object) -> None:
        self.stop_asked = True

    def sleep(self, seconds: float) -> None:
        """Returns after ``seconds``, or at once when a signal comes."""
        if select.select([self._read], [], [], seconds)[0]:
            os.read(self._read, 4096)


class Engine:
    """The engine's main process, which may or may not be a child of ours."""

    def __init__(self, ident: dict[str, Any]) -> None:
        self.ident = ident
        self.code: Optional[int] = None
        self.over = False
        self.child = True

    def collect(self) -> None:
        """Collects every ended child, and notices when one of them was the engine."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            if pid == self.ident["pid"]:
                self.over, self.code = True, os.waitstatus_to_exitcode(status)
        if not self.over and not processes.alive(self.ident):
            self.over = True


def launch(folder: str, launch: Launch) -> None:
    """The supervisor's life: start the engine, record it, watch it to its end."""
    become_subreaper()
    alarm = Alarm()
    started = time.monotonic()
    state: dict[str, Any] = {
        "trial": launch.trial,
        "phase": "running",
        "supervisor": processes.identity(os.getpid()),
        "engine": None,
        "boot_id": processes.boot_id(),
        "started_monotonic": started,
        "started_wall": time.time(),
        "exit_code": None,
        "ended_monotonic": None,
        "end_reason": None,
        "message": None,
    }
    try:
        pid = _start(folder, launch)
    except (OSError, ValueError) as fault:
        state.update(phase="exited", end_reason="launch_failed", message=str(fault))
        state["ended_monotonic"] = time.monotonic()
        folders.write_json(os.path.join(folder, STATE), state)
        return
    state["engine"] = {**processes.identity(pid), "pgid": pid, "sid": pid}
    Watch(folder, launch, state, alarm).run()


def _start(folder: str, launch: Launch) -> int:
    env = {name: text for name, text in os.environ.items() if name not in launch.unset}
    env.update(launch.env)
    env.update({processes.MARKER: launch.trial, "SPT_NOENV": "1", "PYTHONUNBUFFERED": "1"})
    path = os.path.join(folder, "server.log")
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return subprocess.Popen(
            launch.argv,
            cwd=launch.cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ).pid
    finally:
        os.close(log)


def adopt(folder: str, launch: Launch) -> None:
    """Goes on where a dead supervisor stopped; without a state there is nothing but to clean up."""
    alarm = Alarm()
    state = read_state(folder)
    if state is None or state["engine"] is None:
        ending.end(ending.Ours([], [], [launch.trial], [os.getpid()]), 0.0)
        return
    state["supervisor"] = processes.identity(os.getpid())
    Watch(folder, launch, state, alarm).run()


class Watch:
    """One engine under watch; ``run`` returns when it and its strays are gone."""

    def __init__(self, folder: str, launch: Launch, state: dict[str, Any], alarm: Alarm) -> None:
        self.folder = folder
        self.launch = launch
        self.state = state
        self.alarm = alarm
        self.engine = Engine(state["engine"])
        self.deadline = lease.deadline(folder) or time.monotonic() + launch.lease_s
        self.unwritten = False

    def run(self) -> None:
        """Watches until the engine ends or has to."""
        if self.state["phase"] in ("exited", "stopped"):
            self._strays(0.0)
            return
        self._write()
        while True:
            self.engine.collect()
            if self.engine.over:
                self._ended()
                return
            reason = self._wish()
            if reason is not None:
                self._stop(reason)
                return
            if self.unwritten:
                self._write()
            self.alarm.sleep(TICK_S)

    def _wish(self) -> Optional[str]:
        """Why the engine has to end now; None if it may live on."""
        if self.state["phase"] == "stopping":
            return str(self.state["end_reason"])
        if self.alarm.stop_asked or os.path.exists(os.path.join(self.folder, STOP)):
            return "stopped"
        self.deadline = lease.deadline(self.folder) or self.deadline
        return "lease_expired" if time.monotonic() > self.deadline else None

    def _ended(self) -> None:
        """The main process is gone without our doing: record first, then look for strays."""
        asked = os.path.exists(os.path.join(self.folder, STOP)) or self.alarm.stop_asked
        self._finish("stopped" if asked else "exited", "stopped" if asked else "exited")
        self._strays(0.0)

    def _stop(self, reason: str) -> None:
        self.state.update(phase="stopping", end_reason=reason)
        self._write()
        grace_s = self.launch.grace_s
        ended = self._end(min(grace_s, EXPIRED_GRACE_S) if reason == "lease_expired" else grace_s)
        self.engine.collect()
        if ended.survivors:
            self.state["message"] = f"still there after SIGKILL: {ended.survivors}"
        self._finish("stopped", reason)
        self._release(ended)

    def _strays(self, grace_s: float) -> None:
        ended = self._end(grace_s)
        if ended.survivors:
            self.state["message"] = f"still there after SIGKILL: {ended.survivors}"
            self._write()
        self._release(ended)

    def _end(self, grace_s: float) -> ending.Ended:
        ours = ending.Ours([self.state["engine"]], [], [self.launch.trial], [os.getpid()])
        return ending.end(ours, grace_s, self.engine.collect)

    def _finish(self, phase: str, reason: str) -> None:
        self.state.update(
            phase=phase,
            end_reason=reason,
            exit_code=self.engine.code,
            ended_monotonic=time.monotonic(),
        )
        self._write()

    def _release(self, ended: ending.Ended) -> None:
        """Notes how the host was left; then insists on the record if the disk was full."""
        until = time.monotonic() + WRITE_FOR_S
        while self.unwritten and time.monotonic() < until:
            self.alarm.sleep(TICK_S)
            self._write()
        launch = self.launch
        report = release.report(
            ended, launch.port, launch.gpu_wait_s, launch.free_below_mib, time.monotonic()
        )
        print(f"released: {report}", flush=True)

    def _write(self) -> None:
        """Writes the state; on a full disk the watch goes on and the next tick tries again."""
        try:
            folders.write_json(os.path.join(self.folder, STATE), self.state)
            self.unwritten = False
        except (Refusal, OSError) as fault:
            if not self.unwritten:
                print(f"cannot write the state: {fault}", flush=True)
            self.unwritten = True
