"""The load that a drive job puts on an engine, and the record of each of its requests."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Optional

from infra.agent import web
from infra.agent.dialects import STREAMS
from infra.agent.refusal import Refusal
from infra.agent.streams import Fault, Reading, Stream


class Request(NamedTuple):
    """One request, encoded before the clock starts."""

    id: str
    kind: str
    body: bytes


class Load(NamedTuple):
    """The whole of what is asked."""

    url: str
    path: str
    concurrency: int
    timeout_s: float
    deadline_s: float
    headers: dict[str, str]
    requests: list[Request]
    abort_after_failures: Optional[int]
    look_at_gpus: bool = False

    @classmethod
    def read(cls, asked: dict[str, Any]) -> Load:
        """Reads the request of a drive job; ``bad_request`` or ``unknown_path`` if it is wrong."""
        try:
            load = cls(
                url=asked["base_url"].rstrip("/") + asked["path"],
                path=asked["path"],
                concurrency=int(asked["concurrency"]),
                timeout_s=float(asked["timeout_s"]),
                deadline_s=float(asked["deadline_s"]),
                headers={**(asked.get("headers") or {}), **web.secret_headers(asked)},
                requests=[
                    Request(str(one["id"]), str(one["kind"]), json.dumps(one["payload"]).encode())
                    for one in asked["requests"]
                ],
                abort_after_failures=asked.get("abort_after_failures"),
                look_at_gpus=bool(asked.get("look_at_gpus")),
            )
        except (KeyError, TypeError, ValueError) as fault:
            raise Refusal("bad_request", f"drive: {type(fault).__name__} {fault}") from fault
        if load.path not in STREAMS:
            raise Refusal("unknown_path", f"no parser for {load.path}")
        if load.concurrency < 1:
            raise Refusal("bad_request", f"concurrency {load.concurrency}")
        return load


class Sample:
    """One request under way; times are seconds since the job's zero."""

    def __init__(self, request: Request, stream: Stream, due: float) -> None:
        self.request = request
        self.stream = stream
        self.due = due
        self.sent = due
        self.done = due
        self.status: Optional[int] = None
        self.reading = Reading(None, None, "", None)
        self.fault: Optional[Fault] = None

    @property
    def tokens(self) -> int:
        """Completion tokens so far."""
        return self.stream.counts[-1] if self.stream.counts else 0

    def end(self, done: float, fault: Optional[Fault]) -> None:
        """Notes the end; a fault of the transport outweighs one of the stream."""
        self.done = done
        self.reading = self.stream.finish()
        self.fault = fault or self.reading.fault

    def line(self, zero: float) -> dict[str, Any]:
        """The ended sample as it is recorded."""
        reading, fault = self.reading, self.fault
        times = [round(at - zero, 6) for at in self.stream.times]
        return {
            "id": self.request.id,
            "kind": self.request.kind,
            "sent": round(self.sent - zero, 6),
            "first": times[0] if times else None,
            "last": times[-1] if times else None,
            "done": round(self.done - zero, 6),
            "chunks": [[at, self.stream.counts[i]] for i, at in enumerate(times)],
            "meta": reading.meta,
            "output_ids": reading.output_ids,
            "text_tail": reading.text_tail,
            "status": self.status,
            "error": None if fault is None else {"class": fault.kind, "message": fault.message},
        }
