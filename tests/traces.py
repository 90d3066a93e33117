"""Small traces in the layouts in which they are met, made from events."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

from infra.agent.sieve import sieve
from tasks.profile_rows import Trace, read_trace, unpack

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Event = dict[str, Any]


def kernel(
    name: str, ts: float, dur: float, correlation: int, *, graph: int = -1, **more: Any
) -> Event:
    """A kernel, its arguments in Kineto's order."""
    args: Event = {"External id": correlation, "queued": 0, "device": 0, "context": 1}
    args |= {"stream": 7, "correlation": correlation, "grid": [1, 1, 1]}
    if graph >= 0:
        args |= {"graph id": graph, "graph node id": 9}
    cat = more.pop("cat", "kernel")
    return {
        "ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur,
        "args": {**args, **more},
    }  # fmt: skip


def call(name: str, ts: float, correlation: int, tid: int = 40) -> Event:
    """A call of the CUDA runtime."""
    return {
        "ph": "X", "cat": "cuda_runtime", "name": name, "pid": 40, "tid": tid, "ts": ts,
        "dur": 4.0, "args": {"cbid": 1, "correlation": correlation},
    }  # fmt: skip


def span(name: str, ts: float, dur: float, tid: int = 40) -> Event:
    """A range that the engine marked."""
    return {
        "ph": "X", "cat": "user_annotation", "name": name, "pid": 40, "tid": tid, "ts": ts,
        "dur": dur, "args": {"External id": 1},
    }  # fmt: skip


def as_kineto(events: Sequence[Event]) -> bytes:
    """As libkineto's output_json.cpp lays events out."""
    return f'{{\n  "schemaVersion": 1,\n  "deviceProperties": [\n    {{\n      "id": 0\n    }}\n  ],\n  "traceEvents": [\n  {_joined(events)}\n  ],\n  "traceName": "t"\n}}\n'.encode()


def _joined(events: Sequence[Event]) -> str:
    return ",\n  ".join(map(_one, events))


def _one(event: Event) -> str:
    words = {key: json.dumps(value) for key, value in event.items()}
    for key in ("ts", "dur"):
        if isinstance(event.get(key), int | float):
            words[key] = f"{event[key]:.3f}"
    first = ", ".join(
        f'"{k}": {words[k]}' for k in ("ph", "cat", "name", "pid", "tid") if k in words
    )
    text = f"{{\n    {first}"
    times = ", ".join(f'"{k}": {words[k]}' for k in ("ts", "dur") if k in words)
    if times:
        text += f",\n    {times}"
    if "args" in event:
        inner = ", ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in event["args"].items())
        text += f',\n    "args": {{\n      {inner}\n    }}'
    return text + "\n  }"


def as_json(events: Sequence[Event]) -> bytes:
    """As a tool writes it that read the trace before."""
    return json.dumps({"traceEvents": list(events), "other": {"a": [1]}}).encode()


def sieved(folder: Path, data: bytes, *, packed: bool = True) -> Trace:
    """What is kept of a trace of these bytes."""
    path = folder / "1-TP-0.trace.json.gz"
    path.write_bytes(gzip.compress(data) if packed else data)
    sieve(str(path), str(folder / "kept"))
    return read_trace(unpack((folder / "kept").read_bytes()))
