"""`eagle3-sweep up`, `deploy`, `down`: the servers of this machine, and deployments on any server."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.terminal import say


def up(
    rehearsal: Annotated[bool, typer.Option(help="also the pretend GPU host")] = True,
) -> None:
    """Start Prefect, MLflow and a worker on this machine, deploy prefect.yaml; twice is once."""
    from flows import services

    found = services.up(say, rehearsal=rehearsal)
    say(f"Prefect  {found.prefect_ui}\nMLflow   {found.mlflow}")
    say("For `prefect` and `mlflow` in this shell:")
    for line in services.shell_lines(found):
        say(f"  {line}")


def deploy() -> None:
    """Deploy prefect.yaml with all that it needs on the Prefect server of PREFECT_API_URL."""
    from flows.prefect_ground import prepare

    prepare(say)


def down() -> None:
    """Stop what `up` started, and nothing else."""
    from flows import services

    services.down(say)
