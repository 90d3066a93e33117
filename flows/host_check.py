"""The flow `eagle3-host-check`: every host looked over, while there is time before the night."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefect import flow
from prefect.artifacts import create_markdown_artifact
from prefect.client.schemas.objects import State  # noqa: TC002 - Prefect reads it for its form
from prefect.logging import get_run_logger
from prefect.runtime import flow_run as this_run
from prefect.states import Completed, Failed

from configs.nodes import all_nodes
from configs.read import read_sweep
from flows.doctor import known_hosts, look_over
from flows.host_slots import sign
from flows.prefect_stages import shown
from flows.telling import tell_lost

if TYPE_CHECKING:
    from flows.doctor import Looked


@flow(
    name="eagle3-host-check",
    description="Is every host fit for the night? Looks, and changes nothing there.",
    persist_result=False,
)
def host_check(hosts: list[str] | None = None, sweep: str | None = None) -> State[Any]:
    """Looks over hosts; fails if one is not fit, and tells at once of one that is not reached.

    Args:
        hosts: Names of files in configs/hosts; none: every one that has a file.
        sweep: Also look for this sweep's models (name of a file in configs/sweeps).
    """
    log = get_run_logger()
    sign(this_run.id)
    asked = read_sweep(sweep) if sweep else None
    names = hosts or (list(all_nodes(asked.hosts)) if asked else known_hosts())
    found = [look_over(name, asked) for name in names]
    for looked in found:
        for line in looked.lines():
            log.info(line)
        if looked.unreachable is not None:
            tell_lost(looked.host, looked.unreachable, "the daily look over all hosts")
    shown(lambda: create_markdown_artifact(key="eagle3-hosts", markdown=table(found)))
    bad = [looked.host for looked in found if looked.level == "fail"]
    if bad:
        return Failed(message=f"not fit: {', '.join(bad)}; {_why(found)}")
    return Completed(message=f"{len(found)} hosts are fit")


def table(found: list[Looked]) -> str:
    """All checks as Markdown."""
    rows = [
        f"| {looked.host} | {check.name} | {check.level} | {_cell(check.text)} |"
        for looked in found
        for check in looked.checks
    ]
    return "\n".join(["| host | check | result | |", "|---|---|---|---|", *rows]) + "\n"


def _cell(text: str) -> str:
    return text.replace("\n", " ").replace("|", "\\|")


def _why(found: list[Looked]) -> str:
    return "; ".join(
        f"{looked.host}: {check.text.splitlines()[0]}"
        for looked in found
        for check in looked.checks
        if check.level == "fail"
    )
