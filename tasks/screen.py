"""A screen: how fast all-reduce is under each level, what each level changes, and which may stay."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from configs.values import Value
from tasks.factor_effect import VariableEffect, without_effect
from tasks.nccl_log import NcclLog
from tasks.record import Finding
from tasks.reduce_path import ReducePath
from tasks.screen_sizes import Sizes

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEMA = 1
TimedBy = Literal["nccl", "gloo", "nothing"]
"""gloo: on CPUs, for want of GPUs; it takes none of NCCL's variables, so it ranks nothing."""
WITHOUT_EFFECT = "factor_without_effect"


class SizeTime(Value):
    """One call at one size under one level."""

    size_bytes: int
    rows: int
    median_us: float
    low_us: float | None
    """95 % interval of the median over rounds, no narrower than the medians of the passes."""
    high_us: float | None
    rounds: int


class StartProof(Value):
    """One start of the baseline arm under one level."""

    trial: str
    """Its attempt's folder in the screen's run folder."""
    status: Literal["started", "failed"]
    failure_class: str | None = None
    of_the_setting: bool = True
    """Whether a failure would come again; a lost connection or a held GPU drops no level."""
    message: str | None = None
    nccl: NcclLog | None = None
    """What NCCL said in the engine's first rank."""
    seen: dict[str, str | None] | None = None
    """Variable -> value in the engine's own ranks; None: nobody could look."""


class LevelScreen(Value):
    """One level, as it was found."""

    level: str
    env: dict[str, str]
    """The level's own variables."""
    flags: dict[str, str] = {}
    """The level's own flags; with any, all-reduce alone does not tell levels apart."""
    times: tuple[SizeTime, ...] = ()
    error: str | None = None
    """Why it could not be timed, in the first words that were said."""
    nccl: NcclLog | None = None
    """What NCCL said in the timed processes."""
    start: StartProof | None = None
    effects: dict[str, tuple[VariableEffect, ...]] = {}
    """Arm -> what became of each variable there."""
    dominated_by: str | None = None

    def useless_in(self) -> tuple[str, ...]:
        """The arms in which nothing that the level sets can matter."""
        if self.flags:
            return ()
        return tuple(arm for arm, effects in self.effects.items() if without_effect(effects))


class Screen(Value):
    """What a screen found; the content of screen.json."""

    schema_version: int = SCHEMA
    sweep: str
    run: str
    """Id of the screen's run folder."""
    key: str
    """Hash of what it depends on; a sweep with another one needs another screen."""
    made_at: str
    """ISO 8601 with offset."""
    host: str
    host_class: str
    rehearsal: bool
    factor: str
    reference: str
    """The factor's first level; it always stays."""
    keep: int
    baseline: str
    tp: int
    versions: dict[str, str]
    sizes: Sizes
    timed_by: TimedBy
    timed_note: str
    """How, or why not."""
    levels: tuple[LevelScreen, ...]
    paths: dict[str, ReducePath]
    """Arm -> what carries its all-reduces."""
    findings: tuple[Finding, ...]
    kept: tuple[str, ...]
    """Levels that go into the plan, in the factor's order."""
    dropped: dict[str, str]
    """Level -> why it does not."""
    notes: tuple[str, ...] = ()

    def level(self, name: str) -> LevelScreen:
        """One level by name."""
        return next(one for one in self.levels if one.level == name)

    def ranking(self) -> tuple[tuple[str, float], ...]:
        """Timed levels, the fastest first, with the mean ratio to the reference over sizes."""
        return ranked(self.levels, self.reference)


def ranked(levels: Sequence[LevelScreen], reference: str) -> tuple[tuple[str, float], ...]:
    """Levels with times, the fastest first; ratios are averaged on the log scale over sizes."""
    base = next((one.times for one in levels if one.level == reference), ())
    if not base:
        return ()
    ratios = {}
    for one in levels:
        if len(one.times) == len(base):
            pairs = zip(one.times, base, strict=True)
            logs = [math.log(mine.median_us / theirs.median_us) for mine, theirs in pairs]
            ratios[one.level] = math.exp(sum(logs) / len(logs))
    return tuple(sorted(ratios.items(), key=lambda item: item[1]))


def dominated(levels: Sequence[LevelScreen], reference: str, margin: float) -> dict[str, str]:
    """Levels that another one beats: no slower at any size beyond the interval, faster at some.

    Faster means: intervals apart, and medians by more than the margin. Only a level that is not
    dominated itself counts as the better one, so that not all can go. Levels that differ in flags
    are neither dominated nor dominate: all-reduce alone does not tell them apart.

    Args:
        levels: All of the factor.
        reference: Its first level; never dominated.
        margin: Ratio within which two times are the same.
    """
    timed = [one for one in levels if one.times and not one.flags]
    beaten: dict[str, list[str]] = {
        one.level: [
            other.level for other in timed if other is not one and _beats(other, one, margin)
        ]
        for one in timed
    }
    fastest = [name for name, _ in ranked(levels, reference)]
    return {
        name: min(best, key=fastest.index)
        for name, by in beaten.items()
        if name != reference and (best := [other for other in by if not beaten[other]])
    }


def _beats(one: LevelScreen, other: LevelScreen, margin: float) -> bool:
    pairs = list(zip(one.times, other.times, strict=False))
    return all(not _apart(theirs, mine, 0.0) for mine, theirs in pairs) and any(
        _apart(mine, theirs, margin) for mine, theirs in pairs
    )


def _apart(fast: SizeTime, slow: SizeTime, margin: float) -> bool:
    """Whether one time is below another beyond their intervals and the margin."""
    if fast.high_us is None or slow.low_us is None:
        return False
    return fast.high_us < slow.low_us and fast.median_us * (1 + margin) < slow.median_us


def choose(
    levels: Sequence[LevelScreen], reference: str, keep: int, *, timed_by: TimedBy
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Which levels go into the plan, and why the others do not.

    Dropped are levels that do not start, that cannot matter in any arm, and that are dominated;
    then, if there are still too many, the slowest by their times. Where nothing was timed there
    is no slowest one, and ``keep`` is not applied.

    Returns:
        The kept levels in the factor's order, and level -> reason for the dropped ones.
    """
    dropped: dict[str, str] = {}
    base = next((one.start for one in levels if one.level == reference), None)
    starts = base is None or base.status == "started"
    for one in levels:
        reason = _reason(one, starts=starts)
        if reason is not None and one.level != reference:
            dropped[one.level] = reason
    left = [one.level for one in levels if one.level not in dropped]
    order = [name for name, _ in ranked(levels, reference)] if timed_by == "nccl" else []
    ratios = dict(ranked(levels, reference))
    for name in reversed(order):
        if len(left) > keep and name in left and name != reference and not _flagged(levels, name):
            left.remove(name)
            dropped[name] = (
                f"keep is {keep}, and it is among the slowest: {ratios[name]:.2f} x the time of "
                f"{reference}"
            )
    return tuple(left), dropped


def _reason(one: LevelScreen, *, starts: bool) -> str | None:
    """Why a level is left out; ``starts``: the reference does, so that a failure is the level's."""
    failed = one.start is not None and one.start.status == "failed" and one.start.of_the_setting
    if failed and starts and one.start is not None:
        return f"the engine does not start: {one.start.message or one.start.failure_class}"
    if one.error is not None:
        return f"it does not run: {one.error}"
    if one.effects and set(one.useless_in()) == set(one.effects):
        return f"cannot matter in any arm: {effect_words(next(iter(one.effects.values())))}"
    return f"dominated by {one.dominated_by}" if one.dominated_by else None


def _flagged(levels: Sequence[LevelScreen], name: str) -> bool:
    return any(one.level == name and one.flags for one in levels)


def effect_words(effects: Sequence[VariableEffect]) -> str:
    """What became of the variables, in one line."""
    return "; ".join(f"{one.variable}={one.asked}: {one.reason}" for one in effects)


def effect_findings(factor: str, levels: Sequence[LevelScreen]) -> tuple[Finding, ...]:
    """One finding for each level that can change nothing, with the arms of which that is said."""
    found = []
    for one in levels:
        arms = one.useless_in()
        by_words: dict[str, list[str]] = {}
        for arm in arms:
            by_words.setdefault(effect_words(one.effects[arm]), []).append(arm)
        everywhere = len(arms) == len(one.effects)
        for words, mine in by_words.items():
            where = "" if everywhere and len(by_words) == 1 else f" in {', '.join(mine)}"
            found.append(
                Finding(
                    name=WITHOUT_EFFECT,
                    where=f"{factor}={one.level}{where}",
                    evidence=words,
                    limit="variables that are read where the arm's all-reduces go",
                    advice=_advice(everywhere=everywhere),
                )
            )
    return tuple(found)


def _advice(*, everywhere: bool) -> str:
    if everywhere:
        return "take the level out: its trials would measure the reference once more"
    return "its trials in these arms measure the reference once more; expect no difference there"


def kept_words(screen: Screen) -> tuple[str, ...]:
    """What a screen leaves of a factor, for plan, record and report."""
    head = (
        f"screen {screen.run} of {screen.made_at[:16].replace('T', ' ')}: {screen.factor} keeps "
        f"{', '.join(screen.kept)}"
    )
    drops = [f"{screen.factor}={name} is left out: {why}" for name, why in screen.dropped.items()]
    return (head, *drops)
