"""A local receiver of webhooks: keeps the JSON that is posted to it."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class Received(NamedTuple):
    """Where it listens, and what came."""

    url: str
    messages: list[Any]

    def about(self, word: str) -> list[Any]:
        """The messages with a word in their subject."""
        return [message for message in self.messages if word in message["subject"]]


@contextmanager
def receiver() -> Iterator[Received]:
    """Listens on loopback until the block ends."""
    messages: list[Any] = []

    class Keep(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            messages.append(json.loads(body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Keep) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield Received(f"http://127.0.0.1:{server.server_port}/a-secret-path", messages)
        finally:
            server.shutdown()
            thread.join()
