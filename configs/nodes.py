"""Where trials run: a host, or several nodes that serve one model together as one place.

``hosts: [a, b]`` names two places of one host each, ``hosts: [[a, b]]`` one place of two nodes.
A place is called after its nodes, joined by ``+`` (which no host's name may hold): ``a+b``. The
first node leads: it has rank 0, serves, and is asked.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, assert_never

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticKnownError

from configs.host import AddressFile, Ssh
from configs.names import NAME_LENGTH, NAME_PATTERN, FlagValue, Name
from configs.problems import Said

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from configs.host import Host
    from configs.releases import EngineKind

Nodes = Annotated[tuple[Name, ...], Field(min_length=2)]
"""Names of hosts that serve one model together; the first one leads."""


def _entry(value: Any) -> Any:
    """Says what is wrong with an entry as one thing; a union would say it for each of its kinds."""
    names = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    if not all(isinstance(name, str) for name in names):
        if isinstance(value, (list, tuple)):
            raise ValueError("holds something else than names of hosts: write [node0, node1]")
        raise PydanticKnownError("string_type")
    if any(len(name) > NAME_LENGTH for name in names):
        raise PydanticKnownError("string_too_long", {"max_length": NAME_LENGTH})
    if not all(re.match(NAME_PATTERN, name) for name in names):
        raise PydanticKnownError("string_pattern_mismatch", {"pattern": NAME_PATTERN})
    if isinstance(value, str):
        return value
    if len(names) < 2:
        raise ValueError("is a place of several nodes: name at least two, or take the brackets out")
    return names


Entry = Annotated[Name | Nodes, BeforeValidator(_entry)]
"""One element of a sweep's ``hosts``: a host, or the nodes of one place."""

FILLED_IN: Final = dict.fromkeys(
    ("nnodes", "node-rank", "master-addr", "master-port", "headless"),
    "hosts: [[node0, node1]], for a model over several hosts",
)
"""Flags of either engine that no sweep may set -> what to write instead."""
_JOIN: Final = "+"
_ALIKE: Final = ("gpus", "host_class", "time_scale", "rehearsal")
_LOOPBACK: Final = ("127.", "localhost", "::1", "[::1]")


def place_name(entry: str | Sequence[str]) -> str:
    """What a place is called: its host's name, or those of its nodes: ``node0+node1``."""
    return entry if isinstance(entry, str) else _JOIN.join(entry)


def nodes_of(place: str) -> tuple[str, ...]:
    """The names of a place's hosts, the leading one first."""
    return tuple(place.split(_JOIN))


def all_nodes(entries: Sequence[str | Sequence[str]]) -> tuple[str, ...]:
    """Every host of every place, in the file's order."""
    return tuple(name for entry in entries for name in nodes_of(place_name(entry)))


def is_shared(entries: Sequence[str | Sequence[str]]) -> bool:
    """Whether any place has several nodes."""
    return any(not isinstance(entry, str) for entry in entries)


def as_one(hosts: Sequence[Host]) -> Host:
    """What a place is to the rules: one host, with the GPUs of all its nodes."""
    lead = hosts[0]
    if len(hosts) == 1:
        return lead
    return lead.model_copy(
        update={
            "name": place_name([host.name for host in hosts]),
            "gpus": sum(host.gpus for host in hosts),
        }
    )


def node_problems(where: str, hosts: Sequence[Host]) -> Iterator[Said]:
    """What forbids that these hosts serve one model together; nothing for a single one.

    Args:
        where: The place's path in the sweep, such as ``hosts.0``.
        hosts: Its nodes, the leading one first.
    """
    if len(hosts) < 2:
        return
    lead, *others = hosts
    for host in others:
        for field in _ALIKE:
            mine, theirs = getattr(lead, field), getattr(host, field)
            if mine != theirs:
                yield Said(
                    where,
                    f"{lead.name} has {field} {mine}, {host.name} has {theirs}: nodes of one "
                    "place are alike",
                )
    for host in hosts:
        if host.address is None:
            yield Said(
                where,
                f"{host.name} has no address: write into its host file the name or address at "
                "which the other nodes reach it (of the fast network)",
            )
    near = [host.name for host in hosts if (host.address or "").startswith(_LOOPBACK)]
    far = [host.name for host in hosts if host.address and host.name not in near]
    if near and far:
        yield Said(
            where,
            f"the address of {', '.join(near)} is loopback, where {', '.join(far)} cannot reach "
            "it: name one of the network between them",
        )


def split_problem(ways: int, hosts: Sequence[Host]) -> str | None:
    """Why an engine of so many ranks cannot be split over these nodes; None where it can."""
    count = len(hosts)
    if count == 1 or ways % count == 0:
        return None
    names = place_name([host.name for host in hosts])
    return f"asks for {ways} GPUs, which {count} nodes ({names}) cannot share evenly"


class Joint(NamedTuple):
    """How the ranks of one engine find each other: for one node of several."""

    nodes: int
    """How many."""
    rank: int
    """Of this node; 0 leads."""
    address: str
    """Of the leading node, as the others reach it."""
    port: int | str
    """On the leading node, where ranks meet."""

    @property
    def leads(self) -> bool:
        """Whether this node serves."""
        return self.rank == 0


def joint_flags(engine: EngineKind, joint: Joint | None) -> Mapping[str, FlagValue]:
    """The flags that make an engine one of several nodes; none for a single one.

    SGLang: ``--dist-init-addr host:port --nnodes N --node-rank R`` on every node, with the size of
    all ranks together in --tp-size (docs/references/multi_node_deployment; the flags stand in the
    wheels 0.5.9 to 0.5.23). Ranks above 0 serve only a /health that always says 200
    (0.5.9 srt/entrypoints/engine.py: launch_dummy_health_check_server).

    vLLM: ``--nnodes N --node-rank R --master-addr A --master-port P``, and ``--headless`` on every
    node but the first, which then has no API server (docs/serving/parallelism_scaling; the flags
    stand in the wheels 0.18.1 to 0.33.0). Its executor for several nodes without Ray is ``mp``;
    ranks above 0 run ``headless multiproc executor`` (entrypoints/cli/serve.py: run_headless).
    """
    if joint is None:
        return {}
    shared: dict[str, FlagValue] = {"nnodes": joint.nodes, "node-rank": joint.rank}
    match engine:
        case "sglang":
            return {"dist-init-addr": f"{_host_part(joint.address)}:{joint.port}", **shared}
        case "vllm":
            meet: dict[str, FlagValue] = {"master-addr": joint.address, "master-port": joint.port}
            silent: dict[str, FlagValue] = {} if joint.leads else {"headless": True}
            return {**shared, **meet, **silent, "distributed-executor-backend": "mp"}
        case _:
            assert_never(engine)


def joint_env(engine: EngineKind, host: Host, joint: Joint | None) -> dict[str, str]:
    """Where vLLM's processes of a node are reached by the others; SGLang finds it by itself.

    Without VLLM_HOST_IP it takes the address of the default route (docs/usage/env_vars), which
    need not be the network between the nodes. What the host file's own ``env`` says wins.
    """
    if joint is None or engine != "vllm" or host.address is None:
        return {}
    return {"VLLM_HOST_IP": host.address}


def _host_part(address: str) -> str:
    """An IPv6 address in brackets, where a port follows it."""
    bare = ":" in address and not address.startswith("[")
    return f"[{address}]" if bare else address


def lock_order(hosts: Sequence[Host]) -> tuple[str, ...]:
    """Names of hosts in the order in which they are claimed: by address, whatever they are called.

    Controllers name hosts as they like; all of them reach a host at the same address.
    """
    return tuple(host.name for host in sorted(hosts, key=_address))


def _address(host: Host) -> tuple[str, int, str]:
    match host.connect:
        case Ssh():
            return host.connect.host, host.connect.port, host.folder
        case AddressFile():
            return host.connect.path, 0, host.folder
        case _:
            assert_never(host.connect)
