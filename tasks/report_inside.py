"""The section of the report on what a decode step is made of, from profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.comparison import setting_label
from tasks.decision import users
from tasks.inside import side_by_side
from tasks.kernel_table import CATEGORIES, TITLES
from tasks.report_tables import UNKNOWN, seconds, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.inside import Inside
    from tasks.profile_record import Shares
    from tasks.record import TrialRecord

_INTRO = (
    "Shares of GPU time of decode steps (verify steps, with speculation), recorded with the "
    "engine's own profiler after all measurements, on the first rank; where kernels of several "
    "kinds ran at once each has its part, so that every line adds up to 100 %. Recording slows a "
    "server down: times of a step are for comparison among themselves."
)


def inside_section(records: Sequence[TrialRecord]) -> str:
    """Tables of shares by kind of kernel, and what became of the all-reduce; empty without any."""
    lines = side_by_side(records)
    if not lines:
        return ""
    parts = [_INTRO]
    for probe in dict.fromkeys(line.probe for line in lines):
        mine = [line for line in lines if line.probe == probe]
        parts.append(f"Probe {probe}, target and drafter together.\n\n{_together(mine)}")
        apart = [line for line in mine if line.drafter is not None]
        if apart:
            parts.append(
                f"Probe {probe}, target and drafter apart, of the same time.\n\n{_apart(apart)}"
            )
        changes = _changes(mine)
        if changes:
            parts.append(changes)
    return "\n\n".join(parts)


def _together(lines: Sequence[Inside]) -> str:
    return table(
        (
            "setting",
            "users",
            "step on the GPU",
            *(TITLES[c] for c in CATEGORIES),
            "idle",
            "of it drafter",
            "steps",
        ),
        (
            (
                _name(line),
                str(line.concurrency),
                seconds(line.step_us / 1e6),
                *_cells(line.shares),
                f"{line.idle:.1%}",
                _drafter(line),
                str(line.steps),
            )
            for line in lines
        ),
    )


def _apart(lines: Sequence[Inside]) -> str:
    return table(
        ("setting", "users", "model", *(TITLES[c] for c in CATEGORIES), "all"),
        (
            (_name(line), str(line.concurrency), model, *_cells(shares), f"{shares.total:.1%}")
            for line in lines
            for model, shares in (("target", line.target), ("drafter", line.drafter))
            if shares is not None
        ),
    )


def _changes(lines: Sequence[Inside]) -> str:
    """What became of the all-reduce: each setting against the baseline's first one."""
    said = []
    for line in lines:
        reference = next(
            (o for o in lines if o.baseline and o.concurrency == line.concurrency), None
        )
        if reference is None or reference is line:
            continue
        before, after = reference.shares.all_reduce, line.shares.all_reduce
        said.append(
            f"- {setting_label(line.arm, line.levels)} at {users(line.concurrency)}, against "
            f"{setting_label(reference.arm, reference.levels)}: all-reduce {100 * before:.1f} % → "
            f"{100 * after:.1f} % of a step, {seconds(before * reference.step_us / 1e6)} → "
            f"{seconds(after * line.step_us / 1e6)}"
        )
    return "\n".join(said)


def _name(line: Inside) -> str:
    return setting_label(line.arm, line.levels) + (" (baseline)" if line.baseline else "")


def _cells(shares: Shares) -> list[str]:
    return [f"{shares.of(category):.1%}" for category in CATEGORIES]


def _drafter(line: Inside) -> str:
    """The drafter's share; none without one, a dash where it is not known."""
    if line.drafter is not None:
        return f"{line.drafter.total:.1%}"
    return UNKNOWN if line.drafter_asked else "none"
