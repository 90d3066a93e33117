"""An endpoint that keeps time: it streams tokens at a given pace and knows when it wrote each."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import signal
import sys
import time
from array import array
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.rehearsal import knobs
from infra.rehearsal.dialects import DIALECTS, Told
from infra.rehearsal.tokens import Answer, prepare
from infra.rehearsal.wire import Asked, Connection, Reply, parse_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from infra.rehearsal.dialects import Dialect

MODEL = "paced"
_TICK_S = 0.01
"""What the kernel counts in at the coarsest; below it our own clock knows better."""


@dataclass(frozen=True)
class Pace:
    """How fast the endpoint writes; answers have the same lengths in the same order, whoever asks.

    Attributes:
        step_s: from one decode step to the next; each writes to every running stream at once.
        tokens_per_step: of each stream in a step; more than one is what speculation looks like.
        first_s: from the arrival of a request to its first token, at the shortest.
        first_spread_s: what the slowest first token takes longer than that.
        shortest: tokens of the shortest answer.
        longest: tokens of the longest one.
        seed: of lengths and first tokens.
    """

    step_s: float = 0.02
    tokens_per_step: int = 1
    first_s: float = 0.1
    first_spread_s: float = 0.1
    shortest: int = 96
    longest: int = 160
    seed: int = 59


class Stream:
    """One answer under way, and the account of it: seconds of ``time.monotonic``, and tokens."""

    def __init__(self, reply: Reply, told: Told, dialect: Dialect, arrived: float) -> None:
        self.reply, self.told, self.dialect, self.arrived = reply, told, dialect, arrived
        self.times = array("d")
        self.counts = array("q")

    def write(self, tokens: int) -> bool:
        """Write so many further tokens; whether the answer is whole."""
        told = self.told
        done = min((self.counts[-1] if self.counts else 0) + tokens, told.limit)
        event = self.dialect.event(told, self.counts[-1] if self.counts else 0, done)
        # Before the bytes go out: whoever reads them cannot have had them earlier.
        self.times.append(time.monotonic())
        self.counts.append(done)
        if done < told.limit:
            self.reply.chunk(event)
            return False
        self.reply.chunk(event)
        for more in self.dialect.ending(told):
            self.reply.chunk(more)
        self.reply.end(b"data: [DONE]\n\n")
        return True

    def account(self) -> dict[str, Any]:
        """What is true of this answer."""
        return {
            "arrived": self.arrived,
            "path": self.dialect.path,
            "limit": self.told.limit,
            "times": list(self.times),
            "counts": list(self.counts),
        }


class Endpoint:
    """All streams, one clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._running: dict[Stream, None] = {}
        self._ended: list[Stream] = []
        self._late = array("d")
        self._waiting = 0
        self.set_pace(Pace())

    def set_pace(self, pace: Pace) -> None:
        """Begin a new account at another pace; only while nothing runs."""
        self.pace = pace
        self._dice = random.Random(pace.seed)
        self._ended.clear()
        del self._late[:]
        self._cpu: list[float] = []

    @property
    def busy(self) -> bool:
        """Whether an answer is waiting or under way."""
        return bool(self._running or self._waiting)

    def answer(self, asked: Asked, reply: Reply) -> None:
        """Take one request in; its length is the next one in the sequence, not what it asks."""
        arrived = time.monotonic()
        unread_s = reply.lay_unread_s()
        if unread_s > _TICK_S:
            arrived -= unread_s  # the machine kept us from reading; the client had sent it
        dialect = DIALECTS[asked.path]
        pace, wanted = self.pace, parse_json(asked)
        if wanted is None:
            reply.json(400, {"error": {"message": "the body is no JSON object"}})
            return
        if not self._cpu:
            self._cpu.append(time.process_time())
        limit = self._dice.randint(pace.shortest, pace.longest)
        wait = pace.first_s + pace.first_spread_s * self._dice.random()
        told = Told(f"{self._dice.getrandbits(64):016x}", Answer(asked.body, limit), limit, MODEL)
        stream = Stream(reply, told, dialect, arrived)
        self._waiting += 1
        self._loop.call_at(arrived + wait, self._first, stream)

    def _first(self, stream: Stream) -> None:
        self._waiting -= 1
        if stream.write(1):
            self._ended.append(stream)
            return
        if not self._running:
            self._next = self._loop.time() + self.pace.step_s
            self._loop.call_at(self._next, self._step)
        self._running[stream] = None

    def _step(self) -> None:
        self._late.append(self._loop.time() - self._next)
        for stream in list(self._running):
            if stream.write(self.pace.tokens_per_step) or not stream.reply.open:
                del self._running[stream]
                self._ended.append(stream)
        self._cpu[1:] = [time.process_time()]
        if self._running:
            self._next += self.pace.step_s
            self._loop.call_at(self._next, self._step)

    def account(self) -> dict[str, Any]:
        """Everything since the pace was set: each answer, how late the steps were, the load."""
        late = sorted(self._late)
        return {
            "pace": asdict(self.pace),
            "busy": self.busy,
            "answers": [stream.account() for stream in self._ended],
            "steps": len(late),
            "late_p99_s": late[int(0.99 * (len(late) - 1))] if late else None,
            "late_max_s": late[-1] if late else None,
            "cpu_s": self._cpu[-1] - self._cpu[0] if self._cpu else 0.0,
        }


class Routes:
    """What the endpoint answers besides streams: what load clients ask before and after."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "rehearsal"}
        self._stubs: dict[str, object] = {
            "/health": {},
            "/v1/models": {"object": "list", "data": [model]},
            "/model_info": {"model_path": MODEL, "is_generation": True},
            "/get_model_info": {"model_path": MODEL, "is_generation": True},
            "/server_info": {"internal_states": [{}]},
            "/get_server_info": {"internal_states": [{}]},
        }
        self._routes: dict[str, Callable[[Asked, Reply], None]] = {
            "/pace": self._pace,
            "/account": lambda _, reply: reply.json(200, endpoint.account()),
            **dict.fromkeys(DIALECTS, endpoint.answer),
        }

    def handle(self, asked: Asked, reply: Reply) -> None:
        """Answer one request."""
        route = self._routes.get(asked.path)
        if route is not None:
            route(asked, reply)
        elif asked.path in self._stubs:
            reply.json(200, self._stubs[asked.path])
        else:
            reply.json(404, {"detail": "Not Found"})

    def _pace(self, asked: Asked, reply: Reply) -> None:
        """Set the pace; 409 while streams run, 400 for an unknown key."""
        wanted = parse_json(asked)
        unknown = set(wanted or {}) - {field.name for field in fields(Pace)}
        if wanted is None or unknown:
            reply.json(400, {"error": f"unknown: {sorted(unknown)}"})
        elif self._endpoint.busy:
            reply.json(409, {"error": "streams are running"})
        else:
            self._endpoint.set_pace(Pace(**wanted))
            gc.collect()
            reply.json(200, asdict(self._endpoint.pace))


async def serve(folder: Path) -> None:
    """Listen on loopback until SIGTERM; ``ready.json`` in the folder tells the port."""
    loop = asyncio.get_running_loop()
    prepare()
    routes = Routes(Endpoint(loop))
    gc.freeze()
    gc.disable()  # a collection would make steps late; it is done whenever the pace is set

    def made() -> Connection:
        return Connection(routes.handle, lambda *_: None)

    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    server = await loop.create_server(made, "127.0.0.1", 0, backlog=1024)
    ready = {"port": server.sockets[0].getsockname()[1], "pid": os.getpid()}
    knobs.write_atomically(folder / "ready.json", json.dumps(ready))
    await ended.wait()


def main(arguments: list[str]) -> int:
    """``python -m infra.rehearsal.paced --folder FOLDER [--core N]``."""
    made = argparse.ArgumentParser(prog="python -m infra.rehearsal.paced", description=__doc__)
    made.add_argument("--folder", type=Path, required=True, help="where ready.json is written")
    made.add_argument("--core", type=int, help="the only core that it uses")
    asked = made.parse_args(arguments)
    if asked.core is not None:
        os.sched_setaffinity(0, {asked.core})
    asyncio.run(serve(asked.folder))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
