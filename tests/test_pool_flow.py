"""A sweep on several hosts when something dies: a lane is killed, the sweep is cancelled."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from flows.blocks import read_note
from flows.runs import read_records
from infra.run_locks import lanes
from tasks.comparison import Comparison
from tasks.record import TrialRecord
from tests import pooling, sweeping
from tests.agent_host import until
from tests.deployed import deployed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infra.store import RunFolder
    from tests.deployed import Server
    from tests.pooling import Several

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]
_BOUND_S = 200


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Several]:
    with pooling.several(tmp_path_factory.mktemp("pool"), 3) as made:
        yield made


@pytest.fixture(scope="module")
def server(three: Several) -> Iterator[Server]:
    with deployed(three) as made:
        yield made


def begin(server: Server, three: Several, name: str, blocks: int) -> str:
    asked = sweeping.sweep(name, arms="base+tuned", blocks=blocks, patches="kimi_k25_eagle3")
    return server.start(sweep=str(three.sweep_file(asked)), host=three.host_files())


def lanes_of(server: Server, run: str) -> list[Any]:
    wanted = {"flow_runs": {"parent_flow_run_id": {"any_": [run]}}}
    return sorted(server.ask("flow_runs/filter", wanted), key=lambda lane: str(lane["name"]))


def latest(three: Several, name: str) -> RunFolder | None:
    return three.runs.latest(name)


def test_a_lane_that_is_killed_is_started_again(server: Server, three: Several) -> None:
    run = begin(server, three, "killed", 10)

    def busy() -> tuple[str, int] | None:
        """A lane, with its process, whose engine runs."""
        folder = latest(three, "killed")
        for host, process in lanes(folder.path).items() if folder is not None else ():
            if host != "host-1" and three.grounds[host].engines():
                return host, int(process)
        return None

    host, process = until(busy, 150)
    os.kill(process, signal.SIGKILL)
    ended = server.ended(run, _BOUND_S)
    folder = latest(three, "killed")
    assert folder is not None
    records = read_records(folder)
    assert ended["state_type"] == "COMPLETED", ended["state"]
    assert len(records) == 20
    assert {record.status for record in records} <= sweeping.MEASURED
    assert f"{host}: its lane is gone; it is started again" in server.logs(run)
    ends = [TrialRecord.model_validate_json(t.record.read_bytes()) for t in folder.trials()]
    failed = [end.failure.failure_class for end in ends if end.failure is not None]
    assert failed == ["cancelled"], "the dead lane's attempt alone, and nothing on other hosts"
    assert read_note(folder).lost == {}
    until(three.empty, 30)


def test_a_cancelled_sweep_ends_its_lanes(server: Server, three: Several) -> None:
    run = begin(server, three, "cancelled", 20)

    def working() -> bool:
        folder = latest(three, "cancelled")
        return folder is not None and len(lanes(folder.path)) > 1

    until(working, 150)
    server.cli("flow-run", "cancel", run)
    assert server.ended(run, _BOUND_S)["state_type"] == "CANCELLED"
    until(lambda: {lane["state_type"] for lane in lanes_of(server, run)} == {"CANCELLED"}, 90)
    until(three.empty, 60)
    folder = latest(three, "cancelled")
    assert folder is not None
    until(lambda: all(trial.finished for trial in folder.trials()), 60)


def test_unlike_hosts_each_get_a_comparison_of_their_own(server: Server, three: Several) -> None:
    asked = sweeping.sweep("unlike", arms="base+tuned", blocks=6, patches="kimi_k25_eagle3")
    files = three.host_files(unlike={"host-3": "older-8x"})
    run = server.start(sweep=str(three.sweep_file(asked)), host=files)
    ended = server.ended(run, _BOUND_S)
    assert ended["state_type"] == "COMPLETED", ended["state"]
    folder = latest(three, "unlike")
    assert folder is not None
    records = read_records(folder)
    assert {record.status for record in records} <= sweeping.MEASURED
    kept = {r.host_class: {one.block for one in records if one.host == r.host} for r in records}
    assert len(kept["older-8x"]) == 2, "its share of the plan, whoever was faster"
    sole = {record.host for record in records if record.block in kept["older-8x"]}
    assert sole == {"host-3"}, "no block of a class goes to a host of another"
    report = folder.path / "report"
    strata = [
        Comparison.model_validate_json((report / f"comparison--{name}.json").read_bytes())
        for name in ("rehearsal", "older-8x")
    ]
    assert [one.refusals for one in strata] == [(), ()]
    # On a busy machine a trial of a block may stay suspect, and the block without its ratio.
    shares = [{cell.blocks for cell in one.cells} for one in strata]
    assert shares[0] <= {3, 4}
    assert shares[1] <= {1, 2}
    sentence = ended["state"]["message"]
    assert "on rehearsal:" in sentence.lower()
    assert "on older-8x:" in sentence.lower()
