"""The price of looking: what confidence each look needs so that the whole night keeps its own."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Pocock's boundary (Biometrika 64, 1977): every look is taken at the same nominal level, chosen
# so that a sweep that may stop at any of them errs no more often than one that never looks. It
# holds for whatever rule stops the sweep, narrow intervals as well as decided ones.

_GRID = 801
MOST_LOOKS = 100


@cache
def confidence_of_look(looks: int, confidence: float = 0.95) -> float:
    """Confidence at which each of so many equally spaced looks is taken.

    Args:
        looks: how many looks there may be; one costs nothing.
        confidence: of the whole.

    Raises:
        ValueError: impossible arguments.
    """
    if not 1 <= looks <= MOST_LOOKS or not 0 < confidence < 1:
        raise ValueError(f"looks 1 to {MOST_LOOKS}, confidence in (0, 1): {looks}, {confidence}")
    if looks == 1:
        return confidence
    from scipy import optimize, special  # a third of a second, and only needed here

    alpha = 1 - confidence
    alone = float(special.ndtri(1 - alpha / 2))
    bonferroni = float(special.ndtri(1 - alpha / looks / 2))
    bound = float(
        optimize.brentq(lambda c: _ever_beyond(c, looks) - alpha, alone, bonferroni, xtol=1e-6)
    )
    return 1 - 2 * float(special.ndtr(-bound))


def _ever_beyond(bound: float, looks: int) -> float:
    """Chance that a standardized sum of equal normal steps is beyond ``bound`` at any look.

    The density of the sum over the paths that stayed inside is carried from look to look
    (Armitage, McPherson & Rowe 1969), on a grid in units of one step.
    """
    edge = bound * math.sqrt(looks)
    grid = np.linspace(-edge, edge, _GRID)
    width = grid[1] - grid[0]
    kernel = np.exp(-0.5 * (grid[:, None] - grid[None, :]) ** 2) / math.sqrt(2 * math.pi)
    inside = np.exp(-0.5 * grid**2) / math.sqrt(2 * math.pi)
    inside = inside * _weights(grid, bound, width)
    for look in range(2, looks + 1):
        inside = (kernel @ inside) * _weights(grid, bound * math.sqrt(look), width)
    return 1 - float(inside.sum())


def _weights(grid: NDArray[np.float64], limit: float, width: float) -> NDArray[np.float64]:
    """Share of each grid cell that lies inside the limits, times its width."""
    shares: NDArray[np.float64] = np.clip((limit - np.abs(grid)) / width + 0.5, 0, 1) * width
    return shares
