"""Whole trials on the pretend host, over real SSH: what they leave behind, here and there."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tasks.comparison import SCHEMA
from tests import sweeping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flows.outcome import Outcome
    from tests.sweeping import Ground, Tried

_STAGES = ["claim", "survey", "clean_gpus", "patch", "clear_pycache", "check_drafter", "launch"]
_STAGES += ["wait_ready", "verify", "warm_up", "probe:load", "tear_down"]


class Two(NamedTuple):
    """A sweep of two arms, and the engine's source before it."""

    outcome: Outcome
    before: bytes
    tuned: Tried


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with sweeping.ground(tmp_path_factory.mktemp("trial"), time_scale=2.0) as made:
        yield made


@pytest.fixture(scope="module")
def two(ground: Ground) -> Two:
    before = ground.source.read_bytes()
    outcome = ground.run(sweeping.sweep("two", arms="base+tuned"))
    return Two(outcome, before, ground.tried(outcome, "b01-tuned"))


def test_a_trial_leaves_a_whole_record(two: Two) -> None:
    record = two.tuned.record
    assert record.status in sweeping.MEASURED, (record.failure, record.findings)
    assert two.tuned.stages == _STAGES
    assert all(stage.outcome == "done" and stage.seconds > 0 for stage in record.stages)
    (measured,) = record.measurements
    assert (measured.probe, measured.concurrency) == ("load", 2)
    assert measured.completed == measured.requested == 6
    assert measured.accept_length == pytest.approx(2.86, rel=0.1)
    assert measured.counts_from == "requests"
    assert record.asked["speculative-num-steps"] == record.effective["speculative-num-steps"] == "3"
    assert record.effective["max-running-requests"] == "64"
    assert record.versions["sglang"] == "0.5.9"
    assert record.must_match["target"] == "shared/kimi-k2.5-int4"
    assert {"start_s", "load_s", "capture_s"} <= set(record.start)
    (outcome,) = record.patches
    assert (outcome.action, len(outcome.methods)) == ("insert", 3)


def test_the_topology_is_asked_for_once_and_stands_in_every_record(two: Two) -> None:
    """The survey of each trial is on the way to every number; this is not part of it."""
    for record in two.outcome.records:
        assert record.topology is not None
        assert record.topology.path(0, 1) == "PIX"
        assert record.topology.path(0, 7) == "SYS"
    assert json.loads((two.tuned.folder / "facts.json").read_text())["topology"] is None
    (arrival,) = (two.outcome.run.path / "arrival").glob("*.json")
    assert arrival.stem == two.tuned.record.host
    assert json.loads(arrival.read_text())["topology"]["matrix"]["stdout"].startswith(
        "\tGPU0\tGPU1\t"
    )
    report = (two.outcome.run.path / "report" / "report.md").read_text()
    assert "## How the GPUs hang together" in report


def test_the_host_is_left_as_it_was(ground: Ground, two: Two) -> None:
    assert ground.source.read_bytes() == two.before
    assert ground.empty()
    assert two.tuned.state["end_reason"] == "stopped"
    assert not (ground.root / "claim.json").exists(), "the host was not let go"


def test_everything_of_an_attempt_stands_in_its_folder(two: Two) -> None:
    folder = two.tuned.folder
    assert json.loads((folder / "record.json").read_text())["trial"] == "b01-tuned"
    command = (folder / "command.txt").read_text()
    assert "--speculative-algorithm EAGLE3" in command
    assert "SPT_NOENV=1" in command
    assert "The server is fired up" in (folder / "server.log").read_text()
    assert "+    def get_embed_and_head" in (folder / "kimi_k25_eagle3.diff").read_text()
    assert json.loads((folder / "facts.json").read_text())["nvidia_smi"]
    rows = gzip.decompress((folder / "samples" / "probe-load-c2.jsonl.gz").read_bytes())
    assert len(rows.splitlines()) == 6


def test_the_report_lies_in_the_run_folder_for_people_and_for_machines(two: Two) -> None:
    folder = two.outcome.run.path / "report"
    assert (folder / "report.md").read_text().startswith("> **REHEARSAL")
    page = (folder / "report.html").read_text()
    assert f"<title>{two.outcome.report.sentence}" in page
    assert "data:image/svg+xml;base64," in page
    assert json.loads((folder / "comparison.json").read_text())["schema_version"] == SCHEMA


def test_who_compares_later_is_told_where_the_report_lies(ground: Ground, two: Two) -> None:
    with ground.command("compare", "two") as compare:
        assert compare.process.wait(timeout=120) == 0, compare.text
        assert f"report: {two.outcome.run.path}/report/report.html\n" in compare.text


def test_two_good_arms_are_compared(two: Two) -> None:
    outcome = two.outcome
    assert outcome.counts().ok == 2, [record.failure for record in outcome.records]
    cells = outcome.report.comparison.cells
    assert {(cell.arm, cell.metric) for cell in cells} >= {("tuned", "output_tok_s")}
    assert all(cell.ratio is not None for cell in cells if cell.metric == "user_tok_s")
    assert "tuned" in outcome.report.sentence


def test_a_sweep_that_is_run_again_runs_nothing_twice_and_says_so(ground: Ground, two: Two) -> None:
    again = ground.run(sweeping.sweep("two", arms="base+tuned"))
    assert {skip.trial for skip in again.skipped} == {"b01-base", "b01-tuned"}
    assert all("done already (ok)" in skip.reason for skip in again.skipped)
    assert again.run.path == two.outcome.run.path
    assert [record.attempt for record in again.records] == [1, 1]


def test_without_its_patch_the_engine_misses_the_interface(ground: Ground) -> None:
    tried = ground.trial(sweeping.sweep(arms="tuned", patches=""))
    failure = tried.record.failure
    assert failure is not None
    assert (tried.record.status, failure.stage) == ("failed", "wait_ready")
    assert failure.failure_class == "missing_interface"
    assert failure.start_stage == "graph_capture"
    assert "set_eagle3_layers_to_capture" in failure.message
    assert any("AttributeError" in line for line in failure.first_lines)
    assert failure.rank is not None
    assert tried.stages[-2:] == ["wait_ready", "tear_down"]
    assert ground.empty()


def test_a_patch_that_is_to_be_kept_stays_and_is_no_change_the_next_time(ground: Ground) -> None:
    before = ground.source.read_bytes()
    try:
        outcome = ground.run(sweeping.sweep("kept", arms="tuned", keep=True, blocks=2))
        _, second = outcome.records
        first = ground.tried(outcome, "b01-tuned", 1).record  # of which there may be a second
        assert {first.status, second.status} <= sweeping.MEASURED
        assert [r.patches[0].action for r in (first, second)] == ["insert", "complete_already"]
        assert first.must_match == second.must_match
        assert b"def get_embed_and_head" in ground.source.read_bytes()
    finally:
        ground.source.write_bytes(before)


def test_a_patch_left_by_a_cut_off_attempt_is_taken_away_before_the_next_trial(
    ground: Ground,
) -> None:
    from infra.connect import connect
    from tasks.patch_host import put_back

    before = ground.source.read_bytes()
    agent = connect(ground.host)
    try:
        new = before + b"\n# patched\n"
        agent.put(new, f"{agent.root}/new.py")
        agent.put_json({"paths": [str(ground.source)]}, f"{agent.root}/patched.json")
        agent.call(
            "file",
            op="write",
            path=str(ground.source),
            content_path=f"{agent.root}/new.py",
            expect_sha256=agent.call("file", op="sha256", path=str(ground.source))["sha256"],
            python=agent.path(ground.host.python),
        )
        assert ground.source.read_bytes() == new
        assert put_back(agent) == (f"{ground.source} put back",)
        assert ground.source.read_bytes() == before
        assert put_back(agent) == ()
    finally:
        agent.close()
