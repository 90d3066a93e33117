"""Finds the decode steps in a trace, and which kernels are the target's and which the drafter's.

Two ways lead there. From 0.5.12 on SGLang marks every forward of a model runner as a range,
``step[TARGET_VERIFY bs=8]``; a kernel is told by the range in which its launch was called. Older
releases mark nothing: then a decode step is known by its CUDA graph. All kernels of one replay
share the correlation id of ``cudaGraphLaunch``; the target's graphs have many kernels, the
drafter's few. Where neither tells, nothing is said.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tasks.profile_rows import GpuRows, Trace

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

ToldBy = Literal["ranges", "graphs", "nothing"]


class Part(IntEnum):
    """Whose a kernel is."""

    target = 0
    drafter = 1
    between = 2
    """Neither model's: choice and verification of tokens, copies of inputs, metadata."""
    prefill = 3
    """Not a decode step's; the steps that it falls into are left out."""


# Stage of SGLang's step range -> whose it is. 0.5.12: ForwardMode's name (model_runner.py,
# _build_step_span_name); by 0.5.23 VERIFY, and DRAFT for all that the drafter does
# (utils/profile_utils.py, build_step_span_name).
_STEP: Final = re.compile(r"^step\[(?P<stage>[A-Z_0-9]+)\b")
_STAGES: Final[dict[str, Part]] = {
    "TARGET_VERIFY": Part.target,
    "VERIFY": Part.target,
    "DRAFT": Part.drafter,
    "DRAFT_EXTEND": Part.drafter,
    "DRAFT_EXTEND_V2": Part.drafter,
    "EXTEND": Part.prefill,
    "MIXED": Part.prefill,
    "SPLIT_PREFILL": Part.prefill,
    "DLLM_EXTEND": Part.prefill,
}
_DECODE: Final = "DECODE"
_HALF: Final = 2
"""A graph with at least half of the most kernels is the target's."""
_LEAST_STEPS: Final = 2


class Steps(NamedTuple):
    """Which time counts, and whose each row is."""

    told_by: ToldBy
    rows: GpuRows
    """The rows of the one device."""
    part: Ints
    """Of each row: a Part."""
    edges: Ints
    """Beginnings of the steps and the end of the last, ns; empty: no step was found."""
    kept: Flags
    """For each step, whether it is a decode step and nothing else."""
    drafter_known: bool
    """Whether the drafter's kernels are told from the target's."""

    @property
    def number(self) -> int:
        """Steps that count."""
        return int(self.kept.sum())


class _Passes(NamedTuple):
    told_by: ToldBy
    part: Ints
    group: Ints
    """Of each row: which pass of the target it belongs to; -1 for none."""
    drafter_known: bool


def find_steps(trace: Trace, *, drafting: bool) -> Steps:
    """The decode steps of a trace: each from the begin of one target pass to that of the next.

    Args:
        trace: of one rank.
        drafting: whether the server has a drafter (a model, not n-grams).
    """
    mine = _busiest_device(trace.gpu)
    rows = trace.gpu if mine.all() else trace.gpu.where(mine)
    passes = _by_ranges(trace, rows, drafting=drafting) or _by_graphs(rows, drafting=drafting)
    edges = _edges(rows, passes)
    return Steps(
        told_by=passes.told_by,
        rows=rows,
        part=passes.part,
        edges=edges,
        kept=_kept(rows, passes, edges),
        drafter_known=passes.drafter_known,
    )


def _busiest_device(rows: GpuRows) -> Flags:
    """A rank has one; whatever else is in its trace is a copy to somewhere."""
    devices, which = np.unique(rows.device, return_inverse=True)
    if len(devices) < 2:
        return np.ones(rows.size, dtype=bool)
    busy = np.bincount(which, weights=rows.length.astype(np.float64))
    flags: Flags = which == int(np.argmax(busy))
    return flags


def _graph_of(rows: GpuRows) -> tuple[Ints, Ints]:
    """Of each row: which replay it is of (-1: none), and how many kernels each replay has."""
    keys, which, counts = np.unique(rows.correlation, return_inverse=True, return_counts=True)
    replay = (keys >= 0) & (counts > 1)
    number = np.where(replay, np.cumsum(replay) - 1, -1)
    return number[which], counts[replay]


def _by_ranges(trace: Trace, rows: GpuRows, *, drafting: bool) -> _Passes | None:
    """By the ranges that SGLang marks; None where there is none of a decode step."""
    stages = [found["stage"] if (found := _STEP.match(name)) else "" for _, name in trace.names]
    verifies = {"TARGET_VERIFY", "VERIFY"} & {stages[n] for n in np.unique(trace.spans.name)}
    decode = Part.drafter if verifies else Part.target
    whose = [int(decode) if s == _DECODE else int(_STAGES.get(s, -1)) for s in stages]
    marked = np.array([*whose, -1], dtype=np.int64)[trace.spans.name]
    if not (marked == Part.target).any():
        return None
    span = _span_of_rows(trace, rows, marked >= 0)
    inside = span >= 0
    part = np.where(inside, marked[span], int(Part.between))
    replayed, _ = _graph_of(rows)
    if drafting and verifies:
        # The drafter's graphs are replayed by its worker, past the model runner (0.5.12,
        # speculative/eagle_worker*.py); all that is the target's own is inside a range.
        part = np.where(~inside & ((replayed >= 0) | (rows.graph >= 0)), int(Part.drafter), part)
    known = bool(verifies) and bool((part == Part.drafter).any())
    group = np.where(part == Part.target, span, -1)
    return _Passes("ranges", part, group, known or not drafting)


def _span_of_rows(trace: Trace, rows: GpuRows, wanted: Flags) -> Ints:
    """Of each row: the marked range in which the call was made that launched it; -1: none."""
    calls, spans = trace.calls, trace.spans
    found = np.full(rows.size, -1, dtype=np.int64)
    if not len(calls.correlation):
        return found
    order = np.argsort(calls.correlation, kind="stable")
    at = np.searchsorted(calls.correlation[order], rows.correlation)
    at = np.minimum(at, len(order) - 1)
    call = order[at]
    has = (calls.correlation[call] == rows.correlation) & (rows.correlation >= 0)
    threads = calls.thread, spans.thread
    if not np.isin(*threads).any():  # the two are numbered in different ways
        threads = np.zeros_like(calls.thread), np.zeros_like(spans.thread)
    for thread in np.unique(threads[1][wanted]):
        mine = np.flatnonzero(wanted & (threads[1] == thread))
        mine = mine[np.argsort(spans.start[mine], kind="stable")]
        which = np.flatnonzero(has & (threads[0][call] == thread))
        when = calls.start[call[which]]
        before = np.searchsorted(spans.start[mine], when, side="right") - 1
        span = mine[np.maximum(before, 0)]
        hit = (before >= 0) & (when <= spans.start[span] + spans.length[span])
        found[which[hit]] = span[hit]
    return found


def _by_graphs(rows: GpuRows, *, drafting: bool) -> _Passes:
    """By the size of the graphs that were replayed."""
    replay, kernels = _graph_of(rows)
    nothing = np.full(rows.size, -1, dtype=np.int64)
    between = np.full(rows.size, int(Part.between), dtype=np.int64)
    if not len(kernels):
        return _Passes("nothing", between, nothing, drafter_known=not drafting)
    large = kernels * _HALF >= kernels.max()
    if drafting and large.all():
        # A target as small as its drafter, or a drafter outside graphs.
        return _Passes("nothing", between, nothing, drafter_known=False)
    of_large = (replay >= 0) & large[replay]
    of_small = (replay >= 0) & ~large[replay]
    part = np.where(of_large, int(Part.target), between)
    if drafting:
        part = np.where(of_small, int(Part.drafter), part)
    return _Passes("graphs", part, np.where(of_large, replay, nothing), drafter_known=True)


def _edges(rows: GpuRows, passes: _Passes) -> Ints:
    """Where each pass of the target begins on the GPU."""
    mine = passes.group >= 0
    _, which = np.unique(passes.group[mine], return_inverse=True)
    if not len(which) or which.max() + 1 < _LEAST_STEPS:
        return np.zeros(0, dtype=np.int64)
    first = np.full(int(which.max()) + 1, np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(first, which, rows.start[mine])
    return np.unique(first)


def _kept(rows: GpuRows, passes: _Passes, edges: Ints) -> Flags:
    """Leaves out steps with a prefill in them: marked as one, or with as many eager kernels."""
    if len(edges) < _LEAST_STEPS:
        return np.zeros(0, dtype=bool)
    count = len(edges) - 1
    step = np.searchsorted(edges, rows.start, side="right") - 1
    inside = (step >= 0) & (step < count)
    prefill = np.bincount(step[inside & (passes.part == Part.prefill)], minlength=count)
    eager = np.bincount(step[inside & (passes.part == Part.between)], minlength=count)
    target = np.bincount(step[inside & (passes.part == Part.target)], minlength=count)
    usual = np.median(eager)
    kept: Flags = (prefill == 0) & (eager <= usual + np.maximum(target, 8) / _HALF)
    return kept
