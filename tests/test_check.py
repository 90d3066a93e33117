"""Guards: each one is tripped by what it is for, and left alone by a near miss."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tasks.check import check
from tasks.check_facts import DecodeFacts, Evidence, ProbeFacts, ServerFacts
from tasks.check_probe import PROBE_LOOKS
from tasks.check_server import SERVER_LOOKS, differing_flags, throttled
from tasks.check_table import GUARDS, Limits
from tests.builders import client, measurement

SERVER = ServerFacts(speculating=True, speculation_active=True, max_running_requests=64)
PROBE = ProbeFacts(
    measurement(concurrency=8, accept_length=2.5),
    speculating=True,
    draft_steps=3,
    cold=True,
    distinct_prompts=48,
    decode=DecodeFacts(lines=100, outside_graph=0, most_running=8, most_queued=0),
)


def probe(**fields) -> ProbeFacts:
    """A sound probe with these fields of its measurement changed."""
    return replace(PROBE, measurement=PROBE.measurement.model_copy(update=fields))


def names(server: ServerFacts = SERVER, *probes: ProbeFacts) -> list[str]:
    return [finding.name for finding in check(Evidence(server, probes))]


def test_a_sound_trial_has_no_findings():
    assert names(SERVER, PROBE) == []
    base = ProbeFacts(measurement(accept_length=1.0), speculating=False)
    assert names(ServerFacts(speculating=False, speculation_active=False), base) == []


def test_a_warm_up_that_did_not_settle_makes_a_trial_suspect():
    unstable = replace(SERVER, unstable=("load: 48 requests, 2 windows, the last two 31% apart",))
    (found,) = check(Evidence(unstable, (PROBE,)))
    assert (found.name, found.where) == ("warm_up_not_stable", "server")
    assert "31% apart" in found.evidence
    assert names(replace(SERVER, unstable=()), PROBE) == []


TRIPS = [
    ("drafter_not_working", {"accept_length": 1.02}, {"accept_length": 1.03}),
    ("acceptance_too_good", {"accept_length": 3.9}, {"accept_length": 3.89}),
    ("outputs_loop", {"unique_ngram_ratio": 0.29}, {"unique_ngram_ratio": 0.31}),
    ("requests_failed", {"failed": 1, "completed": 79}, {"failed": 0, "completed": 80}),
    ("requests_failed", {"completed": 79}, {"completed": 80}),
    ("requests_retracted", {"retractions": 1}, {"retractions": 0}),
    ("cached_prompts", {"cached_tokens": 961}, {"cached_tokens": 960}),
    ("no_steady_window", {"window_s": None}, {"window_s": 0.5}),
    (
        "too_few_requests",
        {"completed": 15, "requested": 15, "completion_tokens": 3000},
        {"completed": 16, "requested": 16, "completion_tokens": 3000},
    ),
    ("outputs_too_short", {"completion_tokens": 2559}, {"completion_tokens": 2560}),
    ("counts_missing", {"accept_length": None}, {"accept_length": 2.0}),
    (
        "client_was_the_bottleneck",
        {"client": client(loop_lag_p99_s=0.14)},
        {"client": client(loop_lag_p99_s=0.12)},
    ),
    (
        "client_was_the_bottleneck",
        {"client": client(send_delay_p99_s=0.14)},
        {"client": client(send_delay_p99_s=0.12)},
    ),
    (
        "client_was_the_bottleneck",
        {"client": client(cpu_share=0.91)},
        {"client": client(cpu_share=0.89)},
    ),
]


@pytest.mark.parametrize(("name", "trips", "misses"), TRIPS)
def test_a_guard_on_the_measurement(name, trips, misses):
    assert names(SERVER, probe(**trips)) == [name]
    assert names(SERVER, probe(**misses)) == []


@pytest.mark.parametrize(
    ("name", "trips", "misses"),
    [
        ("too_few_prompts", {"distinct_prompts": 3}, {"distinct_prompts": 4}),
        (
            "outside_cuda_graphs",
            {"decode": DecodeFacts(lines=100, outside_graph=6)},
            {"decode": DecodeFacts(lines=100, outside_graph=5)},
        ),
        (
            "pinned_at_server_limit",
            {"decode": DecodeFacts(100, 0, most_running=64, most_queued=1)},
            {"decode": DecodeFacts(100, 0, most_running=64, most_queued=0)},
        ),
        (
            "pinned_at_server_limit",
            {"measurement": measurement(concurrency=65, accept_length=2.5)},
            {"measurement": measurement(concurrency=64, accept_length=2.5)},
        ),
        (
            "counts_disagree",
            {"notes": ("histogram and verify steps disagree: 3 rows, e.g. p1: 4 and 5",)},
            {"notes": ("output ids incomplete: 1 row, e.g. p1: 3 of 12",)},
        ),
        (
            "samples_damaged",
            {"notes": ("torn last line left out: 1 row, e.g. line 4",)},
            {"notes": ()},
        ),
    ],
)
def test_a_guard_on_what_surrounds_the_measurement(name, trips, misses):
    assert names(SERVER, replace(PROBE, **trips)) == [name]
    assert names(SERVER, replace(PROBE, **misses)) == []


@pytest.mark.parametrize(
    ("name", "trips", "misses"),
    [
        ("speculation_not_active", {"speculation_active": False}, {"speculation_active": None}),
        (
            "speculation_not_asked",
            {"speculating": False, "speculation_active": True},
            {"speculating": False, "speculation_active": None},
        ),
        (
            "flags_differ",
            {"asked": {"page-size": "1"}, "effective": {"page_size": "64"}},
            {"asked": {"page-size": "1"}, "effective": {"page_size": "1.0"}},
        ),
        (
            "clocks_throttled",
            {"clock_reasons": {"0": "0x0000000000000020"}},
            {"clock_reasons": {"0": "0x0000000000000004", "1": "[N/A]"}},
        ),
        (
            "foreign_gpu_process",
            {"foreign_processes": ("pid 77 of eve: python train.py",)},
            {"foreign_processes": ()},
        ),
    ],
)
def test_a_guard_on_server_and_host(name, trips, misses):
    assert names(replace(SERVER, **trips)) == [name]
    assert names(replace(SERVER, **misses)) == []


def test_every_guard_of_the_table_is_looked_at_and_no_other():
    looked_at = [name for name, _ in SERVER_LOOKS] + [name for name, _ in PROBE_LOOKS]
    assert sorted(looked_at) == sorted(guard.name for guard in GUARDS)
    assert len(set(looked_at)) == len(looked_at)


def test_a_finding_says_what_where_and_what_to_do():
    (finding,) = check(Evidence(SERVER, (probe(accept_length=1.0),)))
    assert finding.where == "load c8"
    assert finding.evidence == "accept length 1.000"
    assert finding.limit == "accept length above 1.02"
    assert "drafter belongs to this target" in finding.advice
    (clocks,) = check(Evidence(replace(SERVER, clock_reasons={"3": 0x48}), ()))
    assert clocks.where == "host"
    assert clocks.evidence == "GPU 3: hardware slowdown, hardware thermal slowdown"


def test_limits_can_be_moved():
    strict = Limits(accept_length_floor=2.6)
    (finding,) = check(Evidence(SERVER, (PROBE,)), strict)
    assert finding.limit == "accept length above 2.6"


def test_what_is_unknown_trips_nothing_but_the_counts():
    blank = {
        "accept_length": None,
        "unique_ngram_ratio": None,
        "retractions": None,
        "cached_tokens": None,
        "client": None,
        "e2e_s": None,
    }
    bare = ProbeFacts(probe(**blank).measurement, speculating=True)
    assert names(ServerFacts(speculating=True), bare) == ["counts_missing"]
    assert names(ServerFacts(speculating=False), replace(bare, speculating=False)) == []


def test_a_warm_probe_may_hit_the_cache():
    assert names(SERVER, replace(probe(cached_tokens=3000), cold=False)) == []


def test_guards_on_acceptance_leave_a_server_without_speculation_alone():
    base = replace(
        probe(accept_length=1.0, completion_tokens=100), speculating=False, distinct_prompts=1
    )
    assert names(ServerFacts(speculating=False), base) == []


@pytest.mark.parametrize(
    ("asked", "effective"),
    [
        ({"mem-fraction-static": "0.80"}, {"mem_fraction_static": "0.8"}),
        ({"speculative-algorithm": "EAGLE3"}, {"speculative_algorithm": "eagle3"}),
        ({"model-path": "/models/kimi/"}, {"model_path": "/models/kimi"}),
        ({"trust-remote-code": "true"}, {"trust_remote_code": "True"}),
        ({"quantization": "none"}, {"quantization": "null"}),
        ({"api-key": "***"}, {"api_key": "secret"}),
        ({"port": "30000"}, {"port": "31000"}),
        ({"tensor-parallel-size": "8"}, {"tp_size": "8"}),
        ({"unknown-flag": "1"}, {}),
    ],
)
def test_spelling_and_unknown_flags_are_no_difference(asked, effective):
    assert differing_flags(asked, effective) == ()


def test_flags_that_differ_are_named_with_both_values():
    wrong = differing_flags({"max-running-requests": "64"}, {"max_running_requests": "48"})
    assert wrong == (("max-running-requests", "64", "48"),)


def test_masks_of_clock_reasons():
    assert throttled("0x0000000000000000") == ()
    assert throttled("Not Active") == ()
    assert throttled(0x80) == ("hardware power brake",)
