"""Everything that a sweep names, read and checked before anything is touched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from configs.host_classes import unlike_hosts
from configs.nodes import node_problems, nodes_of, place_name
from configs.plan import Plan, duplicate_intents, hash_of, make_plan
from configs.problems import ConfigError, Problem
from configs.read import check_sweep, read_host, read_patch, read_sweep
from configs.rules import host_problems, warnings
from tasks.check_table import BY_NAME as GUARDS_BY_NAME
from tasks.texts import identities, read_sets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from configs.host import Host
    from configs.patch import Patch
    from configs.sweep import Sweep
    from tasks.prompts import Prompt
    from tasks.screen import Screen


class Question(NamedTuple):
    """A sweep with everything it names."""

    sweep: Sweep
    hosts: dict[str, Host]
    """Every host by name: of a place of several nodes, each node."""
    patches: tuple[Patch, ...]
    sets: dict[str, tuple[Prompt, ...]]
    plan: Plan
    warnings: tuple[str, ...]
    screen: Screen | None = None
    """What is known of a factor's levels before the trials; its words stand in the warnings."""

    def nodes(self, place: str) -> tuple[Host, ...]:
        """The hosts of a place, the leading one first."""
        return tuple(self.hosts[name] for name in nodes_of(place))


def pose(
    sweep: Sweep | str, host: str | None = None, *, known: Mapping[str, Host] | None = None
) -> Question:
    """Reads what a sweep names and makes its plan.

    Args:
        sweep: A sweep, or the name or path of its file.
        host: Other places than the sweep's own, apart by commas: each a host, or several nodes
            (node0+node1), by name or path.
        known: Hosts whose files need not be read.

    Raises:
        ConfigError: Everything that is wrong, at once per file.
    """
    asked = read_sweep(sweep) if isinstance(sweep, str) else sweep
    file = sweep if isinstance(sweep, str) else f"sweep {asked.name}"
    there = dict(known or {})
    if host is not None:
        places = [_place(words) for words in _apart(host)]
        there |= {node.name: node for nodes in places for node in nodes}
        named = tuple(tuple(node.name for node in nodes) for nodes in places)
        asked = asked.model_copy(
            update={"hosts": tuple(nodes if len(nodes) > 1 else nodes[0] for nodes in named)}
        )
    hosts, problems = _hosts(asked, file, there)
    patches: list[Patch] = []
    for name in asked.patches:
        try:
            patches.append(read_patch(name))
        except ConfigError as error:
            problems += error.problems
    for name in asked.tolerate:
        if name not in GUARDS_BY_NAME:
            names = ", ".join(sorted(GUARDS_BY_NAME))
            problems.append(Problem(file, f"tolerate.{name}", f"no such finding: one of {names}"))
    problems += [Problem(file, s.where, s.message) for s in host_problems(list(hosts.values()))]
    if problems:
        raise ConfigError(problems)
    sets = read_sets(asked)
    contents = identities(sets) | {
        f"patch:{patch.name}": hash_of(patch.model_dump(mode="json")) for patch in patches
    }
    contents |= {f"host:{name}": hash_of(_what_counts(of)) for name, of in hosts.items()}
    plan = make_plan(asked, contents)
    said = [f"{w.where}: {w.message}" for w in warnings(asked)]
    said += unlike_hosts(plan.trials, hosts)
    said += [
        f"{a} and {b} ask for exactly the same: their difference is noise"
        for a, b in duplicate_intents(plan.trials)
        if not _declared(asked, plan, a, b)
    ]
    return Question(asked, hosts, tuple(patches), sets, plan, tuple(said))


def _apart(host: str) -> list[str]:
    """Several places, as they are typed."""
    return [host] if Path(host).is_file() else [words.strip() for words in host.split(",")]


def _place(words: str) -> list[Host]:
    """The nodes of one place."""
    paths = (words,) if Path(words).is_file() else nodes_of(words)
    return [read_host(path) for path in paths]


def _hosts(
    asked: Sweep, file: str, known: Mapping[str, Host]
) -> tuple[dict[str, Host], list[Problem]]:
    """Every node of every place, and what is wrong with them or with the sweep on them."""
    problems: list[Problem] = []
    hosts: dict[str, Host] = {}
    for index, entry in enumerate(asked.hosts):
        names = nodes_of(place_name(entry))
        try:
            hosts |= {name: known.get(name) or read_host(name) for name in names}
            nodes = [hosts[name] for name in names]
            apart = [Problem(file, *said) for said in node_problems(f"hosts.{index}", nodes)]
            problems += apart
            if not apart:
                check_sweep(asked, nodes, file)
        except ConfigError as error:
            problems += [p for p in error.problems if p not in problems]
    return hosts, problems


def _declared(sweep: Sweep, plan: Plan, *trials: str) -> bool:
    """Whether trials that ask for the same are said to be copies."""
    arms = {trial.arm for trial in plan.trials if trial.id in trials}
    return any(sweep.arms[arm].replicate_of in arms for arm in arms)


def _what_counts(host: Host) -> dict[str, object]:
    """What of a host file may change a trial's numbers; addresses and keys may not."""
    told = {"env": host.env, "python": host.python, "time_scale": host.time_scale}
    return told | ({"pythons": host.pythons} if host.pythons else {})
