"""What happens in the middle of a trial is seen and named, and what is not ours left alone."""

from __future__ import annotations

import json
import os
import pwd
from typing import TYPE_CHECKING

import pytest

from infra.rehearsal import memory
from tests import rehearsing, sweeping
from tests.agent_host import is_alive
from tests.test_foreign import somebody

if TYPE_CHECKING:
    from pathlib import Path

    from tasks.record import Finding, TrialRecord

pytestmark = pytest.mark.slow
HOT, SHARED = 3, 5


def found(record: TrialRecord, name: str) -> Finding:
    """The only finding of that name."""
    (finding,) = (finding for finding in record.findings if finding.name == name)
    return finding


def test_a_hot_card_and_a_stranger_who_comes_during_the_probe(tmp_path: Path) -> None:
    with sweeping.ground(tmp_path, hot_gpu=HOT) as ground, somebody() as pid:
        rehearsing.patch(ground.folder)

        def arrive(text: str) -> None:
            if text.startswith("probe:load: probe-load-c2 "):
                memory.plant(ground.folder, SHARED, "stranger", 400, pid=pid)

        asked = sweeping.sweep(arms="base", patches="", tokens=256, per_slot=6)
        outcome = ground.run(asked, hear=arrive)
        first = ground.tried(outcome, "b01-base", 1)
        again = ground.tried(outcome, "b01-base", 2)
        assert is_alive(pid), "nobody touches what is not ours"
        facts = json.loads((first.folder / "facts.json").read_text())
        look = json.loads((first.folder / "gpus" / "probe-load-c2.json").read_text())

    assert first.record.status == "suspect"
    assert first.record.failure is None
    clocks = found(first.record, "clocks_throttled")
    assert clocks.where == "load c2"
    assert clocks.evidence == (
        f"GPU {HOT}: software thermal slowdown (1215 of 3090 MHz, 91 °C, 288 W)"
    )
    # Not before the launch, when the card had nothing to do: that would be no finding.
    idle = facts["nvidia_smi"]["gpus"]["stdout"].splitlines()[HOT]
    assert idle.endswith("0x0000000000000001")
    stranger = found(first.record, "foreign_gpu_process")
    owner = pwd.getpwuid(os.getuid()).pw_name
    assert stranger.where == "host"
    # The engine's own eight processes are on the cards too, and are not named.
    assert len(look["apps"]["stdout"].splitlines()) == 9
    assert f"(pid {pid}, user {owner}) on GPU {SHARED}, at load c2" in stranger.evidence
    assert stranger.evidence.count("pid ") == 1
    # The machine alone was in the way, so the trial is tried again; but he is still there.
    assert again.record.failure is not None
    assert again.record.failure.failure_class == "foreign_gpu_process"
    assert f"pid {pid}" in again.record.failure.message


def test_prompts_beyond_the_context_are_told_from_other_failures(tmp_path: Path) -> None:
    with sweeping.ground(tmp_path) as ground:
        asked = sweeping.sweep(arms="base", patches="", per_slot=6)
        flags = {**asked.engine.flags, "context-length": 110}
        engine = asked.engine.model_copy(update={"flags": flags})
        record = ground.trial(asked.model_copy(update={"engine": engine})).record
    assert record.status == "suspect"
    (measured,) = record.measurements
    assert 0 < measured.failed < measured.requested
    said = f"failed with beyond_context: {measured.failed} row"
    assert found(record, "context_exceeded").evidence.startswith(said)
    assert said in found(record, "requests_failed").evidence
    # Both clocks are the same one here.
    assert "host_clock_off" not in {finding.name for finding in record.findings}
