"""Where an attempt of a run happens, and how a host is let go of at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.errors import WorldError
from infra.masking import Mask
from infra.store import TrialFolder
from tasks.venue import Site

if TYPE_CHECKING:
    from collections.abc import Callable

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
    agent: HostAgent,
    *,
    secrets: Secrets,
    say: Callable[[str], None],
    keep: TrialFolder | None = None,
) -> Site:
    """The site of an attempt; without a folder of its own, that of the run's arrival."""
    folder = keep or TrialFolder(run.path / "arrival")
    return Site(
        agent=agent,
        host=question.hosts[trial.host],
        sweep=question.sweep,
        trial=trial,
        holder=run.holder,
        marker=run.marker(folder),
        keep=folder,
        mask=Mask(secrets.values),
        say=say,
    )


def leave(agent: HostAgent, holder: str, say: Callable[[str], None]) -> None:
    """Lets go of a host; one that cannot be reached is let go by the end of the lease."""
    agent.hurry(_LEAVE_S)
    try:
        agent.call("release", root=agent.root, holder=holder)
    except WorldError as error:
        say(f"{agent.host.name}: its lock ends with its lease: {error}")
    agent.close()
