"""The decision in one sentence, from a comparison."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tasks.comparison import Cell, Comparison, setting_label
from tasks.judge import ahead
from tasks.metrics import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

REHEARSAL = "REHEARSAL: no claim about any GPU"
MADE_UP = "MADE UP ({what}): no claim about any drafter"

PLAIN_NAMES = {
    "output_tok_s": "tokens/s",
    "user_tok_s": "tokens/s per user",
    "ttft_s": "time to the first token",
    "tpot_s": "time per token",
    "e2e_s": "time to the last token",
    "accept_length": "accept length",
    "draft_accept_rate": "draft accept rate",
    "step_s": "step time",
}


def decision_sentence(comparison: Comparison) -> str:
    """What to do, with the figure that supports it; or why that cannot be said.

    The leading metric decides. A setting is worth deploying if it is better at some measured
    concurrency; of several, the fastest in absolute terms. Its figure is given at the highest
    concurrency at which it is still better, and where it breaks even is said.
    """
    return ". ".join([*no_claims(comparison), _sentence(comparison)])


def decision_of(comparisons: Sequence[Comparison]) -> str:
    """The decision of a sweep; on unlike hosts that of each class, in one sentence.

    Args:
        comparisons: one for each class of hosts, at least one.
    """
    if len(comparisons) == 1:
        return decision_sentence(comparisons[0])
    claims = dict.fromkeys(claim for one in comparisons for claim in no_claims(one))
    said = "; ".join(f"on {one.host_class}: {_sentence(one)}" for one in comparisons)
    return ". ".join([*claims, said[:1].upper() + said[1:]])


def no_claims(comparison: Comparison) -> list[str]:
    """What its figures are no claim about; stands before everything that is shown of them."""
    said = [REHEARSAL] if comparison.rehearsal else []
    if comparison.synthetic:
        said.append(MADE_UP.format(what=", ".join(comparison.synthetic)))
    return said


def percent(ratio: float) -> str:
    """A ratio as a change: 1.384 -> +38 %; below 10 % with one decimal."""
    change = (ratio - 1) * 100
    return f"{change:+.0f} %" if abs(change) >= 9.95 else f"{change:+.1f} %"


def interval(cell: Cell) -> str:
    """The interval as changes: [+34, +42]; what there is to say where there is none."""
    if cell.low is None or cell.high is None:
        return "[no interval]"
    ends = ((end - 1) * 100 for end in (cell.low, cell.high))
    wide = max(abs(cell.low - 1), abs(cell.high - 1)) >= 0.0995
    return "[" + ", ".join(f"{end:+.0f}" if wide else f"{end:+.1f}" for end in ends) + "]"


def users(count: float) -> str:
    """A concurrency in words."""
    number = f"{count:.0f}"
    return f"{number} user" if number == "1" else f"{number} users"


def leading_cells(comparison: Comparison) -> list[Cell]:
    """Ratios of the leading metric to the baseline."""
    return [
        c for c in comparison.cells if c.contrast == "arm" and c.metric == comparison.metrics[0]
    ]


def winning_ladder(comparison: Comparison, arm: str | None = None) -> list[Cell]:
    """The cells by which a setting wins, by concurrency; empty where none is better anywhere.

    Args:
        comparison: Of a sweep.
        arm: Only settings of this arm.
    """
    ladders = _ladders([c for c in leading_cells(comparison) if arm in {None, c.arm}])
    worth = [ladder for ladder in ladders if any(c.verdict == "better" for c in ladder)]
    return _fastest(worth) if worth else []


def _sentence(comparison: Comparison) -> str:
    if comparison.problem is not None:
        return _no_comparison(comparison)
    cells = leading_cells(comparison)
    if not cells:
        return _noise(comparison)
    winner = winning_ladder(comparison)
    if winner:
        return _deploy(comparison, winner)
    best = max(cells, key=_effect)
    hopes = [c for c in cells if c.verdict == "undecided" and (_effect(c) >= 0 or c is best)]
    if hopes:
        return _not_decided(max(hopes, key=_effect))
    if all(c.verdict == "same" for c in cells):
        return (
            f"No difference: every arm is within {comparison.same_margin:.0%} of "
            f"{comparison.baseline} at every concurrency; {_figure(best)} is the largest"
        )
    return _does_not_pay(comparison, best)


def _noise(comparison: Comparison) -> str:
    """Of a sweep of copies alone."""
    copies = [
        c for c in comparison.cells if c.contrast == "copy" and c.metric == comparison.metrics[0]
    ]
    worst = max(copies, key=lambda c: abs(_effect(c)))
    return (
        f"A copy of {_reference(worst)} is at {_figure(worst)} at {users(worst.concurrency)}: "
        f"{'that is more than the noise should do' if worst.verdict in ('better', 'worse') else 'noise'}"
    )


def _no_comparison(comparison: Comparison) -> str:
    parts = [f"No comparison: {comparison.problem}"]
    if comparison.refusals:
        refusal = comparison.refusals[0]
        facts = "; ".join(
            f"{d.fact} is {d.found or 'absent'}, not {d.expected or 'absent'}"
            for d in refusal.differences
        )
        parts.append(
            f"{len(comparison.refusals)} ok trials are not comparable ({refusal.trial}: {facts})"
        )
    if comparison.excluded:
        parts.append(
            f"{len(comparison.excluded)} trials have no speed "
            f"({comparison.excluded[0].trial}: {comparison.excluded[0].why})"
        )
    return "; ".join(parts)


def _deploy(comparison: Comparison, ladder: Sequence[Cell]) -> str:
    cell = max((c for c in ladder if c.verdict == "better"), key=lambda c: c.concurrency)
    # Nobody can deploy an acceptance that is pretended.
    advice = "With pretended figures" if comparison.synthetic else "Deploy"
    sentence = (
        f"{advice} {_name(cell)}: {_figure(cell)} at {users(cell.concurrency)} "
        f"against {_reference(cell)} on the same host"
    )
    crossing = [
        x
        for x in comparison.crossovers
        if (x.metric, x.probe, x.arm, x.levels) == (cell.metric, cell.probe, cell.arm, cell.levels)
    ]
    worse = [c for c in ladder if c.verdict == "worse"]
    if crossing:
        x = crossing[-1]
        about = "" if x.firm else "about "
        word = "break-even" if x.direction == "falls" else "pays only from"
        sentence += f"; {word} at {about}{users(x.concurrency)}"
    elif worse:
        sentence += f"; but {_figure(worse[-1])} at {users(worse[-1].concurrency)}"
    others = _other_probes(comparison, cell)
    return f"{sentence}{others}"


def _other_probes(comparison: Comparison, chosen: Cell) -> str:
    """Where the same setting is worse on other traffic."""
    worse = [
        c
        for c in leading_cells(comparison)
        if (c.arm, c.levels) == (chosen.arm, chosen.levels)
        and c.probe != chosen.probe
        and c.verdict == "worse"
    ]
    return "".join(
        f"; but {percent(c.ratio)} on {c.probe} at {users(c.concurrency)}" for c in worse[:2]
    )


def _not_decided(cell: Cell) -> str:
    would = ahead(cell.further_blocks, cell.further_hosts)
    to_do = f"{would} would decide it" if would else "more blocks of this kind would not decide it"
    if cell.confidence is None:
        to_do = "one block says nothing about the noise, run at least two"
    return (
        f"Not decided: {_name(cell)} is at {_figure(cell)} at {users(cell.concurrency)} "
        f"against {_reference(cell)}; {to_do}"
    )


def _does_not_pay(comparison: Comparison, best: Cell) -> str:
    speculates = any(a.accept_length > 1 for a in comparison.accounts)
    sentence = (
        f"{'Speculation does not pay' if speculates else 'No arm pays'} here: the best setting, {_name(best)}, is at {_figure(best)} "
        f"at {users(best.concurrency)} against {_reference(best)}"
    )
    accounts = [
        a
        for a in comparison.accounts
        if (a.probe, a.arm, a.levels) == (best.probe, best.arm, best.levels)
    ]
    if accounts:
        a = min(accounts, key=lambda a: a.concurrency)
        sentence += (
            f"; at {users(a.concurrency)} a drafter would need accept length >= "
            f"{a.break_even_accept_length:.2f} (has {a.accept_length:.2f})"
        )
    return sentence


def _ladders(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Cells of one setting and probe, by concurrency."""
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        key = (cell.probe, cell.arm, *sorted(cell.levels.items()))
        groups.setdefault(key, []).append(cell)
    return [sorted(group, key=lambda c: c.concurrency) for group in groups.values()]


def _fastest(ladders: Sequence[list[Cell]]) -> list[Cell]:
    """Of settings that are better somewhere: the fastest where any of them is better.

    Ratios are no measure here: a setting may owe a large one to a baseline that is slow at the
    same levels. Speeds are compared on the first of the probes, over the concurrencies that all
    of them have; where they share none, the larger effect decides.
    """
    same_probe = [ladder for ladder in ladders if ladder[0].probe == ladders[0][0].probe]
    better = {c.concurrency for ladder in same_probe for c in ladder if c.verdict == "better"}
    shared = better.intersection(*({c.concurrency for c in ladder} for ladder in same_probe))
    if not shared:
        return max(same_probe, key=lambda ladder: max(map(_effect, ladder)))
    sign = -1 if BY_NAME[ladders[0][0].metric].better == "lower" else 1
    return max(
        same_probe,
        key=lambda ladder: (
            sign * math.fsum(math.log(c.value) for c in ladder if c.concurrency in shared)
        ),
    )


def _effect(cell: Cell) -> float:
    sign = -1 if BY_NAME[cell.metric].better == "lower" else 1
    return sign * math.log(cell.ratio)


def _name(cell: Cell) -> str:
    return setting_label(cell.arm, cell.levels)


def _reference(cell: Cell) -> str:
    return setting_label(cell.reference_arm, cell.reference_levels)


def _figure(cell: Cell) -> str:
    return f"{percent(cell.ratio)} {interval(cell)} {PLAIN_NAMES[cell.metric]}"
