"""What a sweep left undone for want of time, and what that means for its question."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from tasks.comparable import setting
from tasks.comparison import setting_label
from tasks.markdown_text import inline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.record import TrialRecord

LEFT_OUT: Final = "left out for the deadline"
"""How the note of a trial begins for which there was no time."""
_HOURS_OVER: Final = "hours are over"
_SHOWN: Final = 6


def is_undone(record: TrialRecord) -> bool:
    """Whether a trial was not run for want of time."""
    return record.status == "skipped" and any(
        note.startswith(LEFT_OUT) or note.endswith(_HOURS_OVER) for note in record.notes
    )


def undone_section(records: Sequence[TrialRecord]) -> str:
    """What was not run for want of time, by block and by setting; empty if there was enough.

    Args:
        records: The last attempt of every trial that has a record.
    """
    undone = [record for record in records if is_undone(record)]
    if not undone:
        return ""
    blocks = Counter(record.block for record in undone)
    every = Counter(record.block for record in records)
    whole = [block for block in sorted(every) if block not in blocks]
    head = (
        f"{len(undone)} of {len(records)} trials were not begun for want of time. Which ones was "
        "chosen by their value for the main question and by expected times, never by a result; "
        "the same sweep, run again, goes on with them."
    )
    lines = [
        f"- Block {block}: "
        + ("nothing of it was run" if missing == every[block] else _some(block, undone))
        for block, missing in sorted(blocks.items())
    ]
    parts = [
        head,
        "\n".join(lines),
        f"Whole blocks: {len(whole)} of {len(every)}. " + _main_question(records),
    ]
    reasons = Counter(note for record in undone for note in record.notes)
    said = [f"- {inline(note)} ({count})" for note, count in reasons.most_common(_SHOWN)]
    if len(reasons) > _SHOWN:
        said.append(f"- and {len(reasons) - _SHOWN} more, each with its trial in the run folder")
    return "\n\n".join([*parts, "Reasons:\n\n" + "\n".join(said)])


def undone_sentence(records: Sequence[TrialRecord]) -> str | None:
    """The same in one sentence, for a message; None if there was enough time."""
    undone = [record for record in records if is_undone(record)]
    if not undone:
        return None
    return (
        f"{len(undone)} of {len(records)} trials were left undone for want of time; "
        f"{_main_question(records)}"
    )


def _some(block: int, undone: Sequence[TrialRecord]) -> str:
    names = [setting_label(record.arm, record.levels) for record in undone if record.block == block]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"without {', '.join(names[:_SHOWN])}{more}"


def _main_question(records: Sequence[TrialRecord]) -> str:
    """For how many blocks each arm can be held against the baseline at its own levels."""
    ok: dict[tuple[str, int], set[object]] = {}
    for record in records:
        if record.status == "ok":
            ok.setdefault((record.host, record.block), set()).add(setting(record))
    baseline = {setting(record) for record in records if record.baseline}
    others = dict.fromkeys(setting(record) for record in records if not record.baseline)
    pairs = [
        sum(
            other in there and any(b in there and b[1] == other[1] for b in baseline)
            for there in ok.values()
        )
        for other in others
    ]
    if not pairs:
        return "There is no arm beside the baseline."
    low, high = min(pairs), max(pairs)
    blocks = f"{low} blocks" if low == high else f"{low} to {high} blocks"
    return f"Every setting has a ratio to the baseline in {blocks}."
