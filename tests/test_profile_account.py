"""Every nanosecond is accounted for once, whatever overlaps and in whatever order rows stand."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks import profile_account
from tasks.profile_account import Account, account

ROWS = st.lists(
    st.tuples(st.integers(-20, 120), st.integers(0, 60), st.integers(0, 4)), max_size=25
)
EDGES = st.lists(st.integers(0, 100), min_size=2, max_size=6, unique=True).map(sorted)
KEPT = st.lists(st.booleans(), min_size=5, max_size=5)


def told(rows: list[tuple[int, int, int]], edges: list[int], kept: list[bool]) -> Account:
    columns = [np.array(c, dtype=np.int64) for c in zip(*rows, strict=True)] or [
        np.zeros(0, dtype=np.int64)
    ] * 3
    start, length, key = columns
    keep = np.array(kept[: len(edges) - 1])
    return account(start, length, key, np.array(edges, dtype=np.int64), keep)


def naive(rows: list[tuple[int, int, int]], edges: list[int], kept: list[bool]) -> Account:
    """The same, one nanosecond after another."""
    total = idle = overlap = 0
    busy: dict[int, Fraction] = {}
    for step, (begin, end) in enumerate(pairwise(edges)):
        for moment in range(begin, end) if kept[step] else ():
            keys = {k for start, length, k in rows if start <= moment < start + length}
            total += 1
            idle += not keys
            overlap += len(keys) > 1
            for key in keys:
                busy[key] = busy.get(key, Fraction(0)) + Fraction(1, len(keys))
    return Account(total, idle, busy, overlap)


@given(ROWS, EDGES, KEPT)
def test_it_is_what_counting_moment_by_moment_gives(rows, edges, kept):
    assert told(rows, edges, kept) == naive(rows, edges, kept)


@given(ROWS, EDGES, KEPT, st.integers(1, 4))
def test_long_traces_are_looked_at_in_pieces_and_come_out_the_same(rows, edges, kept, steps):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profile_account, "_STEPS_AT_ONCE", steps)
        assert told(rows, edges, kept) == naive(rows, edges, kept)


@given(ROWS, EDGES, KEPT)
def test_busy_and_idle_are_all_of_the_time_exactly(rows, edges, kept):
    found = told(rows, edges, kept)
    assert sum(found.busy.values(), Fraction(0)) + found.idle_ns == found.total_ns
    assert found.overlap_ns <= found.total_ns - found.idle_ns


@given(ROWS, EDGES, KEPT, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_changes_nothing(rows, edges, kept, chance):
    shuffled = list(rows)
    chance.shuffle(shuffled)
    assert told(shuffled, edges, kept) == told(rows, edges, kept)


@given(ROWS, EDGES, KEPT, st.integers(-(10**15), 10**15))
def test_the_trace_s_clock_may_begin_anywhere(rows, edges, kept, shift):
    moved = [(start + shift, length, key) for start, length, key in rows]
    assert told(moved, [e + shift for e in edges], kept) == told(rows, edges, kept)


@given(ROWS, EDGES, KEPT)
def test_a_second_stream_that_does_the_same_adds_nothing(rows, edges, kept):
    assert told([*rows, *rows], edges, kept) == told(rows, edges, kept)


def test_two_kinds_at_once_share_the_time():
    found = told([(0, 10, 0), (5, 10, 1)], [0, 20], [True])
    assert found == Account(20, 5, {0: Fraction(15, 2), 1: Fraction(15, 2)}, 5)
