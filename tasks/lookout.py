"""Hears from the engines of the other nodes of a place while the leading one is worked with.

Only the leading node serves, and its ranks say little of another one's death: they hang in a
collective, or die of a closed connection. So every other node is polled by a thread of its own,
which also renews its lease; its log is kept and read like the leading one's.
"""

from __future__ import annotations

import contextvars
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from infra.errors import HostRebooted, WorldError
from tasks.follow import Follower
from tasks.nodes import with_name
from tasks.venue import StageFailedError, failed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.record import Failure
    from tasks.venue import Site

_QUIET_S = 1.0  # every poll is a process on a machine that is being measured
_WORD_WITHIN_S = 2.5  # the length of a poll: whoever died meanwhile is known by then
_LOOK_S = 0.02
_JOIN_S = 5.0
# What an engine dies of whose peer is gone: its own log names no cause.
_ECHOES = frozenset({"engine_dead", "scheduler_dead"})


class Ended(NamedTuple):
    """An engine that ended on one node of a place."""

    failure: Failure
    at: float
    """When, on our clock, seconds."""

    @property
    def is_echo(self) -> bool:
        """Whether its own log names no cause."""
        return self.failure.failure_class in _ECHOES


def first_cause(own: Ended, others: Sequence[Ended]) -> Ended:
    """Whose end is told of, where several nodes ended.

    One with a cause of its own before one that died of a closed connection; then the one that
    ended first; the leading node's (``own``) where that cannot be told.
    """
    return min([own, *others], key=lambda ended: (ended.is_echo, ended.at))


class _Node:
    """One other node, followed by a thread."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.follower = Follower(site)
        self.lost: StageFailedError | None = None
        self.lost_at = 0.0
        self.looked_at = 0.0
        self._over = threading.Event()
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                followed = self.follower.poll(quiet_s=_QUIET_S)
                self.follower.raise_if_dead(followed.poll, "wait_ready")
                self.looked_at = time.monotonic()
        except StageFailedError as error:
            self._note(error)
        except WorldError as error:
            name = "host_rebooted" if isinstance(error, HostRebooted) else "ssh_lost"
            self._note(failed("wait_ready", name, f"{type(error).__name__}: {error}"))

    def _note(self, error: StageFailedError) -> None:
        self.lost_at = time.monotonic()
        self.lost = error

    def ended(self) -> Ended | None:
        """How and when its engine ended, by its name; None while it lives or is not heard of."""
        if self.lost is None:
            return None
        at = self.follower.ended_at()
        return Ended(with_name(self.site.host.name, self.lost), self.lost_at if at is None else at)

    def end(self) -> None:
        self._over.set()

    def finish(self) -> None:
        """Lets out the last bytes of its log, once nothing more comes."""
        self._thread.join(_JOIN_S)
        if not self._thread.is_alive():
            self.follower.finish()


class Lookout:
    """The other nodes of a place; each is watched from now on until :meth:`end`."""

    def __init__(self, peers: Sequence[Site]) -> None:
        self._nodes = [_Node(peer) for peer in peers]

    def raise_if_lost(self, stage: str) -> None:
        """Fails the trial if another node's engine ended while the leading one lives.

        One that ended without a cause of its own may be the echo of the leading node's end, which
        is then heard of within the length of a poll.

        Raises:
            StageFailedError: With the node's name and the first cause in its own log.
        """
        for node in self._nodes:
            ended = node.ended()
            waited = time.monotonic() - node.lost_at
            if ended is not None and (not ended.is_echo or waited > _WORD_WITHIN_S):
                raise _failing(ended, stage)

    def first_cause(self, own: StageFailedError, ended_at: float | None, stage: str) -> Exception:
        """The failure of the trial, where the leading node's engine has ended.

        Args:
            own: The leading node's failure.
            ended_at: When its engine ended, on our clock; None where that is not known.
            stage: Of the trial.
        """
        since = time.monotonic()
        mine = Ended(own.failure, since if ended_at is None else ended_at)
        while mine.is_echo and time.monotonic() < since + _WORD_WITHIN_S and self._silent(since):
            time.sleep(_LOOK_S)
        others = [ended for node in self._nodes if (ended := node.ended()) is not None]
        first = first_cause(mine, others)
        silent = self._silent(since)
        if first is mine and mine.is_echo and silent:
            said = f"{mine.failure.message}; meanwhile no answer from {', '.join(silent)}"
            return StageFailedError(mine.failure.model_copy(update={"message": said}))
        return _failing(first, stage)

    def _silent(self, since: float) -> list[str]:
        """Nodes of which nothing was heard since then."""
        return [n.site.host.name for n in self._nodes if n.lost is None and n.looked_at <= since]

    def end(self) -> None:
        """Stops watching; what is under way ends within the length of a poll."""
        for node in self._nodes:
            node.end()

    def finish(self) -> None:
        """Closes the logs."""
        for node in self._nodes:
            node.finish()


def _failing(ended: Ended, stage: str) -> StageFailedError:
    return StageFailedError(ended.failure.model_copy(update={"stage": stage}))
