"""The engine's children: one scheduler per GPU and a detokenizer, real processes of one group.

They are forked, show SGLang's titles, die with the parent, and hold their GPU memory for as
long as they live. All arithmetic of time is the parent's; a scheduler that was told to die
prints its traceback and sends SIGQUIT, and the parent kills the whole tree and itself.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from dataclasses import dataclass
from typing import Any, NoReturn

from infra.rehearsal import titles
from infra.rehearsal.failures import Failure
from infra.rehearsal.rank import Plan, Rank
from infra.rehearsal.rendezvous import Meeting, local_ranks
from infra.rehearsal.startup import STAGES, announce

_STAGGER_S = 0.003
_SIGQUIT_AFTER_S = 0.05


class RankZeroDied(Exception):
    """The parent lost the one child that it waits for first (0.5.9 waits in rank order)."""


@dataclass
class Child:
    """One child process.

    Attributes:
        pid: of the child.
        reports: where its reports are read.
        orders: where orders to it are written.
    """

    pid: int
    reports: int
    orders: int


def _fail(rank: Rank, failure: Failure) -> NoReturn:
    """Print what a failing scheduler prints, tell the parent, and wait for the end."""
    time.sleep(_STAGGER_S * rank.number)
    trace = failure.traceback(rank.plan.site)
    rank.say(f"Scheduler hit an exception: {trace}", "error")
    time.sleep(_SIGQUIT_AFTER_S)
    os.kill(os.getppid(), signal.SIGQUIT)
    while True:
        signal.pause()


def _scheduler(plan: Plan, number: int, reports: int, orders: int) -> NoReturn:
    """The life of one scheduler process."""
    single = plan.args["tp_size"] == 1
    titles.set_title("sglang::scheduler" if single else f"sglang::scheduler_TP{number}")
    rank = Rank(plan, number)
    stages = plan.stages()
    try:
        for stage in stages:
            STAGES[stage](rank)
            rank.step()
            os.write(reports, b"." if stage != stages[-1] else _facts(rank))
            _order(orders, rank.meeting)
        announce(rank)
        os.write(reports, b".")
        told = json.loads(_order(orders, rank.meeting))
        raise Failure(told["where"], told["text"])
    except Failure as failure:
        _fail(rank, failure)


def _facts(rank: Rank) -> bytes:
    told = {
        "tokens": rank.tokens,
        "accept_at": rank.accept_at,
        "weight_gib": rank.weight_gib,
        "graph_gib": rank.graph_gib,
        "captured": rank.captured(),
    }
    return json.dumps(told).encode()


def _order(orders: int, meeting: Meeting | None = None) -> bytes:
    """Wait for one order; without a parent there is nothing left to do.

    Raises:
        Failure: another node is gone.
    """
    if meeting is not None:
        meeting.wait(orders)
    order = os.read(orders, 65_536)
    if not order:
        os._exit(0)
    return order


def _detokenizer(orders: int) -> NoReturn:
    titles.set_title("sglang::detokenizer")
    while True:
        _order(orders)


class Children:
    """The parent's hold on its children."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.schedulers = [self._fork(rank) for rank in local_ranks(plan.args)]
        self.detokenizer = self._fork(None) if plan.args["node_rank"] == 0 else None

    def _fork(self, rank: int | None) -> Child:
        reports_in, reports_out = os.pipe()
        orders_in, orders_out = os.pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid:
            os.close(reports_out)
            os.close(orders_in)
            return Child(pid, reports_in, orders_out)
        try:
            for signum in (signal.SIGTERM, signal.SIGQUIT, signal.SIGCHLD):
                signal.signal(signum, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGQUIT})
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            titles.die_with_parent(parent)
            if rank is None:
                _detokenizer(orders_in)
            _scheduler(self._plan, rank, reports_out, orders_in)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(1)

    def pids(self) -> list[int]:
        """Every child's pid."""
        return [child.pid for child in [*self.schedulers, self.detokenizer] if child is not None]

    def name_of(self, pid: int) -> str:
        """What SGLang's watchdog calls a child."""
        for number, child in enumerate(self.schedulers):
            if child.pid == pid:
                return f"scheduler_{number}"
        return "detokenizer"

    def ended(self) -> list[tuple[int, int]]:
        """Children that ended since the last call, with their exit codes."""
        found: list[tuple[int, int]] = []
        for pid in self.pids():
            try:
                gone, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue
            if gone:
                found.append((pid, os.waitstatus_to_exitcode(status)))
        return found

    def _gather(self) -> list[bytes]:
        """One report of every scheduler.

        Raises:
            RankZeroDied: its pipe ended; a later rank that dies is waited for without end.
        """
        answers: dict[int, bytes] = {}
        waiting = {child.reports: rank for rank, child in enumerate(self.schedulers)}
        while len(answers) < len(self.schedulers):
            ready, _, _ = select.select(list(waiting), [], [])
            for reports in ready:
                rank = waiting.pop(reports)
                answer = os.read(reports, 65_536)
                if answer:
                    answers[rank] = answer
                elif rank == 0:
                    raise RankZeroDied
        return [answers[rank] for rank in range(len(self.schedulers))]

    def load(self) -> dict[str, Any]:
        """Take all schedulers through their stages, side by side; what rank 0 found.

        Raises:
            RankZeroDied: see ``_gather``.
        """
        facts: list[bytes] = []
        for _ in self._plan.stages():
            facts = self._gather()
            for child in self.schedulers:
                os.write(child.orders, b".")
        self._gather()
        found: dict[str, Any] = json.loads(facts[0])
        return found

    def exit_code_of_rank_zero(self) -> int:
        """Wait for rank 0 and give its exit code as multiprocessing does."""
        _, status = os.waitpid(self.schedulers[0].pid, 0)
        return os.waitstatus_to_exitcode(status)

    def fail(self, where: str, text: str, rank: int | None) -> None:
        """Let one scheduler, or all of them, hit an exception."""
        order = json.dumps({"where": where, "text": text}).encode()
        for position, child in enumerate(self.schedulers):
            if rank is None or rank == position:
                os.write(child.orders, order)

    def kill(self, rank: int) -> None:
        """SIGKILL one scheduler."""
        os.kill(self.schedulers[rank].pid, signal.SIGKILL)

    def kill_all(self) -> None:
        """SIGKILL them all, by id."""
        for pid in self.pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def kill_tree(children: Children) -> NoReturn:
    """SIGKILL the children, then this process, as SGLang's ``kill_process_tree``."""
    children.kill_all()
    os.kill(os.getpid(), signal.SIGKILL)
    while True:
        signal.pause()
