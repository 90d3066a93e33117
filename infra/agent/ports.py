"""Which TCP ports a server could take on this host now."""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
from typing import Any

from infra.agent.refusal import Refusal

RANGE = range(20_000, 30_000)
_TIME_WAIT = "06"
_ADDRESSES = ("127.0.0.1", "0.0.0.0")


def ports(asked: dict[str, Any]) -> dict[str, Any]:
    """Says of each asked port whether it is free, and picks free ones if asked to."""
    free = {str(port): is_free(int(port)) for port in asked.get("ports", [])}
    return {"free": free, "picked": pick(int(asked.get("pick", 0)))}


def is_free(port: int) -> bool:
    """Whether a server could bind the port on loopback and on every address.

    Servers set SO_REUSEADDR, so connections of an earlier server in TIME_WAIT do not hold the
    port; but with that option a socket that is bound and does not listen yet (vLLM while it
    loads) would not be noticed. So the strict bind decides, unless only TIME_WAIT forbids it.
    """
    if all(_binds(address, port, reuse=False) for address in _ADDRESSES):
        return True
    reusable = all(_binds(address, port, reuse=True) for address in _ADDRESSES)
    states = _states(port)
    return reusable and bool(states) and states <= {_TIME_WAIT}


def _binds(address: str, port: int, reuse: bool) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(reuse))
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def _states(port: int) -> set[str]:
    """Kernel states of the TCP sockets on a local port (/proc/net/tcp, hexadecimal)."""
    found: set[str] = set()
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/net/{name}") as file:
            for line in list(file)[1:]:
                fields = line.split()
                if int(fields[1].rpartition(":")[2], 16) == port:
                    found.add(fields[3])
    return found


def pick(count: int) -> list[int]:
    """Different free ports, in random order; use them soon.

    They lie below the range from which the kernel gives out ports for outgoing connections, and
    so low that what an engine adds to its port stays a port: SGLang 0.5.12 puts its gRPC server
    at port + 10000 and refuses to start where that is beyond 65535.
    """
    free = (port for port in random.sample(RANGE, len(RANGE)) if is_free(port))
    found = list(itertools.islice(free, count))
    if len(found) < count:
        raise Refusal("no_free_port", f"fewer than {count} ports are free in {RANGE}")
    return found
