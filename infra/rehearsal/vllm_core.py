"""The pretend vLLM's engine core: a process that loads, watches its workers, and may die."""

from __future__ import annotations

import json
import os
import select
import signal
from typing import TYPE_CHECKING, Any

from infra.rehearsal import titles, vllm_words
from infra.rehearsal.failures import Failure
from infra.rehearsal.vllm_console import VllmConsole
from infra.rehearsal.vllm_start import Start
from infra.rehearsal.vllm_workers import within

if TYPE_CHECKING:
    from infra.rehearsal.rank import Plan

_DIED = b"x"
_LOOK_S = 0.2


class CoreDied(Exception):
    """The engine core is gone before it was ready."""


class Core:
    """The API server's hold on the engine core; the workers are the core's children."""

    def __init__(self, plan: Plan) -> None:
        reports_in, reports_out = os.pipe()
        orders_in, orders_out = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid:
            os.close(reports_out)
            os.close(orders_in)
            self._reports, self._orders = reports_in, orders_out
            return
        os.close(reports_in)
        os.close(orders_out)

        def life() -> None:
            titles.die_with_parent(parent)
            titles.set_title("VLLM::EngineCore")
            _live(plan, reports_out, orders_in)

        within(life)

    def load(self) -> dict[str, Any]:
        """Wait until everything is loaded; what the core found.

        Raises:
            CoreDied: it came to an end before.
        """
        told = os.read(self._reports, 65_536)
        if not told or told == _DIED:
            os.waitpid(self.pid, 0)
            raise CoreDied
        found: dict[str, Any] = json.loads(told)
        return found

    def fail(self, where: str, text: str, rank: int | None) -> None:
        """Let the core hit an exception, whichever worker it comes from."""
        del rank
        os.write(self._orders, json.dumps({"where": where, "text": text}).encode())

    def kill(self, rank: int) -> None:
        """SIGKILL one worker."""
        os.write(self._orders, json.dumps({"kill": rank}).encode())

    def is_gone(self) -> bool:
        """Whether it ended; it is collected."""
        try:
            return os.waitpid(self.pid, os.WNOHANG)[0] == self.pid
        except ChildProcessError:
            return True

    def end(self) -> None:
        """SIGKILL the core, and with it its workers."""
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            return


def _live(plan: Plan, reports: int, orders: int) -> None:
    """The core's life: load, then watch workers and orders until something ends it."""
    start, console = Start(plan), VllmConsole("EngineCore")
    try:
        os.write(reports, json.dumps(start.load()).encode())
        assert start.workers is not None
        workers = start.workers
        while True:
            ready, _, _ = select.select([orders], [], [], _LOOK_S)
            if start.meeting is not None and (gone := start.meeting.gone()) is not None:
                _say(console, plan, "encountered a fatal error", gone.where, gone.text)
                return
            told = os.read(orders, 65_536) if ready else None
            if told == b"":
                return
            order = json.loads(told) if told else {}
            if "kill" in order:
                workers.kill(order["kill"])
            elif order:
                _say(console, plan, "encountered a fatal error", order["where"], order["text"])
                return
            if workers.one_is_gone():
                died = "Worker proc VllmWorker-0 died unexpectedly, shutting down executor."
                console.say(died, "multiproc_executor.py:296", "ERROR")
                return
    except Failure as failure:
        _say(console, plan, "failed to start", failure.where, failure.text)
        os.write(reports, _DIED)
    finally:
        if start.workers is not None:
            start.workers.end()


def _say(console: VllmConsole, plan: Plan, what: str, where: str, text: str) -> None:
    place = "core.py:1584" if "start" in what else "core.py:1592"
    trace = vllm_words.traceback(plan.site, where, text.rstrip("\n"))
    console.say(f"EngineCore {what}.\n{trace}", place, "ERROR")
