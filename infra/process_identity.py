"""Which process this is, in a word that another process can look up later, perhaps elsewhere.

The word: node, boot id, PID namespace, pid, start time. A number alone would mean a stranger after
a reboot, in another container, or once it is given away again.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Literal

from infra.services import start_ticks

Seen = Literal["alive", "dead", "elsewhere"]
_SEPARATOR = "/"


def this_process() -> str:
    """The word for this process."""
    return _SEPARATOR.join([*_place(), str(os.getpid()), str(start_ticks(os.getpid()))])


def look_up(word: str) -> Seen:
    """What is known here of the process of a word.

    Returns:
        ``elsewhere``: another machine or container; nothing can be said of it from here.
    """
    node, boot, namespace, pid, ticks = _split(word)
    here = _place()
    if node != here[0]:
        return "elsewhere"
    if boot != here[1]:
        return "dead"  # this very machine, before its last boot
    if namespace != here[2]:
        return "elsewhere"
    return "alive" if str(start_ticks(int(pid))) == ticks else "dead"


def _split(word: str) -> tuple[str, str, str, str, str]:
    node, boot, namespace, pid, ticks = word.rsplit(_SEPARATOR, 4)
    return node, boot, namespace, pid, ticks


def _place() -> tuple[str, str, str]:
    """Node name, boot id, PID namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return platform.node(), boot, os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - not a path
