"""Profiles of a run side by side: one line a setting, probe and concurrency, over its trials."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from tasks.kernel_table import CATEGORIES
from tasks.profile_record import Shares

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tasks.profile_record import StepProfile
    from tasks.record import TrialRecord


class Inside(NamedTuple):
    """What the profiles of one setting say at one concurrency, means over trials."""

    probe: str
    arm: str
    levels: dict[str, str]
    baseline: bool
    """Whether the arm is the baseline."""
    concurrency: int
    shares: Shares
    """Target, drafter and what is between them; with ``idle`` they add up to one."""
    idle: float
    drafter: Shares | None
    """The drafter's part; None: none, or not told in every trial."""
    drafter_asked: bool
    step_us: float
    trials: int
    steps: int
    """Over all trials."""

    @property
    def target(self) -> Shares:
        """Without the drafter's part, as far as that is known."""
        return self.shares if self.drafter is None else self.shares.less(self.drafter)


def side_by_side(records: Sequence[TrialRecord]) -> list[Inside]:
    """Every setting that was profiled, the baseline first, then as they ran.

    Trials that failed are left out; suspect ones count, since what makes them so concerns the
    figures of speed.
    """
    groups: dict[tuple[str, int, str, tuple[tuple[str, str], ...]], list[_Seen]] = {}
    for record in sorted(records, key=lambda r: (not r.baseline, r.order, r.attempt)):
        if record.status not in {"ok", "suspect"}:
            continue
        for profile in record.profiles:
            if profile.shares is None or profile.idle is None or profile.step_us is None:
                continue
            levels = tuple(sorted(record.levels.items()))
            key = (profile.probe, profile.concurrency, record.arm, levels)
            groups.setdefault(key, []).append(_Seen(record, profile))
    lines = [_one(group) for group in groups.values()]
    probes = list(dict.fromkeys(line.probe for line in lines))
    return sorted(lines, key=lambda line: (probes.index(line.probe), line.concurrency))


class _Seen(NamedTuple):
    record: TrialRecord
    profile: StepProfile


def _one(group: Sequence[_Seen]) -> Inside:
    record, profile = group[0]
    drafters = [seen.profile.drafter for seen in group]
    known = [drafter for drafter in drafters if drafter is not None]
    return Inside(
        probe=profile.probe,
        arm=record.arm,
        levels=record.levels,
        baseline=record.baseline,
        concurrency=profile.concurrency,
        shares=_mean(s.profile.shares for s in group),
        idle=fmean(s.profile.idle or 0.0 for s in group),
        drafter=_mean(known) if len(known) == len(group) else None,
        drafter_asked=profile.drafter_asked,
        step_us=fmean(s.profile.step_us or 0.0 for s in group),
        trials=len(group),
        steps=sum(s.profile.steps for s in group),
    )


def _mean(shares: Iterable[Shares | None]) -> Shares:
    known = [s for s in shares if s is not None]
    return Shares(**{c: fmean(s.of(c) for s in known) for c in CATEGORIES})
