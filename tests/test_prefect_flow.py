"""The flow as people run it: a deployment, a worker, a server; completed, failed, cancelled."""

from __future__ import annotations

import json
from itertools import combinations
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.demo import follow
from flows.outcome import Counts
from flows.runs import read_records
from infra.store import read_json
from tests import pooling, sweeping
from tests.agent_host import until
from tests.deployed import deployed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tasks.record import TrialRecord
    from tests.deployed import Run, Server
    from tests.pooling import Several
    from tests.sweeping import Ground

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
_BOUND_S = 200
_STAGES = ["claim", "survey", "clean_gpus", "patch", "clear_pycache", "check_drafter", "launch"]
_STAGES += ["wait_ready", "verify", "warm_up", "probe:load", "tear_down"]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Several]:
    with pooling.several(tmp_path_factory.mktemp("prefect"), 2) as made:
        yield made


@pytest.fixture(scope="module")
def ground(two: Several) -> Ground:
    """The first of them, as a host of its own."""
    made = two.grounds["host-1"]
    made.host_file()
    return made


@pytest.fixture(scope="module")
def server(ground: Ground) -> Iterator[Server]:
    with deployed(ground) as made:
        yield made


@pytest.fixture(scope="module")
def partial(server: Server, ground: Ground) -> Run:
    """One arm is measured, the other one misses the engine's hooks."""
    return server.sweep(ground, sweeping.sweep("partial", arms="base+tuned", patches=""))


def test_what_could_be_measured_completes_and_says_what_failed(partial: Run) -> None:
    state = partial.flow_run["state"]
    assert (state["type"], state["name"]) == ("COMPLETED", "Partial")
    assert "(1 ok, 1 failed)" in state["message"]


def test_whoever_follows_it_hears_of_every_trial_and_of_no_event(
    partial: Run, server: Server
) -> None:
    said: list[str] = []
    with temporary_settings({PREFECT_API_URL: server.api}):
        ended = follow(UUID(partial.flow_run["id"]), said.append)
    assert ended == (True, f"Partial: {partial.flow_run['state']['message']}")
    assert [line for line in said if line.startswith(("b01-base: ok", "b01-base: suspect"))]
    assert [line for line in said if line.startswith("b01-tuned: failed")]
    assert len(said) < 20


def test_the_run_folder_knows_the_page_of_its_flow_run(partial: Run, ground: Ground) -> None:
    (known,) = read_json(ground.latest("partial").path / "run.json")["prefect"]
    assert known["id"] == partial.flow_run["id"]
    assert known["url"].endswith(f"/runs/flow-run/{partial.flow_run['id']}")
    assert partial.flow_run["name"] == "partial"


def test_every_stage_is_a_task_run_of_its_name(partial: Run) -> None:
    wanted = {f"{name} b01-base" for name in _STAGES}
    # A set: on a busy machine the trial may have been tried once more.
    assert {task["name"] for task in partial.tasks if task["name"].endswith("b01-base")} == wanted
    assert {t["state_type"] for t in partial.tasks if t["name"] in wanted} == {"COMPLETED"}


def test_a_known_failure_is_a_failed_task_without_a_traceback(partial: Run) -> None:
    (failed,) = (task for task in partial.tasks if task["state_type"] != "COMPLETED")
    assert failed["name"] == "wait_ready b01-tuned"
    assert failed["state_type"] == "FAILED"
    assert "missing_interface" in failed["state"]["message"]
    assert "Traceback" not in partial.logs
    assert "tear_down b01-tuned" in {task["name"] for task in partial.tasks}


def test_one_host_is_one_slot(server: Server, partial: Run) -> None:
    limit = server.ask("v2/concurrency_limits/host-box")
    assert (limit["limit"], limit["active"], limit["active_slots"]) == (1, True, 0)


def test_a_cancelled_run_leaves_nothing(server: Server, ground: Ground) -> None:
    before = ground.source.read_bytes()
    ground.plant("target_weights", "hang", rank=3)
    run = server.begin(ground, sweeping.sweep("cancelled", arms="tuned", silence_s=60))
    until(lambda: sweeping.loads(ground.attempt("cancelled")), 150)
    server.cli("flow-run", "cancel", run)
    ended = server.ended(run)
    assert ended["state_type"] == "CANCELLED"
    assert "tear_down b01-tuned" in {task["name"] for task in server.tasks(run)}
    (folder,) = ground.latest("cancelled").trials()
    failure = json.loads(folder.record.read_bytes())["failure"]
    assert (failure["stage"], failure["failure_class"]) == ("wait_ready", "cancelled")
    assert ground.empty()
    assert ground.source.read_bytes() == before
    assert not (ground.root / "claim.json").exists()


@pytest.fixture(scope="module")
def done(server: Server, two: Several) -> tuple[Any, list[TrialRecord]]:
    """A sweep on two equal hosts: its flow run, and what was measured."""
    asked = sweeping.sweep("pool", arms="base+tuned", blocks=6)
    run = server.start(sweep=str(two.sweep_file(asked)), host=two.host_files())
    ended = server.ended(run, _BOUND_S)
    folder = two.runs.latest("pool")
    assert folder is not None
    return ended, read_records(folder)


def test_every_trial_is_measured_and_the_sweep_completes(
    done: tuple[Any, list[TrialRecord]],
) -> None:
    ended, records = done
    assert ended["state_type"] == "COMPLETED", ended["state"]
    assert len(records) == 12
    assert {record.status for record in records} <= sweeping.MEASURED


def test_a_block_stays_on_one_host_and_all_hosts_take_some(
    done: tuple[Any, list[TrialRecord]],
) -> None:
    blocks: dict[int, set[str]] = {}
    for record in done[1]:
        blocks.setdefault(record.block, set()).add(record.host)
    assert {len(hosts) for hosts in blocks.values()} == {1}
    assert {host for hosts in blocks.values() for host in hosts} == {"host-1", "host-2"}


def test_hosts_measure_at_once_and_each_one_thing_at_a_time(
    done: tuple[Any, list[TrialRecord]],
) -> None:
    pairs = list(combinations([(r.host, r.started_at, r.ended_at) for r in done[1]], 2))
    assert not [pair for pair in pairs if pair[0][0] == pair[1][0] and at_once(*pair)]
    assert [pair for pair in pairs if pair[0][0] != pair[1][0] and at_once(*pair)]


def test_lanes_are_flow_runs_below_the_sweep_s(
    server: Server, done: tuple[Any, list[TrialRecord]]
) -> None:
    found = lanes_of(server, done[0]["id"])
    assert [lane["name"] for lane in found] == ["pool on host-2"]
    assert {lane["state_type"] for lane in found} == {"COMPLETED"}
    assert all("of pool-0001 on" in lane["state"]["message"] for lane in found)


def test_the_sweep_s_page_shows_how_far_it_was(
    server: Server, done: tuple[Any, list[TrialRecord]]
) -> None:
    wanted = {"artifacts": {"flow_run_id": {"any_": [done[0]["id"]]}}}
    found = {one["key"]: one for one in server.ask("artifacts/filter", wanted)}
    assert found["eagle3-sweep"]["description"] == "pool-0001: 12 of 12 trials"
    assert found["eagle3-sweep"]["data"] == 100
    assert "eagle3-report" in found


def test_no_slot_is_held_afterwards(server: Server, done: tuple[Any, list[TrialRecord]]) -> None:
    for host in ("host-1", "host-2"):
        assert server.ask(f"v2/concurrency_limits/host-{host}")["active_slots"] == 0
    assert done[0]["labels"]["eagle3.holds"] == ""


def at_once(one: tuple[str, str, str], other: tuple[str, str, str]) -> bool:
    return one[1] < other[2] and other[1] < one[2]


def lanes_of(server: Server, run: str) -> list[Any]:
    wanted = {"flow_runs": {"parent_flow_run_id": {"any_": [run]}}}
    return sorted(server.ask("flow_runs/filter", wanted), key=lambda lane: str(lane["name"]))


@pytest.mark.parametrize(
    ("counts", "ends"),
    [
        (Counts(ok=2, suspect=0, failed=0, skipped=0), ("COMPLETED", "Completed")),
        (Counts(ok=1, suspect=0, failed=1, skipped=1), ("COMPLETED", "Partial")),
        (Counts(ok=0, suspect=1, failed=0, skipped=0), ("COMPLETED", "Completed")),
        (Counts(ok=0, suspect=0, failed=2, skipped=1), ("FAILED", "Failed")),
    ],
)
def test_a_run_that_measured_something_completes(counts: Counts, ends: tuple[str, str]) -> None:
    from flows.run_sweep import verdict_state

    outcome = SimpleNamespace(counts=lambda: counts, report=SimpleNamespace(sentence="It pays."))
    state = verdict_state(outcome, ["3 of 9 trials were left undone."])  # type: ignore[arg-type]
    assert (state.type.value, state.name) == ends
    assert counts.text() in str(state.message)
    assert str(state.message).endswith("left undone.")
