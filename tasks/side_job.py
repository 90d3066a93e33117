"""Follows a job on the host and the engine beside it at once, until the job has a result."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from infra.errors import AgentRefusal

if TYPE_CHECKING:
    from tasks.drive import Server

_QUIET_S = 1.0


def ended(
    server: Server, job: str, within_s: float, doing: str, start: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Waits for a job's result; begins it first where told how.

    Args:
        server: the engine.
        job: its name.
        within_s: how long it may take.
        doing: what it does, for the line that shows progress.
        start: from ``HostAgent.prepare``.

    Raises:
        StageFailedError: The engine died.
        AgentRefusal: The job died, or did not end in time.
    """
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        followed = server.follower.poll(job=job, quiet_s=_QUIET_S, start=start)
        start = None
        state = followed.poll.job or {}
        if state.get("result") is not None:
            return dict(state["result"])
        server.follower.raise_if_dead(followed.poll, "probe")
        if not state.get("alive", True):
            raise AgentRefusal("job_died", f"{job}: {state.get('log_tail', '')[-300:]}", {})
        server.site.say(f"{job}: {doing}")
    raise AgentRefusal("deadline", f"{job} did not end within {within_s:g} s", {})


def result_of(result: dict[str, Any]) -> dict[str, Any]:
    """The result of a job that did its work.

    Raises:
        AgentRefusal: It says why it did not.
    """
    if result.get("ok"):
        return result
    raise AgentRefusal(str(result.get("error")), str(result.get("message", result)), {})
