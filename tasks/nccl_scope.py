"""Where an NCCL variable can matter at all: on which links, for which operations, for how many hosts.

From NVIDIA's list of variables (docs/userguide/source/env.rst, NCCL 2.28). A variable that is not
here is taken to matter wherever NCCL works.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Scope = Literal["net", "ib", "socket", "shm", "nvls", "collnet", "nodes", "debug"]
"""net: between machines; nodes: only with several of them."""


class Rule(NamedTuple):
    """Variables by the beginning of their name."""

    prefix: str
    scope: Scope


# Longer beginnings first: the first one that fits counts.
RULES: Final = (
    Rule("NCCL_IB_", "ib"),
    Rule("NCCL_GIN_", "ib"),
    Rule("NCCL_IBEXT_", "ib"),
    Rule("NCCL_SOCKET_NTHREADS", "socket"),
    Rule("NCCL_NSOCKS_PERTHREAD", "socket"),
    Rule("NCCL_SOCKET_", "net"),
    Rule("NCCL_NET_", "net"),
    Rule("NCCL_NET", "net"),
    Rule("NCCL_CROSS_NIC", "net"),
    Rule("NCCL_DMABUF_", "net"),
    Rule("NCCL_PXN_", "net"),
    Rule("NCCL_P2P_PXN_", "net"),
    Rule("NCCL_COMM_ID", "net"),
    Rule("NCCL_SHM_LOCALITY", "shm"),
    Rule("NCCL_SHM_USE_CUDA_MEMCPY", "shm"),
    Rule("NCCL_SHM_MEMCPY_MODE", "shm"),
    Rule("NCCL_SHM_DISABLE", "shm"),
    Rule("NCCL_NVLS_", "nvls"),
    Rule("NCCL_COLLNET_", "collnet"),
    Rule("NCCL_MNNVL_", "nodes"),
    Rule("NCCL_HOSTID", "nodes"),
    Rule("NCCL_DEBUG", "debug"),
    Rule("NCCL_RAS_", "debug"),
    Rule("NCCL_PROFILER_", "debug"),
)
WORDS: Final[dict[Scope, str]] = {
    "net": "is for the network between machines",
    "ib": "is for InfiniBand",
    "socket": "is for data over sockets",
    "shm": "is for links through shared memory",
    "nvls": "is for NVLink SHARP",
    "collnet": "is for reductions inside the network",
    "nodes": "is for several machines",
    "debug": "only changes what NCCL writes",
}


def scope_of(variable: str) -> Scope | None:
    """Where alone a variable can matter; None: everywhere."""
    return next((rule.scope for rule in RULES if variable.startswith(rule.prefix)), None)
