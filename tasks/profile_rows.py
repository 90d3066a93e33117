"""Reads what was kept of an engine's trace: GPU events, the calls that launched them, ranges."""

from __future__ import annotations

import base64
import gzip
import io
import json
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

FORMAT = 1


class BadProfileError(ValueError):
    """Not what the agent keeps of a trace."""


class GpuRows(NamedTuple):
    """GPU events, a column each; times in whole nanoseconds on the trace's own clock."""

    start: Ints
    length: Ints
    name: Ints
    """Index into the names."""
    stream: Ints
    device: Ints
    correlation: Ints
    """Of the call that launched it; -1 where the trace does not say."""
    graph: Ints
    """Id of the CUDA graph that it was replayed from; -1: none, or not said."""

    @property
    def size(self) -> int:
        """How many rows."""
        return len(self.start)

    def where(self, mask: NDArray[np.bool_]) -> GpuRows:
        """Some of the rows."""
        return GpuRows(*(column[mask] for column in self))


class CallRows(NamedTuple):
    """Calls of CUDA that launch something."""

    start: Ints
    thread: Ints
    correlation: Ints
    name: Ints


class SpanRows(NamedTuple):
    """Ranges that the engine marked (torch.profiler.record_function)."""

    start: Ints
    length: Ints
    thread: Ints
    name: Ints


class Trace(NamedTuple):
    """A trace of one rank."""

    file: str
    names: tuple[tuple[str, str], ...]
    """(the trace's category, name)"""
    gpu: GpuRows
    calls: CallRows
    spans: SpanRows
    events: int
    """Events in the trace, those that were let go by included."""
    whole: bool
    """False: the engine's file ends in the middle."""


def unpack(data: bytes) -> Iterator[str]:
    """The lines of a kept file, one after another.

    Raises:
        BadProfileError: It is damaged.
    """
    try:
        with gzip.open(io.BytesIO(data), "rt", encoding="ascii") as lines:
            yield from lines
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise BadProfileError(f"damaged: {error}") from error


def read_trace(lines: Iterable[str]) -> Trace:
    """Reads the lines that infra/agent/sieve writes.

    Raises:
        BadProfileError: They are something else, or end before they should.
    """
    parts: dict[str, list[list[Ints]]] = {"gpu": [], "calls": [], "spans": []}
    names: list[tuple[str, str]] = []
    head: dict[str, Any] = {}
    end: dict[str, Any] | None = None
    try:
        for line in lines:
            told = json.loads(line)
            head = head or told
            end = told.get("end", end)
            names += [(str(cat), str(name)) for cat, name in told.get("names", ())]
            for kind, columns in parts.items():
                if kind in told:
                    columns.append([_unpacked(*column) for column in told[kind]])
        if head.get("profile") != FORMAT:
            raise BadProfileError(f"profile is {head.get('profile')!r}, not {FORMAT}")
        if end is None:
            raise BadProfileError("it ends in the middle")
        trace = Trace(
            file=str(head["file"]),
            names=tuple(names),
            gpu=GpuRows(*_columns(parts["gpu"], len(GpuRows._fields))),
            calls=CallRows(*_columns(parts["calls"], len(CallRows._fields))),
            spans=SpanRows(*_columns(parts["spans"], len(SpanRows._fields))),
            events=int(end["events"]),
            whole=bool(end["whole"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise BadProfileError(f"no profile: {error}") from error
    used = np.concatenate([trace.gpu.name, trace.calls.name, trace.spans.name, [0]])
    if used.max() >= max(1, len(names)) or used.min() < 0 or (trace.gpu.length < 0).any():
        raise BadProfileError("no profile: a row without a name, or of a length below zero")
    return trace


def _unpacked(least: int, width: int, text: str) -> Ints:
    """A column as infra/agent/sieve packs it: unsigned, little-endian, above its least value."""
    numbers = np.frombuffer(base64.b64decode(text), dtype=f"<u{width}")
    return numbers.astype(np.int64) + least


def _columns(chunks: list[list[Ints]], count: int) -> list[Ints]:
    """Columns over all chunks; every chunk must have as many as there are, of one length."""
    for chunk in chunks:
        if len(chunk) != count or len({column.shape for column in chunk}) > 1:
            raise BadProfileError("a chunk with a hole")
    columns = []
    for _ in range(count):  # one after another, so that no row is there twice
        parts = [chunk.pop(0) for chunk in chunks]
        columns.append(np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64))
    return columns
