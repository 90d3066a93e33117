"""Which blocks are not whole, and what the pairing rule makes of them, in the report's words."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from tasks.comparable import block_of, setting, why
from tasks.comparison import setting_label
from tasks.markdown_text import inline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tasks.comparison import Comparison
    from tasks.record import TrialRecord

RULE = (
    "Ratios are taken inside a block, so a block counts for a ratio only if it holds both sides "
    "of it. What is missing below is run when the sweep is run again, unless it failed for a "
    "reason of its own; until then"
)
"""The pairing rule, as the sentence that the list ends."""

_Block = tuple[str, str, int]
_Setting = tuple[str, tuple[tuple[str, str], ...]]


class _Gap(NamedTuple):
    """A setting without a usable trial in a block that other settings have."""

    setting: _Setting
    why: str


def blocks_section(comparison: Comparison, records: Sequence[TrialRecord]) -> str:
    """Incomplete blocks with what they still count for, and completed ones; empty if all are whole.

    A setting that has no usable trial in any block is no gap of each of them: it stands among the
    failed trials, once.

    Args:
        comparison: What was made of the records; says which were refused or fell out of line.
        records: The last attempt of every trial that has a record.
    """
    out = {(r.host, r.trial): "refused: other facts" for r in comparison.refusals}
    out |= {(o.host, o.trial): "an outlier boot" for o in comparison.outliers}
    usable: dict[_Block, dict[_Setting, TrialRecord]] = {}
    reasons: dict[tuple[_Block, _Setting], str] = {}
    for record in records:
        here = usable.setdefault(block_of(record), {})
        left_out = out.get((record.host, record.trial))
        if record.status == "ok" and left_out is None:
            here[setting(record)] = record
        else:
            reasons[block_of(record), setting(record)] = left_out or why(record)
    wanted = dict.fromkeys(s for here in usable.values() for s in here)
    lines, completed = [], []
    for block in sorted(usable):
        here = usable[block]
        gaps = [_Gap(s, reasons.get((block, s), "not run yet")) for s in wanted if s not in here]
        if gaps:
            lines.append(f"- {_name(block)} lacks {_all(gaps)}: {_left(here, gaps, comparison)}.")
        completed += _completed(here)
    parts = [f"{RULE}:\n\n" + "\n".join(lines)] if lines else []
    if completed:
        parts.append(
            "Trials that were tried again later, at another hour than the rest of their block:\n\n"
            + "\n".join(completed)
        )
    return "\n\n".join(parts)


def _left(here: Mapping[_Setting, TrialRecord], gaps: Sequence[_Gap], found: Comparison) -> str:
    """What the rest of a block counts for."""
    alone = [s for s in here if any(g.setting == (found.baseline, s[1]) for g in gaps)]
    others = [s for s in here if s not in alone]
    if not here:
        return "nothing of it counts"
    if not alone:
        return "the others are paired as usual"
    said = f"{_labels(alone)} {'has' if len(alone) == 1 else 'have'} no baseline there"
    return f"{said} and no ratio to it" + (", the others are paired as usual" if others else "")


def _completed(here: Mapping[_Setting, TrialRecord]) -> list[str]:
    """What was not tried again at once, but after the block had long gone on without it."""
    spans = {record.trial: _span(record) for record in here.values()}
    longest = max((end - begin for begin, end in spans.values()), default=timedelta())
    lines = []
    for record in here.values():
        begin, _ = spans[record.trial]
        ended = [other for start, other in spans.values() if start < begin]
        # Tried again in its place it begins after its earlier attempts, each as long as a trial.
        if record.attempt > 1 and ended and begin - max(ended) > record.attempt * longest:
            lines.append(
                f"- {record.trial} is attempt {record.attempt}, begun {record.started_at}; the "
                f"rest of its block ended {max(ended).isoformat()}"
            )
    return lines


def _span(record: TrialRecord) -> tuple[datetime, datetime]:
    return datetime.fromisoformat(record.started_at), datetime.fromisoformat(record.ended_at)


def _name(block: _Block) -> str:
    return f"Block {block[2]} on {block[1]}"


def _all(gaps: Sequence[_Gap]) -> str:
    return ", ".join(f"{_labels([gap.setting])} ({inline(gap.why)})" for gap in gaps)


def _labels(settings: Sequence[_Setting]) -> str:
    return ", ".join(setting_label(arm, dict(levels)) for arm, levels in settings)
