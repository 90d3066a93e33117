"""How a host's GPUs hang together, read from what the agent saw; unknown is None."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from configs.values import Value
from tasks.smi_csv import figure, records

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# As infra/agent/topology.py asks for them.
LINK_COLUMNS = (
    "index",
    "pci.bus_id",
    "pcie.link.gen.current",
    "pcie.link.gen.max",
    "pcie.link.width.current",
    "pcie.link.width.max",
    "power.limit",
    "power.default_limit",
    "clocks.max.sm",
    "clocks.applications.graphics",
    "clocks.default_applications.graphics",
)
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_DEVICE = re.compile(r"(?:GPU|NIC)\d{1,3}|[a-z]+\d*_\d{1,3}")
_GPU = re.compile(r"GPU(\d{1,3})")
_CPUS = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*")
_NVLINK_GPU = re.compile(r"GPU (\d{1,3}):")
_NVLINK_RATE = re.compile(r"\s*Link \d{1,3}:\s+(\d{1,5}(?:\.\d{1,6})?) GB/s")
_NVLINK_OFF = re.compile(r"\s*Link \d{1,3}:\s+<?inactive>?", re.IGNORECASE)
_MOST_GPUS = 64


class GpuPlace(Value):
    """One GPU: its way to the host, its limits, its links to the others."""

    index: int
    pcie_gen: int | None = None
    """PCIe generation at this moment; an idle card may lower it to save power."""
    pcie_gen_max: int | None = None
    """Highest that card and host allow together."""
    pcie_width: int | None = None
    """Lanes at this moment."""
    pcie_width_max: int | None = None
    """Lanes that card and host allow together."""
    power_limit_w: float | None = None
    power_default_w: float | None = None
    """The limit that the card comes with."""
    clock_max_mhz: float | None = None
    """Highest clock of the multiprocessors."""
    clock_set_mhz: float | None = None
    """The clock that is set for applications; below the default it is a limit."""
    clock_default_mhz: float | None = None
    """The clock for applications that the card comes with."""
    numa_node: int | None = None
    cpus: str | None = None
    """CPUs next to the card, such as 0-31."""
    nvlinks: int | None = None
    """Active NVLinks; None where the card does not tell."""
    nvlinks_inactive: int | None = None
    nvlink_gb_s: float | None = None
    """All active links together, one way, GB/s."""


class NoPeer(Value):
    """Two GPUs of which at least one cannot reach the other's memory."""

    a: int
    b: int
    word: str
    """As nvidia-smi says it: CNS (chipset), GNS (GPU), TNS (topology), NS, DR (by driver setting)."""


class Topology(Value):
    """How the GPUs of a host hang together."""

    gpus: tuple[GpuPlace, ...] = ()
    matrix: tuple[str, ...] = ()
    """One row a GPU, blanks between the words for each other one: X (itself), NV# (bonded NVLinks),
    PIX (one PCIe bridge), PXB (several), PHB (host bridge), NODE (within a NUMA node), SYS (across
    sockets). Empty: unknown."""
    no_peer: tuple[NoPeer, ...] | None = None
    """Pairs that cannot read or write each other's memory; None: nobody knows."""
    numa_nodes: int | None = None
    iommu: bool | None = None
    """Whether the kernel drives an IOMMU."""
    iommu_passthrough: bool | None = None
    """Whether it lets devices through untranslated (iommu=pt); None without an IOMMU."""
    acs_isolated: bool | None = None
    """A hint, since ACS itself needs root: with an IOMMU, whether each GPU stands in a group of its
    own, which the kernel makes where ACS sends traffic between them through the root."""

    def path(self, a: int, b: int) -> str | None:
        """The word for the way between two GPUs, by their place in the list."""
        words = [row.split() for row in self.matrix]
        return words[a][b] if a < len(words) and b < len(words[a]) else None

    def pairs(self) -> Iterator[tuple[int, int, str]]:
        """Each pair of GPUs once, with the word for the way between them."""
        for a, row in enumerate(self.matrix):
            for b, word in enumerate(row.split()[a + 1 :], start=a + 1):
                yield a, b, word


class _Row(NamedTuple):
    words: list[str]
    rest: list[str]
    """What stands behind the devices: CPU affinity, NUMA affinity."""


def read_topology(raw: Mapping[str, Any] | None) -> Topology | None:
    """From the agent's raw texts to a value; None if it was not asked, or there is no nvidia-smi."""
    if raw is None or raw["matrix"]["error"] == "not_found":
        return None
    matrix = _matrix(raw["matrix"]["stdout"])
    square = all(len(row.words) == len(matrix) for row in matrix.values())
    places = _places(raw, matrix)
    return Topology(
        gpus=tuple(places[index] for index in sorted(places)),
        matrix=tuple(" ".join(row.words) for row in matrix.values()) if square else (),
        no_peer=_no_peer(raw["p2p_read"]["stdout"], raw["p2p_write"]["stdout"]),
        numa_nodes=None if raw["nodes"] is None else len(raw["nodes"]) or None,
        iommu=None if raw["iommu"] is None else bool(raw["iommu"]),
        iommu_passthrough=_passthrough(raw["iommu"], raw["kernel"]),
        acs_isolated=_isolated(raw["iommu"], [device["group"] for device in raw["devices"]]),
    )


def _places(raw: Mapping[str, Any], matrix: Mapping[int, _Row]) -> dict[int, GpuPlace]:
    rows = {
        int(row["index"]): row
        for row in records(raw["links"]["stdout"], LINK_COLUMNS, first="index")
        if row.get("index", "").isdecimal() and len(row["index"]) < 4
    }
    links = _nvlinks(raw["nvlink"]["stdout"])
    nodes = {device["bus"]: device["node"] for device in raw["devices"]}
    found = {}
    for index in sorted({*rows, *matrix}):
        row = rows.get(index, {})
        rest = matrix[index].rest if index in matrix else []
        found[index] = GpuPlace(
            index=index,
            pcie_gen=_whole(row.get("pcie.link.gen.current")),
            pcie_gen_max=_whole(row.get("pcie.link.gen.max")),
            pcie_width=_whole(row.get("pcie.link.width.current")),
            pcie_width_max=_whole(row.get("pcie.link.width.max")),
            power_limit_w=figure(row.get("power.limit")),
            power_default_w=figure(row.get("power.default_limit")),
            clock_max_mhz=figure(row.get("clocks.max.sm")),
            clock_set_mhz=figure(row.get("clocks.applications.graphics")),
            clock_default_mhz=figure(row.get("clocks.default_applications.graphics")),
            numa_node=_node(rest, nodes.get(row.get("pci.bus_id", "").lower())),
            cpus=rest[0] if rest and _CPUS.fullmatch(rest[0]) else None,
            **links.get(index, {}),
        )
    return found


def _matrix(text: str) -> dict[int, _Row]:
    """Index of a GPU -> the words of its row for the other GPUs, in the order of the header."""
    header: list[str] = []
    found: dict[int, _Row] = {}
    for line in _ESCAPE.sub("", text).splitlines():
        words = line.split()
        if words[:1] == ["Legend:"] or len(found) >= _MOST_GPUS:
            break
        if not header:
            header = [word for word in words if _DEVICE.fullmatch(word)]
            continue
        gpu = _GPU.fullmatch(words[0]) if words else None
        if gpu is None or len(words) <= len(header):
            continue
        ours = [w for name, w in zip(header, words[1:], strict=False) if _GPU.fullmatch(name)]
        found[int(gpu[1])] = _Row(ours, words[len(header) + 1 :])
    return found


def _no_peer(*texts: str) -> tuple[NoPeer, ...] | None:
    """Pairs that some matrix of ``topo -p2p`` denies; None where none of them could be read."""
    denied: dict[tuple[int, int], str] = {}
    known = False
    for text in texts:
        for a, row in _matrix(text).items():
            for b, word in enumerate(row.words):
                known = known or word not in {"X", "U"}
                if word not in {"X", "OK", "U"}:
                    denied.setdefault((min(a, b), max(a, b)), word)
    if not known:
        return None
    return tuple(NoPeer(a=a, b=b, word=word) for (a, b), word in sorted(denied.items()))


def _nvlinks(text: str) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    here: dict[str, Any] | None = None
    for line in text.splitlines():
        gpu = _NVLINK_GPU.match(line)
        if gpu is not None:
            here = found.setdefault(int(gpu[1]), {})
        rate, off = _NVLINK_RATE.match(line), _NVLINK_OFF.match(line)
        if here is None or (rate is None and off is None):
            continue
        here["nvlinks"] = here.get("nvlinks", 0) + (rate is not None)
        here["nvlinks_inactive"] = here.get("nvlinks_inactive", 0) + (off is not None)
        if rate is not None:
            here["nvlink_gb_s"] = round(here.get("nvlink_gb_s", 0.0) + float(rate[1]), 3)
    return found


def _node(rest: list[str], device: str | None) -> int | None:
    """From the matrix, else from the device itself, where -1 means that nobody knows."""
    for word in (rest[1] if len(rest) > 1 else "", device or ""):
        if word.isdecimal() and len(word) < 5:
            return int(word)
    return None


def _passthrough(iommu: list[str] | None, kernel: list[str] | None) -> bool | None:
    if not iommu or kernel is None:
        return None
    return bool({"iommu=pt", "iommu.passthrough=1"} & set(kernel))


def _isolated(iommu: list[str] | None, groups: list[str | None]) -> bool | None:
    if not iommu or len(groups) < 2 or None in groups:
        return None
    return len(set(groups)) == len(groups)


def _whole(cell: str | None) -> int | None:
    number = figure(cell)
    return None if number is None else int(number)
