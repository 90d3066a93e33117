"""The report in Markdown: the decision first, then what it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.blocks import blocks_section
from tasks.comparison import setting_label
from tasks.decision import users
from tasks.markdown_text import inline
from tasks.metrics import BY_NAME
from tasks.report_client import client_section
from tasks.report_factors import effects_section
from tasks.report_head import head, overview
from tasks.report_hosts import hosts_note, hosts_section
from tasks.report_inside import inside_section
from tasks.report_outputs import outputs_section
from tasks.report_tables import (
    acceptance_table,
    account_table,
    part_table,
    standing_table,
    verdict_table,
)
from tasks.report_topology import topology_section
from tasks.report_trials import (
    failures_section,
    findings_section,
    left_out_section,
    reproduce_section,
)
from tasks.report_what_if import what_if_section
from tasks.screen_report import screen_section
from tasks.undone import undone_section

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.comparison import Comparison
    from tasks.record import TrialRecord
    from tasks.screen import Screen


FIGURES = {
    "speed": "Speed against users, and the ratio to the baseline with intervals and break-even",
    "acceptance": "Share of verify steps that accepted at least k drafts",
    "steps": "Change of a user's speed as acceptance times the speed of a step",
    "inside": "Shares of the GPU time of a decode step",
}
"""What is to be seen, by the beginning of the figure's file name."""


def render_report(
    comparison: Comparison,
    records: Sequence[TrialRecord],
    *,
    question: str | None = None,
    figures: Sequence[str] = (),
    screen: Screen | None = None,
    across: Sequence[str] = (),
) -> str:
    """The whole report as Markdown.

    Args:
        comparison: what :func:`tasks.compare.compare` made of the records.
        records: the same records, for findings, failures and commands.
        question: the sweep's question in one sentence.
        figures: file names of the figures, beside the report.
        screen: what is known of a factor's levels from before the trials.
        across: what arms of several engines do not share, a line each (tasks/unmatched).
    """
    parts = [
        *head(comparison.sweeps, [comparison], question),
        overview(comparison, records),
        *(
            f"## {title}\n\n{text}"
            for title, text in sections(comparison, records, figures, screen, across)
        ),
    ]
    return "\n\n".join(parts) + "\n"


def sections(
    comparison: Comparison,
    records: Sequence[TrialRecord],
    figures: Sequence[str],
    screen: Screen | None,
    across: Sequence[str],
) -> list[tuple[str, str]]:
    """Title and text of every section that has something to say; arguments as for the report."""
    ordered = sorted(records, key=lambda r: (r.order, r.trial, r.attempt))
    parts = [
        ("Left undone", undone_section(ordered)),
        ("Speed against concurrency", _figures(figures, "speed")),
        (f"Against {comparison.baseline}", _verdicts(comparison, "arm")),
        ("Between hosts", hosts_section(comparison)),
        ("Where it breaks even", _crossovers(comparison)),
        ("Where the time goes", _under(_figures(figures, "steps"), _accounts(comparison))),
        ("Inside a step", _under(_figures(figures, "inside"), inside_section(ordered))),
        ("What if", what_if_section(comparison.what_if)),
        ("Acceptance", _under(_figures(figures, "acceptance"), _acceptance(comparison))),
        ("Factors", _verdicts(comparison, "factor")),
        ("What the levels do", effects_section(comparison)),
        ("Screen", screen_section(screen, comparison)),
        ("Copies", _copies(comparison)),
        ("Across engines", _across(across)),
        ("Absolute figures", _standings(comparison)),
        ("Beside the engine's own client", client_section(ordered)),
        ("Traffic and answers", outputs_section(ordered)),
        ("Findings", findings_section(ordered)),
        ("Failed trials", failures_section(ordered)),
        ("Left out", left_out_section(comparison)),
        ("Blocks that are not whole", blocks_section(comparison, ordered)),
        ("How the GPUs hang together", topology_section(ordered)),
        ("How to reproduce", reproduce_section(ordered)),
        ("How the verdicts were reached", _method(comparison)),
    ]
    return [(title, text) for title, text in parts if text]


def _across(lines: Sequence[str]) -> str:
    """What to know of a comparison between engines."""
    if not lines:
        return ""
    head = (
        "Arms on different engines share target, host, probes, client, sampling, GPUs and the "
        "limit on requests in flight. Not shared are:"
    )
    return "\n".join([head, "", *(f"- {inline(line)}" for line in lines)])


def _figures(names: Sequence[str], kind: str) -> str:
    """The figures of a kind, one for each probe."""
    return "\n\n".join(
        f"![{FIGURES[kind]}: {name.removeprefix(f'{kind}-').removesuffix('.png')}]({name})"
        for name in names
        if name.startswith(f"{kind}-")
    )


def _under(pictures: str, text: str) -> str:
    return f"{pictures}\n\n{text}".strip()


def _verdicts(comparison: Comparison, contrast: str) -> str:
    """One table for each probe and figure."""
    parts = []
    cells = [c for c in comparison.cells if c.contrast == contrast]
    for probe, metric in dict.fromkeys((c.probe, c.metric) for c in cells):
        mine = [c for c in cells if (c.probe, c.metric) == (probe, metric)]
        mine.sort(key=lambda c: (c.arm, sorted(c.levels.items()), c.concurrency))
        what = f"Probe {probe}, {metric}: {BY_NAME[metric].meaning}."
        if contrast == "factor":
            references = dict.fromkeys(
                f"{c.factor}={c.reference_levels[c.factor]}" for c in mine if c.factor
            )
            what += f" Each against {' or '.join(references)} within the same arm."
        parts.append(f"{what}\n\n{verdict_table(mine)}")
    return "\n\n".join(parts)


def _copies(comparison: Comparison) -> str:
    """Copies against their originals (A/A): whatever is there is noise."""
    text = _verdicts(comparison, "copy")
    wrong = [
        c for c in comparison.cells if c.contrast == "copy" and c.verdict in ("better", "worse")
    ]
    if wrong:
        text = (
            f"**{setting_label(wrong[0].arm, wrong[0].levels)} is an exact copy and came out "
            f"{wrong[0].verdict}: something changes between trials that the blocks do not even "
            f"out. Trust no verdict of this size here.**\n\n{text}"
        )
    return text


def _crossovers(comparison: Comparison) -> str:
    return "\n".join(
        f"- {setting_label(x.arm, x.levels)}, {x.metric} on {x.probe}: "
        f"{'faster up to' if x.direction == 'falls' else 'faster from'} about "
        f"{users(x.concurrency)} (between the measured {x.below} and {x.above})"
        + _stretch(x.low, x.high)
        + ("" if x.firm else ", a best guess: not decided on both sides")
        for x in comparison.crossovers
    )


def _stretch(low: float | None, high: float | None) -> str:
    """Where the interval of the ratio holds 1."""
    match low, high:
        case None, None:
            return "; its interval holds no change over the whole ladder"
        case None, _:
            return f"; anywhere up to {users(high or 0)} by its interval"
        case _, None:
            return f"; anywhere from {users(low or 0)} by its interval"
        case _:
            return f"; {low:.0f} to {users(high or 0)} by its interval"


def _price(comparison: Comparison) -> str:
    if comparison.looks == 1:
        return ""
    return f" (95 % over the {comparison.looks} looks at which the sweep might have stopped)"


def _accounts(comparison: Comparison) -> str:
    parts = []
    for probe in dict.fromkeys(a.probe for a in comparison.accounts):
        mine = [a for a in comparison.accounts if a.probe == probe]
        mine.sort(key=lambda a: (a.arm, sorted(a.levels.items()), a.concurrency))
        parts.append(f"Probe {probe}.\n\n{account_table(mine)}")
    if not parts:
        return ""
    intro = (
        "The speed of a user is accept length / step time, so its change is the product of the "
        "two columns behind it, each with the interval of that figure alone. An arm breaks even "
        "when its accept length reaches the last column (bold: not reached)."
    )
    return "\n\n".join([intro, *parts])


def _acceptance(comparison: Comparison) -> str:
    parts = []
    for probe in dict.fromkeys(s.probe for s in comparison.standings):
        mine = [s for s in comparison.standings if s.probe == probe]
        shares, kinds = acceptance_table(mine), part_table(mine)
        if shares:
            parts.append(
                f"Probe {probe}: share of verify steps that accepted at least k drafts.\n\n{shares}"
            )
        if kinds:
            parts.append(
                f"Probe {probe}: accept length by kind of text (with its interval over prompts) and by half of the output.\n\n{kinds}"
            )
    same = [
        f"- {setting_label(s.arm, s.levels)}, {s.probe} at {users(s.concurrency)}: "
        f"{s.equal} of {s.compared}"
        for s in comparison.same_outputs
    ]
    if same:
        parts.append(
            "Answers that equal the baseline's token by token. At temperature 0 speculation "
            "should change nothing; batching alone flips some tokens, and sampling makes this "
            "meaningless.\n\n" + "\n".join(same)
        )
    return "\n\n".join(parts)


def _standings(comparison: Comparison) -> str:
    parts = []
    for probe in dict.fromkeys(s.probe for s in comparison.standings):
        mine = [s for s in comparison.standings if s.probe == probe]
        parts.append(f"Probe {probe}, medians over ok trials.\n\n{standing_table(mine)}")
    return "\n\n".join(parts)


def _method(comparison: Comparison) -> str:
    smallest = [c.detectable for c in comparison.cells if c.detectable is not None]
    text = (
        f"Ratios are taken inside each block and averaged on the log scale. The noise is what a "
        f"model of setting + block leaves, pooled over settings at the same probe, concurrency "
        f"and figure. {comparison.family} ratios were tested together (Holm), so that "
        f"all verdicts hold at {100 * comparison.confidence:.3g} % at once{_price(comparison)}; "
        f"each interval in a table of verdicts is drawn at the level of its test, those in the "
        f"account of speed at {100 * comparison.confidence:.3g} % each. *Same* means wholly within {comparison.same_margin:.0%} either way; "
        f"*better* and *worse* exclude no change and are beyond that margin; the rest is "
        f"*undecided*, with the number of further blocks that would decide."
        f"{hosts_note(comparison)}"
    )
    if smallest:
        text += (
            f" A sweep like this one finds, four times in five, changes of "
            f"{min(smallest) - 1:.1%} in its quietest and {max(smallest) - 1:.1%} in its "
            f"noisiest comparison."
        )
    if comparison.notes:
        text += "\n\n" + "\n".join(f"- {note}" for note in comparison.notes)
    return text
