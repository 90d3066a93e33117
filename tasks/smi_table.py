"""Reads the table that plain ``nvidia-smi`` prints for people."""

from __future__ import annotations

import re
from typing import NamedTuple

from configs.values import Value
from tasks.smi_csv import GpuRow

_GPU_HEAD = re.compile(r"^\|\s+(\d+)\s+(\S.*?)\s+(?:On|Off|N/A|ERR!)\s*\|\s*(?:[0-9A-F]{4,8}:)")
_GPU_MEMORY = re.compile(r"\|\s*(\d+)MiB\s*/\s*(\d+)MiB\s*\|\s*(\d+)?%?")
_MIG_DEVICE = re.compile(r"^\|\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s+\|\s*(\d+)MiB\s*/\s*(\d+)MiB")
_MIG_MODE = re.compile(r"\|\s*Enabled\s*\|\s*$")
#: A line of ``nvidia-smi -L``.
_MIG_LISTED = re.compile(r"^\s+MIG \S+\s+Device\s+\d+:", re.MULTILINE)
_PROCESS = re.compile(
    r"^\|\s+(?P<gpu>\d+)\s+(?:(?P<gi>\d+|N/A)\s+(?P<ci>\d+|N/A)\s+)?(?P<pid>\d+)\s+"
    r"(?P<type>C\+G|M\+C|C|G|M)\s+(?P<name>\S.*?)\s+(?:(?P<mib>\d+)MiB|N/A)\s*\|\s*$"
)


class MigDevice(Value):
    """One MIG device."""

    gpu: int
    """Index of the card."""
    gi: int
    """GPU instance."""
    ci: int
    """Compute instance."""
    used_mib: float
    """Memory in use, MiB."""
    total_mib: float
    """Memory of the device, MiB."""


class TableProcess(Value):
    """One row of the table's process list."""

    gpu: int
    """Index of the card."""
    pid: int
    """Process id."""
    type: str
    """C compute, G graphics, M multi-process service, or two of them."""
    name: str
    """Process name, cut by the table."""
    used_mib: float | None = None
    """Memory in use, MiB; None where it is not shown."""

    @property
    def computes(self) -> bool:
        """Whether it is more than a graphics process."""
        return self.type != "G"


class Table(NamedTuple):
    """What the table shows."""

    seen: bool
    gpus: tuple[GpuRow, ...]
    processes: tuple[TableProcess, ...]
    mig: bool
    mig_devices: tuple[MigDevice, ...]

    @property
    def compute(self) -> tuple[TableProcess, ...]:
        """The processes that compute."""
        return tuple(p for p in self.processes if p.computes)


def read_table(text: str) -> Table:
    """Read what is there of the table: GPUs, MIG devices, processes; other text gives nothing.

    ``No running processes found`` is a sentence, not a row.
    """
    gpus: list[GpuRow] = []
    devices: list[MigDevice] = []
    processes: list[TableProcess] = []
    head: tuple[int, str] | None = None
    mig = "MIG devices:" in text or _MIG_LISTED.search(text) is not None
    for line in text.splitlines():
        line = line[:1000]  # noqa: PLW2901 - the table is 91 wide; anything longer is no row of it
        if found := _GPU_HEAD.match(line):
            head = (int(found[1]), found[2])
            gpus.append(GpuRow(index=head[0], name=head[1], memory_words="N/A"))
        elif found := _MIG_DEVICE.match(line):
            gpu, gi, ci, _device, used, total = (int(group) for group in found.groups())
            devices.append(MigDevice(gpu=gpu, gi=gi, ci=ci, used_mib=used, total_mib=total))
        elif found := _PROCESS.match(line):
            processes.append(_process(found))
        elif head and (found := _GPU_MEMORY.search(line)):
            gpus[-1] = _with_memory(head, found)
            head = None
        elif gpus and _MIG_MODE.search(line):
            mig = True
            gpus[-1] = gpus[-1].model_copy(update={"mig": True})
    seen = "NVIDIA-SMI" in text or "Processes:" in text
    return Table(seen and "|" in text, tuple(gpus), tuple(processes), mig, tuple(devices))


def _with_memory(head: tuple[int, str], found: re.Match[str]) -> GpuRow:
    return GpuRow(
        index=head[0],
        name=head[1],
        used_mib=int(found[1]),
        total_mib=int(found[2]),
        utilization_pct=int(found[3]) if found[3] else None,
        memory_words=f"{found[1]}MiB",
    )


def _process(found: re.Match[str]) -> TableProcess:
    return TableProcess(
        gpu=int(found["gpu"]),
        pid=int(found["pid"]),
        type=found["type"],
        name=found["name"],
        used_mib=int(found["mib"]) if found["mib"] else None,
    )
