"""A benchmark's result line is believed only where nothing speaks against it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.bench_line import read_bench_file
from tasks.bench_result import BenchResult, Circumstances, read_bench
from tasks.bench_speedup import compare_results

REAL = Path(__file__).parent / "fixtures" / "real_info"
LINE: dict[str, object] = {
    "tag": "a", "backend": "sglang", "dataset_name": "custom", "request_rate": 8.0,
    "max_concurrency": 32, "duration": 100.0, "completed": 200, "total_input_tokens": 50000,
    "total_output_tokens": 60000, "request_throughput": 2.0, "output_throughput": 600.0,
    "accept_length": 2.81,
}  # fmt: skip


def read(known: Circumstances | None = None, **changes: object) -> BenchResult:
    return read_bench(json.dumps({**LINE, **changes}), known or Circumstances(requested=200))


def reason(known: Circumstances | None = None, **changes: object) -> str | None:
    return read(known, **changes).reason


@pytest.mark.parametrize("arm", ["base", "eagle3-good", "eagle3-weak"])
@pytest.mark.parametrize(("users", "prompts"), [(1, 16), (8, 96)])
def test_real_results_are_valid(arm, users, prompts):
    text = (REAL / arm / f"bench_c{users}.jsonl").read_text(encoding="utf-8")
    result = read_bench(text, Circumstances(requested=prompts, spec_active=arm != "base"))
    assert result.valid
    assert result.request_rate == "inf"
    assert result.mean_output_len == result.wanted_output_len == 192
    assert (result.accept_len is None) == (arm == "base")
    assert result.warnings == ()


def test_real_speedup_is_computed_between_real_results():
    base, good = (
        read_bench((REAL / arm / "bench_c8.jsonl").read_text(encoding="utf-8"))
        for arm in ("base", "eagle3-good")
    )
    assert compare_results(base, good).speedup == pytest.approx(2343.84 / 2696.08, rel=1e-4)


def test_a_plain_line_is_believed():
    assert (read().valid, read().reason, read().warnings) == (True, None, ())


@pytest.mark.parametrize(("changes", "why"), [
    ({"completed": None}, "completed_unknown"),
    ({"completed": 0}, "all_requests_failed"),
    ({"completed": 190}, "requests_failed"),
    ({"completed": 250}, "more_completed_than_requested"),
    ({"total_output_tokens": 0, "output_throughput": 0.0}, "no_output_tokens"),
    ({"output_throughput": 900.0}, "throughput_inconsistent"),
    ({"duration": 0}, "throughput_inconsistent"),
    ({"sharegpt_output_len": 1024}, "output_length_not_reached"),
])  # fmt: skip
def test_each_reason_for_doubt(changes, why):
    assert reason(**changes) == why
    assert not read(**changes).valid


def test_some_failures_may_be_allowed_but_are_told():
    result = read(Circumstances(requested=200, max_failed_share=0.05), completed=190)
    assert (result.valid, result.failed) == (True, 10)
    assert "10 of 200 requests failed" in result.warnings


def test_a_server_that_failed_after_the_run_is_no_reason():
    during = Circumstances(requested=200, server_failure="engine_dead", server_failed_at_s=12)
    after = Circumstances(requested=200, server_failure="engine_dead", server_failed_at_s=130)
    assert reason(during) == "server_failed_during_run"
    assert reason(after) is None


def test_acceptance_left_over_from_other_traffic_is_not_taken():
    assert read(completed=0).accept_len is None
    assert read(Circumstances(requested=200, spec_active=False)).accept_len is None
    assert read(accept_length=0.0).accept_len is None


def test_missing_acceptance_is_told_where_speculation_is_on():
    one = read(Circumstances(requested=200, spec_active=True), accept_length=None)
    many = read(Circumstances(requested=200, spec_active=True, dp_size=4), accept_length=None)
    assert "40 decode steps" in one.warnings[0]
    assert "rank 0 idle" in many.warnings[0]
    assert "rank 0 of 4" in read(Circumstances(requested=200, dp_size=4)).warnings[0]


def test_random_lengths_are_half_of_the_asked_ones_on_average():
    drawn: dict[str, Any] = {
        "dataset_name": "random-ids",
        "random_output_len": 600,
        "random_range_ratio": 0.0,
    }
    assert reason(**drawn) is None
    assert reason(**{**drawn, "random_range_ratio": 1.0}) == "output_length_not_reached"


def test_requests_that_may_stop_by_themselves_may_be_short():
    known = Circumstances(requested=200, wanted_output_len=1024, ignore_eos=False)
    assert reason(known) is None
    short: dict[str, Any] = {"total_output_tokens": 200, "output_throughput": 2.0}
    assert reason(known, **short) == "output_length_not_reached"


def test_counts_are_preferred_to_printed_rates():
    result = read(
        spec_decode_acceptance_rate=54.0, spec_decode_num_drafts=100,
        spec_decode_draft_tokens=300, spec_decode_accepted_tokens=150,
    )  # fmt: skip
    assert (result.accept_len, result.draft_accept_rate) == (2.5, 0.5)
    assert read(spec_decode_acceptance_rate=54.0).draft_accept_rate == pytest.approx(0.54)


def test_the_last_of_several_results_is_read_or_the_one_with_the_tag():
    text = json.dumps(LINE) + "\n" + json.dumps({**LINE, "tag": "b", "completed": 100}) + "\n"
    last = read_bench(text)
    assert (last.completed, last.results_in_file) == (100, 2)
    assert "2 results" in last.warnings[0]
    assert read_bench(text, Circumstances(tag="a")).completed == 200
    assert read_bench(text, Circumstances(tag="c")).reason == "no_result"


def test_a_cut_last_line_hides_the_run_however_many_stand_before():
    text = json.dumps(LINE)
    assert read_bench(f"{text}\n{text[:80]}").reason == "line_incomplete"
    assert read_bench(f"{text[:80]}\n{text}").reason is None
    assert read_bench("Traceback (most recent call last)").reason == "not_json"
    assert read_bench(" \n\n").reason == "no_result"


def test_a_result_printed_over_several_lines_is_read():
    assert read_bench(json.dumps(LINE, indent=1)).completed == 200


def test_figures_that_are_no_numbers_are_none_and_named():
    result = read_bench(json.dumps({**LINE, "median_ttft_ms": float("nan")}))
    assert result.median_ttft_ms is None
    assert "median_ttft_ms" in " ".join(result.warnings)


def test_a_client_that_counts_chunks_is_told():
    assert "tokenizer" in read(total_output_tokens_retokenized=21000).warnings[0]


@pytest.mark.parametrize(("changes", "what"), [
    ({"max_concurrency": 16}, "max_concurrency"),
    ({"dataset_name": "sharegpt"}, "dataset_name"),
    ({"request_rate": float("inf")}, "request_rate"),
    ({"total_input_tokens": 52000}, "total_input_tokens"),
])  # fmt: skip
def test_other_traffic_is_not_compared(changes, what):
    compared = compare_results(read(), read(**changes))
    assert (compared.comparable, compared.speedup) == (False, None)
    assert what in compared.differs


def test_another_server_limit_is_not_compared_but_speculation_is_what_differs():
    base: dict[str, object] = {"max_running_requests": 64, "version": "0.5.9"}
    refused = compare_results(read(), read(), base, {**base, "max_running_requests": 48})
    assert refused.differs == ("max_running_requests",)
    assert "max_running_requests differs (64, 48)" in (refused.reason or "")
    unknown = compare_results(read(), read(), base, {"version": "0.5.9"})
    assert unknown.differs == ("max_running_requests",)
    spec = {**base, "speculative_algorithm": "EAGLE3"}
    assert compare_results(read(), read(output_throughput=600.0), base, spec).speedup == 1.0


def test_an_invalid_result_has_no_speedup():
    compared = compare_results(read(), read(completed=0))
    assert compared.speedup is None
    assert "all_requests_failed" in (compared.reason or "")


def test_a_run_bound_by_arrivals_is_told():
    bound = read(request_throughput=7.9)
    assert "arrivals" in compare_results(bound, bound).warnings[0]


FIGURES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
KEYS = st.sampled_from([*LINE, "failed", "num_prompts", "spec_decode_num_drafts", "total_output",
                        "spec_decode_accepted_tokens", "spec_decode_per_position_acceptance_rates"])  # fmt: skip


@given(st.dictionaries(KEYS, FIGURES | st.lists(FIGURES, max_size=3)))
def test_no_line_breaks_the_reading_and_no_invalid_one_has_a_speedup(line):
    result = read_bench(json.dumps(line), Circumstances(requested=3))
    assert result.valid == (result.reason is None)
    compared = compare_results(result, read())
    assert result.valid or compared.speedup is None


@given(st.text())
def test_no_text_breaks_the_reading(text):
    read_bench(text)
    read_bench_file(json.dumps(LINE) + "\n" + text)
