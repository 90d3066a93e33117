"""One model over two hosts, over real SSH: what a trial does on both, and what it leaves."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from infra.rehearsal import faults
from tasks.record import TrialRecord
from tests import noding, sweeping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flows.outcome import Outcome
    from tests.noding import Two


KEY = "key-of-both-nodes"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    with noding.two(tmp_path_factory.mktemp("nodes")) as made:
        yield made


@pytest.fixture(scope="module")
def outcome(two: Two) -> Iterator[Outcome]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("NODES_KEY", KEY)
        keyed = {"api_key_from": "NODES_KEY"}
        asked = noding.joint(sweeping.sweep("joint", arms="base+tuned"))
        yield two.run(asked, node0=keyed, node1=keyed)


def test_a_model_over_two_hosts_is_measured(outcome: Outcome) -> None:
    assert {record.status for record in outcome.records} <= sweeping.MEASURED, [
        record.failure for record in outcome.records
    ]
    tuned = next(record for record in outcome.records if record.arm == "tuned")
    (measured,) = tuned.measurements
    assert measured.accept_length == pytest.approx(2.86, rel=0.15)
    assert tuned.host == "node0+node1"


def test_the_record_holds_each_node(two: Two, outcome: Outcome) -> None:
    record = next(record for record in outcome.records if record.arm == "tuned")
    assert [(node.name, node.rank) for node in record.nodes] == [("node0", 0), ("node1", 1)]
    lead, peer = (" ".join(node.command) for node in record.nodes)
    assert "--nnodes 2 --node-rank 0" in lead
    assert "--nnodes 2 --node-rank 1" in peer
    meet = [command.split("--dist-init-addr ")[1].split()[0] for command in (lead, peer)]
    assert meet[0] == meet[1]
    assert meet[0].startswith("127.0.0.1:")
    assert f"--dist-init-addr {meet[0]}" in " ".join(record.command)
    assert record.must_match["nodes"] == "2"
    assert record.must_match["gpus"].startswith("8 x ")
    assert {node.versions["sglang"] for node in record.nodes} == {"0.5.9"}
    assert all(len(node.gpus) == 8 for node in record.nodes)
    folder = outcome.run.path / "trials" / f"{record.trial}.a1"
    mine, theirs = folder / "server.log", folder / "nodes" / "node1" / "server.log"
    assert "TP0]" in mine.read_text()
    assert " TP8]" not in mine.read_text()
    assert "Starting dummy health check server" in theirs.read_text()
    assert " TP8]" in theirs.read_text()
    assert json.loads((folder / "nodes" / "node1" / "facts.json").read_text())["nvidia_smi"]
    arrivals = {path.name for path in (outcome.run.path / "arrival").glob("*.json")}
    assert arrivals == {"node0.json", "node1.json"}


def test_the_key_is_asked_for_where_it_is_served_and_kept_nowhere(outcome: Outcome) -> None:
    folder = outcome.run.path / "trials" / "b01-tuned.a1"
    assert "api_key='***'" in (folder / "server.log").read_text()
    assert "api_key=None" in (folder / "nodes" / "node1" / "server.log").read_text()
    kept = [path for path in outcome.run.path.rglob("*") if path.is_file()]
    assert not [path for path in kept if KEY.encode() in path.read_bytes()]


def test_both_hosts_are_left_as_they_were(two: Two, outcome: Outcome) -> None:
    assert two.empty()
    for ground in two.grounds:
        assert "def get_embed_and_head" not in ground.source.read_text()
        assert not (ground.root / "claim.json").exists()


def test_the_report_names_the_place(outcome: Outcome) -> None:
    report = (outcome.run.path / "report" / "report.md").read_text()
    assert "node0+node1" in report


def test_run_again_nothing_is_repeated(two: Two, outcome: Outcome) -> None:
    asked, keyed = (
        noding.joint(sweeping.sweep("joint", arms="base+tuned")),
        {"api_key_from": "NODES_KEY"},
    )
    again = two.run(asked, fresh=False, node0=keyed, node1=keyed)
    assert {skip.trial for skip in again.skipped} == {"b01-base", "b01-tuned"}


def test_vllm_runs_over_two_hosts_as_well(two: Two) -> None:
    (record,) = two.run(noding.joint_vllm(sweeping.sweep("vllm", arms="base"))).records
    assert record.status in sweeping.MEASURED, record.failure
    lead, peer = (" ".join(node.command) for node in record.nodes)
    assert "--node-rank 0 --master-addr 127.0.0.1 --master-port" in lead
    assert "--headless" not in lead
    assert "--node-rank 1" in peer
    assert peer.count("--headless") == 1
    assert " --port " not in peer
    assert record.environment["VLLM_HOST_IP"] == "127.0.0.1"
    log = two.runs.latest("vllm")
    assert log is not None
    theirs = log.path / "trials/b01-base.a1/nodes/node1/server.log"
    assert "headless multiproc executor, with head node address 127.0.0.1:" in theirs.read_text()
    assert two.empty()


def test_a_node_of_vllm_that_dies_is_named(two: Two) -> None:
    faults.plant(two.peer.folder, faults.Fault("kv_cache", "oom"))
    run = two.run(noding.joint_vllm(sweeping.sweep("vllm-oom", arms="base"))).run
    text = (run.path / "trials/b01-base.a1/record.json").read_text()
    failure = TrialRecord.model_validate_json(text).failure
    assert failure is not None
    assert failure.failure_class == "gpu_oom", failure
    assert failure.message.startswith("node1: ")
    assert two.empty()
