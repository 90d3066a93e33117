"""Every block holds every cell once, in a drawn order that is balanced over each two blocks."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from configs.order import block_orders

CELLS = st.integers(1, 12)
BLOCKS = st.integers(0, 9)
SEEDS = st.integers(0, 10_000)


def orders(cells: int, blocks: int, seed: int) -> list[list[int]]:
    return list(block_orders(range(cells), blocks, random.Random(seed)))


@settings(max_examples=200)
@given(CELLS, BLOCKS, SEEDS)
def test_every_block_has_each_cell_once(cells, blocks, seed):
    made = orders(cells, blocks, seed)
    assert len(made) == blocks
    assert all(sorted(order) == list(range(cells)) for order in made)


@settings(max_examples=200)
@given(CELLS, st.integers(1, 5), SEEDS)
def test_after_every_second_block_all_cells_stood_in_the_same_mean_place(cells, pairs, seed):
    """So a drift that is even over the night takes no side."""
    places: Counter[int] = Counter()
    for block, order in enumerate(orders(cells, 2 * pairs, seed), start=1):
        places.update({cell: place for place, cell in enumerate(order)})
        if block % 2 == 0:
            assert set(places.values()) == {block // 2 * (cells - 1)} or cells == 1


@settings(max_examples=100)
@given(CELLS, BLOCKS, SEEDS, st.data())
def test_a_cut_at_any_point_leaves_whole_blocks_first(cells, blocks, seed, data):
    trials = [(b, c) for b, order in enumerate(orders(cells, blocks, seed)) for c in order]
    kept = trials[: data.draw(st.integers(0, len(trials)))]
    held = Counter(block for block, _cell in kept)
    whole, rest = divmod(len(kept), cells)
    assert [held[block] for block in range(whole)] == [cells] * whole
    assert held[whole] == rest


@given(CELLS, BLOCKS, SEEDS)
def test_more_blocks_leave_the_earlier_ones_as_they_are(cells, blocks, seed):
    assert orders(cells, blocks + 1, seed)[:blocks] == orders(cells, blocks, seed)


def test_no_cell_has_a_place_of_its_own():
    """Over seeds, each cell stands in each place of the first block equally often."""
    counts = Counter(
        (cell, place) for seed in range(3000) for place, cell in enumerate(orders(4, 1, seed)[0])
    )
    # 750 each; a binomial's spread is 24.
    assert all(abs(counts[cell, place] - 750) < 5 * 24 for cell in range(4) for place in range(4))


def test_a_steady_drift_cancels_out_of_two_blocks():
    for seed in range(50):
        time, sums = 0, Counter[int]()
        for order in orders(5, 2, seed):
            for cell in order:
                sums[cell] += time
                time += 1
        assert len(set(sums.values())) == 1
