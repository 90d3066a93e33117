"""The flow as people run it: a deployment, a worker, a server; completed, failed, cancelled."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from flows.outcome import Counts
from infra.store import read_json
from tests import sweeping
from tests.agent_host import until
from tests.deployed import deployed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.deployed import Run, Server
    from tests.sweeping import Ground

pytestmark = pytest.mark.slow
_STAGES = ["claim", "survey", "clean_gpus", "patch", "clear_pycache", "check_drafter", "launch"]
_STAGES += ["wait_ready", "verify", "warm_up", "probe:load", "tear_down"]


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with sweeping.ground(tmp_path_factory.mktemp("prefect")) as made:
        made.host_file()
        yield made


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
    until(lambda: sweeping.loads(ground.attempt("cancelled")), 60)
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
    assert counts.ok + counts.suspect == 0 or str(state.message).endswith("left undone.")
