"""Kinds of traffic on the pretend host, and acceptance from wherever its engine counts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from configs.probe import RandomTokens
from infra.rehearsal import knobs
from tests import sweeping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from configs.sweep import Sweep
    from tasks.record import TrialRecord
    from tests.sweeping import Ground

_METRICS = "metrics-on"


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with sweeping.ground(tmp_path_factory.mktemp("counts")) as made:
        yield made


def asked(name: str = _METRICS) -> Sweep:
    sweep = sweeping.sweep(name, arms="tuned", tokens=96)
    metrics = {"enable-metrics": True} if name == _METRICS else {}
    flags = {**sweep.engine.flags, **metrics, "decode-log-interval": 1}
    engine = sweep.engine.model_copy(update={"flags": flags})
    return sweep.model_copy(update={"engine": engine})


def tried(ground: Ground, counts: str, sweep: Sweep) -> TrialRecord:
    settings = knobs.read(ground.folder)
    knobs.write(ground.folder, replace(settings, counts=counts))
    record = ground.trial(sweep).record
    assert record.status in sweeping.MEASURED, record.failure
    return record


def test_counters_agree_with_the_counts_of_the_requests(ground: Ground) -> None:
    (both,) = tried(ground, "both", asked()).measurements
    assert both.counts_from == "requests"
    assert both.accept_length is not None
    assert both.counter_accept_length == pytest.approx(both.accept_length, rel=1e-9)

    record = tried(ground, "metrics", asked())
    (alone,) = record.measurements
    assert alone.counts_from == "counters"
    assert alone.verify_steps is not None
    assert alone.accepted is not None
    assert alone.completion_tokens == alone.completed + alone.verify_steps + alone.accepted
    assert alone.proposed == 3 * alone.verify_steps
    assert alone.accept_length == pytest.approx(both.accept_length, rel=0.01)
    assert "counts_missing" not in {finding.name for finding in record.findings}


def test_where_nothing_else_counts_the_average_since_the_flush_stands_in(ground: Ground) -> None:
    (measured,) = tried(ground, "nowhere", asked("bare")).measurements
    assert measured.counts_from == "server_average"
    assert measured.accept_length == pytest.approx(2.86, rel=0.05)
    assert measured.counter_accept_length is None


def test_random_tokens_give_throughput_only(ground: Ground) -> None:
    sweep = asked("noise")
    drawn = RandomTokens(tokens=64)
    probe = sweep.probes["load"].model_copy(update={"prompts": "random", "random": drawn})
    record = tried(ground, "both", sweep.model_copy(update={"probes": {"load": probe}}))
    (measured,) = record.measurements
    assert measured.prompt_tokens == 64 * measured.completed
    assert measured.output_tok_s is not None
    assert (measured.counts_from, measured.accept_length) == ("not_claimed", None)
    assert (measured.server_accept_length, measured.counter_accept_length) == (None, None)
    assert {finding.name for finding in record.findings} <= {"client_was_the_bottleneck"}
    report = (ground.latest("noise").path / "report" / "report.md").read_text()
    assert "random-token prompts: throughput only" in report


def with_contexts(*tokens: int) -> Sweep:
    sweep = asked("lengths")
    probe = sweep.probes["load"].model_copy(update={"context_tokens": tokens})
    return sweep.model_copy(update={"probes": {"load": probe}})


def test_every_prompt_length_is_measured_in_one_boot(ground: Ground) -> None:
    record = tried(ground, "requests", with_contexts(0, 512))
    plain, longer = record.measurements
    assert (plain.probe, longer.probe) == ("load", "load-ctx512")
    assert plain.prompt_tokens is not None
    assert longer.prompt_tokens is not None
    more = (longer.prompt_tokens - plain.prompt_tokens) / longer.completed
    assert 400 < more < 700
    assert longer.cached_tokens == 0
    assert [s.name for s in record.stages].count("launch") == 1
    assert "cached_prompts" not in {finding.name for finding in record.findings}


def test_prompts_that_do_not_fit_are_refused_before_any_traffic(ground: Ground) -> None:
    record = ground.trial(with_contexts(0, 270_000)).record
    assert record.failure is not None
    assert (record.failure.stage, record.failure.failure_class) == ("warm_up", "context_too_long")
    assert "context of 262144 tokens" in record.failure.message
    assert record.measurements == ()


def test_an_average_that_goes_back_further_is_not_used(ground: Ground) -> None:
    sweep = asked("warm")
    probe = sweep.probes["load"].model_copy(update={"flush": False})
    record = tried(ground, "nowhere", sweep.model_copy(update={"probes": {"load": probe}}))
    (measured,) = record.measurements
    assert (measured.counts_from, measured.accept_length) == ("none", None)
    assert "counts_missing" in {finding.name for finding in record.findings}
    assert any("goes back beyond this measurement" in note for note in record.notes)
