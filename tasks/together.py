"""What the nodes of a place do together: be claimed in one order, launched, watched, torn down."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from configs.nodes import Joint, lock_order
from tasks.launch import Handle, launch
from tasks.lookout import Lookout
from tasks.nodes import on_each
from tasks.ports import pick_ports
from tasks.prepare import claim
from tasks.tear_down import Torn, tear_down

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tasks.launch import Secrets
    from tasks.venue import Site


class Launched(NamedTuple):
    """The engine of a trial, on every node of its place."""

    handles: tuple[Handle, ...]
    """The leading node's first."""
    joint: Joint | None = None
    """How its ranks find each other, for the leading node; None on a single host."""

    @property
    def lead(self) -> Handle:
        """The one that serves."""
        return self.handles[0]


def claim_all(site: Site) -> str:
    """Takes the lock of every node, in an order that all sweeps share.

    Two sweeps whose places overlap can then not wait for each other in a circle.

    Raises:
        StageFailedError: ``host_claimed``: another sweep holds one of them.
    """
    hosts = {node.host.name: node for node in site.nodes}
    said = [
        claim(hosts[name].agent, site.holder, hosts[name].marker, site.sweep.patience.claim_s)
        for name in lock_order([node.host for node in site.nodes])
    ]
    return "; ".join(dict.fromkeys(said))


def launch_all(site: Site, secrets: Mapping[str, Secrets]) -> Launched:
    """Starts the engine on every node at once; each waits there for the others.

    Args:
        site: Of the leading node.
        secrets: Host -> what its engine gets.

    Raises:
        StageFailedError: ``port_in_use``, or a node on which it did not start; named.
    """
    if not site.peers:
        return Launched((launch(site, secrets[site.host.name]),))
    port, meet = pick_ports(site)
    joint = Joint(len(site.nodes), 0, site.host.address or site.host.name, meet)

    def start(node: Site) -> Handle:
        own = secrets[node.host.name]
        if node.rank == 0:
            return launch(node, own, port=port, joint=joint)
        # It serves nothing that asks for the key.
        return launch(node, own._replace(api_key=None), joint=joint._replace(rank=node.rank))

    return Launched(on_each(site, start), joint)


def watch_over(site: Site) -> Lookout | None:
    """Watches the other nodes from now on; None where there are none."""
    return Lookout(site.peers) if site.peers else None


def tear_down_all(site: Site, launched: Launched | None, *, grace_s: float | None) -> Torn:
    """Ends the engine on every node at once.

    Raises:
        StageFailedError: Of the first node that could not be freed; named.
    """

    def end(node: Site) -> Torn:
        return tear_down(node, launched.handles[node.rank] if launched else None, grace_s=grace_s)

    torn = on_each(site, end)
    if len(torn) == 1:
        return torn[0]
    names = [node.host.name for node in site.nodes]
    return Torn(
        "; ".join(f"{name}: {one.said}" for name, one in zip(names, torn, strict=True)),
        tuple(
            f"{name}: {who}" for name, one in zip(names, torn, strict=True) for who in one.strangers
        ),
    )
