"""The limits of tasks/change_point, by simulation: each look has the same chance of a false alarm."""

from __future__ import annotations

import argparse
import sys

import numpy as np

from tasks.change_point import FALSE_ALARM, FIRST_LOOK, WINDOW, splits

_AT_ONCE = 20_000


def limits(series: int, seed: int) -> list[float]:
    """The limit after each number of nights from the first look on.

    Of the series that have not gone beyond an earlier limit, a share of FALSE_ALARM goes beyond
    each: the hazard of a false alarm is the same every night.
    """
    draw = np.random.default_rng(seed)
    largest = np.empty((series, WINDOW - FIRST_LOOK + 1), dtype=np.float32)
    for begin in range(0, series, _AT_ONCE):
        nights = draw.standard_normal((min(_AT_ONCE, series - begin), WINDOW))
        for place in range(largest.shape[1]):
            t, _steps = splits(nights[:, : FIRST_LOOK + place])
            largest[begin : begin + len(nights), place] = np.abs(t).max(axis=1)
    found = []
    for place in range(largest.shape[1]):
        limit = float(np.quantile(largest[:, place], 1 - FALSE_ALARM))
        found.append(limit)
        largest = largest[largest[:, place] <= limit]
    return found


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=1_600_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    found = limits(asked.series, asked.seed)
    sys.stdout.write(", ".join(f"{limit:.2f}" for limit in found) + "\n")


if __name__ == "__main__":
    main()
