"""One command or file session on one SSH channel: every wait for it has an end."""

from __future__ import annotations

import select
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import paramiko

if TYPE_CHECKING:
    from collections.abc import Iterator

_PIECE = 1 << 18
# Paramiko's one pipe for both streams can miss a wake-up: one stream clears what the other set.
_LOOK_S = 0.1


@contextmanager
def bounded(channel: paramiko.Channel, seconds: float) -> Iterator[None]:
    """Ends a wait for the answer to a channel request, which paramiko does not bound.

    Raises:
        TimeoutError: There was no answer in time: a frozen sshd keeps its TCP connection.
    """
    late = threading.Event()

    def close() -> None:
        late.set()
        channel.close()

    timer = threading.Timer(seconds, close)
    timer.daemon = True
    timer.start()
    try:
        yield
    except paramiko.SSHException as error:
        if late.is_set():
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()


def read_both(channel: paramiko.Channel, deadline: float) -> tuple[bytes, bytes]:
    """Reads both streams of a command to their end, and waits for its exit code.

    Raises:
        TimeoutError: It did not end in time.
    """
    out, err = bytearray(), bytearray()
    watch = select.poll()
    watch.register(channel.fileno(), select.POLLIN)
    while True:
        ended = channel.eof_received or channel.closed
        while channel.recv_ready():
            out += channel.recv(_PIECE)
        while channel.recv_stderr_ready():
            err += channel.recv_stderr(_PIECE)
        if ended:
            break
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        watch.poll(min(left, _LOOK_S) * 1000)
    if not channel.status_event.wait(max(deadline - time.monotonic(), 0.001)):
        raise TimeoutError
    return bytes(out), bytes(err)
