"""A sweep on several equal hosts, as people run it: a server, a worker, a flow run for each host."""

from __future__ import annotations

import os
import signal
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest

from flows.blocks import read_note
from flows.runs import read_records
from infra.run_locks import lanes
from tasks.record import TrialRecord
from tests import pooling, sweeping
from tests.agent_host import until
from tests.deployed import deployed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infra.store import RunFolder
    from tests.deployed import Server
    from tests.pooling import Several

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
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


def spans(records: list[TrialRecord]) -> list[tuple[str, str, str]]:
    return [(r.host, r.started_at, r.ended_at) for r in records]


def at_once(one: tuple[str, str, str], other: tuple[str, str, str]) -> bool:
    return one[1] < other[2] and other[1] < one[2]


@pytest.fixture(scope="module")
def done(server: Server, three: Several) -> tuple[Any, list[TrialRecord]]:
    run = begin(server, three, "pool", 6)
    ended = server.ended(run, _BOUND_S)
    folder = latest(three, "pool")
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
    assert {host for hosts in blocks.values() for host in hosts} == {"host-1", "host-2", "host-3"}


def test_hosts_measure_at_once_and_each_one_thing_at_a_time(
    done: tuple[Any, list[TrialRecord]],
) -> None:
    pairs = list(combinations(spans(done[1]), 2))
    assert not [pair for pair in pairs if pair[0][0] == pair[1][0] and at_once(*pair)]
    assert [pair for pair in pairs if pair[0][0] != pair[1][0] and at_once(*pair)]


def test_lanes_are_flow_runs_below_the_sweep_s(
    server: Server, done: tuple[Any, list[TrialRecord]]
) -> None:
    found = lanes_of(server, done[0]["id"])
    assert [lane["name"] for lane in found] == ["pool on host-2", "pool on host-3"]
    assert {lane["state_type"] for lane in found} == {"COMPLETED"}
    assert all("of pool-0001 on" in lane["state"]["message"] for lane in found)


def test_the_sweep_s_page_shows_how_far_it_was(
    server: Server, done: tuple[Any, list[TrialRecord]]
) -> None:
    wanted = {"artifacts": {"flow_run_id": {"any_": [done[0]["id"]]}}}
    found = {one["key"]: one for one in server.ask("artifacts/filter", wanted)}
    assert "of 12 trials" in found["eagle3-sweep"]["description"]
    assert "eagle3-report" in found


def test_no_slot_is_held_afterwards(server: Server, done: tuple[Any, list[TrialRecord]]) -> None:
    for host in ("host-1", "host-2", "host-3"):
        assert server.ask(f"v2/concurrency_limits/host-{host}")["active_slots"] == 0
    assert done[0]["labels"]["eagle3.holds"] == ""


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
    run = begin(server, three, "cancelled", 6)

    def working() -> bool:
        folder = latest(three, "cancelled")
        return folder is not None and len(lanes(folder.path)) == 3

    until(working, 90)
    server.cli("flow-run", "cancel", run)
    assert server.ended(run, _BOUND_S)["state_type"] == "CANCELLED"
    until(lambda: {lane["state_type"] for lane in lanes_of(server, run)} == {"CANCELLED"}, 90)
    until(three.empty, 60)
    folder = latest(three, "cancelled")
    assert folder is not None
    until(lambda: all(trial.finished for trial in folder.trials()), 60)
