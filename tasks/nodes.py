"""The same step on every node of a place at once, with errors that name the node."""

from __future__ import annotations

import contextvars
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from infra.errors import AgentRefusal, WorldError
from tasks.venue import StageFailedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.record import Failure
    from tasks.venue import Site

T = TypeVar("T")

_TURN_S = 10.0  # of the thirty seconds that a cancelled flow has


class _Elsewhere(Generic[T]):
    """A step on another node, in a thread of its own."""

    def __init__(self, site: Site, work: Callable[[Site], T]) -> None:
        self.site = site
        self.done: list[T] = []
        self.error: Exception | None = None
        self._work = work
        # What runs the stages knows them by its context (Prefect's log).
        context = contextvars.copy_context()
        # Not waited for at the controller's end: the lease on the node does the rest.
        self._thread = threading.Thread(target=context.run, args=(self._run,), daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # After an interrupt the last step may still be under way: what it starts must not come
        # after the tear-down that is to end it.
        mine = self.site.turn.acquire(timeout=_TURN_S)
        try:
            self.done.append(self._work(self.site))
        except Exception as error:  # noqa: BLE001 - raised in the thread that waits
            self.error = error
        finally:
            if mine:
                self.site.turn.release()

    def join(self) -> None:
        """Waits for its end; every step bounds its own time."""
        self._thread.join()


def on_each(site: Site, work: Callable[[Site], T]) -> tuple[T, ...]:
    """Does a step on every node of a place at once, on the leading one in this thread.

    On a single host it is that step and nothing else. An interrupt is not held up by the other
    nodes: what is under way there ends by itself.

    Args:
        site: Of the leading node.
        work: The step; it gets the site of each node.

    Returns:
        What it brought, the leading node's first.

    Raises:
        StageFailedError, WorldError: Of the first node, by rank, that failed; named.
    """
    if not site.peers:
        return (work(site),)
    others = [_Elsewhere(peer, work) for peer in site.peers]
    mine: list[T] = []
    error: Exception | None = None
    try:
        mine.append(work(site))
    except Exception as raised:  # noqa: BLE001 - raised below, once the others have ended
        error = raised
    for other in others:
        other.join()
    wrong = [(site, error), *((other.site, other.error) for other in others)]
    failed = [named(at, one) for at, one in wrong if one is not None]
    if failed:
        raise _told(failed)
    return (*mine, *(result for other in others for result in other.done))


def named(site: Site, error: Exception) -> Exception:
    """An error with the name of its node in front; one that is a bug stays as it is."""
    name = site.host.name
    if isinstance(error, StageFailedError):
        return StageFailedError(with_name(name, error))
    if isinstance(error, AgentRefusal):
        text = str(error).removeprefix(error.error).removeprefix(": ")
        return AgentRefusal(error.error, f"{name}: {text}", error.answer)
    if isinstance(error, WorldError):
        return type(error)(f"{name}: {error}")
    return error


def with_name(name: str, error: StageFailedError) -> Failure:
    """A failure whose message begins with the name of its node."""
    failure = error.failure
    said = failure.message
    return failure.model_copy(
        update={"message": said if said.startswith(f"{name}: ") else f"{name}: {said}"}
    )


def _told(errors: list[Exception]) -> Exception:
    """The first error; a known failure tells of those of the other nodes too."""
    first, *others = errors
    if not others or not isinstance(first, StageFailedError):
        return first
    said = (e.failure.message if isinstance(e, StageFailedError) else str(e) for e in others)
    more = "; ".join([first.failure.message, *said])
    return StageFailedError(first.failure.model_copy(update={"message": more}))
