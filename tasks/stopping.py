"""When a sweep may stop before its last block."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tasks.decision import leading_cells

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.comparison import Cell, Comparison


def enough_everywhere(comparisons: Sequence[Comparison], half_width: float) -> str | None:
    """The same for a sweep over unlike hosts: enough must be known for each class of them."""
    known = [enough_known(comparison, half_width) for comparison in comparisons]
    return next(iter(known)) if all(known) else None


def enough_known(comparison: Comparison, half_width: float) -> str | None:
    """Why nothing more need be asked, in one line; None while something is still open.

    The intervals are the comparison's own, corrected for how many ratios there are and for how
    often it may be looked (tasks/looks); so stopping on them costs no error that is not stated.

    Args:
        comparison: of all blocks so far.
        half_width: as a share of the ratio, such as 0.02.
    """
    cells = leading_cells(comparison)
    if not cells or not all(_narrow(cell, half_width) for cell in cells):
        return None
    return f"every interval of {comparison.metrics[0]} is within {half_width:.1%} either way"


def _narrow(cell: Cell, half_width: float) -> bool:
    if cell.low is None or cell.high is None:
        return False
    return math.log(cell.high / cell.low) / 2 <= math.log1p(half_width)
