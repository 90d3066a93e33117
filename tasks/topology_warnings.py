"""What is known to hurt in the way a host's GPUs hang together, each with who says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tasks.topology import GpuPlace, Topology

_GUIDE: Final = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs"
_FULL_WIDTH: Final = 16
_FEW: Final = 2  # SGLang's custom all-reduce serves two GPUs over PCIe, no more


class Warned(NamedTuple):
    """One thing that is known to hurt, or to look as if it did."""

    text: str
    source: str
    """Who says so."""


def topology_warnings(topology: Topology | None) -> list[Warned]:
    """Everything worth knowing before a night; empty where nothing is known."""
    if topology is None:
        return []
    rules = (_lanes, _generation, _peers, _iommu, _sockets, _pcie_only, _links, _power, _clocks)
    return [warned for rule in rules for warned in rule(topology)]


def _lanes(topology: Topology) -> Iterator[Warned]:
    source = "PCI Express: the rate is in proportion to the lanes; nvidia-smi --help-query-gpu"
    for (now, most), gpus in _grouped(
        topology, lambda gpu: (gpu.pcie_width, gpu.pcie_width_max)
    ).items():
        if now is None or most is None:
            continue
        if now < most:
            text = f"{gpus} on x{now} instead of x{most}: reseat cards or risers, look at the slot"
            yield Warned(text, source)
        elif most < _FULL_WIDTH:
            text = f"{gpus} on x{most} at most: a slot for x{_FULL_WIDTH} would carry more"
            yield Warned(text, source)


def _generation(topology: Topology) -> Iterator[Warned]:
    for (now, most), gpus in _grouped(
        topology, lambda gpu: (gpu.pcie_gen, gpu.pcie_gen_max)
    ).items():
        if now is not None and most is not None and now < most:
            yield Warned(
                f"{gpus} at PCIe generation {now} of {most}: read while idle, when cards save power; "
                "only under load it would say something",
                "nvidia-smi --help-query-gpu: the current generation may be reduced when the GPU is "
                "not in use",
            )


def _peers(topology: Topology) -> Iterator[Warned]:
    denied = topology.no_peer or ()
    for word in dict.fromkeys(one.word for one in denied):
        pairs = [f"{one.a}-{one.b}" for one in denied if one.word == word]
        meaning = _WORDS.get(word, "refused")
        yield Warned(
            f"no direct access between GPUs {_some(pairs)} ({word}: {meaning}): NCCL goes through "
            "memory there, and SGLang's custom all-reduce is off",
            f"{_GUIDE}/env.html#nccl-shm-disable; SGLang custom_all_reduce.py",
        )


_WORDS: Final = {
    "CNS": "the chipset does not support it",
    "GNS": "the GPU does not support it",
    "TNS": "the topology does not support it",
    "NS": "not supported",
    "DR": "switched off by a driver setting",
}


def _iommu(topology: Topology) -> Iterator[Warned]:
    if not topology.iommu or not _over_pcie(topology):
        return
    how = ", though in pass-through mode" if topology.iommu_passthrough else ""
    acs = (
        "; each GPU has an IOMMU group of its own, so ACS sends their traffic through the root"
        if topology.acs_isolated
        else ""
    )
    yield Warned(
        f"the IOMMU is on{how}, and GPUs reach each other over PCIe: it may send that traffic "
        f"through the CPU, which is slower and can hang NCCL{acs}; outside virtual machines switch "
        "it off (iommu=off, or in the firmware)",
        f"{_GUIDE}/troubleshooting.html#pci-access-control-services-acs; voipmonitor/rtx6kpro, "
        "optimization/nccl-tuning.md",
    )


def _sockets(topology: Topology) -> Iterator[Warned]:
    apart = [f"{a}-{b}" for a, b, word in topology.pairs() if word == "SYS"]
    if apart:
        yield Warned(
            f"GPUs {_some(apart)} reach each other across sockets and without NVLink: NCCL may take "
            "the way for slower than it is (try NCCL_P2P_LEVEL=SYS, the level set pcie), or it is",
            f"{_GUIDE}/env.html#nccl-p2p-level; NVIDIA/nccl#2127",
        )


def _pcie_only(topology: Topology) -> Iterator[Warned]:
    if len(topology.matrix) > _FEW and all(not _nv(word) for _, _, word in topology.pairs()):
        yield Warned(
            f"{len(topology.matrix)} GPUs and no NVLink: with tensor parallelism above {_FEW} "
            "SGLang's custom all-reduce is off, and NCCL serves decode",
            "SGLang: Custom allreduce is disabled because it's not supported on more than two "
            "PCIe-only GPUs",
        )


def _links(topology: Topology) -> Iterator[Warned]:
    for (off, on), gpus in _grouped(
        topology, lambda gpu: (gpu.nvlinks_inactive, gpu.nvlinks)
    ).items():
        if off and on:
            yield Warned(
                f"{gpus} with {off} of {off + on} NVLinks inactive", "nvidia-smi nvlink --status"
            )


def _power(topology: Topology) -> Iterator[Warned]:
    for (now, usual), gpus in _grouped(
        topology, lambda gpu: (gpu.power_limit_w, gpu.power_default_w)
    ).items():
        if now is not None and usual is not None and now < usual - 0.5:
            yield Warned(
                f"{gpus} limited to {now:g} W, {usual:g} W by default: clocks fall under load, more "
                "in steps that compute (verification) than in those that wait for memory",
                "nvidia-smi --help-query-gpu, power.limit and power.default_limit",
            )


def _clocks(topology: Topology) -> Iterator[Warned]:
    for (now, most), gpus in _grouped(
        topology, lambda gpu: (gpu.clock_set_mhz, gpu.clock_default_mhz)
    ).items():
        if now is not None and most is not None and now < most:
            yield Warned(
                f"{gpus} with application clocks set to {now:g} MHz, {most:g} by default",
                "nvidia-smi --help-query-gpu, clocks.applications.graphics",
            )


def _grouped(
    topology: Topology, of: Callable[[GpuPlace], tuple[float | None, float | None]]
) -> dict[tuple[float | None, float | None], str]:
    """GPUs that say the same, as one group: eight equal cards are one line."""
    groups: dict[tuple[float | None, float | None], list[str]] = {}
    for gpu in topology.gpus:
        groups.setdefault(of(gpu), []).append(str(gpu.index))
    every = len(topology.gpus)
    return {
        key: "all GPUs" if len(names) == every > 1 else f"GPU {', '.join(names)}"
        for key, names in groups.items()
    }


def _over_pcie(topology: Topology) -> bool:
    denied = {(one.a, one.b) for one in topology.no_peer or ()}
    return any(not _nv(word) and (a, b) not in denied for a, b, word in topology.pairs())


def _nv(word: str) -> bool:
    return word.startswith("NV")


def _some(pairs: Sequence[str] | Iterable[str]) -> str:
    names = list(pairs)
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more pairs" if len(names) > 4 else "")
