"""One node of a place that fails fails the trial, with its name and its own first cause."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from infra.rehearsal import faults
from tasks.record import TrialRecord
from tasks.venue import StageFailedError
from tests import noding, sweeping
from tests.agent_host import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from configs.sweep import Sweep
    from tasks.record import Failure
    from tests.noding import Two

_DEATH_S = 5.0
"""From the death to the failed stage: two polls and the engine's own log."""


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    with noding.two(tmp_path_factory.mktemp("nodes")) as made:
        yield made


def _first(two: Two, asked: Sweep, at: Callable[[str], None] = lambda _text: None) -> TrialRecord:
    """The first attempt at the only trial; some failures are tried once more."""
    run = two.run(asked, at=at).run
    return TrialRecord.model_validate_json(
        (run.path / "trials/b01-tuned.a1/record.json").read_text()
    )


def _one(two: Two, name: str) -> TrialRecord:
    return _first(two, noding.joint(sweeping.sweep(name, arms="tuned")))


def _failure(record: TrialRecord) -> Failure:
    assert record.failure is not None, record.findings
    return record.failure


def _engine(attempt: Path) -> int:
    return int(json.loads((attempt / "state.json").read_text())["engine"]["pid"])


def _over(attempt: Path) -> str | None:
    """Why an engine ended; None while it runs."""
    state = json.loads((attempt / "state.json").read_text())
    return str(state["end_reason"]) if state["phase"] in {"stopped", "exited"} else None


@pytest.mark.parametrize("stage", ["distributed_init", "target_weights"])
def test_a_node_that_dies_in_the_start_is_named_with_its_own_cause(two: Two, stage: str) -> None:
    faults.plant(two.peer.folder, faults.Fault(stage, "oom", rank=9))
    failure = _failure(_one(two, f"start-{stage.replace('_', '-')}"))
    assert (failure.stage, failure.failure_class) == ("wait_ready", "gpu_oom")
    assert failure.message.startswith("node1: ")
    assert "out of memory" in failure.message
    assert any("out of memory" in line for line in failure.first_lines)
    assert failure.rank == "TP9"
    assert two.empty()


def test_the_leading_node_keeps_its_own_cause(two: Two) -> None:
    faults.plant(two.lead.folder, faults.Fault("kv_cache", "oom"))
    failure = _failure(_one(two, "lead"))
    assert failure.failure_class == "gpu_oom"
    assert not failure.message.startswith("node1")
    assert two.empty()


def test_a_node_that_is_killed_in_the_probe_ends_the_trial_at_once(two: Two) -> None:
    killed: list[float] = []

    def kill(text: str) -> None:
        if "probe-load" in text and "requests" in text and not killed:
            pid = _engine(two.attempt("probe")[1])
            killed.append(time.monotonic())
            os.kill(pid, signal.SIGKILL)

    asked = noding.joint(sweeping.sweep("probe", arms="tuned", tokens=256, per_slot=8))
    failure = _failure(_first(two, asked, kill))
    assert killed
    assert failure.stage == "probe"
    assert two.failed_at["b01-tuned"]["probe:load"] - killed[0] < _DEATH_S
    assert failure.message.startswith("node1: "), failure
    assert failure.failure_class == "engine_dead"
    assert two.empty()


def test_a_node_that_another_sweep_holds_is_named_and_the_others_are_let_go(two: Two) -> None:
    lead = noding.joint(sweeping.sweep("first", arms="base"))
    with two.peer.command_of(sweeping.sweep("holder", arms="base", tokens=96)) as command:
        command.reaches((two.peer.root / "claim.json").exists)
        with pytest.raises(StageFailedError) as refused:
            two.run(lead)
        assert refused.value.failure.failure_class == "host_claimed"
        assert "node1 is held by" in refused.value.failure.message
        assert not (two.lead.root / "claim.json").exists()
        command.ended()


def test_nodes_that_are_not_alike_are_refused_before_anything_is_loaded(two: Two) -> None:
    drafter = two.peer.folder / "home" / "data" / "eagle3" / "k25-tuned" / "config.json"
    before = drafter.read_text()
    drafter.write_text(before + "\n")
    try:
        with pytest.raises(StageFailedError) as refused:
            two.run(noding.joint(sweeping.sweep("differ", arms="tuned")))
    finally:
        drafter.write_text(before)
    failure = refused.value.failure
    assert failure.failure_class == "nodes_differ"
    assert "files of data/eagle3/k25-tuned: node0 has " in failure.message
    assert ", node1 has " in failure.message
    assert two.empty()


def test_a_node_that_is_gone_is_not_mistaken_for_the_leading_ones_death(two: Two) -> None:
    """The leading node's ranks die of a closed connection; that is the echo."""
    faults.plant(two.peer.folder, faults.Fault("graph_capture", "die"))
    record = _one(two, "echo")
    failure = _failure(record)
    assert failure.message.startswith("node1: "), failure
    run = two.runs.latest("echo")
    assert run is not None
    log = run.path / "trials/b01-tuned.a1/server.log"
    assert "Connection closed by peer" in log.read_text()
    assert two.empty()


def test_hosts_free_themselves_if_their_controller_is_killed(two: Two) -> None:
    asked = noding.joint(sweeping.sweep("night", arms="tuned", tokens=96))
    with two.command_of(asked) as command:
        command.reaches(lambda: all(map(sweeping.loads, two.attempt("night"))))
        attempts = two.attempt("night")
        command.signal(signal.SIGKILL)
        command.ended()
    until(two.empty, 60)
    ended = [until(lambda at=attempt: _over(at)) for attempt in attempts]
    # The one whose lease ran out first takes the other's connection with it.
    assert {"lease_expired"} <= set(ended) <= {"lease_expired", "exited"}


def test_a_stopped_sweep_tears_both_down_at_once(two: Two) -> None:
    asked = noding.joint(sweeping.sweep("stopped", arms="tuned", tokens=96))
    with two.command_of(asked, node0={"lease_s": 60}, node1={"lease_s": 60}) as command:
        command.reaches(lambda: all(map(sweeping.loads, two.attempt("stopped"))))
        stopped = time.monotonic()
        command.signal(signal.SIGTERM)
        assert command.ended() == 130, command.text
        assert two.empty()
        assert time.monotonic() - stopped < 12
    for ground in two.grounds:
        assert "def get_embed_and_head" not in ground.source.read_text()
        assert not (ground.root / "claim.json").exists()


def test_clean_frees_both_hosts_of_a_killed_sweep(two: Two) -> None:
    asked = noding.joint(sweeping.sweep("cut", arms="tuned", tokens=96))
    with two.command_of(asked, node0={"lease_s": 60}, node1={"lease_s": 60}) as command:
        command.reaches(lambda: all(map(sweeping.loads, two.attempt("cut"))))
        command.signal(signal.SIGKILL)
        command.ended()
    with two.lead.command("clean", "cut") as clean:
        assert clean.ended() == 0, clean.text
        assert clean.text.count("1 attempts ended") == 2, clean.text
    assert two.empty()
