"""How this host's GPUs hang together, as raw texts; asked once for a whole sweep."""

from __future__ import annotations

import os
import re
from typing import Any, Optional

from infra.agent import commands, release

# Known to every driver since 450; the settings of clocks are N/A where a card has none.
LINK_ROWS = (
    "index,pci.bus_id,pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,"
    "pcie.link.width.max,power.limit,power.default_limit,clocks.max.sm,"
    "clocks.applications.graphics,clocks.default_applications.graphics"
)
_TIMEOUT_S = 10.0
_MOST_CHARACTERS = 64 * 1024
_MOST_NAMES = 64
# Of the kernel's command line only what concerns PCIe leaves the host.
_KERNEL_WORD = re.compile(r"[\w.]*(?:iommu|acs|swiotlb)[\w.]*(?:=[\w.,:=-]*)?|pci=[\w.,:=-]*")
_PCI = "/sys/bus/pci/devices"


def ask() -> dict[str, Any]:
    """Everything; what cannot be asked or read here is None, or says so itself."""
    links = _short(release.smi("gpu", LINK_ROWS, _TIMEOUT_S))
    return {
        "matrix": _nvidia_smi("topo", "-m"),
        "p2p_read": _nvidia_smi("topo", "-p2p", "r"),
        "p2p_write": _nvidia_smi("topo", "-p2p", "w"),
        "nvlink": _nvidia_smi("nvlink", "--status"),
        "links": links,
        "nodes": _nodes("/sys/devices/system/node"),
        "iommu": _names("/sys/class/iommu"),
        "kernel": _kernel("/proc/cmdline"),
        "devices": [_device(bus) for bus in _buses(links["stdout"])],
    }


def _nvidia_smi(*arguments: str) -> dict[str, Any]:
    return _short(commands.run(["nvidia-smi", *arguments], _TIMEOUT_S))


def _short(answer: dict[str, Any]) -> dict[str, Any]:
    return {
        **answer,
        "stdout": answer["stdout"][:_MOST_CHARACTERS],
        "stderr": answer["stderr"][:500],
    }


def _buses(rows: str) -> list[str]:
    cells = (line.split(",") for line in rows.splitlines()[:_MOST_NAMES])
    return [row[1].strip().lower() for row in cells if len(row) > 1]


def _device(bus: str) -> dict[str, Any]:
    """NUMA node and IOMMU group of a card; nvidia-smi writes its domain with eight digits."""
    path = os.path.join(_PCI, bus[4:] if re.fullmatch(r"0000[0-9a-f]{4}:.*", bus) else bus)
    try:
        group: Optional[str] = os.path.basename(os.readlink(os.path.join(path, "iommu_group")))
    except OSError:
        group = None
    return {"bus": bus, "node": _text(os.path.join(path, "numa_node")), "group": group}


def _nodes(folder: str) -> Optional[dict[str, Optional[str]]]:
    names = _names(folder)
    if names is None:
        return None
    nodes = [name for name in names if re.fullmatch(r"node\d+", name)]
    return {name: _text(os.path.join(folder, name, "cpulist")) for name in nodes}


def _kernel(path: str) -> Optional[list[str]]:
    text = _text(path)
    if text is None:
        return None
    return [word for word in text.split() if _KERNEL_WORD.fullmatch(word)][:_MOST_NAMES]


def _names(folder: str) -> Optional[list[str]]:
    try:
        return sorted(os.listdir(folder))[: 4 * _MOST_NAMES]
    except OSError:
        return None


def _text(path: str) -> Optional[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_CHARACTERS).strip()
    except OSError:
        return None
