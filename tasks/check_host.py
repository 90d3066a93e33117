"""Guards on the host under a measurement: were its GPUs at full clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.check_facts import ProbeFacts, ServerFacts
    from tasks.check_limits import Limits
    from tasks.smi_csv import GpuRow

# Bits of nvidia-smi's clocks_event_reasons.active that mean trouble: hardware slowdown, software
# and hardware thermal slowdown, hardware power brake. Not: idle, a set clock, the software power
# cap, sync boost (nvml.h, nvmlClocksEventReason*). A loaded card often sits at its power cap.
THROTTLE_BITS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
IDLE_BIT = 0x01


def throttled(mask: int | None) -> tuple[str, ...]:
    """The troubling reasons in a clocks_event_reasons mask; an idle card has none."""
    if mask is None or mask & IDLE_BIT:
        return ()
    return tuple(name for bit, name in THROTTLE_BITS.items() if mask & bit)


def _clocks(p: ProbeFacts, _s: ServerFacts, _limits: Limits) -> str | None:
    slow = [(row, names) for row in p.gpus if (names := throttled(row.clock_reasons))]
    return (
        "; ".join(f"GPU {row.index}: {', '.join(names)}{_at(row)}" for row, names in slow) or None
    )


def _at(row: GpuRow) -> str:
    """Clock and temperature at that moment, as far as the driver says."""
    parts = []
    if row.sm_clock_mhz is not None and row.sm_clock_max_mhz is not None:
        parts.append(f"{row.sm_clock_mhz:.0f} of {row.sm_clock_max_mhz:.0f} MHz")
    if row.temperature_c is not None:
        parts.append(f"{row.temperature_c:.0f} °C")
    if row.power_w is not None:
        parts.append(f"{row.power_w:.0f} W")
    return f" ({', '.join(parts)})" if parts else ""


HOST_LOOKS: tuple[tuple[str, Callable[[ProbeFacts, ServerFacts, Limits], str | None]], ...] = (
    ("clocks_throttled", _clocks),
)
