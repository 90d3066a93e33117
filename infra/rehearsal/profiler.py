"""The pretend engine's profiler: records steps, writes a trace per rank in Kineto's own layout."""

from __future__ import annotations

import gzip
import itertools
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.rehearsal.kernels import launches
from infra.rehearsal.rendezvous import local_ranks
from infra.rehearsal.wire import Asked, Reply, parse_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from infra.rehearsal.console import Console
    from infra.rehearsal.serving import Server

_HEAD = '{\n  "schemaVersion": 1,\n  "displayTimeUnit": "ms",\n  "traceEvents": [\n  '
_TAIL = '\n  ],\n  "traceName": "%s"\n}\n'
_CALL_US = 8.0
_FIRST_US = 7_000_000.0


@dataclass
class _Recording:
    """Steps that are being recorded.

    Attributes:
        folder: where the traces go.
        left: steps to go; None: until it is stopped.
        host: whether calls on the host are recorded too.
        began: the moment it began, in the loop's time.
        steps: (requests, moment at which the step ended, its seconds).
    """

    folder: Path
    left: int | None
    host: bool
    began: float
    identity: str
    steps: list[tuple[int, float, float]] = field(default_factory=list)


class Profiler:
    """/start_profile and /stop_profile as SGLang 0.5.9 has them, without stages and stacks."""

    def __init__(self, server: Server, ranks: Console) -> None:
        self._server, self._ranks = server, ranks
        self._recording: _Recording | None = None
        server.on_step = self._stepped

    def routes(self) -> dict[str, Callable[[Asked, Reply], None]]:
        """Paths and who answers them."""
        return {"/start_profile": self._start, "/stop_profile": self._stop}

    def _start(self, asked: Asked, reply: Reply) -> None:
        told = parse_json(asked) or {}
        if self._recording is not None:
            # The RuntimeError of tokenizer_communicator_mixin.py, as FastAPI answers it.
            reply.text(500, "Internal Server Error")
            return
        steps = told.get("num_steps")
        self._recording = recording = _Recording(
            folder=Path(told.get("output_dir") or "/tmp"),
            left=int(steps) if steps else None,
            host="CPU" in (told.get("activities") or ["CPU", "GPU"]),
            began=self._server.loop.time(),
            identity=str(time.time()),
        )
        self._ranks.say(
            f"Profiling starts. Traces will be saved to: {recording.folder} "
            f"(with profile id: {recording.identity})"
        )
        reply.text(200, "Start profiling.\n")

    def _stop(self, asked: Asked, reply: Reply) -> None:
        del asked
        if self._recording is None:
            reply.text(500, "Internal Server Error")
            return
        self._write()
        reply.text(200, "Stop profiling. This will take some time.\n")

    def _stepped(self, batch: int, ended: float, seconds: float) -> None:
        recording = self._recording
        if recording is None or ended - seconds < recording.began:
            return
        recording.steps.append((batch, ended, seconds))
        if recording.left is not None:
            recording.left -= 1
            if recording.left == 0:
                self._write()

    def _write(self) -> None:
        """Every rank's trace; the scheduler does nothing else meanwhile, as in SGLang."""
        recording, self._recording = self._recording, None
        assert recording is not None
        self._ranks.say("Stop profiling...")
        recording.folder.mkdir(parents=True, exist_ok=True)
        events = list(self._events(recording))
        for rank in local_ranks(self._server.loaded.args):
            name = f"{recording.identity}-TP-{rank}.trace.json.gz"
            text = ",\n  ".join(_kineto(event, rank) for event in events)
            whole = f"{_HEAD}{text}{_TAIL % (recording.folder / name)}"
            (recording.folder / name).write_bytes(gzip.compress(whole.encode(), 1))
        self._ranks.say(f"Profiling done. Traces are saved to: {recording.folder}")

    def _events(self, recording: _Recording) -> Iterator[dict[str, Any]]:
        """GPU events of the recorded steps, and the calls that launched them; times in µs."""
        numbers = itertools.count(101)
        for batch, ended, seconds in recording.steps:
            at = _FIRST_US + (ended - seconds - recording.began) * 1e6
            for launch in launches(self._server.loaded.arm, batch):
                number = next(numbers)
                if recording.host:
                    yield _call(launch.graph, number, at)
                for name, share in launch.kernels:
                    length = share * seconds * 1e6
                    yield _gpu(name, at, length, number, launch.graph)
                    at += length
                at += launch.gap * seconds * 1e6


def _call(graph: int, number: int, at: float) -> dict[str, Any]:
    """A call on the host, a little before what it launches."""
    name = "cudaGraphLaunch" if graph else "cudaLaunchKernel"
    args = {"External id": number, "cbid": 311, "correlation": number}
    return _event("cuda_runtime", name, at - 3 * _CALL_US, _CALL_US, args)


def _gpu(name: str, at: float, length: float, number: int, graph: int) -> dict[str, Any]:
    copy = name.startswith("Memcpy")
    args: dict[str, Any] = {"External id": number, "device": 0, "context": 1, "stream": 7}
    args["correlation"] = number
    args |= {"bytes": 1024} if copy else {"registers per thread": 64, "grid": [132, 1, 1]}
    if graph:
        args |= {"graph id": graph, "graph node id": number}
    return _event("gpu_memcpy" if copy else "kernel", name, at, length, args)


def _event(cat: str, name: str, at: float, length: float, args: dict[str, Any]) -> dict[str, Any]:
    return {"cat": cat, "name": name, "ts": at, "dur": length, "args": args}


def _kineto(event: dict[str, Any], rank: int) -> str:
    """One event as libkineto's output_json.cpp lays it out."""
    gpu = "device" in event["args"]
    args = {**event["args"], "device": rank} if gpu else event["args"]
    inner = ", ".join(f'"{name}": {json.dumps(value)}' for name, value in args.items())
    pid, tid = (rank, args["stream"]) if gpu else (4_000 + rank, 4_000 + rank)
    return (
        f'{{\n    "ph": "X", "cat": "{event["cat"]}", "name": {json.dumps(event["name"])}, '
        f'"pid": {pid}, "tid": {tid},\n    "ts": {event["ts"]:.3f}, "dur": {event["dur"]:.3f},\n'
        f'    "args": {{\n      {inner}\n    }}\n  }}'
    )
