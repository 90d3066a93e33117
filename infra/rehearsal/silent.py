"""A node of a pretend engine that does not serve: rank 1 and above.

In 0.5.9 it has schedulers and no more: no tokenizer, no detokenizer, and a server whose /health
says 200 whatever happens (srt/entrypoints/engine.py: launch_dummy_health_check_server).
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any, NoReturn

from infra.rehearsal.ranks import Children, kill_tree
from infra.rehearsal.wire import Asked, Connection, Reply

if TYPE_CHECKING:
    from infra.rehearsal.console import Console

_HEALTHY = ("/health", "/health_generate")


def _handle(asked: Asked, reply: Reply) -> None:
    if asked.path in _HEALTHY:
        reply.whole(200, b"")
    else:
        reply.json(404, {"detail": "Not Found"})


async def stand_by(args: dict[str, Any], children: Children, console: Console) -> NoReturn:
    """Lives until one of its schedulers, or somebody, ends it."""
    loop = asyncio.get_running_loop()

    def child_failed() -> None:
        console.say(
            "SIGQUIT received. signum=None, frame=None. It usually means one child failed.", "error"
        )
        kill_tree(children)

    loop.add_signal_handler(signal.SIGQUIT, child_failed)
    loop.add_signal_handler(signal.SIGTERM, lambda: kill_tree(children))
    host, port = args["host"], args["port"]
    console.say(f"Starting dummy health check server at {host}:{port}")
    await loop.create_server(
        lambda: Connection(_handle, lambda *_line: None), host, port, reuse_address=True
    )
    while True:
        await asyncio.Event().wait()
