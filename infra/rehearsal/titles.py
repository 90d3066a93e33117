"""Process titles as SGLang's children have them, and dying with the parent.

setproctitle overwrites the argument area of the process with the title and, unless
``SPT_NOENV`` is set, the environment area too; so a marker in the environment of a child is
lost, exactly as on a real host. A forked child does the same here.
"""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15


def _areas() -> tuple[int, int, int, int]:
    """Start and end of the argument and environment areas (fields 48-51 of /proc/self/stat)."""
    stat = Path("/proc/self/stat").read_bytes()
    fields = stat[stat.rindex(b")") + 2 :].split()
    arg_start, arg_end, env_start, env_end = (int(field) for field in fields[45:49])
    return arg_start, arg_end, env_start, env_end


def set_title(title: str) -> None:
    """Show a title instead of the command line; needs a command line longer than the title."""
    arg_start, arg_end, env_start, env_end = _areas()
    room = arg_end - arg_start
    if room > len(title):
        ctypes.memset(arg_start, 0, room)
        ctypes.memmove(arg_start, title.encode(), len(title))
    if "SPT_NOENV" not in os.environ and env_end > env_start:
        ctypes.memset(env_start, 0, env_end - env_start)
    ctypes.CDLL(None).prctl(_PR_SET_NAME, title.encode(), 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """SIGKILL when the parent ends, as SGLang's ``kill_itself_when_parent_died``."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # it ended before the kernel was asked to tell
        os._exit(1)
