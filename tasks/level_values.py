"""What a comparison says of factor levels: main effects, interactions with the drafter, findings."""

from __future__ import annotations

from configs.values import Value


class LevelEffect(Value):
    """One level against its factor's first level, in one arm at one probe and concurrency.

    The effect is taken inside the blocks and averaged, on the log scale, over the levels of the
    other factors; with one factor it is that of the level itself.
    """

    factor: str
    level: str
    reference: str
    """The factor's first level."""
    arm: str
    probe: str
    concurrency: int
    metric: str
    """A name of tasks/metrics.py; of a time, its median."""
    blocks: int
    """Blocks that hold both levels."""
    over: int
    """Combinations of the other factors' levels that it is averaged over; 1 without others."""
    ratio: float
    low: float | None
    """Interval of this ratio alone, at the comparison's confidence; None: spread unknown."""
    high: float | None


class Interaction(Value):
    """How much more a level does for an arm than for the baseline: a ratio of two ratios."""

    factor: str
    level: str
    reference: str
    """The factor's first level."""
    arm: str
    against: str
    """The baseline arm."""
    probe: str
    concurrency: int
    metric: str
    blocks: int
    """Blocks that hold both arms at both levels."""
    over: int
    """Combinations of the other factors' levels that it is averaged over."""
    ratio: float
    """1: the level does the same for both; above 1: it raises the figure more in this arm."""
    low: float | None
    """Interval of this ratio alone, at the comparison's confidence; None: spread unknown."""
    high: float | None
