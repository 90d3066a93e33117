"""Start and stop a pretend host from Python: for tests, benchmarks and demonstrations."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from infra.rehearsal import strange, tree

if TYPE_CHECKING:
    from collections.abc import Iterator

_START_S = 30.0
_STOP_S = 10.0
_LOOK_S = 0.02


@dataclass(frozen=True)
class Host:
    """A pretend host that listens.

    Attributes:
        folder: everything of it: knobs, faults, GPU memory, keys.
        name: as given.
        host: address.
        port: of SSH.
        user: to log in as.
        key: private key file.
        known_hosts: file that knows its host key.
        fingerprint: of the host key, ``SHA256:…``.
        pid: of the server.
        home: home folder of a login.
    """

    folder: Path
    name: str
    host: str
    port: int
    user: str
    key: str
    known_hosts: str
    fingerprint: str
    pid: int
    home: str


def reboot(host: Host) -> None:
    """Ends every process of a host but its SSH server, and gives its kernel another boot id."""
    strange.tell(host.folder, boot_id=str(uuid.uuid4()))
    home = f"HOME={host.home}".encode()
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            pid = int(entry.parent.name)
            if home in entry.read_bytes().split(b"\0") and pid != host.pid:
                os.kill(pid, signal.SIGKILL)


@contextmanager
def serving(
    folder: Path, *, name: str = "rehearsal", delay_ms: float = 0.0, port: int = 0
) -> Iterator[Host]:
    """A host that listens for the length of a ``with`` block.

    Args:
        folder: of the host; built if it is not there yet.
        name: of the host.
        delay_ms: one-way delay on all SSH traffic.
        port: to listen on, as when sshd is started again; 0 picks a free one.

    Raises:
        RuntimeError: it ended, or did not listen within 30 s.
    """
    folder = folder.resolve()
    ready = folder / "ready.json"
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", "infra.rehearsal", "serve", "--folder", str(folder)]
    command += ["--name", name, "--delay-ms", str(delay_ms), "--port", str(port)]
    process = subprocess.Popen(command, cwd=tree.REPOSITORY, stdin=subprocess.DEVNULL)
    try:
        gives_up = time.monotonic() + _START_S
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > gives_up:
                raise RuntimeError(f"the rehearsal host did not listen: exit {process.poll()}")
            time.sleep(_LOOK_S)
        yield Host(folder=folder, **json.loads(ready.read_text()))
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a server of ours: SIGTERM, ten seconds, SIGKILL."""
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
