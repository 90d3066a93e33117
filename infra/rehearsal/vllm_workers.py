"""The pretend vLLM's workers: one process per card, children of the engine core."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from infra.rehearsal import memory, titles
from infra.rehearsal.rendezvous import local_ranks

if TYPE_CHECKING:
    from collections.abc import Callable

    from infra.rehearsal.rank import Plan


class Workers:
    """The engine core's hold on its workers.

    Attributes:
        held_gib: memory that each of them holds of its card.
    """

    def __init__(self, plan: Plan) -> None:
        self.held_gib = 0.0
        self._workers = [_fork(plan, rank) for rank in local_ranks(plan.args)]

    def take(self, gib: float) -> None:
        """Let every worker hold more of its card."""
        self.held_gib += gib
        for _, orders in self._workers:
            os.write(orders, f"{round(self.held_gib * 1024)}\n".encode())

    def kill(self, rank: int) -> None:
        """SIGKILL one of them."""
        os.kill(self._workers[rank][0], signal.SIGKILL)

    def one_is_gone(self) -> bool:
        """Whether one ended; it is collected."""
        return any(_is_gone(pid) for pid, _ in self._workers)

    def end(self) -> None:
        """SIGKILL all of them, by id."""
        for pid, _ in self._workers:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                continue


def within(life: Callable[[], None]) -> NoReturn:
    """The life of a forked process, from which nothing returns."""
    try:
        for signum in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(signum, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        life()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)


def _is_gone(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _fork(plan: Plan, rank: int) -> tuple[int, int]:
    """One worker; its pid, and where it is told how much of its card it holds."""
    orders_in, orders_out = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        os.close(orders_in)
        return pid, orders_out
    os.close(orders_out)

    def life() -> None:
        titles.die_with_parent(parent)
        alone = plan.args["tp_size"] == 1
        titles.set_title("VLLM::Worker" if alone else f"VLLM::Worker_TP{rank}")
        while told := os.read(orders_in, 4096):
            at = rank - local_ranks(plan.args).start
            memory.hold(plan.folder, plan.gpus[at], int(told.split()[-1]))

    within(life)
