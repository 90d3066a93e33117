"""One command on one SSH channel: every wait for it has an end."""

from __future__ import annotations

import math
import select
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import paramiko

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PIECE = 1 << 18
# Paramiko's one pipe for both streams can miss a wake-up: one stream clears what the other set.
_LOOK_S = 0.1


class Bound(NamedTuple):
    """How long a command may take."""

    seconds: float
    quiet: bool = False
    """True: so long without a byte, however long the whole takes."""
    deadline: float = math.inf

    def begun(self) -> Bound:
        """The same, from now on."""
        return self._replace(deadline=time.monotonic() + self.seconds)

    def moved(self) -> Bound:
        """After some bytes went through."""
        return self.begun() if self.quiet else self

    def left(self) -> float:
        """Seconds that are left.

        Raises:
            TimeoutError: None.
        """
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


@contextmanager
def bounded(channel: paramiko.Channel, seconds: float) -> Iterator[None]:
    """Ends a wait for the answer to a channel request, which paramiko does not bound.

    Raises:
        TimeoutError: There was no answer in time: a frozen sshd keeps its TCP connection.
    """
    late = threading.Event()

    def close() -> None:
        late.set()
        with suppress(OSError, EOFError, paramiko.SSHException):  # the line is gone as a whole
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


def send(channel: paramiko.Channel, data: bytes, bound: Bound) -> None:
    """Gives a command its stdin, and closes it: whoever reads it sees its end.

    The command reads it to that end whatever happens: paramiko may send the end after its own
    word that the channel is closed, and sshd then drops the whole connection ("packet referred to
    nonexistent channel"). One that was killed may have ended early, and has said why.

    Raises:
        TimeoutError: It was not taken in time.
    """
    if feed(channel, data, bound):
        channel.shutdown_write()


def feed(channel: paramiko.Channel, data: bytes, bound: Bound) -> bool:
    """Gives a command some of its stdin; False where it has ended.

    Raises:
        TimeoutError: It was not taken in time.
    """
    sent = 0
    while sent < len(data) and not channel.closed:
        channel.settimeout(bound.left())
        try:
            sent += channel.send(data[sent : sent + _PIECE])
        except TimeoutError:
            raise
        except OSError:  # paramiko's word for a channel that was closed meanwhile
            return False
        bound = bound.moved()
    return not channel.closed


def read_both(
    channel: paramiko.Channel, bound: Bound, whole: Callable[[bytearray], bool] | None = None
) -> tuple[bytes, bytes]:
    """Reads both streams of a command to their end, and waits for its exit code.

    Args:
        channel: Of the command.
        bound: How long it may take.
        whole: Says of what it has printed that nothing more is to come, although it goes on.

    Raises:
        TimeoutError: It did not end in time.
    """
    out, err = bytearray(), bytearray()
    watch = select.poll()
    watch.register(channel.fileno(), select.POLLIN)
    while True:
        ended = channel.eof_received or channel.closed
        before = len(out) + len(err)
        while channel.recv_ready():
            out += channel.recv(_PIECE)
        while channel.recv_stderr_ready():
            err += channel.recv_stderr(_PIECE)
        if whole is not None and whole(out):
            return bytes(out), bytes(err)
        if ended:
            break
        if len(out) + len(err) > before:
            bound = bound.moved()
        watch.poll(min(bound.left(), _LOOK_S) * 1000)
    if not channel.status_event.wait(bound.left()):
        raise TimeoutError
    return bytes(out), bytes(err)
