"""What a probe's figures mean, against requests whose truth is known."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.acceptance import CounterCounts, accept_at_k, by_part, conditional, of_probe
from tasks.measure import measure, user_speed
from tasks.window import steady_window, tokens_in
from tests.builders import client, closed_loop, sample


def test_a_steady_closed_loop_measures_its_own_truth():
    # Each of 4 users: 0.1 s to the first token, then 64 more at 100 tokens/s = 0.74 s a request.
    m = measure(closed_loop(4, 10), "load", 4, speculating=False, client=client())
    assert m.output_tok_s == pytest.approx(4 * 65 / 0.74, rel=1e-6)
    assert m.user_tok_s == pytest.approx(100.0)
    assert m.step_s == pytest.approx(0.01)
    assert m.tpot_s is not None
    assert m.tpot_s.p50 == pytest.approx(0.01)
    assert m.ttft_s is not None
    assert m.ttft_s.p99 == pytest.approx(0.1)
    assert m.window_s == pytest.approx(7.4)
    assert (m.requested, m.completed, m.failed) == (40, 40, 0)


def test_without_speculation_the_accept_length_is_one_and_there_is_no_histogram():
    m = measure(closed_loop(), "load", 4, speculating=False)
    assert (m.accept_length, m.histogram, m.accept_at_k) == (1.0, None, None)
    assert m.counts_from == "none"


def test_with_speculation_but_without_counts_nothing_is_claimed():
    m = measure(closed_loop(), "load", 4, speculating=True)
    assert (m.accept_length, m.step_s, m.draft_accept_rate) == (None, None, None)


def test_counts_win_over_what_was_asked():
    m = measure(closed_loop(step=3, speculating=True), "load", 4, speculating=False)
    assert m.accept_length is not None
    assert m.accept_length > 2.8


def test_acceptance_is_weighted_by_steps_and_not_by_requests():
    fast = sample("a", verify_steps=10, accepted=30, proposed=30, histogram=(0, 0, 0, 10))
    slow = sample("b", verify_steps=90, accepted=0, proposed=270, histogram=(90,), sent_s=9.0)
    m = measure([fast, slow], "load", 1, speculating=True)
    assert m.accept_length == 1.3
    assert m.draft_accept_rate == 0.1
    assert m.histogram == (90, 0, 0, 10)
    assert m.accept_at_k == (0.1, 0.1, 0.1)
    assert m.accept_at_k_conditional == (0.1, 1.0, 1.0)


def test_counters_stand_in_for_requests_that_say_nothing():
    counters = CounterCounts(100, 150, 300, (20, 30, 30, 20))
    m = measure(closed_loop(), "load", 4, speculating=True, counters=counters)
    assert m.counts_from == "counters"
    assert m.accept_length == 2.5
    assert m.accept_at_k == (0.8, 0.5, 0.2)


def test_counts_of_a_few_requests_do_not_speak_for_all():
    some = [*closed_loop(2, 10), sample("x", verify_steps=10, accepted=20)]
    assert of_probe(some).source == "none"
    nearly_all = [*closed_loop(2, 10, speculating=True, step=2), sample("x")]
    assert of_probe(nearly_all).source == "requests"


def test_a_partial_sum_is_unknown():
    samples = [
        sample("a", verify_steps=10, accepted=20, proposed=30),
        sample("b", verify_steps=9, accepted=2),
    ]
    m = measure(samples, "load", 1, speculating=True)
    assert (m.proposed, m.histogram, m.draft_accept_rate) == (None, None, None)
    assert m.accept_length is not None


def test_depths_that_no_step_reached_are_zero_and_their_condition_unknown():
    shares = accept_at_k((94, 49), draft_steps=3)
    assert shares == pytest.approx((49 / 143, 0.0, 0.0))
    assert conditional(shares) == pytest.approx((49 / 143, 0.0))
    assert accept_at_k(None) is None
    assert accept_at_k((0, 0)) is None
    assert conditional(None) is None


def test_acceptance_by_kind_and_by_half_of_the_output():
    # Steps of 4 tokens first, then of 2: the second half of the output accepts less.
    counts = [1, 5, 9, 13, 17, 21, 23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43]
    chunks = tuple((0.1 + i / 10, n) for i, n in enumerate(counts))
    parts: dict[str, Any] = {
        "chunks": chunks,
        "completion_tokens": 43,
        "verify_steps": 16,
        "accepted": 26,
        "last_s": chunks[-1][0],
        "done_s": chunks[-1][0],
    }
    samples = [sample("a", **parts), sample("b", kind="prose", sent_s=5.0, **parts)]
    m = measure(samples, "load", 1, speculating=True)
    lengths = {part.name: part.accept_length for part in m.by_kind}
    assert lengths["code"] == lengths["prose"] == 1 + 26 / 16
    assert lengths["output: first half"] == 4.0
    assert lengths["output: second half"] == 2.0


def test_position_is_unknown_when_chunks_are_not_verify_steps():
    merged = sample("a", speculating=True, step=3, verify_steps=60, accepted=4)
    assert by_part([merged]) == ()
    assert by_part([]) == ()


def test_failed_requests_enter_no_time_and_no_acceptance():
    bad = sample("bad", error="timeout", ttft_s=50.0, verify_steps=1000, accepted=0)
    m = measure([*closed_loop(2, 5), bad], "load", 2, speculating=False)
    assert (m.completed, m.failed) == (10, 1)
    assert m.ttft_s is not None
    assert m.ttft_s.p99 == pytest.approx(0.1)
    assert m.verify_steps is None


def test_when_nothing_completed_every_figure_is_unknown():
    dead = sample("a", error="http_500", first_s=None, last_s=None, chunks=(), completion_tokens=0)
    m = measure([dead], "load", 1, speculating=True)
    assert (m.user_tok_s, m.ttft_s, m.tpot_s, m.e2e_s, m.accept_length) == (None,) * 5
    assert m.prompt_tokens is None


def test_no_samples_is_an_error():
    with pytest.raises(ValueError, match="no samples"):
        measure([], "load", 1, speculating=False)


def test_the_window_leaves_ramp_up_and_drain_out():
    # Two short requests, then 9 of 10 in flight from 1 s on; one goes on alone at the end.
    ramp = [sample(f"r{i}", sent_s=i / 2, done_s=i / 2 + 0.4) for i in range(2)]
    body = [sample(f"b{i}", sent_s=1.0, done_s=9.0) for i in range(9)]
    tail = [sample("t", sent_s=9.0, done_s=20.0)]
    window = steady_window([*ramp, *body, *tail], 10)
    assert window is not None
    assert (window.start_s, window.end_s, window.held) == (1.0, 9.0, 1.0)


def test_one_user_has_a_window_across_the_blinks_between_requests():
    samples = [sample(f"p{i}", sent_s=i * 0.75) for i in range(10)]
    window = steady_window(samples, 1)
    assert window is not None
    assert window.length_s == pytest.approx(9 * 0.75 + 0.74)
    assert window.held == pytest.approx(0.74 / 0.75, abs=0.01)


def test_there_is_no_window_when_the_load_was_never_reached_or_not_held():
    samples = [sample(f"p{i}") for i in range(8)]
    assert steady_window(samples, 9) is None
    gaps = [sample(f"p{i}", sent_s=i * 2.0) for i in range(5)]
    assert steady_window(gaps, 1) is None
    m = measure(samples, "load", 9, speculating=False)
    assert (m.window_s, m.output_tok_s) == (None, None)
    assert m.full_output_tok_s is not None
    with pytest.raises(ValueError, match="at least 1"):
        steady_window(samples, 0)


@given(st.integers(1, 8), st.integers(10, 20), st.integers(1, 4))
def test_counting_tokens_at_their_chunks_is_off_by_less_than_one_step_a_stream(users, rounds, step):
    samples = closed_loop(users, rounds, step=step)
    window = steady_window(samples, users)
    assert window is not None
    truth = users * 65 / 0.74
    assert abs(tokens_in(samples, window) - truth * window.length_s) <= users * (step + 1)


@given(st.floats(0.05, 20))
def test_scaling_all_times_scales_all_rates(scale):
    slow = measure(closed_loop(3, 5, ttft_s=0.1 * scale, tok_s=100 / scale), "load", 3, False)
    fast = measure(closed_loop(3, 5), "load", 3, False)
    assert fast.output_tok_s is not None
    assert slow.output_tok_s == pytest.approx(fast.output_tok_s / scale)
    assert fast.user_tok_s is not None
    assert slow.user_tok_s == pytest.approx(fast.user_tok_s / scale)
    assert fast.ttft_s is not None
    assert slow.ttft_s is not None
    assert slow.ttft_s.p90 == pytest.approx(fast.ttft_s.p90 * scale)


@given(st.randoms())
def test_the_order_of_rows_does_not_matter(random):
    samples = list(closed_loop(3, 4, step=2, speculating=True))
    before = measure(samples, "load", 3, True)
    random.shuffle(samples)
    assert measure(samples, "load", 3, True) == before


def test_a_first_chunk_of_several_tokens_is_not_counted_as_time():
    merged = sample(tokens=65, chunks=((0.1, 5), (0.7, 65)), first_s=0.1, last_s=0.7)
    assert user_speed(merged) == pytest.approx(100.0)
    assert user_speed(sample(tokens=1)) is None
    assert user_speed(sample(tokens=5, chunks=(), first_s=0.1, last_s=0.5)) == pytest.approx(10)


def test_lengths_and_ends_of_the_answers_are_kept():
    rows = [
        *(sample(f"s{i}", sent_s=i, tokens=20, finish="stop") for i in range(5)),
        *(sample(f"l{i}", sent_s=9 + i, tokens=65) for i in range(4)),
        sample("x", sent_s=20, finish=None),
        sample("bad", sent_s=30, error="timeout", finish=None),
    ]
    m = measure(rows, "load", 1, speculating=False)
    assert m.finish_reasons == {"length": 4, "stop": 5, "unknown": 1}
    assert sum(m.finish_reasons.values()) == m.completed
    assert m.natural_stops == 5
    assert m.output_tokens is not None
    assert (m.output_tokens.p50, m.output_tokens.p90) == (42.5, 65.0)


def test_loops_are_judged_on_outputs_long_enough():
    short = sample("a", tokens=8, unique_ngram_ratio=0.0)
    long = sample("b", unique_ngram_ratio=0.8, sent_s=5.0)
    assert measure([short, long], "load", 1, False).unique_ngram_ratio == 0.8
    assert measure([short], "load", 1, False).unique_ngram_ratio is None


def test_unknown_cached_tokens_stay_unknown():
    samples = [sample("a", cached_tokens=None), sample("b", sent_s=5.0)]
    assert measure(samples, "load", 1, False).cached_tokens is None
