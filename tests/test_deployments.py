"""prefect.yaml, key by key: Prefect ignores keys that it does not know."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from prefect.flows import Flow, load_flow_from_entrypoint

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


def flow_of(deployment: Any) -> Flow[..., object]:
    flow: Flow[..., object] = load_flow_from_entrypoint(deployment["entrypoint"])
    return flow


@each
def test_an_entrypoint_is_dotted_and_is_the_flow(deployment: Any) -> None:
    entrypoint = deployment["entrypoint"]
    assert ":" not in entrypoint, "a path loads the file under another name"
    flow = flow_of(deployment)
    assert isinstance(flow, Flow)
    upkeep = "care" in deployment["tags"]
    assert flow.name == (deployment["name"] if upkeep else "eagle3-sweep")


@each
def test_parameters_fit_the_flow(deployment: Any) -> None:
    flow, given = flow_of(deployment), deployment.get("parameters", {})
    if deployment["name"] == "lane":  # a sweep starts it, with its own run and place
        given = {"run": "nightly/0001", "place": "box", **given}
    inspect.signature(flow.fn).bind(**given)
    assert flow.validate_parameters(given) is not None
    if "sweep" in given:
        assert read_sweep(given["sweep"]).name == given["sweep"]


@each
def test_a_form_has_a_type_for_every_parameter(deployment: Any) -> None:
    """Prefect shows all of them as of any kind if it cannot read one annotation."""
    for name, shown in flow_of(deployment).parameters.properties.items():
        assert {"type", "anyOf", "$ref"} & set(shown), name


@each
def test_a_schedule_can_be_kept(deployment: Any) -> None:
    from prefect.client.schemas.schedules import CronSchedule

    for schedule in deployment.get("schedules", []):
        CronSchedule(cron=schedule["cron"], timezone=schedule["timezone"])
        ZoneInfo(schedule["timezone"])
        assert schedule["slug"]


@each
def test_nothing_that_is_scheduled_runs_twice_at_once(deployment: Any) -> None:
    if not deployment.get("schedules"):
        return
    limit = deployment["concurrency_limit"]
    assert limit["limit"] == 1
    if "care" in deployment["tags"]:
        assert limit["collision_strategy"] == "CANCEL_NEW"
    else:
        # It waits, and a missed one ends at once: it can neither hold tonight's place nor run by day.
        assert limit["collision_strategy"] == "ENQUEUE"
        assert 0 < deployment["parameters"]["start_within_h"] < 12


@each
def test_only_upkeep_is_switched_on_as_shipped(deployment: Any) -> None:
    for schedule in deployment.get("schedules", []):
        assert schedule["active"] is ("care" in deployment["tags"])


@each
def test_the_work_pool_is_the_one_that_up_makes(deployment: Any) -> None:
    from flows.prefect_ground import QUEUES
    from flows.services import POOL

    assert deployment["work_pool"]["name"] == POOL
    assert deployment["work_pool"].get("work_queue_name", "care") in QUEUES
