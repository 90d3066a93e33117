"""Acceptance and speed from statistics lines of every release, and what spoils them."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.decode_log import DecodeLog, read_decode_log
from tasks.decode_summary import DecodeSetting, DecodeSummary

REAL = Path(__file__).parent / "fixtures" / "real"
BUSY = DecodeSetting(num_draft_tokens=4, topk=1, busy_before=True)


def decode(
    *,
    second: int = 0,
    rank: str = "TP0",
    length: str = "2.45",
    shown: dict[str, object] | None = None,
) -> str:
    fields = {
        "#running-req": 8,
        "#token": 9000,
        "token usage": 0.02,
        "accept len": length,
        "accept rate": "0.48",
        "cuda graph": True,
        "gen throughput (token/s)": 1000.0,
        "#queue-req": 0,
    } | (shown or {})
    body = ", ".join(f"{name}: {value}" for name, value in fields.items())
    return f"[2026-03-04 10:{second // 60:02d}:{second % 60:02d} {rank}] Decode batch, {body}"


def read(*lines: str, setting: DecodeSetting = BUSY) -> DecodeSummary:
    return read_decode_log("\n".join(lines).encode(), setting)


def test_a_real_log_drops_exactly_the_starts_of_its_three_probes():
    summary = read_decode_log((REAL / "eagle3-good.log").read_bytes())
    assert [d.gen_throughput for d in summary.dropped] == [31.62, 4.63, 11.55]
    assert summary.samples - summary.samples_used == 3
    assert summary.accept_len_mean == pytest.approx(3.1322)
    assert summary.rate_definition == "drafts_accepted_over_proposed"
    assert summary.draft_accept_rate == pytest.approx(summary.reported_rate_mean, abs=0.001)
    assert summary.graph_used_share == 1.0
    assert summary.warnings == ()
    assert summary.verdict is None


def test_a_server_without_speculation_has_speed_but_no_acceptance():
    summary = read_decode_log((REAL / "base.log").read_bytes())
    assert summary.samples_used > 0
    assert summary.gen_throughput_mean is not None
    assert summary.accept_len_mean is None
    assert summary.draft_accept_rate is None
    assert summary.rate_definition is None
    assert summary.verdict is None


def test_idle_time_inside_a_log_is_left_out():
    summary = read(
        decode(second=0),
        decode(second=3),
        "[2026-03-04 10:01:00 TP0] Prefill batch, #new-seq: 1, #running-req: 0, #queue-req: 0",
        decode(second=61, shown={"gen throughput (token/s)": 17.0}),
        decode(second=64),
    )
    assert [d.gen_throughput for d in summary.dropped] == [17.0]
    assert summary.gen_throughput_mean == 1000.0


def test_idle_time_is_seen_without_prefill_lines_too():
    summary = read(
        decode(second=0),
        decode(second=120, shown={"gen throughput (token/s)": 25.0}),
        decode(second=123),
    )
    assert [d.gen_throughput for d in summary.dropped] == [25.0]


def test_back_to_back_requests_are_no_idle_time():
    prefill = "[2026-03-04 10:00:03 TP0] Prefill batch, #new-seq: 1, #running-req: 0"
    assert read(decode(second=2), prefill, decode(second=4)).samples_used == 2


def test_ranks_of_one_tensor_parallel_group_count_once_and_data_parallel_ones_add_up():
    twice = read(decode(rank="TP0"), decode(rank="TP1"))
    assert (twice.samples, twice.gen_throughput_mean, twice.running_req) == (1, 1000.0, 8)
    added = read(decode(rank="DP0 TP0"), decode(rank="DP1 TP1"))
    assert (added.samples, added.gen_throughput_mean, added.running_req) == (2, 2000.0, 16)


@pytest.mark.parametrize(
    ("rate", "version", "expected"),
    [
        ("0.61", None, "len_over_draft_tokens"),
        ("0.48", None, "drafts_accepted_over_proposed"),
        ("0.61", "0.5.23", "len_over_draft_tokens"),
    ],
)
def test_the_figures_tell_what_the_printed_rate_means(rate, version, expected):
    setting = BUSY.model_copy(update={"version": version})
    summary = read(decode(shown={"accept rate": rate}), setting=setting)
    assert summary.rate_definition == expected
    assert summary.draft_accept_rate == pytest.approx(0.4833)


def test_without_draft_tokens_the_release_tells_and_else_nobody():
    line = decode()
    for version, expected in (
        ("0.5.10", "len_over_draft_tokens"),
        ("0.5.12.post1", "drafts_accepted_over_proposed"),
        (None, None),
    ):
        setting = DecodeSetting(version=version, busy_before=True)
        summary = read(line, setting=setting)
        assert (summary.rate_definition, summary.draft_accept_rate) == (expected, None)


def test_the_servers_arguments_in_the_log_fill_what_is_not_given():
    arguments = (
        "[2026-03-04 10:00:00] server_args=ServerArgs(speculative_eagle_topk=1,"
        " speculative_num_draft_tokens=4)"
    )
    summary = read(arguments, decode(), setting=DecodeSetting(busy_before=True))
    assert summary.draft_accept_rate == pytest.approx(0.4833)


def test_what_spoils_a_probe_is_said():
    summary = read(
        decode(shown={"cuda graph": False, "#running-req": 16, "#queue-req": 2}),
        decode(shown={"#retracted-req": 1}),
        "[2026-03-04 10:00:05 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 1",
    )
    assert summary.warnings == (
        "cuda graphs not used at batch 16",
        "requests were queued: server-side limit reached",
        "requests were retracted: KV cache full",
    )
    assert summary.graph_used_share == 0.5
    assert summary.queue_req_max == 2
    full = read(decode(length="3.95"))
    assert full.warnings[0].startswith("all 4 draft tokens are accepted")


def test_nothing_accepted_is_a_verdict_with_hints():
    summary = read(decode(length="1.00", shown={"accept rate": "0.00"}))
    assert summary.verdict == "drafter_not_working"
    assert any("lm_head" in hint for hint in summary.hints)


def test_a_drafter_that_is_weak_everywhere_does_not_drop_beyond_its_context():
    setting = BUSY.model_copy(update={"draft_context": 1000})
    within = decode(length="1.50", shown={"#token": 800, "#running-req": 1})
    beyond = decode(length="1.48", shown={"#token": 8000, "#running-req": 1})
    summary = read(within, beyond, setting=setting)
    assert summary.accept_len_by_token_range == {"<=1000": 1.5, ">1000": 1.48}
    assert summary.warnings == ()


VLLM = (
    "(APIServer pid=51) INFO 09-09 11:51:{:02d} [metrics.py:96] SpecDecoding metrics: "
    "Mean acceptance length: {}, Accepted throughput: 32.60 tokens/s, Drafted throughput: 60.00"
    " tokens/s, Accepted: {} tokens, Drafted: {} tokens,{} Avg Draft acceptance rate: 54.3%"
)
POSITIONS = " Per-position acceptance rate: 0.780, 0.520, 0.330,"


def test_vllm_intervals_add_up_with_and_without_the_bonus_token():
    for printed, bonus in (("2.63", True), ("1.63", False)):
        lines = [VLLM.format(second, printed, 326, 600, POSITIONS) for second in (0, 10)]
        summary = read(*lines, setting=DecodeSetting())
        assert (summary.samples, summary.accepted, summary.drafted) == (2, 652, 1200)
        assert summary.accept_len_mean == pytest.approx(2.63)
        assert summary.printed_length_includes_bonus is bonus
        assert summary.accept_by_position == pytest.approx((0.78, 0.52, 0.33))


def test_drafts_per_step_follow_from_the_printed_length_where_nothing_says_them():
    for printed in ("2.63", "1.63"):
        summary = read(VLLM.format(0, printed, 326, 600, ""), setting=DecodeSetting())
        assert summary.accept_len_mean == pytest.approx(2.63)


def test_vllm_lines_without_drafts_and_without_requests_do_not_count():
    engine = (
        "INFO 04-01 09:00:{:02d} [loggers.py:87] Engine 000: Avg prompt throughput: 1.1 tokens/s,"
        " Avg generation throughput: {} tokens/s, Running: {} reqs, Waiting: 3 reqs, GPU KV cache"
        " usage: 0.1%"
    )
    nothing = "INFO 04-01 09:00:30 [metrics.py:46] SpecDecoding metrics: Draft acceptance rate: nan%, Accepted: 0 tokens, Drafted: 0 tokens"
    summary = read(
        engine.format(0, 10.0, 1), engine.format(10, 0.0, 0), nothing, setting=DecodeSetting()
    )
    assert summary.gen_throughput_mean == 10.0
    assert summary.queue_req_max == 3
    assert summary.accept_len_mean is None
    assert summary.verdict is None


def test_statistics_in_a_prompt_are_not_statistics():
    line = f"[2026-03-04 10:00:00] Receive: obj=GenerateReqInput(text='{decode()}')"
    assert read(line).samples == 0


def test_an_empty_log_says_nothing():
    assert read() == DecodeSummary(samples=0, samples_used=0)


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=30),
            st.sampled_from(
                [
                    b"\n",
                    decode().encode() + b"\n",
                    decode(length="nan", second=50).encode() + b"\n",
                    decode(length="9" * 30).encode() + b"\n",
                    b"[2026-03-04 10:01:00 TP0] Prefill batch. #running-req: 0\n",
                    VLLM.format(1, "2.63", 326, 600, POSITIONS).encode() + b"\n",
                    VLLM.format(1, "0.00", 0, 600, "").encode() + b"\n",
                    (
                        b"INFO 08-08 12:00:10 metrics.py:373] Speculative metrics: Number of accepted"
                        b" tokens: 3, Number of draft tokens: 0, Number of emitted tokens: 1.\n"
                    ),
                ]
            ),
        ),
        max_size=25,
    ).map(b"".join),
    st.lists(st.integers(0, 5000), max_size=8),
)
def test_any_bytes_in_any_pieces_give_the_same_summary(data, cuts):
    log = DecodeLog()
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in itertools.pairwise(edges):
        log.feed(data[start:end])
    assert log.finish() == read_decode_log(data)
