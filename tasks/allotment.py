"""Which trials are run when there is no time for all: those that the main question needs first.

What is chosen depends on the plan and on expected times alone, never on a result; and what is chosen
runs in the order that was drawn. So a cut night is a smaller sweep, and no other one.

The main question is every arm against the baseline at the factors' first levels. In the order of
their value:

1. the main cells of the first blocks, block by block, as many as an interval needs;
2. the other cells of these blocks;
3. further blocks, the main cells of each before the others.

Where a block has room for some of these cells alone, the baseline comes first, then the arms in
the order of the file, copies last: without its baseline no cell has a ratio. What does not fit ends
the choice: nothing of less value slips in because it is shorter.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from configs.cells import first_levels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from configs.plan import Trial
    from configs.sweep import Sweep

_ENOUGH_BLOCKS = 3  # with fewer, an interval has hardly a degree of freedom (docs/statistics.md)


class Allotment(NamedTuple):
    """What is run of some trials, and what is not."""

    run: tuple[Trial, ...]
    """In the order of the plan."""
    left: tuple[Trial, ...]
    """In the order of their value: the first would be run next."""
    seconds: float
    """What the first take."""


def allot(
    sweep: Sweep, trials: Sequence[Trial], cost_s: Callable[[Trial], float], left_s: float
) -> Allotment:
    """The most valuable trials that fit into a time.

    Args:
        sweep: Whose trials they are.
        trials: What is still to be run, in the order of the plan.
        cost_s: How long one takes; 0 where nobody knows.
        left_s: How long the hosts are still to be had.
    """
    ranked = sorted(trials, key=value_of(sweep))
    fit = _fitting(ranked, cost_s, left_s)
    chosen = _without_lonely(sweep, trials, ranked[:fit])
    return Allotment(
        run=tuple(trial for trial in trials if trial.id in chosen),
        left=tuple(trial for trial in ranked if trial.id not in chosen),
        seconds=sum(cost_s(trial) for trial in trials if trial.id in chosen),
    )


def value_of(sweep: Sweep) -> Callable[[Trial], tuple[int, ...]]:
    """A sorting key: the most valuable trial first."""
    firsts = first_levels(sweep)
    arms = sorted(
        sweep.arms,
        key=lambda arm: (arm != sweep.baseline, sweep.arms[arm].replicate_of is not None),
    )
    arm_place = {arm: place for place, arm in enumerate(arms)}
    level_place = {factor: list(levels).index for factor, levels in sweep.factors.items()}
    needed = needed_blocks(sweep)

    def key(trial: Trial) -> tuple[int, ...]:
        other = trial.levels != firsts
        late = trial.block > needed
        moved = sum(level != firsts[factor] for factor, level in trial.levels.items())
        levels = [level_place[factor](level) for factor, level in trial.levels.items()]
        # Of the first blocks all main cells come before any other; later blocks stay whole.
        group = [int(late), trial.block, int(other)] if late else [0, int(other), trial.block]
        return (*group, moved, *levels, arm_place[trial.arm])

    return key


def is_main(sweep: Sweep, trial: Trial) -> bool:
    """Whether a trial is part of the main question."""
    return trial.levels == first_levels(sweep)


def needed_blocks(sweep: Sweep) -> int:
    """How many blocks the main question is to have before anything else is asked."""
    asked = sweep.until.min_blocks if sweep.until else _ENOUGH_BLOCKS
    return min(sweep.blocks, max(asked, _ENOUGH_BLOCKS))


def _fitting(ranked: Iterable[Trial], cost_s: Callable[[Trial], float], left_s: float) -> int:
    """How many of them fit, one after another."""
    ends = itertools.accumulate(map(cost_s, ranked))
    return sum(1 for _ in itertools.takewhile(lambda end: end <= left_s, ends))


def _without_lonely(sweep: Sweep, trials: Sequence[Trial], chosen: Sequence[Trial]) -> set[str]:
    """Without a baseline that would be the only one chosen of its block: it has no ratio.

    A block of which something has run already is another matter: its cells are no longer here.
    """
    ids = {trial.id for trial in chosen}
    members: dict[int, list[Trial]] = {}
    for trial in trials:
        members.setdefault(trial.block, []).append(trial)
    cells = max(len(block) for block in members.values()) if members else 0
    for block in members.values():
        mine = [trial for trial in block if trial.id in ids]
        whole = len(block) == cells > 1
        if whole and len(mine) == 1 and mine[0].arm == sweep.baseline:
            ids -= {mine[0].id}
    return ids
