"""Oddities of a pretend host: another boot, another clock, processes that no signal reaches.

They are what a test cannot do to the machine that it runs on. ``strange.json`` in the host's
folder says which; every Python of the host looks there when it starts (the one of the agent
through its launcher, the engine's through ``sitecustomize``). This file is loaded by its path, so
that nothing of the repository gets between the agent and its own modules.
"""

from __future__ import annotations

import builtins
import json
import os
import runpy
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any

FILE = "strange.json"
_BOOT = "/proc/sys/kernel/random/boot_id"


def tell(folder: Path, **oddities: Any) -> None:
    """Sets oddities of a host, beside those that are set: ``boot_id``, ``clock_s``, ``deaf``.

    Args:
        folder: Of the host.
        oddities: ``boot_id``: what the kernel calls this boot; ``clock_s``: seconds by which the
            wall clock is ahead; ``deaf``: pids to which no signal gets through, as to a process
            that hangs in a driver.
    """
    path = folder / FILE
    known = json.loads(path.read_text()) if path.exists() else {}
    beside = path.with_name(f".{FILE}.{os.getpid()}")
    beside.write_text(json.dumps(known | oddities))
    beside.replace(path)


def launcher(folder: Path, bare: str) -> str:
    """The shell script that is the host's ``python3``; ``bare`` is already quoted."""
    told, ours = shlex.quote(str(folder / FILE)), shlex.quote(str(Path(__file__).resolve()))
    return (
        f"#!/bin/sh\nif [ -e {told} ]; then\n"
        f'  exec {bare} -I -S {ours} {shlex.quote(str(folder))} "$@"\nfi\nexec {bare} "$@"\n'
    )


def hook(folder: Path) -> str:
    """``sitecustomize`` of the engine's Python."""
    return (
        "import os, runpy\n\n"
        f"if os.path.exists({str(folder / FILE)!r}):\n"
        f"    runpy.run_path({str(Path(__file__).resolve())!r})['apply']({str(folder)!r})\n"
    )


def apply(folder: str) -> None:
    """Makes this process see what is told of its host."""
    told = json.loads((Path(folder) / FILE).read_text())
    if "boot_id" in told:
        _pretend_boot(Path(folder) / "boot_id", told["boot_id"])
    if told.get("clock_s"):
        _shift_clock(float(told["clock_s"]))
    _deafen(Path(folder) / FILE)


def _pretend_boot(path: Path, boot_id: str) -> None:
    # Whole or not at all: every process of the host does this as it starts, and others read.
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(boot_id + "\n")
    beside.replace(path)
    real = builtins.open

    def pretended(file: Any, *arguments: Any, **named: Any) -> Any:
        return real(path if file == _BOOT else file, *arguments, **named)

    builtins.open = pretended


def _shift_clock(seconds: float) -> None:
    now, text = time.time, time.strftime

    def shifted_time() -> float:
        return now() + seconds

    def shifted_text(form: str, moment: Any = None) -> str:
        return text(form, time.localtime(shifted_time()) if moment is None else moment)

    time.time, time.strftime = shifted_time, shifted_text


def _deafen(told: Path) -> None:
    """Signals to the named processes are lost; the sender hears no error."""
    by_pid = os.kill
    by_handle = getattr(signal, "pidfd_send_signal", None)

    def deaf(pid: int) -> bool:
        return pid in json.loads(told.read_text()).get("deaf", [])

    def kill(pid: int, number: int) -> None:
        if not deaf(pid):
            by_pid(pid, number)

    def send(fd: int, number: int, *rest: Any) -> None:
        lines = Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines()
        pid = next(int(line.split()[1]) for line in lines if line.startswith("Pid:"))
        if by_handle is not None and not deaf(pid):
            by_handle(fd, number, *rest)

    os.kill = kill
    if by_handle is not None:
        signal.pidfd_send_signal = send


def main() -> None:
    """``python strange.py FOLDER [-I -S] PROGRAM ...``: runs a program on the strange host."""
    folder, words = sys.argv[1], sys.argv[2:]
    while words[0].startswith("-"):
        words = words[1:]
    apply(folder)
    # What the program starts with its own Python is on this host too.
    sys.executable = str(Path(folder) / "bin" / "python3")
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main()
