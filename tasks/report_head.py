"""The top of a report: what was asked, what to do, what that is no claim about, and what ran where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.decision import MADE_UP, REHEARSAL, decision_of
from tasks.markdown_text import inline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.comparison import Comparison
    from tasks.record import TrialRecord


def head(
    sweeps: Sequence[str], comparisons: Sequence[Comparison], question: str | None
) -> list[str]:
    """What stands on top: title, question, decision, and before all what it is no claim about."""
    parts = [f"# {', '.join(sweeps) or 'Sweep'}"]
    if any(one.rehearsal for one in comparisons):
        parts.insert(0, f"> **{REHEARSAL}.** All figures come from the rehearsal host.")
    made_up = dict.fromkeys(what for one in comparisons for what in one.synthetic)
    if made_up:
        what = ", ".join(made_up)
        parts.insert(0, f"> **{MADE_UP.format(what=what)}.** Step times are real, texts are not.")
    if question:
        parts.append(inline(question))
    return [*parts, f"**{inline(decision_of(comparisons))}.**"]


def overview(comparison: Comparison, records: Sequence[TrialRecord]) -> str:
    """One line on what ran where."""
    counts = [
        f"{count} {status}"
        for status in ("ok", "suspect", "failed", "skipped")
        if (count := sum(r.status == status for r in records))
    ]
    where = ", ".join(comparison.hosts) or "no host"
    kind = f" ({comparison.host_class})" if comparison.host_class else ""
    hosts = comparison.between_hosts
    agree = f" Hosts: {inline(hosts.sentence)}." if hosts else ""
    return (
        f"{len(records)} trials on {where}{kind}: {', '.join(counts) or 'none'}. "
        f"Runs: {', '.join(comparison.sweep_runs) or 'none'}.{agree}"
    )
