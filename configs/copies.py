"""A sweep that asks nothing but how noisy the host is: one arm and its copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from configs.sweep import Sweep

if TYPE_CHECKING:
    from collections.abc import Mapping

SUFFIX = "copy"


def calibration_of(sweep: Sweep, blocks: int) -> Sweep:
    """The baseline of a sweep and a copy of it, under the factors' first levels."""
    base = sweep.arms[sweep.baseline]
    copy = f"{sweep.baseline}-{SUFFIX}"
    return Sweep.model_validate(
        {
            **{name: getattr(sweep, name) for name in Sweep.model_fields},
            "name": f"{sweep.name}-calibrate",
            "question": f"How noisy is the host by itself, under the probes of {sweep.name}?",
            "arms": {sweep.baseline: base, copy: {"replicate_of": sweep.baseline}},
            "factors": {factor: _first(levels) for factor, levels in sweep.factors.items()},
            "exclude": (),
            "combinations": (),
            "blocks": blocks,
            "until": None,
        }
    )


def _first(levels: Mapping[str, object]) -> dict[str, object]:
    return dict([next(iter(levels.items()))])
