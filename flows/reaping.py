"""Which flow runs are dead although Prefect thinks that they run, and which slots nobody holds."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from infra.process_identity import Seen

Fate = Literal["alive", "dead"]


class Going(NamedTuple):
    """A flow run that Prefect thinks is going on."""

    id: str
    name: str
    process: Seen | None
    """What this machine knows of its process; None: the run never said which one it is."""
    heard: datetime
    """The last sign of life that Prefect's server has: a heartbeat, or its change of state."""
    holds: frozenset[str]
    """Slots that it was given."""
    leases: str = ""
    """Prefect's leases on them, apart by spaces."""
    cancelling: bool = False
    """Whether somebody has asked for its end."""


class Slot(NamedTuple):
    """A host's concurrency limit that is taken."""

    name: str
    changed: datetime
    """When it was last taken or given back."""


class Unheld(NamedTuple):
    """A slot that was found taken by nobody."""

    since: datetime
    """The first look that found it so."""
    changed: datetime


def fate(run: Going, now: datetime, silent_s: float) -> Fate:
    """Whether a run is dead.

    Its process decides where it can be seen from here; elsewhere only long silence does.
    """
    if run.process in {"alive", "dead"}:
        return "alive" if run.process == "alive" else "dead"
    return "dead" if now - run.heard > timedelta(seconds=silent_s) else "alive"


def unheld(
    slots: Iterable[Slot], living: Iterable[Going], known: Mapping[str, Unheld], now: datetime
) -> dict[str, Unheld]:
    """Slots that are taken although no living run was given them.

    Args:
        slots: The taken ones.
        living: Runs that are alive.
        known: What the last look found.
        now: The moment of this look.
    """
    held = frozenset[str]().union(*(run.holds for run in living))
    found: dict[str, Unheld] = {}
    for slot in slots:
        if slot.name in held:
            continue
        before = known.get(slot.name)
        same = before is not None and before.changed == slot.changed
        found[slot.name] = before if same and before else Unheld(now, slot.changed)
    return found


def to_release(found: Mapping[str, Unheld], now: datetime, after_s: float) -> Collection[str]:
    """Slots that have been nobody's for so long that Prefect will not give them back itself.

    Before that, Prefect's own lease may still end: to give the slot back twice would let two
    sweeps in at once.
    """
    limit = timedelta(seconds=after_s)
    return [name for name, one in found.items() if now - one.since >= limit]
