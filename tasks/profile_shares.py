"""From a trace to shares of GPU time: by kind of kernel, target and drafter apart."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tasks.kernel_table import CATEGORIES, category_of
from tasks.profile_account import account
from tasks.profile_record import Named, Shares
from tasks.profile_steps import Part, ToldBy, find_steps

if TYPE_CHECKING:
    from tasks.profile_account import Account
    from tasks.profile_rows import Trace
    from tasks.profile_steps import Steps

_MOST_NAMED = 5
_LONGEST_NAME = 120


class Reduced(NamedTuple):
    """What a trace says."""

    steps: int
    step_us: float | None
    shares: Shares | None
    idle: float | None
    overlap: float | None
    drafter: Shares | None
    told_by: ToldBy
    left_out: int
    """Steps with a prefill in them."""
    unknown: tuple[Named, ...]


def reduce_trace(trace: Trace, *, drafting: bool) -> Reduced:
    """Shares of GPU time over the decode steps of a trace; None where no step was found.

    ``shares`` are of target, drafter and what is between them together; with ``idle`` they add
    up to one. ``drafter`` is the drafter's part of them, and None where there is no drafter or
    its kernels cannot be told from the target's.
    """
    steps = find_steps(trace, drafting=drafting)
    categories = [category_of(kind, name) for kind, name in trace.names]
    number = {category: i for i, category in enumerate(CATEGORIES)}
    by_name = np.array([*(number[c] for c in categories), 0], dtype=np.int64)
    rows = steps.rows
    key = steps.part * len(CATEGORIES) + by_name[rows.name]
    found = account(rows.start, rows.length, key, steps.edges, steps.kept)
    if not found.total_ns:
        return Reduced(0, None, None, None, None, None, steps.told_by, _left_out(steps), ())
    drafter = _shares(found, (Part.drafter,)) if drafting and steps.drafter_known else None
    return Reduced(
        steps=steps.number,
        step_us=found.total_ns / steps.number / 1000,
        shares=_shares(found, tuple(Part)),
        idle=found.idle_ns / found.total_ns,
        overlap=found.overlap_ns / found.total_ns,
        drafter=drafter,
        told_by=steps.told_by,
        left_out=_left_out(steps),
        unknown=_unknown(trace, steps, by_name == number["other"], found.total_ns),
    )


def _left_out(steps: Steps) -> int:
    return len(steps.kept) - steps.number


def _shares(found: Account, parts: tuple[Part, ...]) -> Shares:
    width = len(CATEGORIES)
    return Shares(
        **{
            category: float(
                sum((found.busy.get(part * width + i, Fraction(0)) for part in parts), Fraction(0))
                / found.total_ns
            )
            for i, category in enumerate(CATEGORIES)
        }
    )


def _unknown(
    trace: Trace, steps: Steps, other: np.ndarray[tuple[int], np.dtype[np.bool_]], total_ns: int
) -> tuple[Named, ...]:
    """The largest kernels that the table does not know, by their time in steps that count."""
    rows = steps.rows
    step = np.searchsorted(steps.edges, rows.start, side="right") - 1
    inside = (step >= 0) & (step < len(steps.kept))
    inside[inside] = steps.kept[step[inside]]
    mine = inside & other[rows.name]
    spent = np.bincount(rows.name[mine], weights=rows.length[mine], minlength=1)
    largest = np.argsort(-spent, kind="stable")[:_MOST_NAMED]
    return tuple(
        Named(name=trace.names[i][1][:_LONGEST_NAME], share=float(spent[i] / total_ns))
        for i in largest
        if spent[i] > 0
    )
