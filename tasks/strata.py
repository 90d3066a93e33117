"""A sweep over unlike hosts: one comparison and one part of the report for each class of hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tasks.report import render_report, sections
from tasks.report_head import head, overview

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.comparison import Comparison
    from tasks.record import TrialRecord
    from tasks.screen import Screen


class Stratum(NamedTuple):
    """The trials on one class of hosts, and what they say."""

    comparison: Comparison
    records: tuple[TrialRecord, ...]
    figures: tuple[str, ...] = ()
    """File names of its figures, beside the report."""


def render_strata(
    strata: Sequence[Stratum],
    *,
    question: str | None = None,
    screen: Screen | None = None,
    across: Sequence[str] = (),
) -> str:
    """The whole report: as :func:`tasks.report.render_report` for one class of hosts.

    With several, one sentence on top names the decision for each, then come the sections of the
    first, of the second and so on, each with its class behind the title. Nothing is pooled over
    classes, and no figure of one is set against one of another.

    Args:
        strata: at least one.
        question: the sweep's question in one sentence.
        screen: what is known of a factor's levels from before the trials.
        across: what arms of several engines do not share, a line each.
    """
    if len(strata) == 1:
        only = strata[0]
        return render_report(
            only.comparison,
            only.records,
            question=question,
            figures=only.figures,
            screen=screen,
            across=across,
        )
    comparisons = [one.comparison for one in strata]
    sweeps = tuple(dict.fromkeys(sweep for one in comparisons for sweep in one.sweeps))
    parts = head(sweeps, comparisons, question)
    parts.append(
        "The hosts are of several classes. Each is a comparison of its own, with its own error "
        "budget; nothing is pooled over classes."
    )
    parts += [f"- {overview(one.comparison, one.records)}" for one in strata]
    for one in strata:
        name = one.comparison.host_class or "unknown"
        its_screen = screen if screen is not None and screen.host_class == name else None
        parts += [
            f"## {title} ({name})\n\n{text}"
            for title, text in sections(
                one.comparison, one.records, one.figures, its_screen, across
            )
        ]
    return "\n\n".join(parts) + "\n"
