"""Sweeps over several hosts: records, and bare tables of log figures, with hosts that differ."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tests.builders import speeds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tasks.record import TrialRecord


def pool(
    truth: Mapping[str, Mapping[int, float]],
    blocks: Sequence[int] = (2, 2, 2, 2),
    sd: float = 0.005,
    on: Mapping[tuple[str, str], float] | None = None,
    seed: int = 1,
    **fields: str,
) -> list[TrialRecord]:
    """Records of arms with these true speeds on hosts host-a, host-b, ... of so many blocks each.

    ``on`` maps (host, arm) to the factor by which the arm is faster there.
    """
    draw = np.random.default_rng(seed)
    hosts = [f"host-{'abcdefgh'[i]}" for i, count in enumerate(blocks) for _ in range(count)]
    records = []
    for block, host in enumerate(hosts, start=1):
        shift = draw.normal() * 0.03
        for arm, ladder in truth.items():
            factor = (on or {}).get((host, arm), 1.0) * math.exp(shift + draw.normal() * sd)
            records += speeds(
                arm,
                {block: {users: speed * factor for users, speed in ladder.items()}},
                1.0 if arm == "base" else 2.4,
                host=host,
                **fields,
            )
    return records


def table(
    draw: np.random.Generator, blocks: Sequence[int], arms: int, between: float, *, together: bool
) -> dict[int, dict[tuple[int, int], float]]:
    """Setting -> (host, block) -> log figure, with noise 1 and ratios of that sd between hosts.

    ``together``: a host shifts all arms alike against setting 0; else each setting for itself.
    """
    host = np.repeat(np.arange(len(blocks)), blocks)
    if together:
        effect = np.vstack(
            [np.zeros(len(blocks)), np.ones((arms - 1, 1)) * draw.normal(size=len(blocks))]
        )
    else:
        effect = draw.normal(size=(arms, len(blocks))) / math.sqrt(2)
    values = (draw.normal(size=(arms, len(host))) + between * effect[:, host]) * 0.02
    return {
        arm: {(int(host[b]), b): float(values[arm, b]) for b in range(len(host))}
        for arm in range(arms)
    }
