"""The report's section on factor levels: main effects, interactions with the arm, and findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.decision import PLAIN_NAMES
from tasks.factor_effects import ACCEPT, STEP
from tasks.markdown_text import inline
from tasks.report_tables import UNKNOWN, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.comparison import Comparison
    from tasks.level_values import Interaction, LevelEffect


def effects_section(comparison: Comparison) -> str:
    """What each level does; empty text without factors."""
    if not comparison.effects:
        return ""
    parts = [_findings(comparison), _intro(comparison)]
    for probe in dict.fromkeys(effect.probe for effect in comparison.effects):
        for factor in dict.fromkeys(effect.factor for effect in comparison.effects):
            mine = [e for e in comparison.effects if (e.probe, e.factor) == (probe, factor)]
            apart = [i for i in comparison.interactions if (i.probe, i.factor) == (probe, factor)]
            if mine:
                parts.append(_main(mine, comparison.metrics))
            if apart:
                parts.append(_interactions(apart, comparison.metrics))
    return "\n\n".join(part for part in parts if part)


def _findings(comparison: Comparison) -> str:
    return "\n".join(
        f"- **{found.name}** ({inline(found.where)}): {inline(found.evidence)}; right would be "
        f"{found.limit}. {found.advice[:1].upper()}{found.advice[1:]}."
        for found in comparison.findings
    )


def _intro(comparison: Comparison) -> str:
    several = max(effect.over for effect in comparison.effects) > 1
    averaged = ", averaged over the levels of the other factors," if several else ""
    return (
        f"Each level as a ratio to its factor's first level, inside the blocks{averaged} with the "
        f"interval of that figure alone at {100 * comparison.confidence:.3g} %. A step time below 1 "
        "is a quicker step. A setting of communication must leave the accept length at 1. The "
        "verdicts, drawn together over all figures, stand above."
    )


def _main(effects: Sequence[LevelEffect], metrics: Sequence[str]) -> str:
    factor, reference, probe = effects[0].factor, effects[0].reference, effects[0].probe
    figures = _figures(effects, metrics)
    cells = {(e.arm, e.level, e.concurrency, e.metric): e for e in effects}
    rows: dict[tuple[str, str, int], int] = {}
    for one in sorted(effects, key=lambda e: (e.arm, e.level, e.concurrency)):
        row = (one.arm, one.level, one.concurrency)
        rows[row] = max(one.blocks, rows.get(row, 0))
    body = table(
        ("arm", "level", "users", *(PLAIN_NAMES[figure] for figure in figures), "blocks"),
        (
            (
                arm,
                level,
                str(users),
                *(_ratio(cells.get((arm, level, users, figure))) for figure in figures),
                str(blocks),
            )
            for (arm, level, users), blocks in rows.items()
        ),
    )
    return f"Probe {probe}: {inline(factor)} against {inline(reference)}.\n\n{body}"


def _interactions(apart: Sequence[Interaction], metrics: Sequence[str]) -> str:
    """Whether the baseline's best level is the drafter's too."""
    factor, against, probe = apart[0].factor, apart[0].against, apart[0].probe
    figures = _figures(apart, metrics)
    cells = {(i.arm, i.level, i.concurrency, i.metric): i for i in apart}
    rows = sorted({(i.arm, i.level, i.concurrency) for i in apart})
    body = table(
        ("arm", "level", "users", *(PLAIN_NAMES[figure] for figure in figures)),
        (
            (
                arm,
                level,
                str(users),
                *(_ratio(cells.get((arm, level, users, figure))) for figure in figures),
            )
            for arm, level, users in rows
        ),
    )
    return (
        f"Probe {probe}: what a level of {inline(factor)} does for the arm, divided by what it "
        f"does for {inline(against)} (1: the same for both, so that the level can be chosen "
        f"without the drafter).\n\n{body}"
    )


def _figures(
    found: Sequence[LevelEffect] | Sequence[Interaction], metrics: Sequence[str]
) -> list[str]:
    """The figures that there are, the comparison's own first."""
    there = {one.metric for one in found}
    return [figure for figure in dict.fromkeys([*metrics, STEP, ACCEPT]) if figure in there]


def _ratio(one: LevelEffect | Interaction | None) -> str:
    """A ratio with its interval; of the accept length one digit more, since 1 % counts there."""
    if one is None:
        return UNKNOWN
    digits = 3 if one.metric == ACCEPT else 2
    if one.low is None or one.high is None:
        return f"x {one.ratio:.{digits}f} [no interval]"
    return f"x {one.ratio:.{digits}f} [{one.low:.{digits}f}, {one.high:.{digits}f}]"
