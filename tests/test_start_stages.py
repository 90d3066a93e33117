"""Engines that die or hang at each stage of their start: known at once, named, and cleaned up."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, NamedTuple

import pytest

from infra.rehearsal import faults
from tests import rehearsing, sweeping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flows.outcome import Outcome
    from tasks.record import Failure
    from tests.sweeping import Ground, Tried

pytestmark = pytest.mark.slow

# Planted stage -> the stage as we call it, the class, and what the first lines must show.
_SAID = {
    "arguments": ("arguments", "bad_arguments", "Unknown attention backend"),
    "distributed_init": ("distributed_init", "nccl_error", "DistBackendError"),
    "target_weights": ("target_weights", "weights_unreadable", "SafetensorError"),
    "kv_cache": ("kv_cache", "kv_cache_too_small", "Not enough memory"),
    "graph_capture": ("graph_capture", "illegal_memory_access", "Capture cuda graph failed"),
    "draft_weights": ("draft_load", "draft_shape_mismatch", "Attempted to load weight"),
    "draft_graph_capture": ("draft_graph_capture", "illegal_memory_access", "illegal memory"),
    "warmup": ("warmup", "warmup_failed", "warmup error"),
}


class Deaths(NamedTuple):
    """A sweep in which every arm dies at the stage that it is called after."""

    outcome: Outcome
    ground: Ground

    def at(self, stage: str) -> Tried:
        return self.ground.tried(self.outcome, f"b01-{stage}")


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with sweeping.ground(tmp_path_factory.mktemp("stages"), start_s=0.2) as made:
        rehearsing.patch(made.folder)
        yield made


@pytest.fixture(scope="module")
def deaths(ground: Ground) -> Deaths:
    for stage in (*faults.START_STAGES, "decode"):
        # Twice: what may be a passing fault is tried once more. The first requests warm up.
        later = 6 if stage == "decode" else 0
        ground.plant(stage, trial=f"b01-{stage}[.]", times=2, after_requests=later)
    outcome = ground.run(
        sweeping.sweep("deaths", patches="", arms="+".join([*faults.START_STAGES, "decode"]))
    )
    faults.write(ground.folder, [])
    return Deaths(outcome, ground)


def failure_of(tried: Tried) -> Failure:
    assert tried.record.status == "failed"
    assert tried.record.failure is not None
    return tried.record.failure


@pytest.mark.parametrize("stage", faults.START_STAGES)
def test_a_death_in_each_start_stage_is_named(deaths: Deaths, stage: str) -> None:
    failure = failure_of(deaths.at(stage))
    named, failure_class, line = _SAID[stage]
    assert failure.stage == "wait_ready"
    assert (failure.start_stage, failure.failure_class) == (named, failure_class)
    assert any(line in text for text in failure.first_lines)
    assert failure.remedy


@pytest.mark.parametrize("stage", [*faults.START_STAGES, "decode"])
def test_a_death_is_known_within_a_second(deaths: Deaths, stage: str) -> None:
    died = deaths.at(stage).state["ended_monotonic"]
    ((_stage, known),) = deaths.ground.failed_at[f"b01-{stage}"].items()
    assert 0 <= known - died < 1.0


def test_a_death_under_load_keeps_what_was_measured_until_then(deaths: Deaths) -> None:
    tried = deaths.at("decode")
    failure = failure_of(tried)
    assert failure.stage == "probe"
    assert failure.failure_class == "illegal_memory_access"
    samples = tried.folder / "samples" / "probe-load-c2.jsonl.gz"
    rows = [json.loads(row) for row in gzip.decompress(samples.read_bytes()).splitlines()]
    assert {row["error"] is None for row in rows} == {True, False}


def test_the_next_trial_finds_free_gpus_whatever_the_last_one_died_of(deaths: Deaths) -> None:
    for record in deaths.outcome.records:
        assert record.stages[-1].name == "tear_down"
        assert record.stages[-1].outcome == "done", record.trial
        assert not record.notes
    assert deaths.ground.empty()


def test_with_nothing_to_compare_the_report_says_so(deaths: Deaths) -> None:
    assert deaths.outcome.counts().failed == len(deaths.outcome.records)
    assert deaths.outcome.report.comparison.problem
    markdown = deaths.outcome.report.markdown
    assert all(f"b01-{stage}" in markdown or stage in markdown for stage in faults.START_STAGES)


def test_a_hang_ends_within_the_silence_bound_and_is_tried_once_more(ground: Ground) -> None:
    ground.plant("target_weights", "hang", rank=6)
    tried = ground.trial(sweeping.sweep("hang", arms="tuned", patches="", silence_s=2))
    assert tried.record.status in sweeping.MEASURED
    assert tried.record.attempt == 2
    hung = json.loads((tried.run.path / "trials" / "b01-tuned.a1" / "record.json").read_text())
    assert hung["failure"]["stage"] == "wait_ready"
    # Seven of eight ranks got that far; the eighth still loads.
    assert hung["failure"]["start_stage"] == "after_target_weights"
    assert hung["failure"]["failure_class"] == "ready_timeout"
    assert "no progress for" in hung["failure"]["message"]
    seconds = {stage["name"]: stage["seconds"] for stage in hung["stages"]}
    assert 2 <= seconds["wait_ready"] < 6
    assert ground.empty()
