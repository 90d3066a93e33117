"""The settings in effect are read from every shape of /server_info, and never made up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.server_info import ServerInfo, read_server_info, refusal

REAL = Path(__file__).parent / "fixtures" / "real_info"
PLAIN = {"version": "0.5.9", "speculative_algorithm": "EAGLE3", "decode_log_interval": 40}


def info(*states: object, **more: object) -> ServerInfo:
    return read_server_info(json.dumps({**PLAIN, **more, "internal_states": list(states)}))


def test_a_real_answer_with_speculation():
    text = (REAL / "eagle3-good" / "get_server_info.json").read_text(encoding="utf-8")
    found = read_server_info(text)
    assert (found.version, found.algorithm, found.spec_active) == ("0.5.12.post1", "EAGLE3", True)
    assert (found.num_steps, found.topk, found.num_draft_tokens) == (3, 1, 4)
    assert found.max_running_requests == 48
    assert found.accept_len == pytest.approx(3.0864, abs=1e-4)
    assert found.accept_len_scope == "since_start_or_flush"
    assert found.warnings == ()


def test_a_real_answer_without_speculation():
    found = read_server_info((REAL / "base" / "get_server_info.json").read_text(encoding="utf-8"))
    assert (found.spec_active, found.accept_len) == (False, None)
    assert (found.max_running_requests, found.max_running_requests_asked) == (4096, None)
    assert found.warnings == ()


def test_ranks_add_their_limits_and_throughput():
    ranks = [
        {"avg_spec_accept_length": 2.8, "last_gen_throughput": 300.0},
        {"avg_spec_accept_length": 2.4, "last_gen_throughput": 100.0},
    ]
    found = info(*({**r, "effective_max_running_requests_per_dp": 24} for r in ranks), dp_size=2)
    assert found.layout == "data_parallel"
    assert (found.max_running_requests, found.max_running_requests_per_dp) == (48, 24)
    assert found.last_gen_throughput == 400.0
    assert found.accept_len == pytest.approx(2.6)
    assert "unweighted" in found.warnings[0]


def test_an_idle_rank_is_named_and_does_not_pull_the_mean_down():
    found = info({}, {"avg_spec_accept_length": 2.9}, dp_size=2)
    assert found.accept_len == 2.9
    assert found.accept_len_by_rank == (None, 2.9)
    assert "rank 0" in found.warnings[0]


@pytest.mark.parametrize("length", ["NaN", "Infinity", "0.0", "null", '"x"'])
def test_a_length_that_cannot_be_is_none(length):
    found = read_server_info(
        '{"version": "1", "speculative_algorithm": "EAGLE3",'
        f'"internal_states": [{{"avg_spec_accept_length": {length}}}]}}'
    )
    assert found.accept_len is None
    assert found.retry_after_more_tokens
    assert "no acceptance yet" in found.warnings[0]


def test_more_accepted_than_drafted_is_told():
    found = info({"avg_spec_accept_length": 6.5}, speculative_num_draft_tokens=4)
    assert "6.5 with 4 draft tokens" in found.warnings[0]


def test_a_length_left_over_without_speculation_is_not_taken():
    found = info({"avg_spec_accept_length": 2.0}, speculative_algorithm=None)
    assert (found.spec_active, found.accept_len) == (False, None)


def test_old_versions_keep_the_state_at_the_top_or_as_one_object():
    top = read_server_info(json.dumps({**PLAIN, "avg_spec_accept_length": 2.5}))
    one = read_server_info(
        json.dumps({**PLAIN, "internal_states": {"avg_spec_accept_length": 2.5}})
    )
    assert top.accept_len == one.accept_len == 2.5


def test_all_decode_nodes_behind_a_router_count():
    node = {"version": "1", "speculative_algorithm": "EAGLE3"}
    decode = [{**node, "internal_states": [{"avg_spec_accept_length": x}]} for x in (3.0, 2.0)]
    found = read_server_info(json.dumps({"prefill": [{"version": "1"}], "decode": decode}))
    assert (found.layout, found.accept_len) == ("prefill_decode", 2.5)


@pytest.mark.parametrize(("text", "status", "error"), [
    ("<html>502</html>", 502, "not_json"),
    ("", 200, "not_json"),
    ('{"detail":"Not Found"}', 404, "not_found"),
    ("[]", 200, "not_server_info"),
    ("{}", 200, "not_server_info"),
])  # fmt: skip
def test_other_answers_are_errors_with_a_way_out(text, status, error):
    found = read_server_info(text, status)
    assert found.error == error
    assert "/get_server_info" in (found.fallback or "")
    assert found.accept_len is None


def test_a_server_that_does_not_run_what_was_asked_is_refused():
    on, off = info({}), info({}, speculative_algorithm=None)
    assert refusal(on, expected_spec=True) is None
    assert "stale server" in (refusal(off, expected_spec=True) or "")
    assert "EAGLE3" in (refusal(on, expected_spec=False) or "")
    assert refusal(off, expected_spec=None) is None
    unknown = read_server_info('{"version": "1", "internal_states": [{}]}')
    assert refusal(unknown, expected_spec=True) is not None


KEYS = ["internal_states", "version", "decode", "prefill", "avg_spec_accept_length", "dp_size",
        "speculative_algorithm", "effective_max_running_requests_per_dp"]  # fmt: skip


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda x: st.lists(x, max_size=4) | st.dictionaries(st.sampled_from(KEYS), x),
))  # fmt: skip
def test_no_json_breaks_the_reading(body):
    found = read_server_info(json.dumps(body))
    assert found.accept_len is None or found.accept_len >= 1


@given(st.text())
def test_no_text_breaks_the_reading(text):
    read_server_info(text)


def test_a_limit_below_the_asked_one_is_told():
    found = info({"effective_max_running_requests_per_dp": 48}, max_running_requests=64)
    assert found.max_running_requests == 48
    assert "48, asked were 64" in found.warnings[0]
