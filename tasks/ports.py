"""Which ports an engine gets on its host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.venue import failed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from configs.names import FlagValue
    from tasks.venue import Site

# Ports beside the HTTP one that a sweep may fix on a single host: NCCL's, and the rendezvous.
_PORT_FLAGS = ("nccl-port", "dist-init-addr")


def pick_port(site: Site) -> int:
    """The engine's port: the host file's if it is free, else a fresh one; one round trip.

    A taken HTTP port is noticed by the engine only after minutes of loading, and then it prints
    its ready line all the same (shared/real port-in-use), so it is checked before.
    """
    (port,) = _pick(site, {"port": site.host.port})
    return port


def pick_ports(site: Site) -> tuple[int, int]:
    """The port of the leading node's engine, and that on which the ranks of all nodes meet.

    Raises:
        StageFailedError: ``port_in_use``: the host file fixes one and it is taken.
    """
    port, meet = _pick(site, {"port": site.host.port, "dist_port": site.host.dist_port})
    return port, meet


def _pick(site: Site, wanted: Mapping[str, int | None]) -> list[int]:
    """A port for each key of the host file: the one that it fixes if it is free, else a fresh one."""
    fixed = {key: port for key, port in wanted.items() if port is not None}
    answer = site.agent.call("port", ports=list(fixed.values()), pick=len(wanted) - len(fixed))
    for key, port in fixed.items():
        if not answer["free"][str(port)]:
            raise failed(
                "launch",
                "port_in_use",
                f"{key} {port} of host {site.host.name} is taken: leave {key} out of the host "
                "file to get a free one for every trial",
            )
    fresh = iter(answer["picked"])
    return [int(next(fresh)) if port is None else port for port in wanted.values()]


def check_ports(site: Site, flags: Mapping[str, FlagValue]) -> None:
    """Refuses further ports that the sweep fixes and somebody has, before anything is loaded.

    Without these flags the engine looks for free ones itself (SGLang: port + 100 and up).

    Raises:
        StageFailedError: ``port_in_use``.
    """
    fixed = {flag: port for flag in _PORT_FLAGS if (port := _port_in(flags.get(flag))) is not None}
    if not fixed:
        return
    free = site.agent.call("port", ports=list(fixed.values()))["free"]
    taken = [f"{flag} {port}" for flag, port in fixed.items() if not free[str(port)]]
    if taken:
        raise failed(
            "launch",
            "port_in_use",
            f"taken on host {site.host.name}: {', '.join(taken)}: leave the flag out to get a "
            "free one for every trial",
        )


def _port_in(value: FlagValue | None) -> int | None:
    """The port in ``29500`` or ``127.0.0.1:29500``; None where there is none."""
    last = str(value).rpartition(":")[2]
    return int(last) if last.isdecimal() else None
