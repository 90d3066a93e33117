"""A trial that is over, in a line: for whoever follows a run."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from tasks.spans import span

if TYPE_CHECKING:
    from tasks.record import TrialRecord


class Done(NamedTuple):
    """A trial that has its record."""

    trial: str
    status: str
    note: str
    """Failure class, the names of its findings, or why it was skipped."""
    users: int | None
    """Its largest concurrency."""
    tok_s: float | None
    """Output tokens per second there."""
    accept_length: float | None
    """Accept length there."""
    seconds: float


def done_of(record: TrialRecord) -> Done:
    """What is told of a trial."""
    most = max(record.measurements, key=lambda one: one.concurrency, default=None)
    note = ", ".join(f.name for f in record.findings if f.tolerated is None)
    if record.status == "skipped":
        note = "; ".join(record.notes)
    if record.failure is not None:
        note = f"{record.failure.stage}: {record.failure.failure_class}"
    return Done(
        record.trial,
        record.status,
        note,
        most.concurrency if most else None,
        most.output_tok_s if most else None,
        most.accept_length if most else None,
        seconds_of(record),
    )


def seconds_of(record: TrialRecord) -> float:
    """How long a trial took, from its claim to its teardown."""
    began, ended = map(datetime.fromisoformat, (record.started_at, record.ended_at))
    return (ended - began).total_seconds()


def done_line(one: Done) -> str:
    """A trial that is over, with its figures at the largest concurrency."""
    said = [f"{one.trial}: {one.status}" + (f" ({one.note})" if one.note else "")]
    if one.tok_s is not None:
        said.append(f"{one.tok_s:,.1f} tokens/s at {one.users} user{'s'[: one.users != 1]}")
    if one.accept_length is not None and one.accept_length > 1:
        said.append(f"accept length {one.accept_length:.2f}")
    return ", ".join((*said, span(one.seconds)))
