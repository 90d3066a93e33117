"""Takes out of an engine's trace what ran on the GPU and what launched it, in bounded memory.

A torch profiler trace is one JSON object with an array of events, gzipped, hundreds of MB of it.
Nothing is judged here: the rows that are kept are the trace's own names and numbers, as a file of
JSON lines that is a hundredth of the size. What they mean is for the controller
(tasks/profile_rows.py).
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import sys
from array import array
from typing import Any, NamedTuple, Optional

from infra.agent.kineto import GPU, Quick, Reading
from infra.agent.refusal import Refusal

FORMAT = 1
CALLS = ("cuda_runtime", "cuda_driver")
SPAN = "user_annotation"
WANTED = frozenset(cat.encode() for cat in (*GPU, *CALLS, SPAN))
_LAUNCH = re.compile("Launch|Memcpy|Memset")
_CHUNK = 1 << 15
_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
_WIDTHS = ((1, 1 << 8), (2, 1 << 16), (4, 1 << 32), (8, 1 << 63))
_FAR = 1 << 62
_MOST_NAMES = 200_000


class Sieved(NamedTuple):
    """What was in a trace file."""

    events: int
    """Events seen, whatever they were."""
    rows: int
    """GPU events kept."""
    bytes: int
    """Of JSON, unpacked."""
    whole: bool
    """False: the file ends before its array of events does, or its gzip stream is torn."""


def sieve(source: str, target: str) -> Sieved:
    """Reads a trace (gzip or plain JSON), writes what is kept of it as gzipped JSON lines.

    Raises:
        Refusal: ``bad_trace``: no trace of torch's profiler, or damaged in the middle.
    """
    reading = Reading(source, WANTED)
    with gzip.open(target, "wt", encoding="ascii", compresslevel=3) as out:
        rows = Rows(out)
        rows.say({"profile": FORMAT, "file": os.path.basename(source)})
        for item in reading.events():
            if isinstance(item, Quick):
                rows.take_all(item)
            elif isinstance(item, bytes):
                rows.take(_parsed(item))
            else:
                rows.take(item)
        rows.flush()
        done = Sieved(reading.seen, rows.kept, reading.bytes, reading.whole)
        rows.say({"end": done._asdict()})
    return done


class Rows:
    """What is kept, in columns; written out whenever there are many."""

    def __init__(self, out: Any) -> None:
        self._out = out
        self.kept = 0
        self._names: dict[tuple[str, str], int] = {}
        self._known: dict[tuple[bytes, bytes], int] = {}
        self._new: list[tuple[str, str]] = []
        self._threads: dict[tuple[str, str], int] = {}
        self._gpu: list[list[int]] = [[] for _ in range(7)]
        self._calls: list[list[int]] = [[] for _ in range(4)]
        self._spans: list[list[int]] = [[] for _ in range(4)]

    def say(self, line: dict[str, Any]) -> None:
        """One line."""
        self._out.write(json.dumps(line, separators=(",", ":")) + "\n")

    def put(self, name: str, columns: list[list[int]]) -> None:
        """One line of columns: gpu, calls or spans."""
        self.say({name: [_packed(column) for column in columns]})

    def take_all(self, quick: Quick) -> None:
        """Keeps GPU events in the form in which nearly all come."""
        cats, names, start, start_ns, length, length_ns, *numbers = zip(*quick.rows)  # noqa: B905
        known = self._known
        for key in set(zip(cats, names)):  # noqa: B905 (strict came with 3.10)
            if key not in known:
                known[key] = self._name(key[0].decode(), json.loads(b'"%b"' % key[1]))
        device, stream, correlation, graph = numbers
        self._gpu[0] += map(int, map(bytes.__add__, start, start_ns))
        self._gpu[1] += map(int, map(bytes.__add__, length, length_ns))
        self._gpu[2] += map(known.__getitem__, zip(cats, names))  # noqa: B905
        self._gpu[3] += map(int, stream)
        self._gpu[4] += map(int, device)
        self._gpu[5] += map(int, correlation)
        self._gpu[6] += [int(number) if number else -1 for number in graph]
        self.kept += len(cats)
        if len(self._gpu[0]) >= _CHUNK:
            self.flush()

    def take(self, event: dict[str, Any]) -> None:
        """Keeps an event if it has what a row needs."""
        cat, told = event["cat"], event.get("args") or {}
        start, length = _ns(event.get("ts")), _ns(event.get("dur"))
        if event.get("ph") != "X" or start is None or length is None:
            return
        if cat in GPU:
            self.kept += 1
            where = (told.get("stream", event.get("tid")), told.get("device", event.get("pid")))
            row = (
                start,
                length,
                self._name(cat, event.get("name")),
                *(value if isinstance(value, int) else -1 for value in where),
                _whole(told.get("correlation")),
                _whole(told.get("graph id")),
            )
            self._add(self._gpu, row)
        elif cat == SPAN:
            row = (start, length, self._thread(event), self._name(cat, event.get("name")))
            self._add(self._spans, row)
        elif "correlation" in told and _LAUNCH.search(str(event.get("name"))):
            key = _whole(told["correlation"])
            row = (start, self._thread(event), key, self._name(cat, event.get("name")))
            self._add(self._calls, row)

    def _add(self, columns: list[list[int]], row: tuple[int, ...]) -> None:
        for column, value in zip(columns, row):  # noqa: B905 (strict came with 3.10)
            column.append(value)
        if len(columns[0]) >= _CHUNK:
            self.flush()

    def flush(self) -> None:
        """Writes what was gathered."""
        if self._new:
            self.say({"names": self._new})
        self._new = []
        for name, columns in (("gpu", self._gpu), ("calls", self._calls), ("spans", self._spans)):
            if columns[0]:
                self.put(name, columns)
                for column in columns:
                    column.clear()

    def _name(self, cat: str, name: Any) -> int:
        key = (cat, str(name))
        known = self._names.get(key)
        if known is None:
            known = self._names[key] = len(self._names)
            self._new.append(key)
            if known > _MOST_NAMES:
                raise Refusal("bad_trace", f"more than {_MOST_NAMES} different names")
        return known

    def _thread(self, event: dict[str, Any]) -> int:
        return self._threads.setdefault(
            (str(event.get("pid")), str(event.get("tid"))), len(self._threads)
        )


def _packed(column: list[int]) -> tuple[int, int, str]:
    """A column as (least value, bytes each, what is above that, as base64 of little-endian)."""
    least = min(column)
    width = next((w for w, limit in _WIDTHS if max(column) - least < limit), None)
    if width is None or not -_FAR <= least < _FAR:
        raise Refusal("bad_trace", "a number of more than 64 bits")
    numbers = array(_CODES[width], [value - least for value in column])
    if sys.byteorder == "big":
        numbers.byteswap()
    return least, width, base64.b64encode(numbers.tobytes()).decode("ascii")


def _parsed(text: bytes) -> dict[str, Any]:
    """An event of which but the last brace is missing."""
    try:
        event: dict[str, Any] = json.loads(text[text.index(b"{") :] + b"}", parse_float=str)
    except ValueError as fault:
        raise Refusal("bad_trace", f"{text[:200]!r}: {fault}") from fault
    return event


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else -1


def _ns(value: Any) -> Optional[int]:
    """Microseconds with up to three decimals, as whole nanoseconds and without any rounding.

    As floats they would lose it: an epoch in microseconds leaves a quarter of one.
    """
    if isinstance(value, int):
        return value * 1000
    if not isinstance(value, str):
        return None
    whole, _, part = value.partition(".")
    try:
        if not part.isdigit():
            return round(float(value) * 1000)
        sign = -1 if whole.startswith("-") else 1
        return int(whole) * 1000 + sign * int((part + "000")[:3])
    except (ValueError, OverflowError):
        return None
