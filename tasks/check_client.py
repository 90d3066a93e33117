"""Findings about runs of the engine's own client. They concern no figure of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tasks.client_beside import FIGURES, pairs_of
from tasks.record import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tasks.client_record import ClientRun
    from tasks.record import Measurement

TOLERATED: Final = "it concerns the engine's own client, which ran after all figures were taken"


class ClientGuard(NamedTuple):
    """One reason to look at what a client told."""

    name: str
    look: Callable[[ClientRun, Sequence[Measurement]], str | None]
    limit: str
    advice: str


def _failed(run: ClientRun, _measured: Sequence[Measurement]) -> str | None:
    return run.trouble


def _unusable(run: ClientRun, _measured: Sequence[Measurement]) -> str | None:
    if run.result is None or run.result.valid:
        return None
    told = run.result
    return f"{told.reason}: {told.completed} of {run.requests} requests came back"


def _rank_zero(run: ClientRun, _measured: Sequence[Measurement]) -> str | None:
    if run.usable is None or run.every_rank or run.usable.accept_len is None:
        return None
    return f"accept length {run.usable.accept_len:.3g} is {run.acceptance_of}"


def _apart(run: ClientRun, measured: Sequence[Measurement]) -> str | None:
    found = [
        f"{pair.figure.title}: ours {pair.ours:.4g}, {run.tool} {pair.theirs:.4g} "
        f"({pair.off:+.1%}, limit {pair.figure.limit:.0%})"
        for pair in pairs_of(run, measured)
        if pair.beyond
    ]
    return "; ".join(found) or None


_LIMITS: Final = "; ".join(f"{f.title} within {f.limit:.0%}: {f.why}" for f in FIGURES)

CLIENT_GUARDS: Final = (
    ClientGuard(
        "client_failed",
        _failed,
        "a result line of the engine's own client",
        "read its output in the trial's folder under clients/; the figures of ours stand",
    ),
    ClientGuard(
        "client_unusable",
        _unusable,
        "all requests back, at the asked length, and figures that fit together",
        "read its output in the trial's folder under clients/; the figures of ours stand",
    ),
    ClientGuard(
        "client_rank_zero",
        _rank_zero,
        "the accept length of all data-parallel ranks",
        "compare ours, which is of all ranks, with the engine's counters instead",
    ),
    ClientGuard(
        "client_disagrees",
        _apart,
        _LIMITS,
        "quote neither before it is explained: look for a client that was the bottleneck (ours "
        "says how late it was; theirs buffers long prompts, vllm#39963), a server that changed "
        "between the two runs, and what the report lists as not matched",
    ),
)


def check_clients(
    runs: Iterable[ClientRun], measured: Sequence[Measurement]
) -> tuple[Finding, ...]:
    """Every reason to look twice at what the engine's own client told.

    None of them makes a trial suspect: the client ran after everything that measures speed.
    """
    return tuple(
        Finding(
            name=guard.name,
            where=f"{run.probe} c{run.concurrency}",
            evidence=seen,
            limit=guard.limit,
            advice=guard.advice,
            tolerated=TOLERATED,
        )
        for run in runs
        for guard in CLIENT_GUARDS
        if (seen := guard.look(run, measured)) is not None
    )
