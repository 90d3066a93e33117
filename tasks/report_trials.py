"""The report's part on single trials: findings, failures, what was left out, how to reproduce."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tasks.comparable import setting
from tasks.comparison import setting_label
from tasks.decision import percent
from tasks.markdown_text import fenced, inline
from tasks.report_tables import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.comparison import Comparison
    from tasks.record import TrialRecord

MOST_LINES = 12
"""Of a failure's evidence; the whole log lies in the trial's folder."""


def findings_section(records: Sequence[TrialRecord]) -> str:
    """Findings by name, with what to do, then where they were seen."""
    seen: dict[str, list[str]] = {}
    advice: dict[str, str] = {}
    for record in records:
        for f in record.findings:
            seen.setdefault(f.name, []).append(
                f"- {_trial(record)}, {f.where}: {inline(f.evidence)}"
            )
            advice[f.name] = f"Right would be: {inline(f.limit)}. What to do: {inline(f.advice)}."
    return "\n\n".join(
        f"### {inline(name)}\n\n{advice[name]}\n\n" + "\n".join(lines)
        for name, lines in seen.items()
    )


def failures_section(records: Sequence[TrialRecord]) -> str:
    """Failed trials with class and first lines; those that failed alike stand together."""
    alike: dict[tuple[str, str, str], list[TrialRecord]] = {}
    for record in records:
        if record.failure is not None:
            f = record.failure
            alike.setdefault((f.failure_class, f.stage, f.message), []).append(record)
    blocks = []
    for group in alike.values():
        failure = group[0].failure
        if failure is None:
            continue
        at = failure.stage + (f", engine at {failure.start_stage}" if failure.start_stage else "")
        rank = f", first on {inline(failure.rank)}" if failure.rank else ""
        trials = ", ".join(_trial(record) for record in group)
        lines = list(failure.first_lines[:MOST_LINES])
        if len(failure.first_lines) > MOST_LINES:
            lines.append(f"... {len(failure.first_lines) - MOST_LINES} more lines in the record")
        more = f" and {len(group) - 1} more" if len(group) > 1 else ""
        text = f"### {inline(failure.failure_class)}: {_trial(group[0])}{more}"
        text += f"\n\nAt {at}{rank}: {trials}"
        text += f"\n\n{inline(failure.message)}"
        if lines:
            text += f"\n\n{fenced(lines, 'text')}"
        blocks.append(f"{text}\n\nWhat to do: {failure.remedy}")
    return "\n\n".join(blocks)


def left_out_section(comparison: Comparison) -> str:
    """Refused trials with the difference, outlier boots, and skipped ones with the reason."""
    parts = []
    if comparison.refusals:
        rows = [
            (
                r.trial,
                r.against,
                *map(inline, (d.fact, d.expected or "absent", d.found or "absent")),
            )
            for r in comparison.refusals
            for d in r.differences
        ]
        head = ("refused trial", "differs from", "in", "expected", "found")
        parts.append(
            "These trials are ok but may not be compared with the rest:\n\n" + table(head, rows)
        )
    if comparison.outliers:
        parts.append(
            "These boots are ok but fell out of line with their arm and their block as a whole "
            "(generalized ESD); no ratio holds them:\n\n"
            + "\n".join(
                f"- {o.trial} on {o.host}: {percent(o.effect)} over the ladder, p = {o.p:.2g}"
                for o in comparison.outliers
            )
        )
    others = [e for e in comparison.excluded if e.status in ("skipped", "ok")]
    if others:
        parts.append(
            "\n".join(
                f"- {e.trial}, attempt {e.attempt} ({e.status}): {inline(e.why)}" for e in others
            )
        )
    return "\n\n".join(parts)


def reproduce_section(records: Sequence[TrialRecord]) -> str:
    """Exact command, environment and patch of every setting that was started."""
    chosen: dict[object, TrialRecord] = {}
    for record in records:
        if record.status == "skipped":
            continue
        first = chosen.setdefault(setting(record), record)
        if first.status != "ok" and record.status == "ok":
            chosen[setting(record)] = record
    diffs: dict[str, str] = {}
    parts = []
    for record in chosen.values():
        mark = " (baseline)" if record.baseline else ""
        versions = ", ".join(f"{name} {inline(v)}" for name, v in sorted(record.versions.items()))
        text = f"### {setting_label(record.arm, record.levels)}{mark}\n\n"
        text += f"As in {_trial(record)} on {record.host} ({record.host_class}; {versions}).\n\n"
        text += fenced(_command(record), "sh")
        for patch in record.patches:
            text += (
                f"\n\nPatch {patch.name} on `{patch.path}`: {patch.action}, {inline(patch.reason)}."
            )
            if patch.diff and diffs.setdefault(patch.diff, _trial(record)) == _trial(record):
                text += f"\n\n{fenced(patch.diff.splitlines(), 'diff')}"
            elif patch.diff:
                text += f" Same diff as in {diffs[patch.diff]}."
        parts.append(text)
    return "\n\n".join(parts)


def _command(record: TrialRecord) -> list[str]:
    """The environment, one variable a line, then the command with one option a line."""
    lines = [f"{name}={shlex.quote(value)}" for name, value in sorted(record.environment.items())]
    current: list[str] = []
    for word in record.command:
        if word.startswith("--") and current:
            lines.append(" ".join(current))
            current = []
        current.append(shlex.quote(word))
    lines.append(" ".join(current))
    lines = [line if i == 0 else f"  {line}" for i, line in enumerate(lines)]
    return [line + " \\" for line in lines[:-1]] + lines[-1:]


def _trial(record: TrialRecord) -> str:
    return record.trial + (f" (attempt {record.attempt})" if record.attempt > 1 else "")
