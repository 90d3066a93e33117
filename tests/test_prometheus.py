"""Metrics are read whatever is in them, ranks are not counted twice, and restarts are noticed."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.prometheus import read_metrics
from tasks.prometheus_text import Sample, read_prometheus

REAL = Path(__file__).parent / "fixtures" / "real_info"


def vllm(drafts: float, proposed: float, accepted: float, engine: int = 0, extra: str = "") -> str:
    rows = {"drafts": drafts, "draft_tokens": proposed, "accepted_tokens": accepted}
    lines = [f'vllm:spec_decode_num_{n}_total{{engine="{engine}"}} {v}' for n, v in rows.items()]
    return "\n".join(lines) + "\n" + extra + "\n"


def sglang(name: str, *values: float, label: str = "dp_rank") -> str:
    return "".join(f'sglang:{name}{{{label}="{i}"}} {v}\n' for i, v in enumerate(values))


def test_labels_may_hold_anything_that_is_quoted():
    text = 'a:b{x="1, 2",y="}\\"\\\\\\n" , } 3 1772600000000 # {trace_id="1"} 0.5'
    assert read_prometheus(text).samples == (Sample("a_b", (("x", "1, 2"), ("y", '}"\\\n')), 3.0),)


def test_values_may_be_nan_and_infinite():
    values = [s.value for s in read_prometheus("a NaN\nb +Inf\nc -Inf\nd 1e3").samples]
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, -math.inf, 1000.0]


def test_lines_that_are_none_are_counted():
    read = read_prometheus('# HELP a b\n\nno value\na{x=1} 3\na{x="1 3\n<html>\n9a 1\nok 1')
    assert [s.name for s in read.samples] == ["ok"]
    assert read.unreadable_lines == 5


def test_real_metrics_under_load():
    text = (REAL / "eagle3-good" / "metrics-loaded.txt").read_text(encoding="utf-8")
    read = read_metrics(text, "sglang")
    assert read.accept_len == pytest.approx(3.1)
    assert read.gen_throughput == pytest.approx(4268.5266)
    assert (read.running_req, read.queue_req) == (7, 0)
    assert read.generation_tokens == 10522


def test_real_metrics_without_speculation_have_no_accept_length():
    read = read_metrics((REAL / "base" / "metrics.txt").read_text(encoding="utf-8"), "sglang")
    assert read.accept_len is None
    assert "speculation is off" in read.warnings[0]


def test_tensor_parallel_ranks_repeat_and_data_parallel_ranks_add():
    text = "".join(
        f'sglang:gen_throughput{{dp_rank="{dp}",tp_rank="{tp}"}} {speed}\n'
        for dp, speed in enumerate((500, 300))
        for tp in range(4)
    )
    assert read_metrics(text, "sglang").gen_throughput == 800


def test_a_rank_without_a_figure_leaves_the_word_to_the_next():
    text = sglang("gen_throughput", math.nan, 500, 500, label="tp_rank")
    assert read_metrics(text, "sglang").gen_throughput == 500


def test_accept_length_over_ranks_is_the_mean_over_verify_steps():
    text = sglang("spec_accept_length", 2.0, 3.0) + sglang("gen_throughput", 200, 900)
    assert read_metrics(text, "sglang").accept_len == pytest.approx(1100 / (100 + 300))
    even = sglang("spec_accept_length", 2.0, 3.0)
    assert read_metrics(even, "sglang").accept_len == pytest.approx(2.5)


def test_collectors_that_rewrite_the_colon_are_followed():
    text = 'sglang_spec_accept_length{tp_rank="0"} 2.74\n'
    assert read_metrics(text, "sglang").accept_len == 2.74


def test_sglang_steps_are_counted_from_0_5_13_on():
    before = sglang("generation_tokens_total", 100) + sglang("spec_verify_calls_total", 40)
    after = sglang("generation_tokens_total", 400) + sglang("spec_verify_calls_total", 140)
    read = read_metrics(after, "sglang", before=before)
    assert (read.accept_len, read.accept_len_scope, read.drafts) == (3.0, "window", 100)
    idle = read_metrics(after, "sglang", before=after)
    assert (idle.accept_len, idle.drafts) == (None, 0)
    assert idle.warnings == ("no speculative steps in this window",)


def test_without_a_step_counter_a_window_says_what_it_is_not():
    text = sglang("spec_accept_length", 2.5)
    read = read_metrics(text, "sglang", before=text)
    assert (read.accept_len, read.accept_len_scope) == (2.5, "last_interval")
    assert "last interval" in read.warnings[0]


def test_vllm_engines_add():
    before = vllm(10, 30, 12) + vllm(0, 0, 0, engine=1)
    after = vllm(20, 60, 22) + vllm(30, 90, 50, engine=1)
    read = read_metrics(after, "vllm", before=before)
    assert (read.drafts, read.draft_tokens, read.accepted) == (40, 120, 60)
    assert read.accept_len == 2.5
    assert read.draft_accept_rate == 0.5


def test_an_engine_that_counts_only_from_its_first_draft_starts_at_zero():
    read = read_metrics(vllm(20, 60, 30), "vllm", before="other 1\n")
    assert (read.drafts, read.valid) == (20, True)


def test_positions_are_ordered_by_number():
    name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    rows = "\n".join(f'{name}{{position="{p}"}} {100 - p}' for p in (10, 2, 0))
    read = read_metrics(vllm(100, 300, 150, extra=rows), "vllm")
    assert read.per_position == (1.0, 0.98, 0.9)
    assert read.accept_len_scope == "since_start"


def test_a_restart_is_noticed_by_a_fall_a_loss_or_a_creation_time():
    late = "vllm:spec_decode_num_drafts_created 2000\n"
    early = "vllm:spec_decode_num_drafts_created 1000\n"
    plain = "vllm:spec_decode_num_drafts_total 5\n"
    for before, after in [
        (vllm(50, 150, 60), vllm(20, 60, 30)),
        (vllm(50, 150, 60), "other 1\n"),
        (vllm(50, 150, 60, engine=1), vllm(60, 180, 70)),
        (plain + early, plain.replace("5", "9") + late),
    ]:
        read = read_metrics(after, "vllm", before=before)
        assert (read.valid, read.reason, read.accept_len) == (False, "counter_reset", None)


def test_a_server_without_speculation_says_so():
    read = read_metrics("vllm:num_requests_running 3\n", "vllm")
    assert (read.accept_len, read.drafts, read.running_req) == (None, None, 3)
    assert "speculation is off" in read.warnings[0]


@pytest.mark.parametrize(("text", "status", "error"), [
    ('{"detail":"Not Found"}', 404, "metrics_disabled"),
    ("", 404, "metrics_disabled"),
    ("<html><body>no</body></html>", 502, "not_metrics"),
    ("", 200, "no_samples"),
    ("# HELP a b\n", 200, "no_samples"),
])  # fmt: skip
def test_other_answers_are_errors(text, status, error):
    read = read_metrics(text, "sglang", status=status)
    assert read.error == error
    assert bool(read.hints) == (error == "metrics_disabled")


LINES = st.sampled_from([
    'sglang:spec_accept_length{dp_rank="0"} ', "sglang:gen_throughput ", "vllm:spec_decode_num_drafts_total ",
    'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="x"} ', "sglang:num_running_reqs{",
])  # fmt: skip
VALUES = st.floats().map(str) | st.text(max_size=8)
TEXTS = st.lists(st.tuples(LINES, VALUES).map("".join) | st.text(max_size=20), max_size=8).map(
    "\n".join
)


@given(TEXTS, TEXTS, st.sampled_from(["sglang", "vllm"]))
def test_no_text_breaks_the_reading_and_no_figure_is_infinite(before, after, engine):
    for earlier in (None, before):
        read = read_metrics(after, engine, before=earlier)
        for value in read.model_dump().values():
            assert not isinstance(value, float) or math.isfinite(value)
