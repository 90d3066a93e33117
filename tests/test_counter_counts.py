"""Counts from an engine's own counters: all ranks, this measurement only, or nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.acceptance import CounterCounts
from tasks.counter_counts import (
    ANEW,
    UNFLUSHED,
    Answered,
    Told,
    disagreement,
    from_averages,
    from_metrics,
)
from tests.builders import measurement, sample


def sglang(*ranks: tuple[int, int]) -> str:
    """Generated tokens and verify steps of each data-parallel rank, two TP ranks repeating them."""
    return "\n".join(
        f'sglang:{name}{{dp_rank="{dp}",tp_rank="{tp}",model_name="m"}} {float(value)}'
        for dp, rank in enumerate(ranks)
        for tp in (0, 1)
        for name, value in zip(
            ("generation_tokens_total", "spec_verify_calls_total"), rank, strict=True
        )
    )


def test_counters_are_differences_over_all_data_parallel_ranks():
    before, after = sglang((1000, 900), (50, 40)), sglang((1130, 940), (250, 100))
    # 330 tokens in 100 steps; 10 of the tokens came from the prefills of ten requests.
    told = from_metrics(before, after, "sglang", Answered(10, 330, 0), verified=4)
    assert told == Told(CounterCounts(100, 220, 300))
    assert told.counts is not None
    assert told.counts.accept_length == 3.2


def test_a_server_that_was_started_anew_tells_nothing():
    for after in (sglang((1500, 100)), sglang((20, 950)), ""):
        told = from_metrics(sglang((1000, 900)), after, "sglang", Answered(1, 500, 0))
        assert told == Told(remarks=(ANEW,)) if after else told.counts is None


def test_tokens_of_others_are_not_ours():
    told = from_metrics(sglang((0, 0)), sglang((400, 100)), "sglang", Answered(10, 330, 0))
    assert told.counts is None
    (said,) = told.remarks
    assert "counted 400 generated tokens, our requests got 330" in said


def test_failed_requests_and_contradictions_leave_acceptance_unknown():
    before, after = sglang((0, 0)), sglang((330, 100))
    assert from_metrics(before, after, "sglang", Answered(9, 330, 1)).counts is None
    assert from_metrics(before, sglang((330, 325)), "sglang", Answered(10, 330, 0)).counts is None


def test_metrics_that_count_no_steps_say_nothing():
    text = 'sglang:generation_tokens_total{model_name="m"} 330.0'
    assert from_metrics(text, text, "sglang", Answered(10, 330, 0)) == Told()
    assert from_metrics(text, '{"detail":"Not Found"}', "sglang", Answered(1, 9, 0)).counts is None


def test_vllm_counts_what_was_accepted_and_at_which_position():
    def text(drafts: int, proposed: int, accepted: tuple[int, ...], tokens: int) -> str:
        lines = [
            f'vllm:spec_decode_num_drafts_total{{engine="0"}} {drafts}',
            f'vllm:spec_decode_num_draft_tokens_total{{engine="0"}} {proposed}',
            f'vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {sum(accepted)}',
            f'vllm:generation_tokens_total{{engine="0"}} {tokens}',
        ]
        lines += [
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="{at}"}} {n}'
            for at, n in enumerate(accepted)
        ]
        return "\n".join(lines)

    told = from_metrics(
        text(7, 21, (4, 2, 1), 20),
        text(107, 321, (84, 52, 21), 280),
        "vllm",
        Answered(10, 260, 0),
    )
    assert told == Told(CounterCounts(100, 150, 300, (20, 30, 30, 20)))


@given(st.integers(1, 400), st.lists(st.integers(0, 3), min_size=1, max_size=300))
def test_counters_give_what_the_requests_would_have_said(requests, accepted):
    steps, tokens = len(accepted), requests + len(accepted) + sum(accepted)
    told = from_metrics(
        sglang((7, 3), (8, 2)),
        sglang((7, 3), (8 + tokens, 2 + steps)),
        "sglang",
        Answered(requests, tokens, 0),
    )
    assert told == Told(CounterCounts(steps, sum(accepted)))


def test_the_servers_average_counts_only_from_a_flush():
    told = from_averages((None,), (2.5,), Answered(10, 260, 0), verified=4)
    assert told.counts == CounterCounts(100, 150, 300, source="server_average")
    assert "average since the flush" in told.remarks[0]
    assert from_averages((2.4,), (2.5,), Answered(10, 260, 0)) == Told(remarks=(UNFLUSHED,))


def test_an_average_is_over_all_ranks_or_unknown():
    # Half of 240 tokens in steps of 2, half in steps of 3.
    told = from_averages((None, None), (2.0, 3.0), Answered(10, 250, 0))
    assert told.counts is not None
    assert (told.counts.verify_steps, told.counts.accepted) == (100, 140)
    silent = from_averages((None, None), (2.0, None), Answered(10, 250, 0))
    assert silent.counts is None
    assert "1 of 2 data-parallel ranks" in silent.remarks[0]
    assert from_averages((None,), (None,), Answered(10, 250, 0)) == Told()


def test_what_requests_show_leaves_the_failed_ones_out():
    rows = [sample("a", tokens=65), sample("b", tokens=12, error="timeout")]
    assert Answered.of(rows) == Answered(1, 65, 1)


@pytest.mark.parametrize(("theirs", "said"), [(2.512, 0), (2.513, 1), (None, 0)])
def test_two_ways_to_count_that_differ_are_told(theirs, said):
    measured = measurement(accept_length=2.5, counter_accept_length=theirs)
    assert len(disagreement(measured)) == said
    alone = measured.model_copy(update={"counts_from": "counters"})
    assert disagreement(alone) == ()
