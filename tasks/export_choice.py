"""Which setting is exported, and the trial that it is taken from."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from configs.layers import reference_levels
from configs.problems import ConfigError, Problem
from tasks.comparison import setting_label
from tasks.decision import leading_cells, winning_ladder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from configs.sweep import Sweep
    from tasks.comparison import Cell, Comparison
    from tasks.record import TrialRecord


class Chosen(NamedTuple):
    """A setting to export."""

    arm: str
    levels: dict[str, str]
    record: TrialRecord
    """The last ok trial of the setting: its command, environment, patches and versions."""
    cells: tuple[Cell, ...]
    """Its ratios of the leading figure to the baseline; none for the baseline itself."""
    won: bool
    """Whether it is the setting that the decision names."""

    @property
    def label(self) -> str:
        """Arm and levels in words."""
        return setting_label(self.arm, self.levels)

    @property
    def slug(self) -> str:
        """Arm and levels as the name of a folder or a unit."""
        return "-".join([self.arm, *self.levels.values()])


def choose(
    sweep: Sweep,
    comparison: Comparison,
    records: Sequence[TrialRecord],
    arm: str | None = None,
    levels: Mapping[str, str] | None = None,
) -> Chosen | None:
    """The winner, or the arm that is asked for by name; None where nothing is named and nothing won.

    Of a named arm: the levels that are named; else those by which it wins; else each factor's
    first level.

    Raises:
        ConfigError: There is no such arm or level, the setting has no ok trial, or its acceptance
            or weights are pretended.
    """
    winner = winning_ladder(comparison)
    if arm is None:
        if not winner:
            return None
        arm = winner[0].arm
    _known(sweep, arm, levels or {})
    best = winning_ladder(comparison, arm)
    wanted = {**(best[0].levels if best else reference_levels(sweep)), **(levels or {})}
    record = _trial(records, arm, wanted)
    cells = [c for c in leading_cells(comparison) if (c.arm, c.levels) == (arm, wanted)]
    cells.sort(key=lambda c: (c.probe, c.concurrency))
    won = bool(winner) and (winner[0].arm, winner[0].levels) == (arm, wanted)
    return Chosen(arm, wanted, record, tuple(cells), won)


def _known(sweep: Sweep, arm: str, levels: Mapping[str, str]) -> None:
    wrong = []
    if arm not in sweep.arms:
        said = f"no arm is called {arm!r}: {', '.join(sweep.arms)}"
        wrong.append(Problem("export", "--arm", said))
    for factor, level in levels.items():
        known = sweep.factors.get(factor, {})
        if level not in known:
            there = ", ".join(f"{f}={name}" for f, names in sweep.factors.items() for name in names)
            said = f"there is no {factor}={level}: {there or 'the sweep has no factors'}"
            wrong.append(Problem("export", "--level", said))
    if wrong:
        raise ConfigError(wrong)


def _trial(records: Sequence[TrialRecord], arm: str, levels: Mapping[str, str]) -> TrialRecord:
    """The last ok trial of a setting."""
    mine = [r for r in records if r.arm == arm and r.levels == levels]
    ok = [r for r in mine if r.status == "ok"]
    label = setting_label(arm, dict(levels))
    if not ok:
        ended = ", ".join(f"{r.trial} {r.status}" for r in mine) or "it was not run"
        said = f"{label} has no ok trial ({ended}): export an arm that has one"
        raise ConfigError([Problem("export", "--arm", said)])
    last = max(ok, key=lambda r: (r.block, r.attempt))
    if last.synthetic is not None:
        said = (
            f"{label} ran with pretended acceptance or random weights: there is nothing to deploy"
        )
        raise ConfigError([Problem("export", "--arm", said)])
    return last
