"""What NCCL writes with NCCL_DEBUG=INFO, in the words of 2.27, for eight cards on PCIe without NVLink.

Consistent with the truth (truth.py): by itself it takes RING SIMPLE at every size of decode, and
NCCL_PROTO=LL alone makes the step faster. NCCL_ALGO=Tree leaves no algorithm for gathering the
logits, as with the real one.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from infra.rehearsal.rank import Rank

VERSION = "2.27.5+cuda12.9"
_CHANNELS = 2
_INTEGERS = ("NCCL_CUMEM_ENABLE", "NCCL_NVLS_ENABLE", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS")
_PROTOCOLS = ("LL", "LL128", "Simple")
_ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
_FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
REFUSED = "RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)"


def refuses(environment: Mapping[str, str]) -> bool:
    """Whether the settings leave some function without an algorithm."""
    return environment.get("NCCL_ALGO", "").lower() == "tree"


def say_start(rank: Rank) -> None:
    """What a rank says while the ranks connect."""
    _write(rank, _start(rank, os.environ))


def say_choices(rank: Rank, hidden: int) -> None:
    """Which kernels it takes for the batches that graphs are captured for; rank 0 says it."""
    if rank.number == 0:
        proto = os.environ.get("NCCL_PROTO", "Simple").upper()
        _write(
            rank,
            (
                f"AllReduce: {batch * hidden * 2} Bytes -> Algo RING proto {proto} "
                f"channel{{Lo..Hi}}={{0..{_CHANNELS - 1}}}"
                for batch in rank.captured()
            ),
        )


def say_refusal(rank: Rank) -> None:
    """That there is no algorithm for gathering the logits."""
    text = (
        "Error : no algorithm/protocol available for function AllGather with datatype ncclInt8. "
        "NCCL_ALGO was set to Tree."
    )
    _write(rank, [text], warn="enqueue.cc:1859 ")


def _start(rank: Rank, environment: Mapping[str, str]) -> Iterator[str]:
    ranks, me, card = rank.args["tp_size"], rank.number, rank.gpu
    yield f"NCCL version {VERSION}"
    if hca := environment.get("NCCL_IB_HCA"):
        yield f"NCCL_IB_HCA set to {hca}"
    yield "NET/IB : No device found."
    yield "NET/Socket : Using [0]lo:127.0.0.1<0>"
    yield "Using network Socket"
    comm = f"comm 0x5{me:07x} rank {me} nranks {ranks} cudaDev {card} nvmlDev {card} busId {card}0"
    yield f"ncclCommInitRank {comm} commId 0x7d7fe58edc877389 - Init START"
    for name in _INTEGERS:
        if name in environment:
            yield f"{name} set by environment to {environment[name]}."
    if "NCCL_P2P_LEVEL" in environment:
        yield f"NCCL_P2P_LEVEL set by environment to {environment['NCCL_P2P_LEVEL']}"
    if me == 0:
        ring = " ".join(str(number) for number in range(ranks))
        for channel in range(_CHANNELS):
            yield f"Channel {channel:02d}/{_CHANNELS:02d} : {ring}"
    after = (me + 1) % ranks
    for channel in range(_CHANNELS if ranks > 1 else 0):
        yield f"Channel {channel:02d}/0 : {me}[{me}] -> {after}[{after}] via P2P/IPC"
    yield "Connected all rings, use ring PXN 0 GDR 1"
    yield "Connected all trees"
    for name in ("NCCL_PROTO", "NCCL_ALGO"):
        if name in environment:
            yield f"{name} set by environment to {environment[name]}"
    if me == 0 and any(name in environment for name in ("NCCL_PROTO", "NCCL_ALGO")):
        yield _matrix(environment)
    yield (
        f"{_CHANNELS} coll channels, {_CHANNELS} collnet channels, 0 nvls channels, "
        "8 p2p channels, 2 p2p channels per peer"
    )
    yield f"ncclCommInitRank {comm} commId 0x7d7fe58edc877389 - Init COMPLETE"


def _matrix(environment: Mapping[str, str]) -> str:
    protos = [_left(name, environment.get("NCCL_PROTO")) for name in _PROTOCOLS]
    algos = [_left(name, environment.get("NCCL_ALGO")) for name in _ALGORITHMS]
    head = f"{'Function':>13} | {' '.join(f'{n:>8}' for n in _PROTOCOLS)}   | "
    rows = [head + " ".join(f"{name:>14}" for name in _ALGORITHMS)]
    for function in _FUNCTIONS:
        cells = f"{function:>13} | {' '.join(f'{flag:>8}' for flag in protos)}   | "
        rows.append(cells + " ".join(f"{flag:>14}" for flag in algos))
    return "\n".join(["Enabled NCCL Func/Proto/Algo Matrix:", *rows])


def _left(name: str, asked: str | None) -> int:
    return 1 if asked is None or asked.lower() == name.lower() else 0


def _write(rank: Rank, texts: Iterable[str], warn: str = "") -> None:
    """Writes lines where NCCL_DEBUG_FILE says (%h host, %p pid), else with the engine's own."""
    if os.environ.get("NCCL_DEBUG", "").upper() not in ("INFO", "TRACE"):
        return
    me = f"{socket.gethostname()}:{os.getpid()}:{os.getpid()} [{rank.number}]"
    level = "WARN" if warn else "INFO"
    data = "".join(f"{me} {warn}NCCL {level} {text}\n" for text in texts).encode()
    path = os.environ.get("NCCL_DEBUG_FILE")
    if not path:
        os.write(2, data)
        return
    path = path.replace("%h", socket.gethostname()).replace("%p", str(os.getpid()))
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)
