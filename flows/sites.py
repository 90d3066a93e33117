"""Where an attempt of a run happens, and how a host is let go of at the end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infra.errors import WorldError
from infra.masking import Mask
from infra.store import TrialFolder
from tasks.venue import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from configs.plan import Trial
    from flows.question import Question
    from infra.host_agent import HostAgent
    from infra.store import RunFolder
    from tasks.launch import Secrets

_LEAVE_S = 15.0


def site_of(
    question: Question,
    run: RunFolder,
    trial: Trial,
    agents: Sequence[HostAgent],
    *,
    secrets: Mapping[str, Secrets],
    say: Callable[[str], None],
    keep: TrialFolder | None = None,
) -> Site:
    """The site of an attempt; without a folder of its own, that of the run's arrival.

    Args:
        question: What is asked.
        run: Its run.
        trial: One of its trials.
        agents: The hands on the nodes of the trial's place, the leading one's first.
        secrets: Host -> what must not be shown.
        say: Shows progress.
        keep: The attempt's folder.

    Returns:
        That of the leading node; it knows the others.
    """
    folder = keep or TrialFolder(run.path / "arrival")
    hosts = question.nodes(trial.host)
    mask = Mask([value for host in hosts for value in secrets[host.name].values])

    def site(rank: int) -> Site:
        name = hosts[rank].name
        return Site(
            agent=agents[rank],
            host=hosts[rank],
            sweep=question.sweep,
            trial=trial,
            holder=run.holder,
            marker=run.marker(folder, None if rank == 0 else name),
            keep=folder if rank == 0 else folder.of_node(name),
            mask=mask,
            say=say if rank == 0 else lambda text: say(f"{name}: {text}"),
            rank=rank,
        )

    lead, *peers = (site(rank) for rank in range(len(hosts)))
    return replace(lead, peers=tuple(peers))


def leave(agent: HostAgent, holder: str, say: Callable[[str], None]) -> None:
    """Lets go of a host; one that cannot be reached is let go by the end of the lease."""
    agent.hurry(_LEAVE_S)
    try:
        agent.call("release", root=agent.root, holder=holder)
    except WorldError as error:
        say(f"{agent.host.name}: its lock ends with its lease: {error}")
    agent.close()
