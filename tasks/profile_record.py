"""What is kept of a profile: where the GPU time of decode steps went, and how far to trust it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from configs.values import Value
from tasks.kernel_table import CATEGORIES, Category

if TYPE_CHECKING:
    from collections.abc import Iterator


class Shares(Value):
    """Shares of the GPU time of decode steps, by kind of kernel (tasks/kernel_table.py)."""

    all_reduce: float = 0.0
    exchange: float = 0.0
    attention: float = 0.0
    gemm: float = 0.0
    norm: float = 0.0
    sampling: float = 0.0
    memory: float = 0.0
    other: float = 0.0

    def of(self, category: Category) -> float:
        """The share of one category."""
        return float(getattr(self, category))

    @property
    def total(self) -> float:
        """All of them."""
        return sum(self.of(category) for category in CATEGORIES)

    def less(self, part: Shares) -> Shares:
        """What is left of each when a part is taken out."""
        return Shares(**{c: max(0.0, self.of(c) - part.of(c)) for c in CATEGORIES})


class Named(Value):
    """A kernel that no line of the table knows."""

    name: str
    share: float
    """Of the GPU time of decode steps, others that ran at once not taken off."""


class StepProfile(Value):
    """What one probe of kind profile saw at one concurrency. It holds no figure of speed."""

    probe: str
    concurrency: int
    steps: int
    """Decode or verify steps that were counted, whole ones only."""
    step_us: float | None
    """GPU time of a step, idle time included (us), under the profiler; None: no step was found."""
    shares: Shares | None
    """Of target, drafter and what is between them together; with ``idle`` they add up to one."""
    idle: float | None
    """Share of the time in which no kernel and no copy ran."""
    overlap: float | None = None
    """Share of the time in which kernels of several kinds ran at once; each kind got its part."""
    drafter_asked: bool = False
    """Whether the arm speculates with a model."""
    drafter: Shares | None = None
    """The drafter's part of ``shares``; None: no drafter, or its kernels cannot be told."""
    told_by: Literal["ranges", "graphs", "nothing"] = "nothing"
    """What told steps and models: ranges that the engine marked, the size of CUDA graphs."""
    left_out: int = 0
    """Steps that were not counted, because a prefill fell into them."""
    unknown: tuple[Named, ...] = ()
    """The largest kernels of ``other``."""
    ranks: int = 0
    """Ranks that left a trace; the shares are the first one's."""
    ranks_asked: int = 0
    """Ranks that should have."""
    whole: bool = True
    """False: the trace ends in the middle."""
    trace_bytes: int = 0
    """Size of the first rank's trace as the engine wrote it (gzip)."""
    trouble: str | None = None
    """Why there is no profile; None: there is one."""

    @property
    def drafting(self) -> float | None:
        """The drafter's share of everything."""
        return None if self.drafter is None else self.drafter.total

    @property
    def target(self) -> Shares | None:
        """Without the drafter's part, where that is known; else both together."""
        if self.shares is None or self.drafter is None:
            return self.shares
        return self.shares.less(self.drafter)


def share_figures(profile: StepProfile) -> Iterator[tuple[str, float | None]]:
    """Names and values for an index: ``share_all_reduce``, ``share_idle``, ``step_gpu_us``, ..."""
    if profile.shares is None:
        return
    for category in CATEGORIES:
        yield f"share_{category}", profile.shares.of(category)
    yield "share_idle", profile.idle
    yield "share_drafter", profile.drafting
    yield "step_gpu_us", profile.step_us
    yield "profiled_steps", float(profile.steps)
