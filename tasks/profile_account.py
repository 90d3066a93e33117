"""Accounts for every nanosecond of GPU time once, however many kernels ran at the same time."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]


class Account(NamedTuple):
    """Where the time of some steps went; exact: busy and idle add up to the total."""

    total_ns: int
    idle_ns: int
    """No kernel and no copy was running."""
    busy: dict[int, Fraction]
    """Key -> its nanoseconds. Where several keys ran at once each has an equal part."""
    overlap_ns: int
    """Time at which more than one key ran."""

    def plus(self, more: Account) -> Account:
        """Of two stretches of time, one of which is not part of the other."""
        keys = {**self.busy, **more.busy}
        none = Fraction(0)
        return Account(
            self.total_ns + more.total_ns,
            self.idle_ns + more.idle_ns,
            {k: self.busy.get(k, none) + more.busy.get(k, none) for k in keys},
            self.overlap_ns + more.overlap_ns,
        )


_STEPS_AT_ONCE = 256
"""Of a trace of any length, so many steps are looked at together: it bounds the memory."""


def account(start: Ints, length: Ints, key: Ints, edges: Ints, kept: Flags) -> Account:
    """Splits the time between the edges among the keys that were running.

    At each moment the time belongs to the keys that have a kernel running, in equal parts; how
    many kernels of one key there are makes no difference. So the sum is the time itself, and the
    order of the rows is of no consequence.

    Args:
        start: begin of each row, ns.
        length: of each row, ns; those of no length count for nothing.
        key: what the row is for, 0 or more.
        edges: the beginnings of the steps and the end of the last, rising.
        kept: for each step, whether it counts.
    """
    whole = Account(0, 0, {}, 0)
    for first in range(0, len(edges) - 1, _STEPS_AT_ONCE):
        some = slice(first, first + _STEPS_AT_ONCE)
        if kept[some].any():
            ends = edges[first : first + _STEPS_AT_ONCE + 1]
            whole = whole.plus(_account(start, length, key, ends, kept[some]))
    return whole


def _account(start: Ints, length: Ints, key: Ints, edges: Ints, kept: Flags) -> Account:
    """The same for a stretch of steps."""
    inside = (length > 0) & (start < edges[-1]) & (start + length > edges[0])
    start, end, key = start[inside], (start + length)[inside], key[inside]
    start, end = np.maximum(start, edges[0]), np.minimum(end, edges[-1])
    marks, place = np.unique(np.concatenate([start, end, edges]), return_inverse=True)
    begins, ends = place[: len(start)], place[len(start) : 2 * len(start)]
    span = np.diff(marks)
    counted = kept[np.searchsorted(edges, marks[:-1], side="right") - 1]
    keys = [int(k) for k in np.unique(key)]
    running = [_running(begins[key == k], ends[key == k], len(marks)) for k in keys]
    at_once = np.zeros(len(span), dtype=np.int16)
    for one in running:
        at_once += one
    busy = {}
    levels = [int(n) for n in np.unique(at_once) if n > 0]
    for k, one in zip(keys, running, strict=True):
        here = one & counted
        parts = (Fraction(int(span[here & (at_once == n)].sum()), n) for n in levels)
        busy[k] = sum(parts, Fraction(0))
    return Account(
        total_ns=int(span[counted].sum()),
        idle_ns=int(span[counted & (at_once == 0)].sum()),
        busy={k: part for k, part in busy.items() if part},
        overlap_ns=int(span[counted & (at_once > 1)].sum()),
    )


def _running(begins: Ints, ends: Ints, marks: int) -> Flags:
    """For each stretch between two marks, whether any of these rows runs in it.

    Args:
        begins: number of the mark at which each row begins.
        ends: the same of its end.
        marks: how many there are.
    """
    change = np.bincount(begins, minlength=marks)
    change -= np.bincount(ends, minlength=marks)
    flags: Flags = np.cumsum(change)[:-1] > 0
    return flags
