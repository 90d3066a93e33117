"""Puts together what is kept of each node of a place from what its survey and launch say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.launch import engine_argv, engine_env
from tasks.node_facts import NodeFacts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from configs.nodes import Joint
    from tasks.prepare import Survey
    from tasks.venue import Site


def node_facts(site: Site, surveys: Sequence[Survey], joint: Joint | None) -> tuple[NodeFacts, ...]:
    """Of every node; nothing on a single host, of which the record itself tells."""
    if not site.peers:
        return ()
    return tuple(
        _facts(node, surveys[node.rank] if surveys else None, joint) for node in site.nodes
    )


def _facts(node: Site, found: Survey | None, joint: Joint | None) -> NodeFacts:
    sweep, host, trial, mask = node.sweep, node.host, node.trial, node.mask
    mine = joint._replace(rank=node.rank) if joint is not None else None
    argv = engine_argv(
        sweep, host, trial.arm, trial.levels, port="<free port>", python=node.python, joint=mine
    )
    env = engine_env(sweep, host, trial.arm, trial.levels, mine)
    return NodeFacts(
        name=host.name,
        rank=node.rank,
        command=tuple(mask.text(word) for word in argv),
        environment={name: mask.text(value) for name, value in env.items()},
        versions=found.versions if found else {},
        gpus=found.gpu_names if found else (),
        warnings=tuple(found.gpus.warnings) if found else (),
    )
