"""Planted faults while a server runs: they are looked up as steps and requests go by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from infra.rehearsal import failures, faults
from infra.rehearsal.rank import TOTAL_GIB

if TYPE_CHECKING:
    from pathlib import Path

    from infra.rehearsal.console import Says
    from infra.rehearsal.faults import Fault
    from infra.rehearsal.serving import Server


class Mortal(Protocol):
    """The processes of an engine, of which one may die."""

    def fail(self, where: str, text: str, rank: int | None) -> None:
        """Let it hit an exception."""

    def kill(self, rank: int) -> None:
        """SIGKILL it."""


class Accidents:
    """Lets the faults of the running stages happen.

    Args:
        engine: folder of the pretend host, marker of this engine, path of its drafter.
        server: what they happen to.
        children: the schedulers.
        ranks: log of rank 0.
    """

    def __init__(
        self,
        engine: tuple[Path, str, str | None],
        server: Server,
        children: Mortal,
        ranks: Says,
    ) -> None:
        self._folder, self._trial, self._drafter = engine
        self._server, self._children, self._ranks = server, children, ranks
        self._read_at = -1
        self._planned: list[Fault] = []

    def _look(self) -> list[Fault]:
        """What is planned for this engine; the file is read again only when it changed."""
        try:
            changed = (self._folder / faults.FILE).stat().st_mtime_ns
        except FileNotFoundError:
            return []
        if changed != self._read_at:
            self._read_at = changed
            self._planned = faults.peek(self._folder, self._trial, self._drafter, faults.RUN_STAGES)
        return self._planned

    def ready(self) -> None:
        """The server just became ready."""
        self._strike("ready")

    def stepped(self) -> None:
        """A decode step is over."""
        self._strike("decode")

    def ended(self) -> None:
        """A client's request is over."""
        self._strike("after_requests")

    def _strike(self, stage: str) -> None:
        done, running = self._server.stats.finished, len(self._server.decoding.running)
        if any(
            f.when == stage and done >= f.after_requests and (running > 1 or f.what != "retract")
            for f in self._look()
        ):
            fault = faults.take(self._folder, self._trial, self._drafter, stage)
            if fault is not None:
                self._happen(fault)

    def _happen(self, fault: Fault) -> None:
        decoding = self._server.decoding
        match fault.what:
            case "die":
                decoding.frozen = True
                self._children.fail("decode", failures.PLANTED["decode"], fault.rank)
            case "oom":
                decoding.frozen = True
                rank = fault.rank or 0
                text = failures.oom("decode", rank, 1.08, TOTAL_GIB, TOTAL_GIB - 0.4).text
                self._children.fail("decode", text, fault.rank)
            case "sigkill_scheduler":
                decoding.frozen = True
                self._children.kill(fault.rank or 0)
            case "slow":
                decoding.slow_factor = fault.factor
            case "retract":
                victims = decoding.retract(max(1, len(decoding.running) // 4))
                self._server.stats.retracted += len(victims)
                gained = sum(r.prompt_tokens + r.done for r in victims)
                self._ranks.say(
                    "KV cache pool is full. Retract requests. "
                    f"#retracted_reqs: {len(victims)}, #new_tokens_gained: {gained}, "
                    "#new_token_ratio: 0.5980 -> 0.8129",
                    "warning",
                )
            case _:
                decoding.frozen = True
