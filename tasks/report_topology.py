"""The report's section on how each host's GPUs hang together, and what of it is known to hurt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.markdown_text import inline
from tasks.report_tables import UNKNOWN, table
from tasks.topology_warnings import topology_warnings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.record import TrialRecord
    from tasks.topology import GpuPlace, Topology


def topology_section(records: Sequence[TrialRecord]) -> str:
    """One part for each host, as its latest trial found it; empty text where nothing is known.

    Hosts of which the same is known share a part: four equal boxes are drawn once.
    """
    hosts: dict[str, Topology] = {}
    for record in records:
        if record.topology is not None:
            hosts[record.host] = record.topology
    alike: dict[Topology, list[str]] = {}
    for name, topology in hosts.items():
        alike.setdefault(topology, []).append(name)
    return "\n\n".join(_part(names, topology) for topology, names in alike.items())


def _part(names: Sequence[str], topology: Topology) -> str:
    kind = "Host" if len(names) == 1 else "Hosts"
    parts = [f"{kind} {inline(', '.join(names))}: {_words(topology)}."]
    warned = topology_warnings(topology)
    if warned:
        parts.append("\n".join(f"- {inline(w.text)} (source: {inline(w.source)})" for w in warned))
    if topology.matrix:
        parts.append(_matrix(topology))
    if topology.gpus:
        parts.append(_gpus(topology.gpus))
    return "\n\n".join(parts)


def _words(topology: Topology) -> str:
    nodes = topology.numa_nodes
    iommu = {None: "IOMMU unknown", False: "no IOMMU", True: "IOMMU on"}[topology.iommu]
    if topology.iommu_passthrough:
        iommu += " (pass-through)"
    if topology.no_peer is None:
        peers = "direct access between GPUs unknown"
    elif topology.no_peer:
        count = len(topology.no_peer)
        peers = f"no direct access between {count} pair{'s'[: count != 1]} of GPUs"
    else:
        peers = "every GPU reaches every other one's memory"
    known = "NUMA nodes unknown" if nodes is None else f"{nodes} NUMA node{'s'[: nodes != 1]}"
    return f"{known}, {iommu}, {peers}"


def _matrix(topology: Topology) -> str:
    """As ``nvidia-smi topo -m`` draws it; pairs without direct access are struck through."""
    denied = {(one.a, one.b) for one in topology.no_peer or ()}
    rows = [row.split() for row in topology.matrix]
    body = table(
        ("", *(f"GPU{b}" for b in range(len(rows)))),
        (
            (
                f"GPU{a}",
                *(
                    f"~~{word}~~" if {(a, b), (b, a)} & denied else word
                    for b, word in enumerate(row)
                ),
            )
            for a, row in enumerate(rows)
        ),
    )
    legend = (
        "NV# is so many bonded NVLinks; PIX one PCIe bridge, PXB several, PHB the host bridge, NODE "
        "within a NUMA node, SYS across sockets"
    )
    return f"{body}\n\n{legend}{'; struck through: no direct access' if denied else ''}."


def _gpus(gpus: Sequence[GpuPlace]) -> str:
    return table(
        ("GPU", "PCIe", "lanes", "NVLinks", "power limit", "clock", "NUMA node", "CPUs"),
        (
            (
                str(gpu.index),
                _of("gen ", gpu.pcie_gen, gpu.pcie_gen_max),
                _of("x", gpu.pcie_width, gpu.pcie_width_max),
                _links(gpu),
                _of("", gpu.power_limit_w, gpu.power_default_w, " W"),
                _of("", gpu.clock_set_mhz or gpu.clock_max_mhz, gpu.clock_max_mhz, " MHz"),
                UNKNOWN if gpu.numa_node is None else str(gpu.numa_node),
                gpu.cpus or UNKNOWN,
            )
            for gpu in gpus
        ),
    )


def _of(before: str, now: float | None, most: float | None, unit: str = "") -> str:
    """What is, and what could be where that is something else."""
    if now is None:
        return UNKNOWN if most is None else f"at most {before}{most:g}{unit}"
    return f"{before}{now:g}{unit}" + (f" of {most:g}" if most is not None and most != now else "")


def _links(gpu: GpuPlace) -> str:
    if gpu.nvlinks is None:
        return UNKNOWN
    rate = "" if gpu.nvlink_gb_s is None else f", {gpu.nvlink_gb_s:.0f} GB/s"
    return f"{gpu.nvlinks}{rate}"
