"""What the pretend nvidia-smi says of how its cards hang together: eight on PCIe, two sockets."""

from __future__ import annotations

from infra.rehearsal import memory

_PEER_LEGEND = (
    "\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n  CNS  = Chipset not supported\n"
    "  GNS  = GPU not supported\n  TNS  = Topology not supported\n  NS   = Not supported\n"
    "  U    = Unknown"
)


def matrix() -> int:
    """Two switches of two cards on each socket, no NVLink."""
    names = "\t".join(f"GPU{gpu}" for gpu in range(memory.GPUS))
    print(f"\t{names}\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID")
    for gpu in range(memory.GPUS):
        row = []
        for other in range(memory.GPUS):
            if gpu == other:
                row.append(" X ")
            elif gpu // 4 != other // 4:
                row.append("SYS")
            else:
                row.append("PIX" if gpu // 2 == other // 2 else "NODE")
        cpus = "0-63,128-191" if gpu < 4 else "64-127,192-255"
        print(f"GPU{gpu}\t" + "\t".join(row) + f"\t{cpus}\t{gpu // 4}\t\tN/A")
    print(
        "\nLegend:\n\n  X    = Self\n"
        "  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes\n"
        "  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host "
        "Bridges within a NUMA node\n"
        "  PIX  = Connection traversing at most a single PCIe bridge"
    )
    return 0


def peers(kind: str) -> int:
    """``topo -p2p``: read and write everywhere, NVLink (n) nowhere."""
    word = {"r": "OK", "w": "OK", "a": "OK", "n": "NS", "p": "OK"}.get(kind)
    if word is None:
        print("Invalid p2p capability: use r, w, n, a or p")
        return 2
    gpus = range(memory.GPUS)
    print(" \t\x1b[4m" + "\t".join(f"GPU{gpu}" for gpu in gpus) + "\t\x1b[0m")
    for gpu in gpus:
        print(f" GPU{gpu}\t" + "\t".join("X" if gpu == o else word for o in gpus) + "\t")
    print(_PEER_LEGEND)
    return 0


def answer(arguments: list[str]) -> int | None:
    """The exit code of a question about topology; None: it was another question."""
    match arguments:
        case ["topo", "-p2p", kind]:
            return peers(kind)
        case ["topo", *_]:
            return matrix()
        case ["nvlink", "--status" | "-s"]:
            return 0  # cards without NVLink print nothing
        case _:
            return None
