"""Guards: each one is tripped by what it is for, and left alone by a near miss."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tasks.check import check
from tasks.check_facts import DecodeFacts, Evidence, ProbeFacts, ServerFacts
from tasks.check_host import HOST_LOOKS, throttled
from tasks.check_limits import Limits
from tasks.check_probe import PROBE_LOOKS
from tasks.check_server import SERVER_LOOKS, differing_flags
from tasks.check_table import GUARDS, PASSING
from tasks.effective import setting_differences
from tasks.host_clock import Span
from tasks.odd_answers import odd_answers
from tasks.samples import read_rows
from tasks.smi_csv import GpuRow
from tests.builders import client, measurement, sample

# A row of the drive job: eleven or twelve tokens came in chunks, the engine counted twelve.
ROW = (
    '{"id": "p1", "kind": "code", "sent": 0, "first": 0.1, "last": 0.2, "done": 0.2, "status": 200,'
    ' "error": null, "chunks": [[0.1, 1], [0.2, %d]], "output_ids": null,'
    ' "meta": {"completion_tokens": 12, "finish_reason": {"type": "length"}}}'
)

SERVER = ServerFacts(
    speculating=True,
    speculation_active=True,
    max_running_requests=64,
    graph_max_bs=64,
    clock=Span(host_s=1000.0, least_s=998.0, most_s=1001.0),
)
PROBE = ProbeFacts(
    measurement(concurrency=8, accept_length=2.5),
    speculating=True,
    draft_steps=3,
    cold=True,
    distinct_prompts=48,
    decode=DecodeFacts(lines=100, outside_graph=0, most_running=8, most_queued=0),
    gpus=(GpuRow(index=0, clock_reasons=0), GpuRow(index=1, clock_reasons=0)),
)
BASE = ServerFacts(speculating=False, speculation_active=False)


def probe(**fields) -> ProbeFacts:
    """A sound probe with these fields of its measurement changed."""
    return replace(PROBE, measurement=PROBE.measurement.model_copy(update=fields))


def card(**fields) -> tuple[GpuRow, ...]:
    """A look at one GPU."""
    return (GpuRow(index=3, **fields),)


def names(server: ServerFacts = SERVER, *probes: ProbeFacts) -> list[str]:
    return [finding.name for finding in check(Evidence(server, probes))]


def test_a_sound_trial_has_no_findings():
    assert names(SERVER, PROBE) == []
    base = ProbeFacts(measurement(accept_length=1.0), speculating=False)
    assert names(BASE, base) == []


def test_a_warm_up_that_did_not_settle_makes_a_trial_suspect():
    unstable = replace(SERVER, unstable=("load: 48 requests, 2 windows, the last two 31% apart",))
    (found,) = check(Evidence(unstable, (PROBE,)))
    assert (found.name, found.where) == ("warm_up_not_stable", "server")
    assert "31% apart" in found.evidence
    assert names(replace(SERVER, unstable=()), PROBE) == []


# Guard -> an input that trips it and a near miss, at the very limit where there is one.
MEASURED = [
    ("drafter_not_working", {"accept_length": 1.02}, {"accept_length": 1.0201}),
    ("acceptance_too_good", {"accept_length": 3.9}, {"accept_length": 3.8999}),
    ("outputs_loop", {"unique_ngram_ratio": 0.2999}, {"unique_ngram_ratio": 0.3}),
    ("requests_failed", {"failed": 1, "completed": 79}, {"failed": 0, "completed": 80}),
    ("requests_failed", {"completed": 79}, {"completed": 80}),
    ("requests_retracted", {"retractions": 1}, {"retractions": 0}),
    ("cached_prompts", {"cached_tokens": 961}, {"cached_tokens": 960}),
    ("no_steady_window", {"window_s": None}, {"window_s": 0.01}),
    (
        "too_few_requests",
        {"completed": 15, "requested": 15, "completion_tokens": 3000},
        {"completed": 16, "requested": 16, "completion_tokens": 3000},
    ),
    ("outputs_too_short", {"completion_tokens": 2559}, {"completion_tokens": 2560}),
    ("counts_missing", {"accept_length": None}, {"accept_length": 1.03}),
    # The median request takes 2.6 s: five percent are 0.13 s.
    (
        "client_was_the_bottleneck",
        {"client": client(loop_lag_p99_s=0.1301)},
        {"client": client(loop_lag_p99_s=0.13)},
    ),
    (
        "client_was_the_bottleneck",
        {"client": client(send_delay_p99_s=0.1301)},
        {"client": client(send_delay_p99_s=0.13)},
    ),
    (
        "client_was_the_bottleneck",
        {"client": client(send_delay_p99_s=0.0501), "e2e_s": None},
        {"client": client(send_delay_p99_s=0.05), "e2e_s": None},
    ),
    (
        "client_was_the_bottleneck",
        {"client": client(cpu_share=0.9001)},
        {"client": client(cpu_share=0.9)},
    ),
]
AROUND = [
    ("simulation_not_in_effect", {"simulated": 2.6316}, {"simulated": 2.6315}),
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
        "queued_for_kv_cache",
        {"decode": DecodeFacts(100, 0, most_running=8, most_queued=2, waiting_below_limit=11)},
        {"decode": DecodeFacts(100, 0, most_running=8, most_queued=2, waiting_below_limit=10)},
    ),
    (
        "context_exceeded",
        {"notes": odd_answers([sample(tokens=64, finish="length")], 65)},
        {"notes": odd_answers([sample(tokens=65, finish="length")], 65)},
    ),
    (
        "context_exceeded",
        {"notes": odd_answers([sample(error="beyond_context")], 65)},
        {"notes": odd_answers([sample(tokens=12, finish="stop"), sample(error="timeout")], 65)},
    ),
    (
        "counts_disagree",
        {"notes": ("histogram and verify steps disagree: 3 rows, e.g. p1: 4 and 5",)},
        {"notes": ("output ids incomplete: 1 row, e.g. p1: 3 of 12",)},
    ),
    (
        "counts_disagree",
        {"notes": read_rows([ROW % 11], 1.0).notes},
        {"notes": read_rows([ROW % 12], 1.0).notes},
    ),
    (
        "samples_damaged",
        {"notes": read_rows([ROW % 12, (ROW % 12)[:40]], 1.0).notes},
        {"notes": read_rows([ROW % 12, ""], 1.0).notes},
    ),
    (
        "samples_damaged",
        {"notes": read_rows([ROW % 12, ROW % 12], 1.0).notes},
        {"notes": read_rows([ROW % 12, (ROW % 12).replace("p1", "p2")], 1.0).notes},
    ),
    ("clocks_throttled", {"gpus": card(clock_reasons=0x20)}, {"gpus": card(clock_reasons=0x04)}),
    ("clocks_throttled", {"gpus": card(clock_reasons=0x08)}, {"gpus": card(clock_reasons=0x110)}),
    # A card that stands idle is not slowed down by its heat.
    ("clocks_throttled", {"gpus": card(clock_reasons=0x40)}, {"gpus": card(clock_reasons=0x41)}),
    ("clocks_throttled", {"gpus": card(clock_reasons=0x80)}, {"gpus": card(clock_reasons=None)}),
]
SERVED = [
    ("warm_up_not_stable", {"unstable": ("load: the last two 31% apart",)}, {"unstable": ()}),
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
        "foreign_gpu_process",
        {"foreign_processes": ("python3 (pid 77, user eve) on GPU 3, at load c8",)},
        {"foreign_processes": ()},
    ),
    # Two thousandths of at most 1000 s are 2 s.
    ("host_clock_off", {"clock": Span(1002.1, 998.0, 1000.0)}, {"clock": Span(1002, 998.0, 1000)}),
    ("host_clock_off", {"clock": Span(995.9, 998.0, 1000.0)}, {"clock": Span(996, 998.0, 1000.0)}),
]
UNDER_LOAD = [
    ("pinned_at_server_limit", {"max_running_requests": 7}, {"max_running_requests": 8}),
    ("outside_cuda_graphs", {"graph_max_bs": 7}, {"graph_max_bs": 8}),
    ("outside_cuda_graphs", {"graph_max_bs": 2, "ranks": 3}, {"graph_max_bs": 2, "ranks": 4}),
]


@pytest.mark.parametrize(("name", "trips", "misses"), MEASURED)
def test_a_guard_on_the_measurement(name, trips, misses):
    assert names(SERVER, probe(**trips)) == [name]
    assert names(SERVER, probe(**misses)) == []


@pytest.mark.parametrize(("name", "trips", "misses"), AROUND)
def test_a_guard_on_what_surrounds_the_measurement(name, trips, misses):
    assert names(SERVER, replace(PROBE, **trips)) == [name]
    assert names(SERVER, replace(PROBE, **misses)) == []


@pytest.mark.parametrize(("name", "trips", "misses"), SERVED)
def test_a_guard_on_server_and_host(name, trips, misses):
    assert names(replace(SERVER, **trips)) == [name]
    assert names(replace(SERVER, **misses)) == []


@pytest.mark.parametrize(("name", "trips", "misses"), UNDER_LOAD)
def test_a_guard_on_a_probe_and_what_its_server_allows(name, trips, misses):
    assert names(replace(SERVER, **trips), PROBE) == [name]
    assert names(replace(SERVER, **misses), PROBE) == []


LOOKS = [name for looks in (SERVER_LOOKS, PROBE_LOOKS, HOST_LOOKS) for name, _ in looks]


def test_every_guard_of_the_table_is_looked_at_and_no_other():
    assert sorted(LOOKS) == sorted(guard.name for guard in GUARDS)
    assert len(set(LOOKS)) == len(LOOKS)


def test_every_guard_is_tripped_here_and_narrowly_missed():
    tried = {name for name, _, _ in (*MEASURED, *AROUND, *SERVED, *UNDER_LOAD)}
    assert tried == set(LOOKS)


def test_every_guard_says_why_where_the_limit_lies_and_what_to_do():
    for guard in GUARDS:
        assert guard.reason.endswith(".")
        limit = guard.limit.format(**Limits().model_dump())
        assert limit
        assert "{" not in limit
        assert guard.advice
    assert set(PASSING) <= set(LOOKS)


def test_a_finding_says_what_where_and_what_to_do():
    (finding,) = check(Evidence(SERVER, (probe(accept_length=1.0),)))
    assert finding.where == "load c8"
    assert finding.evidence == "accept length 1.000"
    assert finding.limit == "accept length above 1.02"
    assert "drafter belongs to this target" in finding.advice
    hot = {"sm_clock_mhz": 1215.0, "sm_clock_max_mhz": 3090.0, "temperature_c": 91.0}
    (clocks,) = check(Evidence(SERVER, (replace(PROBE, gpus=card(clock_reasons=0x48, **hot)),)))
    assert clocks.where == "load c8"
    assert clocks.evidence == (
        "GPU 3: hardware slowdown, hardware thermal slowdown (1215 of 3090 MHz, 91 °C)"
    )
    (clock,) = check(Evidence(replace(SERVER, clock=Span(980.0, 998.0, 1001.0)), ()))
    assert (clock.where, clock.evidence) == (
        "host",
        "the host counted 980.0 s in 998.0 to 1001.0 s of ours",
    )
    failed = odd_answers([sample("p1", error="timeout"), sample("p2", error="timeout")], 65)
    (lost,) = check(Evidence(SERVER, (replace(probe(failed=2, completed=78), notes=failed),)))
    assert lost.evidence == ("of 80 requests 2 failed (failed with timeout: 2 rows, e.g. p1)")


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
    assert throttled(0x00) == ()
    assert throttled(None) == ()
    assert throttled(0x80) == ("hardware power brake",)
    assert throttled(0x81) == ()


def test_a_word_that_the_engine_resolves_is_no_difference():
    asked = {"speculative-algorithm": "NEXTN"}
    for have in ("EAGLE", "FROZEN_KV_MTP", "NEXTN"):
        assert differing_flags(asked, {"speculative-algorithm": have}) == ()
        assert setting_differences(asked, {"speculative_algorithm": have}) == ()
    assert differing_flags(asked, {"speculative-algorithm": "EAGLE3"})
    assert differing_flags({"speculative-algorithm": "EAGLE"}, {"speculative-algorithm": "NEXTN"})
