"""The flow `eagle3-morning`: one message each morning with what the night found."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from prefect import flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    DeploymentFilter,
    FlowFilter,
    FlowRunFilter,
)
from prefect.client.schemas.objects import State  # noqa: TC002 - Prefect reads it for its form
from prefect.logging import get_run_logger
from prefect.runtime import flow_run as this_run
from prefect.states import Completed
from prefect.utilities.urls import url_for

from flows.host_slots import sign
from flows.morning_text import Night, message
from flows.telling import MORNING, tell

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun

_TAG: Final = "overnight"
_CHECK: Final = "eagle3-host-check"
_MOST: Final = 200
_LINK: Final = re.compile(r"\]\((?P<url>[^)\s]+)\)")


@flow(
    name="eagle3-morning",
    description="Tells once what the runs of the night found.",
    persist_result=False,
)
def morning(hours: float = 24.0) -> State[Any]:
    """Tells of every overnight run that was planned for the last hours; of none, only if one was due.

    Args:
        hours: How far back.
    """
    until = datetime.now(UTC)
    sign(this_run.id)
    since = until - timedelta(hours=hours)
    with get_client(sync_client=True) as client:
        nights = [_night(client, run) for run in _runs(client, since, until)]
        due = _due(client)
        unfit = _unfit(client, since)
    said = message(nights, unfit, due=due)
    if said is None:
        return Completed(message="no night was due, and every host is fit: nothing to tell")
    subject, text = said
    get_run_logger().info("%s\n%s", subject, text)
    tell(MORNING, "eagle3.nights", subject, text)
    return Completed(message=subject)


def _runs(client: SyncPrefectClient, since: datetime, until: datetime) -> list[FlowRun]:
    wanted = {
        "tags": {"all_": [_TAG]},
        "expected_start_time": {"after_": since, "before_": until},
    }
    found = client.read_flow_runs(flow_run_filter=FlowRunFilter.model_validate(wanted), limit=_MOST)
    return sorted(found, key=lambda run: run.expected_start_time or until)


def _night(client: SyncPrefectClient, run: FlowRun) -> Night:
    state = run.state
    page = url_for("flow-run", run.id) or ""
    links = {"run": page}
    for artifact in client.read_artifacts(
        artifact_filter=ArtifactFilter.model_validate({"flow_run_id": {"any_": [run.id]}})
    ):
        if artifact.key == "eagle3-report":
            # Prefect has no function for the address of an artifact's page.
            links["report"] = page.replace(
                f"runs/flow-run/{run.id}", f"artifacts/artifact/{artifact.id}"
            )
        linked = _LINK.search(str(artifact.data)) if artifact.key == "mlflow" else None
        if linked:
            links["MLflow"] = linked["url"]
    return Night(
        name=run.name,
        planned=run.expected_start_time or datetime.now(UTC),
        state=state.name or state.type.value if state else "unknown",
        message=(state.message or "") if state else "",
        links={name: url for name, url in links.items() if url},
    )


def _due(client: SyncPrefectClient) -> bool:
    """Whether a schedule of the night is switched on."""
    found = client.read_deployments(
        deployment_filter=DeploymentFilter.model_validate({"tags": {"all_": [_TAG]}})
    )
    return any(schedule.active for one in found if not one.paused for schedule in one.schedules)


def _unfit(client: SyncPrefectClient, since: datetime) -> str | None:
    """What the last look over the hosts said, if it failed."""
    found = client.read_flow_runs(
        flow_filter=FlowFilter.model_validate({"name": {"any_": [_CHECK]}}),
        flow_run_filter=FlowRunFilter.model_validate({"start_time": {"after_": since}}),
        limit=_MOST,
    )
    last = max(found, key=lambda run: run.start_time or since, default=None)
    if last is None or last.state is None or not last.state.is_failed():
        return None
    return last.state.message
