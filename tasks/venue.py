"""Where a trial happens: the hand on the host, what is intended, and where it is kept."""

from __future__ import annotations

import posixpath
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from configs.layers import engine_of
from tasks.failures import failure_of
from tasks.record import Failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from configs.host import Host
    from configs.plan import Trial
    from configs.sweep import Engine, Sweep
    from infra.host_agent import HostAgent
    from infra.masking import Mask
    from infra.store import TrialFolder
    from tasks import failures
    from tasks.topology import Topology


class StageFailedError(Exception):
    """A stage came to a known end: the trial's failure, not a bug."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(f"{failure.stage}: {failure.failure_class}: {failure.message}")


@dataclass(frozen=True)
class Site:
    """What every stage of one attempt at a trial works with."""

    agent: HostAgent
    host: Host
    sweep: Sweep
    trial: Trial
    holder: str
    """Who claims the host: this sweep run."""
    marker: str
    """Name of the attempt; marks its processes, and names its folder on the host."""
    keep: TrialFolder
    """The attempt's folder here."""
    mask: Mask
    """Takes secrets out of texts."""
    say: Callable[[str], None] = field(default=lambda _text: None)
    """Shows progress: one line, the latest counts."""
    topology: Topology | None = None
    """How the host's GPUs hang together, as the sweep found it at its arrival."""
    rank: int = 0
    """Of this host among the nodes of its place; 0 leads: it serves, and is asked."""
    peers: tuple[Site, ...] = ()
    """The place's other nodes; only the leading one knows them."""
    turn: threading.Lock = field(default_factory=threading.Lock, compare=False, repr=False)
    """Held by the step that is under way on this node."""

    @property
    def nodes(self) -> tuple[Site, ...]:
        """Every node of the place, the leading one first."""
        return (self, *self.peers)

    @property
    def folder(self) -> str:
        """The attempt's folder on the host."""
        return posixpath.join(self.agent.root, "trials", self.marker)

    @property
    def engine(self) -> Engine:
        """The engine that the trial's arm runs on."""
        return engine_of(self.sweep, self.trial.arm)

    @property
    def python(self) -> str:
        """That engine's Python on the host."""
        return self.agent.path(self.host.python_of(self.engine.kind))


def failed(
    stage: str,
    name: str,
    message: str = "",
    lines: tuple[str, ...] = (),
    *,
    start_stage: str | None = None,
) -> StageFailedError:
    """The failure of a stage, of a class of the table that was seen elsewhere than in a log."""
    known = failure_of(name)
    return failed_as(stage, known, message or known.cause, lines, start_stage=start_stage)


def failed_as(
    stage: str,
    known: failures.Failure,
    message: str,
    lines: tuple[str, ...],
    *,
    start_stage: str | None = None,
) -> StageFailedError:
    """The failure of a stage that was classified already."""
    return StageFailedError(
        Failure(
            stage=stage,
            start_stage=start_stage or known.stage,
            failure_class=known.failure,
            message=message,
            first_lines=lines,
            remedy=_remedy(known),
            rank=known.first_failing_rank,
            retry=known.retry,
        )
    )


def _remedy(known: failures.Failure) -> str:
    """What helps with failures of this class, then what helps with this one."""
    if not known.hints:
        return known.remedy
    return f"{known.remedy} Here: {'; '.join(known.hints)}."
