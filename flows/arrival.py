"""What a sweep finds where it arrives: the nodes of a place are claimed, and asked what they are."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from configs.nodes import lock_order
from infra.store import write_json
from tasks.alike import one_survey
from tasks.nodes import on_each
from tasks.prepare import claim, facts_to_keep, survey
from tasks.tear_down import forget_secrets, has_secrets
from tasks.texts import fetch_template, texts_of
from tasks.topology_warnings import topology_warnings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from configs.host import Host
    from configs.releases import EngineKind
    from flows.question import Question
    from infra.host_agent import HostAgent
    from tasks.drive import Text
    from tasks.prepare import Survey
    from tasks.topology import Topology
    from tasks.venue import Site


class Ground(NamedTuple):
    """One place, as this run found it."""

    hosts: tuple[Host, ...]
    """Its nodes, the leading one first."""
    agents: tuple[HostAgent, ...]
    surveys: dict[EngineKind, Survey]
    """What it is to each engine, which may have a Python of its own."""
    topology: Topology | None
    """Of the leading node."""
    texts: Mapping[str, Mapping[int, list[Text]]]

    @property
    def host(self) -> Host:
        """The leading node."""
        return self.hosts[0]


def claim_place(
    hosts: Sequence[Host],
    connect: Callable[[Host], HostAgent],
    hold: Callable[[HostAgent], None],
    *,
    holder: str,
    note: str,
    patience_s: float,
) -> tuple[HostAgent, ...]:
    """Connects to every node of a place and takes its lock, in the order that all sweeps share.

    Args:
        hosts: The nodes, the leading one first.
        connect: Makes a hand.
        hold: Told of every hand whose host is claimed, at once.
        holder: Who claims.
        note: For whom it is refused.
        patience_s: How long another holder is waited for.

    Returns:
        The hands, the leading node's first.

    Raises:
        StageFailedError: ``host_claimed``: another sweep holds one of them.
    """
    agents = {host.name: connect(host) for host in hosts}
    for name in lock_order(hosts):
        claim(agents[name], holder, note, patience_s)
        hold(agents[name])
    return tuple(agents[host.name] for host in hosts)


def look_around(
    site: Site, question: Question, cut_off: Sequence[str], say: Callable[[str], None]
) -> Ground:
    """Asks every node of a place what it is, and renders the prompts with the model's template.

    Args:
        site: Of the arrival, on the leading node.
        question: What is asked.
        cut_off: Markers of attempts that could not tear down: their secrets are taken away.
        say: Told what is there.

    Raises:
        StageFailedError: ``nodes_differ``.
    """
    on_each(site, lambda node: node.agent.make_folder(node.folder))
    kept = site.keep.path
    surveys = on_each(site, lambda node: _look(node, kept / f"{node.host.name}.json", True))
    found = one_survey(site, surveys)
    texts = texts_of(question.sweep, question.sets, fetch_template(site))
    for node in site.nodes:
        if has_secrets(question.sweep, node.host):
            for marker in [node.marker, *cut_off, *(f"{cut}.{node.host.name}" for cut in cut_off)]:
                forget_secrets(node.agent, f"{node.agent.root}/trials/{marker}")
    for node, seen in zip(site.nodes, surveys, strict=True):
        _say(node.host, seen, say)
    return Ground(
        hosts=tuple(node.host for node in site.nodes),
        agents=tuple(node.agent for node in site.nodes),
        surveys={site.engine.kind: found},
        topology=surveys[0].topology,
        texts=texts,
    )


def look_again(site: Site) -> Survey:
    """What a place is to another engine than the one of its arrival.

    Raises:
        StageFailedError: ``nodes_differ``.
    """
    kept, kind = site.keep.path, site.engine.kind
    surveys = on_each(site, lambda node: _look(node, kept / f"{node.host.name}-{kind}.json", False))
    for node in site.nodes:
        if has_secrets(site.sweep, node.host):
            forget_secrets(node.agent, node.folder)
    return one_survey(site, surveys)


def _look(site: Site, path: Path, topology: bool) -> Survey:
    job = f"facts-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}"
    found, raw = survey(site, job, topology=topology)
    write_json(path, facts_to_keep(raw, site.mask))
    return found


def _say(host: Host, found: Survey, say: Callable[[str], None]) -> None:
    known = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    say(f"host {host.name}: {known}")
    for warned in topology_warnings(found.topology):
        say(f"host {host.name}: warning: {warned.text}")
