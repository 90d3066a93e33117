"""The report's What if: how good a drafter must be here, and what one would give."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.decision import PLAIN_NAMES, percent, users
from tasks.markdown_text import inline
from tasks.report_tables import figure, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tasks.step_cost import StepCost
    from tasks.what_if_answers import Expected, Needed, Shape, WhatIf

_INTRO = (
    "From arms whose acceptance the engine only pretended: their steps cost what steps cost here, "
    "and no drafter was measured. Intervals are over blocks, of each figure alone; acceptance of "
    "real text varies besides."
)


def what_if_section(found: WhatIf | None) -> str:
    """The whole section; empty where nothing was pretended."""
    if found is None:
        return ""
    parts = [_INTRO, *(f"- {inline(note)}" for note in found.notes)]
    parts += [_cost(cost) for cost in found.costs]
    for probe in dict.fromkeys(n.probe for n in found.needed):
        mine = [n for n in found.needed if n.probe == probe]
        parts.append(
            f"Probe {probe}: from which accept length a drafter pays against "
            f"{mine[0].reference}.\n\n{_needed_table(mine)}"
        )
        would = [e for e in found.expected if e.probe == probe]
        if would:
            parts.append(
                f"Probe {probe}: what a drafter of a given accept length would give.\n\n"
                f"{_expected_table(would)}"
            )
    return "\n\n".join(parts)


def _cost(cost: StepCost) -> str:
    """What a step costs, in words."""
    where = "".join(f", {factor}={level}" for factor, level in sorted(cost.levels.items()))
    ends = []
    for count in dict.fromkeys((cost.least, cost.most)):
        plain = cost.step_s(0, count)
        each = cost.step_s(1, count) - plain
        ends.append(
            f"{1e3 * plain:.2f} ms for a plain step and {1e3 * each:.2f} ms ({each / plain:.0%} of "
            f"it) for each draft token at {users(count)}"
        )
    return (
        f"Cost of a step, probe {cost.probe}{where}: {', '.join(ends)} (a plane through "
        f"{cost.points} step times, {cost.worst:.1%} off at most)."
    )


def shape_words(shape: Shape) -> str:
    """A shape in words."""
    levels = "".join(f", {factor}={level}" for factor, level in sorted(shape.levels.items()))
    what = f"{shape.tokens} tokens a step" if shape.tokens else "/".join(shape.arms)
    return f"{what}{levels}"


def _needed_table(rows: Sequence[Needed]) -> str:
    return table(
        ("shape", "users", "figure", "pays from", "interval", "possible", "blocks", ""),
        (
            (
                shape_words(n.shape),
                str(n.concurrency),
                PLAIN_NAMES[n.metric],
                "never" if n.accept_length is None else f"{n.accept_length:.2f}",
                "-" if n.low is None or n.high is None else f"[{n.low:.2f}, {n.high:.2f}]",
                "-" if n.shape.drafts is None else f"1 to {n.shape.drafts + 1}",
                str(n.blocks),
                _verdict(n),
            )
            for n in _sorted(rows)
        ),
    )


def _verdict(needed: Needed) -> str:
    if needed.accept_length is None:
        return "no drafter can: what is not decoding takes too long already"
    most = None if needed.shape.drafts is None else needed.shape.drafts + 1
    if most is not None and needed.accept_length > most:
        return f"no drafter can: a step gives at most {most}"
    if needed.accept_length <= 1:
        return "any drafter does"
    return ""


def _sorted(rows: Sequence[Needed]) -> Iterator[Needed]:
    yield from sorted(rows, key=lambda n: (n.metric, shape_words(n.shape), n.concurrency))


def _expected_table(rows: Sequence[Expected]) -> str:
    return table(
        ("drafter", "accept length", "shape", "users", "figure", "would be", "change", "interval"),
        (
            (
                e.name,
                f"{e.accept_length:g}",
                shape_words(e.shape),
                str(e.concurrency),
                PLAIN_NAMES[e.metric],
                figure(e.value),
                percent(e.ratio),
                "-"
                if e.low is None or e.high is None
                else f"[{percent(e.low)}, {percent(e.high)}]",
            )
            for e in sorted(rows, key=lambda e: (e.metric, e.name, e.concurrency))
        ),
    )
