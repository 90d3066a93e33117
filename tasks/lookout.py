"""Hears from the engines of the other nodes of a place while the leading one is worked with.

Only the leading node serves, and its ranks say little of another one's death: they hang in a
collective, or die of a closed connection. So every other node is polled by a thread of its own,
which also renews its lease; its log is kept and read like the leading one's.
"""

from __future__ import annotations

import contextvars
import threading
import time
from typing import TYPE_CHECKING

from infra.errors import HostRebooted, WorldError
from tasks.follow import Follower
from tasks.nodes import with_name
from tasks.venue import StageFailedError, failed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.venue import Site

_QUIET_S = 1.0  # every poll is a process on a machine that is being measured
_WORD_WITHIN_S = 2.5  # the length of a poll: whoever died meanwhile is known by then
_JOIN_S = 5.0
# What an engine dies of whose peer is gone: its own log names no cause.
_ECHOES = frozenset({"engine_dead", "scheduler_dead"})


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
                asked = time.monotonic()
                followed = self.follower.poll(quiet_s=_QUIET_S)
                self.follower.raise_if_dead(followed.poll, "wait_ready")
                self.looked_at = asked
        except StageFailedError as error:
            self._note(error)
        except WorldError as error:
            name = "host_rebooted" if isinstance(error, HostRebooted) else "ssh_lost"
            self._note(failed("wait_ready", name, f"{type(error).__name__}: {error}"))

    def _note(self, error: StageFailedError) -> None:
        self.lost_at = time.monotonic()
        self.lost = error

    @property
    def is_echo(self) -> bool:
        """Whether it died without a cause of its own."""
        return self.lost is not None and self.lost.failure.failure_class in _ECHOES

    def ended_at(self) -> float:
        """When its engine ended, on our clock; when that was heard, where it is not known."""
        return self.follower.ended_at() or self.lost_at

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
            waited = time.monotonic() - node.lost_at
            if node.lost is not None and (not node.is_echo or waited > _WORD_WITHIN_S):
                raise _of(node, stage)

    def first_cause(self, own: StageFailedError, ended_at: float | None, stage: str) -> Exception:
        """Whose end was the first, where the leading node's engine has ended.

        Args:
            own: The leading node's failure.
            ended_at: When its engine ended, on our clock.
            stage: Of the trial.

        Returns:
            The other node's failure where that one has a cause and the leading one has none, or
            where both have or have none and it ended earlier; else the leading one's.
        """
        since = time.monotonic()
        until = since + _WORD_WITHIN_S
        while time.monotonic() < until and not all(
            node.lost is not None or node.looked_at > since for node in self._nodes
        ):
            time.sleep(0.02)
        echo = own.failure.failure_class in _ECHOES
        ended = since if ended_at is None else ended_at
        for node in sorted(self._nodes, key=lambda node: (node.is_echo, node.ended_at())):
            if node.lost is None or (node.is_echo and not echo):
                continue
            if (echo and not node.is_echo) or node.ended_at() < ended:
                return _of(node, stage)
        return own

    def end(self) -> None:
        """Stops watching; what is under way ends within the length of a poll."""
        for node in self._nodes:
            node.end()

    def finish(self) -> None:
        """Closes the logs."""
        for node in self._nodes:
            node.finish()


def _of(node: _Node, stage: str) -> StageFailedError:
    if node.lost is None:
        raise AssertionError(node.site.host.name)  # asked for only where it is lost
    failure = with_name(node.site.host.name, node.lost)
    return StageFailedError(failure.model_copy(update={"stage": stage}))
