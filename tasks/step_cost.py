"""What a decode step costs, and each draft token on top of it, fitted over batch sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from configs.values import Value

if TYPE_CHECKING:
    from collections.abc import Sequence


class Step(NamedTuple):
    """One measured step time."""

    drafts: int
    """Draft tokens that the step verifies, without the one that is certain; 0: plain decoding."""
    concurrency: int
    step_s: float


class StepCost(Value):
    """A plane through measured step times: (plain + drafts * each), both affine in the batch."""

    probe: str
    levels: dict[str, str]
    plain_s: float
    """A plain step with one request (s)."""
    plain_more_s: float
    """What each further request adds to it."""
    draft_s: float
    """One draft token, drafted and verified, with one request (s)."""
    draft_more_s: float
    """What each further request adds to it."""
    least: int
    """Lowest concurrency that was measured."""
    most: int
    points: int
    worst: float
    """Largest relative distance of a measured step time from the plane."""

    def step_s(self, drafts: float, concurrency: float) -> float:
        """The step time that the plane gives."""
        more = concurrency - 1
        plain = self.plain_s + self.plain_more_s * more
        return plain + drafts * (self.draft_s + self.draft_more_s * more)


_COLUMNS: Final = 4


def step_cost(probe: str, levels: dict[str, str], steps: Sequence[Step]) -> StepCost | None:
    """Fit the plane by least squares of relative distances; None where the points cannot bear it.

    A decode step at these batches reads the weights once and does a little work for each token, so
    it is affine in the tokens that it looks at; the rest is the drafter's, affine in its steps.
    """
    ladder = sorted({step.concurrency for step in steps})
    flat = len(ladder) < 2  # then nothing is known of the batch
    rows = np.array(
        [
            [1.0, 0.0 if flat else s.concurrency - 1, s.drafts, s.drafts * (s.concurrency - 1)]
            for s in steps
        ]
    ).reshape(-1, _COLUMNS)
    if flat and len(rows):
        rows[:, 3] = 0.0
    measured = np.array([step.step_s for step in steps])
    if not {0} < {step.drafts for step in steps} or np.any(measured <= 0):
        return None
    found, _, _, _ = np.linalg.lstsq(rows / measured[:, None], np.ones(len(rows)), rcond=None)
    distances = np.abs(rows @ found / measured - 1)
    plain_s, plain_more_s, draft_s, draft_more_s = map(float, found)
    return StepCost(
        probe=probe,
        levels=levels,
        plain_s=plain_s,
        plain_more_s=plain_more_s,
        draft_s=draft_s,
        draft_more_s=draft_more_s,
        least=ladder[0],
        most=ladder[-1],
        points=len(rows),
        worst=float(distances.max()),
    )
