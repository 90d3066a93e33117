"""Follows a running engine: one poll at a time, its log kept, read and shown as it grows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from configs.speculation import drafter_of
from tasks.contact import Sight, conclude
from tasks.failures import failure_of
from tasks.host_clock import HostClock, ours
from tasks.start_log import StartLog
from tasks.venue import failed_as

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infra.host_agent import Poll
    from tasks.failures import Failure
    from tasks.lookout import Lookout
    from tasks.venue import Site, StageFailedError

_FIRST_LINES = 12
_WORD_WITHIN_S = 3.0  # it takes the supervisor milliseconds, unless it is stopped or starved
_ANSWERS_WITHIN_S = 3.0  # beyond its own time, on a host that is busy


class Followed(NamedTuple):
    """What one poll brought."""

    poll: Poll
    grew: bool


class Follower:
    """The engine's log from its first byte on, and whether the engine lives."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.start = StartLog(
            site.engine.kind,
            model_path=site.engine.model,
            draft_path=drafter_of(site.sweep.arms[site.trial.arm].speculation),
        )
        self.last_growth = time.monotonic()
        self.clock = HostClock()
        self._offset = 0
        self._seen: str | None = None
        self._mask = site.mask.stream()
        self._tap: list[bytes] | None = None
        self._ended: float | None = None
        self.lookout: Lookout | None = None
        """Who watches the other nodes of the place, where there are any."""

    def poll(
        self,
        *,
        job: str | None = None,
        timeout_s: float = 1.5,
        quiet_s: float = 0.0,
        start: Mapping[str, Any] | None = None,
    ) -> Followed:
        """Waits on the host for the next change, two seconds at most; keeps and reads the log."""
        asked = ours()
        poll = self.site.agent.wait(
            self.site.folder,
            self._offset,
            holder=self.site.holder,
            job=job,
            seen=self._seen,
            timeout_s=timeout_s,
            quiet_s=quiet_s,
            start=start,
        )
        heard = ours()
        self.clock.note(asked, heard, poll.monotonic)
        away = heard - asked - timeout_s
        if away > _ANSWERS_WITHIN_S:
            # The line was cut: what the engine did meanwhile is unknown, and no silence of its own.
            self.last_growth += away
        self._offset, self._seen = poll.offset, poll.seen
        if poll.log:
            self.last_growth = time.monotonic()
            self._take(poll.log)
        return Followed(poll, bool(poll.log))

    def listen(self) -> None:
        """From now on the log's bytes are kept aside too, for `heard`."""
        self._tap = []

    def heard(self) -> bytes:
        """What the log said since `listen`."""
        taken, self._tap = b"".join(self._tap or []), None
        return taken

    def drain(self) -> None:
        """Reads what is left of the log of an engine that has ended."""
        while self.poll(timeout_s=0.0).grew:
            pass

    def finish(self) -> None:
        """Lets out the last bytes that the mask holds back."""
        rest = self._mask.finish()
        if rest:
            self.site.keep.append("server.log", rest)

    def raise_if_dead(self, poll: Poll, stage: str) -> None:
        """Turns the end of the engine into the trial's failure: its first cause, not its echo.

        Raises:
            StageFailedError: The engine has ended, or that of another node of the place.
        """
        if conclude(sight_of(poll), self._offset).failure is None:
            if self.lookout is not None:
                self.lookout.raise_if_lost(stage)
            return
        own = self._ended_with(poll.state or {}, stage)
        if self.lookout is not None:
            raise self.lookout.first_cause(own, self.ended_at(), stage)
        raise own

    def ended_at(self) -> float | None:
        """When the engine ended, on our clock; None where its supervisor has not said."""
        return None if self._ended is None else self.clock.here(self._ended)

    def _ended_with(self, state: Mapping[str, Any], stage: str) -> StageFailedError:
        """The failure of an engine that has ended."""
        self._ended = state.get("ended_monotonic")
        self.drain()
        facts = self.start.finish(exit_code=state.get("exit_code"))
        known = facts.failure or failure_of("engine_dead", stage=facts.stage)
        if state.get("end_reason") == "lease_expired":
            known = failure_of("lease_expired", stage=facts.stage)
        said = self.cause(known)
        if known.failure == "engine_dead" and state.get("end_reason") == "child_lost":
            known = failure_of("scheduler_dead", stage=facts.stage)
            said = self.site.mask.text(str(state.get("message")))
        return failed_as(stage, known, said, self.first_lines(known))

    def raise_as_dead(self, stage: str) -> NoReturn:
        """For an engine that is gone: with its supervisor's word on it, or without if none comes.

        Raises:
            StageFailedError: Always.
        """
        until = time.monotonic() + _WORD_WITHIN_S
        while time.monotonic() < until:
            self.raise_if_dead(self.poll(timeout_s=0.5).poll, stage)
        known = failure_of("engine_dead", stage=self.start.facts().stage)
        said = "the engine is gone, and its supervisor has not said how it ended"
        raise failed_as(stage, known, said, self.first_lines(known))

    def cause(self, known: Failure) -> str:
        """The first cause in one line, without secrets: it is shown and kept."""
        return self.site.mask.text(cause_line(known))

    def first_lines(self, known: Failure) -> tuple[str, ...]:
        """The evidence that a person wants to see first: the log around the first cause."""
        log = self.site.keep.path / "server.log"
        kept = log.read_bytes()[-200_000:] if log.exists() else b""
        lines = [line for line in kept.decode(errors="replace").splitlines() if line.strip()]
        root = self.site.mask.text(known.root_line or "")
        at = next((i for i, line in enumerate(lines) if root and root in line), None)
        if at is None:
            return tuple(lines[-_FIRST_LINES:])
        return tuple(lines[max(0, at - _FIRST_LINES + 3) : at + 3])

    def _take(self, data: bytes) -> None:
        self.start.feed(data)
        self.site.keep.append("server.log", self._mask.feed(data))
        if self._tap is not None:
            self._tap.append(data)


def sight_of(poll: Poll) -> Sight:
    """What a poll shows of the engine.

    The agent knows its process by start time, and the hand on the host notices a reboot itself.
    While the state file says running, the supervisor has not yet written how the engine ended.
    """
    state = poll.state or {}
    running = state.get("phase") == "running"
    return Sight(
        alive=poll.engine_alive or running,
        same_process=True,
        boot_same=True,
        exit_code=None if poll.engine_alive or running else state.get("exit_code"),
        log_size=poll.log_size,
    )


def cause_line(known: Failure) -> str:
    """The first cause in one line."""
    return (known.root_line or known.cause).strip()[:500]
