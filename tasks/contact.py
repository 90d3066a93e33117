"""What may be concluded of an engine when its host was silent, or shows something else than before.

Lost contact is unknown, not dead: a dropped SSH session says nothing about the server, and to
launch again would put a second copy on full GPUs. Only what the host itself shows decides: its
boot id, the process by number and start time, the exit code that its supervisor wrote.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

State = Literal["unknown", "running", "exited", "ended_unseen", "pid_reused", "host_rebooted"]
Action = Literal["mark_unknown", "reconnect_and_continue", "treat_as_lost", "record_end"]

POLLS = (
    "set_keepalive on the transport, or a NAT forgets an idle session",
    "poll with short commands instead of one long one: each has its end",
)
"""How a silent connection is kept from being waited for without end; infra/ssh.py does both."""

IF_KILLED = (
    "the lease ends the engine there; and the next run finds its state file and marker on the "
    "host, and cleans up first"
)
"""What is left where nobody could tear down."""


class Sight(NamedTuple):
    """What a host shows of an engine."""

    alive: bool
    """A process of its number is there (a zombie is not)."""
    same_process: bool | None
    """That process started when ours did; None if that was not looked at."""
    boot_same: bool | None
    """The host runs the boot in which the engine was started; None if that was not looked at."""
    exit_code: int | None
    """What the supervisor wrote; None if it wrote nothing."""
    log_size: int | None = None
    """Bytes; None if that was not looked at."""


class Conclusion(NamedTuple):
    """What follows."""

    state: State
    action: Action
    failure: str | None
    """``host_lost``: nothing of ours runs there any more; ``engine_dead``."""
    resume_from: int | None
    """Where reading the log goes on."""
    relaunch: bool
    """Always False: a second go is another attempt, after cleaning up."""
    teardown: bool
    """Whether something of ours may be left to end."""
    on_return: str | None
    """What is done when the host answers again."""


def conclude(sight: Sight | None, offset: int = 0) -> Conclusion:
    """What follows from what a host shows; None: it does not answer.

    Args:
        sight: What it shows.
        offset: Where the log was read up to.
    """
    if sight is None:
        return Conclusion(
            "unknown", "mark_unknown", None, offset, False, False, "adopt_or_teardown"
        )
    if sight.boot_same is False:
        # Or another rented machine under the same name.
        return _ended("host_rebooted", "host_lost", teardown=False)
    if sight.exit_code is not None:
        return _ended("exited", "engine_dead", teardown=True)
    if sight.alive and sight.same_process is not False:
        cut = sight.log_size is not None and sight.log_size < offset
        start = 0 if cut else offset
        return Conclusion("running", "reconnect_and_continue", None, start, False, False, None)
    # The number belongs to a stranger now, or to nobody; nobody saw the exit code.
    state: State = "pid_reused" if sight.alive else "ended_unseen"
    return _ended(state, "engine_dead", teardown=True)


def silent(no_bytes_for_s: float, limit_s: float) -> Conclusion | None:
    """What follows from a command that says nothing; None while it may take so long."""
    if no_bytes_for_s < limit_s:
        return None
    return conclude(None)._replace(action="treat_as_lost")


def _ended(state: State, failure: str, *, teardown: bool) -> Conclusion:
    return Conclusion(state, "record_end", failure, None, False, teardown, None)
