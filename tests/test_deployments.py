"""prefect.yaml, key by key: Prefect ignores keys that it does not know."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from configs.read import read_document, read_sweep

_FILE = Path(__file__).parents[1] / "prefect.yaml"
# What Prefect 3.9 reads at each level (src/prefect/cli/deploy/_models.py), as far as we use it.
_TOP = {"prefect-version", "name", "deployments"}
_DEPLOYMENT = {
    "name",
    "description",
    "entrypoint",
    "tags",
    "parameters",
    "schedules",
    "concurrency_limit",
    "work_pool",
}
_SCHEDULE = {"cron", "timezone", "slug", "active", "parameters", "day_or"}
_LIMIT = {"limit", "collision_strategy"}
_POOL = {"name", "work_queue_name", "job_variables"}


def content() -> Any:
    return read_document(_FILE).data


def deployments() -> list[Any]:
    return list(content()["deployments"])


each = pytest.mark.parametrize("deployment", deployments(), ids=lambda found: found["name"])


def test_the_file_says_nothing_that_prefect_would_ignore() -> None:
    assert set(content()) == _TOP


@each
def test_a_deployment_says_nothing_that_prefect_would_ignore(deployment: Any) -> None:
    assert set(deployment) <= _DEPLOYMENT
    assert all(set(schedule) <= _SCHEDULE for schedule in deployment.get("schedules", []))
    assert set(deployment.get("concurrency_limit", {})) <= _LIMIT
    assert set(deployment["work_pool"]) <= _POOL


def test_prefect_knows_all_of_these_keys() -> None:
    from prefect.cli.deploy._models import (
        ConcurrencyLimitSpec,
        DeploymentConfig,
        PrefectYamlModel,
        RawScheduleConfig,
        WorkPoolConfig,
    )

    top = PrefectYamlModel.model_fields.items()
    assert {field.alias or name for name, field in top} >= _TOP
    assert set(DeploymentConfig.model_fields) >= _DEPLOYMENT
    assert set(RawScheduleConfig.model_fields) >= _SCHEDULE
    assert set(ConcurrencyLimitSpec.model_fields) >= _LIMIT
    assert set(WorkPoolConfig.model_fields) >= _POOL


def test_the_version_is_the_locked_one() -> None:
    lock = (_FILE.parent / "requirements.lock").read_text()
    assert f"\nprefect=={content()['prefect-version']} " in f"\n{lock}"


def test_names_are_told_apart() -> None:
    names = [deployment["name"] for deployment in deployments()]
    assert len(set(names)) == len(names)
    assert "eagle3-sweep" in names, "eagle3-sweep/eagle3-sweep is what the README runs"


@each
def test_an_entrypoint_is_dotted_and_is_the_flow(deployment: Any) -> None:
    from prefect.flows import Flow, load_flow_from_entrypoint

    entrypoint = deployment["entrypoint"]
    assert ":" not in entrypoint, "a path loads the file under another name"
    flow: Flow[..., object] = load_flow_from_entrypoint(entrypoint)
    assert isinstance(flow, Flow)
    assert flow.name == "eagle3-sweep"


@each
def test_parameters_fit_the_flow(deployment: Any) -> None:
    from flows.run_sweep import eagle3_sweep

    given = deployment.get("parameters", {})
    inspect.signature(eagle3_sweep.fn).bind(**given)
    assert eagle3_sweep.validate_parameters(given)
    assert read_sweep(given["sweep"]).name == given["sweep"]


@each
def test_a_schedule_can_be_kept(deployment: Any) -> None:
    from prefect.client.schemas.schedules import CronSchedule

    for schedule in deployment.get("schedules", []):
        CronSchedule(cron=schedule["cron"], timezone=schedule["timezone"])
        ZoneInfo(schedule["timezone"])
        assert schedule["slug"]


@each
def test_a_scheduled_sweep_never_queues_behind_itself(deployment: Any) -> None:
    if deployment.get("schedules"):
        assert deployment["concurrency_limit"] == {"limit": 1, "collision_strategy": "CANCEL_NEW"}


@each
def test_the_work_pool_is_the_one_that_up_makes(deployment: Any) -> None:
    from flows.services import POOL

    assert deployment["work_pool"]["name"] == POOL
