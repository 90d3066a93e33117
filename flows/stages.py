"""How stages are run: the operating policy as a table, and a runner that needs no server."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from infra.errors import AgentBroken, ContactLost
from tasks.record import StageTime

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Policy(NamedTuple):
    """How often a stage may be tried. Every stage bounds its own time."""

    retries: int
    """Further tries after the world's fault (never after a known failure of the trial)."""
    pause_s: float
    """Before each further try."""


ONCE = Policy(0, 0.0)

# Reading this table is reading the operating policy. Everything that may be repeated without
# changing a result is; launch and probes are not: a second go is another attempt with its own
# record.
STAGES: dict[str, Policy] = {
    "claim": Policy(2, 2.0),
    "survey": Policy(2, 2.0),
    "clean_gpus": Policy(1, 2.0),
    "collectives": ONCE,
    "patch": Policy(1, 1.0),
    "clear_pycache": Policy(1, 1.0),
    "check_drafter": Policy(1, 1.0),
    "launch": ONCE,
    "wait_ready": ONCE,
    "verify": Policy(1, 1.0),
    "prove": Policy(1, 1.0),
    "warm_up": ONCE,
    "probe": ONCE,
    "tear_down": Policy(2, 2.0),
    "publish": ONCE,
}

# The world's fault, and passing; a refusal or a known failure is not tried again.
PASSING = (ContactLost, AgentBroken)


class Runner(Protocol):
    """Runs the stages of a trial, one after another, and keeps their times."""

    @property
    def times(self) -> list[StageTime]:
        """Of the stages that are over."""

    def run(self, name: str, work: Callable[[], T]) -> T:
        """Runs one stage; ``probe:<name>`` follows the policy of ``probe``."""

    def say(self, text: str) -> None:
        """Shows progress."""


def policy_of(name: str) -> Policy:
    """The policy of a stage; `probe:load` is a `probe`."""
    return STAGES[name.split(":", maxsplit=1)[0]]


class PlainRunner:
    """Runs stages as plain calls."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.times: list[StageTime] = []
        self._say = say
        self._stage = ""

    def run(self, name: str, work: Callable[[], T]) -> T:
        """See Runner."""
        self._stage = name
        return timed(self.times, name, lambda: _repeatedly(name, work, self.say))

    def say(self, text: str) -> None:
        """See Runner."""
        self._say(f"{self._stage}: {text}")


def timed(times: list[StageTime], name: str, work: Callable[[], T]) -> T:
    """Keeps how long a stage took, whatever became of it."""
    began = time.monotonic()
    done = False
    note = ""
    try:
        result = work()
        done, note = True, result if isinstance(result, str) else ""
        return result
    finally:
        times.append(
            StageTime(
                name=name,
                seconds=round(time.monotonic() - began, 4),
                attempts=1,
                outcome="done" if done else "failed",
                note=note[:300],
            )
        )


def _repeatedly(name: str, work: Callable[[], T], say: Callable[[str], None]) -> T:
    policy = policy_of(name)
    for number in range(policy.retries + 1):
        try:
            return work()
        except PASSING as error:
            if number == policy.retries:
                raise
            say(f"{error}; trying again")
            time.sleep(policy.pause_s)
    raise AssertionError(name)  # the loop returns or raises
