"""The parent's life from loaded to killed: bind, warm up, serve, drain, and die with the tree."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import time
from typing import TYPE_CHECKING

from infra.rehearsal import faults
from infra.rehearsal.about import About
from infra.rehearsal.accidents import Accidents
from infra.rehearsal.console import Console
from infra.rehearsal.profiler import Profiler
from infra.rehearsal.ranks import Children, kill_tree
from infra.rehearsal.serving import Loaded, Server
from infra.rehearsal.wire import Connection

if TYPE_CHECKING:
    from infra.rehearsal.knobs import Knobs
    from infra.rehearsal.rank import Plan

_NOTICE_S = 1.0


def _answers(host: str, port: int) -> bool:
    """Whether whoever holds the port answers the warm-up's first question as SGLang does."""
    try:
        with socket.create_connection((host, port), timeout=1) as other:
            other.sendall(b"GET /model_info HTTP/1.1\r\nhost: localhost\r\n\r\n")
            return b" 200 " in other.recv(64)
    except OSError:
        return False


class Life:
    """One loaded server.

    Args:
        plan: of its start.
        settings: of the pretend host.
        loaded: what the start found out.
        children: its schedulers and detokenizer.
        console: log of the main process.
    """

    def __init__(
        self, plan: Plan, settings: Knobs, loaded: Loaded, children: Children, console: Console
    ) -> None:
        self._plan, self._settings, self._loaded = plan, settings, loaded
        self._children, self._console = children, console
        self._args = loaded.args

    async def live(self, trial: str, drafter: str | None) -> int:
        """Serve until somebody ends it; returns only when the port was taken (exit code 3)."""
        loop = asyncio.get_running_loop()
        say, args = self._console.say, self._args
        ranks = Console(args["log_level"], " TP0" if args["tp_size"] > 1 else "")
        server = Server(loop, self._loaded, self._console, ranks)
        server.add_routes(About(server, self._console, ranks).routes())
        server.add_routes(Profiler(server, ranks).routes())
        self._watch(loop, server)
        say(f"INFO:     Started server process [{os.getpid()}]")
        say("INFO:     Waiting for application startup.")
        say("INFO:     Application startup complete.")
        host, port = args["host"], args["port"]
        try:
            await loop.create_server(
                lambda: Connection(server.handle, server.access), host, port, reuse_address=True
            )
        except OSError:
            return self._port_taken(host, port)
        say(f"INFO:     Uvicorn running on http://{host}:{port} (Press CTRL+C to quit)")
        if not args["skip_server_warmup"]:
            await self._warm_up(server, faults.take(self._plan.folder, trial, drafter, "warmup"))
        server.status = "up"
        say("The server is fired up and ready to roll!")
        server.accidents = Accidents(
            (self._plan.folder, trial, drafter), server, self._children, ranks
        )
        server.accidents.ready()
        while True:
            await asyncio.sleep(self._settings.drain_check_s)
            if server.status == "draining":
                left = server.decoding.count()
                say(
                    f"Gracefully exiting... Remaining number of requests {left}. Remaining "
                    "requests remaining_rids=[]."
                )
                if left == 0:
                    kill_tree(self._children)

    async def _warm_up(self, server: Server, fault: faults.Fault | None) -> None:
        """The warm-up request of 0.5.9: an image, because the target understands images."""
        client = f"127.0.0.1:{random.randint(33_000, 60_000)}"
        server.access(client, "GET /model_info HTTP/1.1", 200)
        if fault is not None and fault.what == "sigkill_scheduler":
            self._children.kill(fault.rank or 0)
        if fault is not None and fault.what in ("hang", "sigkill_scheduler"):
            await asyncio.Event().wait()
        if fault is not None:
            self._console.say(
                "Initialization failed. warmup error: Traceback (most recent call last):\n"
                f'  File "{self._plan.site}/sglang/srt/entrypoints/http_server.py", line 1774, '
                "in _execute_server_warmup\n    assert res.status_code == 200, "
                '{"error":{"message":"Internal server error"}}\nAssertionError\n',
                "error",
            )
            kill_tree(self._children)
        whole = self._plan.began + self._plan.start_s
        await asyncio.sleep(max(0.0, whole - time.monotonic()))
        server.access(client, "POST /v1/chat/completions HTTP/1.1", 200)

    def _port_taken(self, host: str, port: int) -> int:
        """0.5.9 finds a taken port only now, and says it is ready if something answers there."""
        say = self._console.say
        say(
            f"ERROR:    [Errno 98] error while attempting to bind on address {(host, port)}: "
            "address already in use"
        )
        say("INFO:     Waiting for application shutdown.")
        if _answers(host, port):
            say("The server is fired up and ready to roll!")
        say("INFO:     Application shutdown complete.")
        self._children.kill_all()
        return 3

    def _watch(self, loop: asyncio.AbstractEventLoop, server: Server) -> None:
        """Signals of the running phase: SIGTERM drains, SIGQUIT ends the tree."""
        say = self._console.say

        def drain() -> None:
            say("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
            server.status = "draining"

        def child_failed() -> None:
            say(
                "SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
                "error",
            )
            kill_tree(self._children)

        def child_ended() -> None:
            for pid, code in self._children.ended():
                server.decoding.frozen = True
                if self._settings.watch_children:
                    say(
                        f"Subprocess {self._children.name_of(pid)} (pid={pid}) crashed with exit "
                        f"code {code}. Triggering SIGQUIT for cleanup...",
                        "error",
                    )
                    loop.call_later(_NOTICE_S, child_failed)

        loop.add_signal_handler(signal.SIGTERM, drain)
        loop.add_signal_handler(signal.SIGQUIT, child_failed)
        loop.add_signal_handler(signal.SIGCHLD, child_ended)
