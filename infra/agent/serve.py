"""Stays, and answers one request a line: a call costs a fork, not the start of a Python.

Each request has a process of its own all the same, so that it leaves nothing behind: no memory, no
open file, no child that nobody waits for.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterator

IDLE_S = 600.0
"""Whose controller was cut off without a word is gone after so long."""

_END = "\x1e"  # JSON never holds it
_PIECE = 65_536


def serve(carry_out: Callable[[list[str]], int]) -> int:
    """Answers until stdin ends, or nobody has asked for so long.

    Args:
        carry_out: Prints the answer to a command with its request, and returns the exit code.
    """
    for line in _lines():
        if not os.path.exists(sys.argv[0]):  # its jobs would not start: it has to be put there anew
            sys.stderr.write(f"can't open file {sys.argv[0]!r}: it was removed\n")
            return 2
        child = os.fork()
        if not child:
            _one(line, carry_out)
        _, status = os.waitpid(child, 0)
        try:
            os.write(1, f"{_END}{os.waitstatus_to_exitcode(status)}\n".encode())
        except OSError:  # nobody listens any more
            break
    return 0


def _lines() -> Iterator[bytes]:
    """What stands on stdin, line by line."""
    held = b""
    quiet_at = time.monotonic() + IDLE_S
    while True:
        line, found, rest = held.partition(b"\n")
        if found:
            held = rest
            yield line
            quiet_at = time.monotonic() + IDLE_S
            continue
        left = quiet_at - time.monotonic()
        if left <= 0 or not select.select([0], [], [], left)[0]:
            return
        more = os.read(0, _PIECE)
        if not more:
            return
        held += more


def _one(line: bytes, carry_out: Callable[[list[str]], int]) -> None:
    """One request, in the process that was forked for it; never returns."""
    code = 1
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        command, request = json.loads(line)
        code = carry_out([command, json.dumps(request)])
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
