"""Watches one engine: its end, its lease, wishes to stop it; and records what happens."""

from __future__ import annotations

import os
import select
import signal
import time
from typing import Any, Optional

from infra.agent import ending, jobs, lease, processes, release, state
from infra.agent.journal import say
from infra.agent.kin import Kin
from infra.agent.launch import Launch
from infra.agent.refusal import Refusal

TICK_S = 0.25
_GRACE_S = {"lease_expired": 3.0, "child_lost": 0.0}
"""Nobody waits for an engine whose lease ran out, and one without a child of its own cannot end
in order: less than the usual grace, so that the end is in time."""

WRITE_FOR_S = 60.0
"""How long to go on trying to record the end on a full disk."""


class Alarm:
    """Sleeps until a signal or a timeout; SIGTERM and SIGINT are remembered as wishes to stop."""

    def __init__(self) -> None:
        self.stop_asked = False
        self._read, write = os.pipe()
        for fd in (self._read, write):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        # Handlers, not SIG_IGN or masks: those would be inherited by the engine.
        for number in (signal.SIGCHLD, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, lambda *_: None)
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

    def collect(self) -> None:
        """Collects every ended child, and notices when one of them was the engine."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            self._note(pid, status)
        if not self.over and not processes.alive(self.ident):
            self._note_gone()

    def _note(self, pid: int, status: int) -> None:
        if pid == self.ident["pid"]:
            self.over, self.code = True, os.waitstatus_to_exitcode(status)

    def _note_gone(self) -> None:
        """A child that ended after the round of collecting still has its exit code to give."""
        try:
            self._note(*os.waitpid(self.ident["pid"], os.WNOHANG))
        except ChildProcessError:
            self.over = True


class Watch:
    """One engine under watch; the caller owns the process in which this runs."""

    def __init__(self, folder: str, launch: Launch, known: dict[str, Any]) -> None:
        self.folder = folder
        self.launch = launch
        self.state = known
        self.alarm = Alarm()
        self.engine = Engine(known["engine"])
        self.kin = Kin(known["engine"]["pid"])
        self.deadline = lease.deadline(folder) or time.monotonic() + launch.lease_s
        self.unwritten = False

    def run(self) -> None:
        """Records the state and watches until the engine and its strays are gone."""
        if self.state["phase"] in state.OVER:
            self._release(self._end(0.0))
            return
        first = not os.path.exists(state.path(self.folder))
        self._write()
        if self.unwritten and first:
            # An engine that nobody can find in the files must not run.
            self._stop("launch_failed")
            return
        while True:
            self.engine.collect()
            if self.engine.over:
                self._ended()
                return
            reason = self._reason_to_stop()
            if reason is not None:
                self._stop(reason)
                return
            self.alarm.sleep(TICK_S)

    def _reason_to_stop(self) -> Optional[str]:
        """Why the engine has to end by our hand now; None if it may live on."""
        if self.alarm.stop_asked:
            return "stopped"
        if self.state["end_reason"] == "lease_expired":
            return "lease_expired"
        self.deadline = lease.deadline(self.folder) or self.deadline
        if time.monotonic() > self.deadline:
            return "lease_expired"
        if self.state["phase"] == "running" and state.stop_asked(self.folder):
            # Who asked does it himself; should he not come to its end, the lease will.
            self.state.update(phase="stopping", end_reason="stopped")
            self._write()
        elif self.unwritten:
            self._write()
        return self._child_lost() if self.state["phase"] == "running" else None

    def _child_lost(self) -> Optional[str]:
        """``child_lost`` where the engine lives on without a process that it needs.

        It is as good as dead, and its end lets the load client write down what it has.
        """
        lost = self.kin.lost()
        if lost is None:
            return None
        self.state["message"] = lost
        return "child_lost"

    def _ended(self) -> None:
        """The main process is gone without our doing: record first, then look for strays."""
        asked = self.state["phase"] == "stopping" or state.stop_asked(self.folder)
        self._finish("stopped" if asked else "exited", "stopped" if asked else "exited")
        ended = self._end(0.0)
        if ended.survivors:
            self._write()
        self._release(ended)

    def _stop(self, reason: str) -> None:
        self.state.update(phase="stopping", end_reason=reason)
        self._write()
        ended = self._end(min(self.launch.grace_s, _GRACE_S.get(reason, self.launch.grace_s)))
        self.engine.collect()
        self._finish("stopped", reason)
        self._release(ended)

    def _end(self, grace_s: float) -> ending.Ended:
        """Ends everything of the trial but its jobs, which end by themselves with their records."""
        ours = ending.Ours(
            groups=[self.state["engine"]],
            markers=[self.launch.trial],
            ancestors=[os.getpid()],
            spared=jobs.identities(self.folder),
        )
        ended = ending.end(ours, grace_s, self.engine.collect)
        if ended.survivors:
            self.state["message"] = f"still there after SIGKILL: {ended.survivors}"
        return ended

    def _finish(self, phase: str, reason: str) -> None:
        self.state.update(
            phase=phase,
            end_reason=reason,
            exit_code=self.engine.code,
            ended_monotonic=time.monotonic(),
        )
        self._write()

    def _release(self, ended: ending.Ended) -> None:
        """Insists on the record if the disk was full, then notes how the host was left."""
        started = time.monotonic()
        insist = self.state["end_reason"] != "launch_failed"
        while insist and self.unwritten and time.monotonic() < started + WRITE_FOR_S:
            self.alarm.sleep(TICK_S)
            self._write()
        report = release.report(
            ended,
            self.launch.port,
            self.launch.gpu_wait_s,
            self.launch.free_below_mib,
            started,
        )
        say(f"released: {report}")

    def _write(self) -> None:
        """Writes the state; on a full disk the watch goes on and the next tick tries again."""
        try:
            state.write(self.folder, self.state)
            self.unwritten = False
        except (Refusal, OSError) as fault:
            if not self.unwritten:
                say(f"cannot write the state: {fault}")
            self.unwritten = True
