"""Reads the CSV answers of ``nvidia-smi``: any field order, with or without header and units."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from configs.values import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The fields the host agent asks for, in its order.
QUERY_GPU = (
    "index",
    "uuid",
    "name",
    "driver_version",
    "memory.used",
    "memory.total",
    "utilization.gpu",
    "power.draw",
    "clocks.sm",
    "clocks.max.sm",
    "temperature.gpu",
    "clocks_event_reasons.active",
)
COMPUTE_APPS = ("gpu_uuid", "pid", "process_name", "used_memory")

#: Field names that newer and older drivers print for the same thing.
_ALIASES = {
    "used_gpu_memory": "used_memory",
    "clocks.current.sm": "clocks.sm",
    "clocks.max.graphics": "clocks.max.sm",
    "clocks_throttle_reasons.active": "clocks_event_reasons.active",
}
#: The one field of each query whose value may itself hold a comma.
_FREE_TEXT = ("process_name", "name", "gpu_name")
_FIRST_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_QUERY = re.compile(r"--query-(?P<what>gpu|compute-apps)=(?P<fields>[\w.,-]+)")


class GpuRow(Value):
    """One GPU. A figure that the driver does not report is None."""

    index: int
    """Number of the GPU on the host."""
    uuid: str | None = None
    """Identifier that stays with the card."""
    name: str | None = None
    """Product name."""
    driver_version: str | None = None
    """Version of the driver."""
    used_mib: float | None = None
    """Memory in use, MiB."""
    total_mib: float | None = None
    """Memory of the card, MiB."""
    utilization_pct: float | None = None
    """Share of time with a kernel running, percent."""
    power_w: float | None = None
    """Power draw, W."""
    sm_clock_mhz: float | None = None
    """Clock of the multiprocessors now, MHz."""
    sm_clock_max_mhz: float | None = None
    """Highest clock of the multiprocessors, MHz."""
    temperature_c: float | None = None
    """Core temperature, degrees Celsius."""
    clock_reasons: int | None = None
    """Bit mask of the reasons that hold the clock down."""
    mig: bool = False
    """Whether the card is split into MIG devices."""
    memory_words: str = ""
    """What was printed for the memory in use."""


class GpuApp(Value):
    """One compute process on one GPU."""

    pid: int
    """Process id in the namespace of the driver's choice."""
    gpu_uuid: str | None = None
    """Identifier of the GPU or MIG device."""
    name: str | None = None
    """Process name, None where it is not shown."""
    used_mib: float | None = None
    """Memory in use, MiB; None where it is not shown (containers, Windows)."""

    @property
    def on_mig(self) -> bool:
        """Whether it computes on a MIG device."""
        return (self.gpu_uuid or "").startswith("MIG-")


def queried_fields(command: str) -> tuple[str, ...] | None:
    """The fields that a ``nvidia-smi --query-…=`` command line asks for, or None."""
    found = _QUERY.search(command)
    return tuple(found["fields"].strip(",").split(",")) if found else None


def read_gpus(text: str, columns: Sequence[str] = QUERY_GPU) -> tuple[GpuRow, ...]:
    """The rows of a ``--query-gpu`` answer; lines that are none are left out."""
    rows = []
    for fields in records(text, columns, first="index"):
        index = fields.get("index", "")
        if index.isascii() and index.isdigit() and len(index) < 5:
            rows.append(_gpu(int(index), fields))
    return tuple(rows)


def read_apps(text: str, columns: Sequence[str] = COMPUTE_APPS) -> tuple[GpuApp, ...]:
    """The rows of a ``--query-compute-apps`` answer; ``[N/A]`` and ``[Not Found]`` become None."""
    apps = []
    for fields in records(text, columns, first="pid"):
        pid = fields.get("pid", "")
        if pid.isascii() and pid.isdigit() and len(pid) < 12:
            apps.append(
                GpuApp(
                    pid=int(pid),
                    gpu_uuid=_shown(fields.get("gpu_uuid") or fields.get("uuid")),
                    name=_shown(fields.get("process_name") or fields.get("name")),
                    used_mib=figure(fields.get("used_memory")),
                )
            )
    return tuple(apps)


def _gpu(index: int, fields: dict[str, str]) -> GpuRow:
    reasons = _shown(fields.get("clocks_event_reasons.active"))
    return GpuRow(
        index=index,
        uuid=_shown(fields.get("uuid") or fields.get("gpu_uuid")),
        name=_shown(fields.get("name") or fields.get("gpu_name")),
        driver_version=_shown(fields.get("driver_version")),
        used_mib=figure(fields.get("memory.used")),
        total_mib=figure(fields.get("memory.total")),
        utilization_pct=figure(fields.get("utilization.gpu")),
        power_w=figure(fields.get("power.draw")),
        sm_clock_mhz=figure(fields.get("clocks.sm")),
        sm_clock_max_mhz=figure(fields.get("clocks.max.sm")),
        temperature_c=figure(fields.get("temperature.gpu")),
        clock_reasons=_mask(reasons),
        mig=fields.get("mig.mode.current", "").lower() == "enabled",
        memory_words=fields.get("memory.used", ""),
    )


def records(text: str, columns: Sequence[str], first: str) -> list[dict[str, str]]:
    """The rows of an answer by field name; a header with the field ``first`` gives the names."""
    names = [_canonical(c) for c in columns]
    records = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        heads = [_canonical(cell.split("[")[0].strip()) for cell in cells]
        if first in heads:
            names = heads
        elif len(cells) >= len(names) > 1:
            records.append(dict(zip(names, _rejoin(cells, names), strict=True)))
    return records


def _rejoin(cells: list[str], names: Sequence[str]) -> list[str]:
    """Give a surplus of commas back to the field that may hold them."""
    surplus = len(cells) - len(names)
    at = next((names.index(name) for name in _FREE_TEXT if name in names), len(names) - 1)
    return [*cells[:at], ", ".join(cells[at : at + surplus + 1]), *cells[at + surplus + 1 :]]


def _canonical(name: str) -> str:
    name = name.strip().lower()
    return _ALIASES.get(name, name)


def _shown(cell: str | None) -> str | None:
    """The cell, or None where it is a remark: ``[N/A]``, ``[Not Found]``, ``N/A``, empty."""
    if not cell or cell.startswith("[") or cell.upper() in ("N/A", "ERR!", "UNKNOWN ERROR"):
        return None
    return cell


def figure(cell: str | None) -> float | None:
    """The number in a cell, whatever unit stands behind it; None where there is none."""
    shown = _shown(cell)
    found = _FIRST_NUMBER.match(shown) if shown else None
    return float(found[0]) if found else None


def _mask(cell: str | None) -> int | None:
    try:
        return int(cell, 16) if cell else None
    except ValueError:
        return None
