"""In which order the cells of a block run: shuffled, and every second block backwards.

A mirrored pair (A B C, then C B A) gives every cell the same mean place, so that what drifts evenly
over the night cancels out of every ratio after two blocks. The order of the pair itself is drawn
anew each time: no cell is first, or behind the same neighbour, by rule (counterbalancing by
reversal: Cochran & Cox, Experimental Designs, 1957, section 4.3; Kirk, Experimental Design, 2013).

Cells of more value are not run earlier in their block: a place in the block that is always the
same would be part of every ratio. What is of more value is chosen instead, when a deadline leaves
no time for all (tasks/allotment).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

T = TypeVar("T")


def block_orders(cells: Sequence[T], blocks: int, shuffle: random.Random) -> Iterator[list[T]]:
    """The order of each block; fewer blocks give the same orders, and fewer of them.

    Args:
        cells: What every block holds once.
        blocks: How many blocks.
        shuffle: Where chance comes from.
    """
    order: list[T] = []
    for block in range(blocks):
        if block % 2:
            order.reverse()
        else:
            order = list(cells)
            shuffle.shuffle(order)
        yield list(order)
