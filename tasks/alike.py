"""Whether the nodes of a place are alike, before one model is loaded on all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from configs.plan import hash_of
from tasks.venue import failed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tasks.prepare import Survey
    from tasks.record import PatchOutcome
    from tasks.venue import Site

# May differ between nodes that work together; what they are is kept.
_MAY_DIFFER = {"driver"}


def one_survey(site: Site, surveys: Sequence[Survey]) -> Survey:
    """What a place of several nodes is, as one survey: the leading node's, and how many there are.

    Ranks of different engines wait for each other for ever, or compute something else: engine and
    its Python, torch, number and kind of GPUs, and the files of target and drafters are the same
    on every node, or nothing is launched.

    Raises:
        StageFailedError: ``nodes_differ``: says what differs, on which nodes.
    """
    lead, *others = surveys
    if not others:
        return lead
    names = [node.host.name for node in site.nodes]
    facts = [_facts(survey) for survey in surveys]
    _refuse("survey", list(_differences(names, facts)))
    both = {
        name: " + ".join(dict.fromkeys(survey.must_match[name] for survey in surveys))
        for name in lead.must_match
        if name in _MAY_DIFFER
    }
    shared = {**lead.must_match, **both, "nodes": str(len(surveys))}
    return lead.model_copy(update={"must_match": shared, "facts_key": hash_of(shared)})


def same_patches(site: Site, outcomes: Sequence[Sequence[PatchOutcome]]) -> None:
    """Refuses nodes on which a patch left different sources.

    Raises:
        StageFailedError: ``nodes_differ``.
    """
    names = [node.host.name for node in site.nodes]
    facts = [
        {f"patch {one.name}": (one.sha256_after or "no such file")[:16] for one in of}
        for of in outcomes
    ]
    _refuse("patch", list(_differences(names, facts)))


def _facts(survey: Survey) -> dict[str, str]:
    told = {k: v for k, v in survey.must_match.items() if k not in _MAY_DIFFER}
    return told | {"python": survey.versions.get("python", "unknown")}


def _differences(names: Sequence[str], facts: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """One sentence for each node and fact in which it is not like the leading node."""
    lead = facts[0]
    for fact, mine in lead.items():
        for name, theirs in zip(names[1:], facts[1:], strict=True):
            other = theirs.get(fact, "unknown")
            if other != mine:
                yield f"{fact}: {names[0]} has {mine}, {name} has {other}"


def _refuse(stage: str, differ: list[str]) -> None:
    if differ:
        raise failed(stage, "nodes_differ", "; ".join(differ), tuple(differ))
