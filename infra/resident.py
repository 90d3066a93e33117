"""A program that stays on a machine: a line in, an answer and an exit code out.

Its answer ends with a line of its own: the character RS, which JSON never holds, and the code that
a command of its own would have ended with (negative: the signal that ended it).
"""

from __future__ import annotations

import os
import select
import subprocess
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_END = b"\x1e"
_LONGEST_END = 16
_PIECE = 1 << 18


class Said(NamedTuple):
    """What came for a line."""

    code: int
    """Exit code, negative for a signal: of the request, or of the program where it ended."""
    out: bytes
    err: bytes
    ended: bool
    """The program itself has ended, instead of answering."""


def whole(out: bytes | bytearray) -> bool:
    """Whether an answer has come to its end."""
    return out.endswith(b"\n") and _END in out[-_LONGEST_END:]


def answer(out: bytes, err: bytes) -> Said:
    """A whole answer."""
    said, _, code = out.rpartition(_END)
    return Said(int(code), said, err, ended=False)


class LocalResident:
    """A program that stays on this machine."""

    def __init__(self, program: Sequence[str]) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            list(program),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        streams = (self._process.stdin, self._process.stdout, self._process.stderr)
        self._streams = [stream for stream in streams if stream is not None]
        self._in, self._out, self._err = (stream.fileno() for stream in self._streams)

    def ask(self, line: bytes, timeout_s: float) -> Said:
        """What it says to a line.

        Raises:
            TimeoutError: Nothing whole in time.
        """
        with self._lock:
            with suppress(BrokenPipeError):  # it has ended, and has said why
                os.write(self._in, line + b"\n")
            out, err = self._read(time.monotonic() + timeout_s)
            if whole(out):
                return answer(out, err)
            return Said(self._process.wait(), out, err, ended=True)

    def _read(self, deadline: float) -> tuple[bytes, bytes]:
        """Both streams, until the answer is whole or both have ended."""
        texts = {self._out: b"", self._err: b""}
        open_still = {*texts}
        while open_still and not whole(texts[self._out]):
            left = deadline - time.monotonic()
            ready = select.select(open_still, [], [], left)[0] if left > 0 else []
            if not ready:
                raise TimeoutError
            for stream in ready:
                piece = os.read(stream, _PIECE)
                texts[stream] += piece
                open_still -= set() if piece else {stream}
        return texts[self._out], texts[self._err]

    def close(self) -> None:
        """Ends it; what it began and detached goes on."""
        self._process.terminate()
        self._process.wait()
        for stream in self._streams:
            stream.close()
