"""A real OpenSSH server for tests, with keys of its own; and a relay that can be cut or frozen."""

from __future__ import annotations

import contextlib
import getpass
import os
import pwd
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import asyncssh

from configs.host import Fingerprint, Ssh

if TYPE_CHECKING:
    from collections.abc import Callable

    from configs.host import HostKey

LOOPBACK = "127.0.0.1"
_BOUND_S = 30.0
# As on Debian, but for nobody else: the options that root and other users need alike.
_CONFIG = """
ListenAddress {address}
Port {port}
HostKey {folder}/host_ed25519
AuthorizedKeysFile {folder}/authorized_keys
PidFile {folder}/sshd.pid
StrictModes no
UsePAM no
PasswordAuthentication no
AllowTcpForwarding yes
Subsystem sftp internal-sftp
"""


def find_sshd() -> str | None:
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def why_no_sshd() -> str | None:
    """Why this machine cannot start one; None if it can."""
    if find_sshd() is None:
        return "OpenSSH's sshd is not installed here: apt-get install openssh-server"
    if os.geteuid() == 0:
        try:
            pwd.getpwnam("sshd")
        except KeyError:
            return "sshd as root needs the user sshd: apt-get install openssh-server"
    return None


def make_key(path: Path) -> str:
    """A private key file; returns its public line."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    path.write_bytes(key.export_private_key())
    path.chmod(0o600)
    return str(key.export_public_key().decode())


def fingerprint_of(path: Path) -> str:
    return str(asyncssh.read_private_key(str(path)).get_fingerprint())


class OpenSsh:
    """One sshd, from `with` to its end; its sessions end with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        make_key(folder / "host_ed25519")
        (folder / "authorized_keys").write_text(make_key(folder / "id_ed25519"))
        text = _CONFIG.format(address=LOOPBACK, port=self.port, folder=folder)
        (folder / "sshd_config").write_text(text)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(self.folder / "host_ed25519")

    def spec(self, *, port: int | None = None, host_key: HostKey | None = None) -> Ssh:
        return Ssh(
            host=LOOPBACK,
            port=port or self.port,
            user=getpass.getuser(),
            key=str(self.folder / "id_ed25519"),
            host_key=host_key or Fingerprint(sha256=self.fingerprint),
            connect_timeout_s=5,
        )

    def __enter__(self) -> Self:
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        program = find_sshd()
        assert program is not None
        with (self.folder / "sshd.log").open("ab") as log:
            self._process = subprocess.Popen(
                [program, "-D", "-e", "-f", str(self.folder / "sshd_config")],
                stdin=subprocess.DEVNULL,
                stderr=log,
            )
        wait_listening(self.port, self._process)
        return self

    def __exit__(self, *_exc: object) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(_BOUND_S)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def wait_listening(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _BOUND_S
    while True:
        with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
            return
        assert process.poll() is None, f"sshd ended with {process.returncode}"
        assert time.monotonic() < until, "sshd does not listen"


class Relay:
    """TCP in between: passes bytes on until it is told to cut or to freeze them."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._door = socket.create_server((LOOPBACK, 0))
        self.port = int(self._door.getsockname()[1])
        self.accepted = 0
        self._open = threading.Event()
        self._open.set()
        self._sockets: list[socket.socket] = []
        self._all: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._refuse = 0
        self._start(self._accept)

    def _start(self, work: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        with contextlib.suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        self.thaw()
        self.cut()
        for thread in self._threads:
            thread.join(_BOUND_S)
        for sock in self._all:
            sock.close()

    def cut(self, *, and_refuse: int = 0) -> None:
        """Breaks all connections; and the next ones as soon as they are made."""
        self._refuse = and_refuse
        sockets, self._sockets = self._sockets, []
        for sock in sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def closed_within(self, seconds: float) -> bool:
        """Whether all connections that were made have come to an end."""
        until = time.monotonic() + seconds
        pumps = self._threads[1:]
        for thread in pumps:
            thread.join(max(until - time.monotonic(), 0))
        return bool(pumps) and not any(thread.is_alive() for thread in pumps)

    def freeze(self) -> None:
        """Bytes are taken and go nowhere; nobody is told."""
        self._open.clear()

    def thaw(self) -> None:
        self._open.set()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._door.accept()
            except OSError:
                return
            self.accepted += 1
            if self._refuse:
                self._refuse -= 1
                near.close()
                continue
            try:
                far = socket.create_connection((LOOPBACK, self._target))
            except OSError:  # nobody listens there just now
                near.close()
                continue
            self._sockets += [near, far]
            self._all += [near, far]
            self._start(self._pump, near, far)
            self._start(self._pump, far, near)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                self._open.wait()
                sink.sendall(data)
        for sock in (source, sink):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
