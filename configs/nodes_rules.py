"""What a sweep must not say where a model runs over several hosts; known from its file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from configs.flags import canonical
from configs.layers import places
from configs.nodes import is_shared
from configs.problems import Said

if TYPE_CHECKING:
    from collections.abc import Iterator

    from configs.sweep import Sweep

# On a single host a sweep may fix these ports; where ranks meet over the network we pick one.
_OURS: Final = {
    "dist-init-addr": "the leading host's address, and its dist_port where a firewall asks for one",
    "distributed-executor-backend": "mp, vLLM's way over several hosts without Ray",
}


def shared_problems(sweep: Sweep) -> Iterator[Said]:
    """Flags that are filled in for every node, and a screen, which times one host's all-reduce."""
    if not is_shared(sweep.hosts):
        return
    for place in places(sweep):
        for flag in place.flags:
            said = {_OURS.get(canonical(flag, kind)) for kind in place.engines} - {None}
            for ours in sorted(filter(None, said)):
                yield Said(
                    f"{place.where}.flags.{flag}", f"is filled in by us ({ours}): leave it out"
                )
    if sweep.screen is not None and (message := no_shared_screen(sweep)) is not None:
        yield Said("screen", message)


def no_shared_screen(sweep: Sweep) -> str | None:
    """Why a sweep over several hosts cannot be screened; None where all its places are hosts."""
    if not is_shared(sweep.hosts):
        return None
    return (
        "times all-reduce on one host, and a place of this sweep has several nodes: leave it out, "
        "or name single hosts"
    )
