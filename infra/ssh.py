"""SSH over Fabric: the one door to it, with the traps that we measured closed.

Fabric accepts unknown host keys and ignores StrictHostKeyChecking (fabric#1804), inlines ``env=``
unquoted, waits an hour for a channel (paramiko), never notices a dead peer (paramiko#918), and is
slow without TCP_NODELAY (53 against 15 ms a command). See docs/design/ssh.md.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import shlex
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fabric
import paramiko
from invoke.exceptions import CommandTimedOut, ThreadException

from configs.host import AcceptNew, Fingerprint, KnownHosts, Ssh
from infra.errors import ContactLost, HostRefused
from infra.shell import Output

if TYPE_CHECKING:
    from collections.abc import Sequence

logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # it prints tracebacks; we raise our own

_LOST = (
    paramiko.SSHException,
    EOFError,
    ConnectionError,
    TimeoutError,
    OSError,
    ThreadException,
)
_USER_TIMEOUT_MS = 20_000


class SshShell:
    """A Shell on another machine. One connection, opened when first used, reopened when lost."""

    def __init__(self, spec: Ssh) -> None:
        self._spec = spec
        self._connection: fabric.Connection | None = None
        self._lock = threading.RLock()

    def __str__(self) -> str:
        return f"{self._spec.user}@{self._spec.host}:{self._spec.port}"

    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0) -> Output:
        """See Shell. The login shell of the host gets one quoted line."""
        line = shlex.join(argv)
        with self._lock:
            connection = self._open()
            try:
                result = connection.run(line, timeout=timeout_s)
            except CommandTimedOut as error:
                self.close()
                raise ContactLost(f"{self}: no answer within {timeout_s:g} s") from error
            except _LOST as error:
                self.close()
                raise ContactLost(f"{self}: connection lost: {_say(error)}") from error
        if result.exited == -1:
            # A signal, a stopped sshd or a cut link look the same here: unknown, not a result.
            self.close()
            raise ContactLost(f"{self}: connection lost while a command ran")
        return Output(result.exited, result.stdout, result.stderr)

    def put(self, data: bytes, path: str, *, mode: int = 0o600) -> None:
        """See Shell."""
        part = f"{path}.part"
        with self._lock:
            sftp = self._open().sftp()
            try:
                with sftp.open(part, "wb") as file:
                    file.set_pipelined(pipelined=True)
                    sftp.chmod(part, mode)
                    file.write(data)
                sftp.posix_rename(part, path)
            except FileNotFoundError:
                raise
            except _LOST as error:
                self.close()
                raise ContactLost(f"{self}: lost while writing {path}: {_say(error)}") from error

    def get(self, path: str) -> bytes:
        """See Shell."""
        with self._lock:
            sftp = self._open().sftp()
            try:
                with sftp.open(path, "rb") as file:
                    size = file.stat().st_size or 0
                    file.prefetch(size)
                    return bytes(file.read())
            except FileNotFoundError as error:
                raise FileNotFoundError(path) from error
            except _LOST as error:
                self.close()
                raise ContactLost(f"{self}: lost while reading {path}: {_say(error)}") from error

    def close(self) -> None:
        """See Shell."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _open(self) -> fabric.Connection:
        if self._connection is None:
            connection = _Connection(self._spec)
            try:
                connection.open()
            except (paramiko.AuthenticationException, paramiko.BadHostKeyException) as error:
                raise HostRefused(_refusal(self._spec, error)) from error
            except HostRefused:
                raise
            except _LOST as error:
                connection.close()
                raise ContactLost(f"{self}: cannot connect: {_say(error)}") from error
            self._connection = connection
        return self._connection


class _Connection(fabric.Connection):
    """A Fabric connection that checks host keys and notices a dead peer."""

    def __init__(self, spec: Ssh) -> None:
        config = fabric.Config(
            overrides={
                "run": {"in_stream": False, "hide": True, "warn": True, "encoding": "utf-8"},
                "timeouts": {"connect": spec.connect_timeout_s},
            },
            # The host file says all; a user's ssh_config would be honoured in part only.
            ssh_config=paramiko.SSHConfig(),
        )
        super().__init__(
            host=spec.host,
            user=spec.user,
            port=spec.port,
            config=config,
            gateway=_Connection(spec.jump) if spec.jump else None,
            connect_kwargs={
                "key_filename": str(Path(spec.key).expanduser()) if spec.key else None,
                "allow_agent": spec.key is None,
                "look_for_keys": False,
                "channel_timeout": 15,
                "banner_timeout": 10,
                "auth_timeout": 10,
            },
        )
        _check_host_key(self.client, spec)

    def open(self) -> Any:
        """Connects, then makes the socket quick and mortal."""
        opened = super().open()
        self.transport.set_keepalive(15)
        sock = self.transport.sock
        if isinstance(sock, socket.socket):  # not so through a jump host
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)
        return opened


def _check_host_key(client: paramiko.SSHClient, spec: Ssh) -> None:
    """Sets the rule of the host file; there is no way to connect without one."""
    match spec.host_key:
        case KnownHosts(path=path):
            _load(client, Path(path).expanduser())
            client.set_missing_host_key_policy(_Refuse(spec))
        case Fingerprint(sha256=wanted):
            client.set_missing_host_key_policy(_Pin(spec, wanted))
        case AcceptNew(path=path):
            file = Path(path).expanduser()
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.touch(mode=0o600, exist_ok=True)
            _load(client, file)
            client.set_missing_host_key_policy(paramiko.AutoAddPolicy())


def _load(client: paramiko.SSHClient, file: Path) -> None:
    if not file.is_file():
        raise HostRefused(f"{file}: no such known_hosts file; see host_key in docs/hosts.md")
    client.load_host_keys(str(file))


class _Refuse(paramiko.MissingHostKeyPolicy):
    def __init__(self, spec: Ssh) -> None:
        self._spec = spec

    def missing_host_key(self, _client: Any, hostname: str, key: paramiko.PKey) -> None:
        """Refuses, and says what would make it acceptable."""
        raise HostRefused(
            f"{hostname} is not in the known_hosts file; it shows {fingerprint(key)}. If that is "
            "right, pin it: host_key: {kind: fingerprint, sha256: ...}"
        )


class _Pin(paramiko.MissingHostKeyPolicy):
    def __init__(self, spec: Ssh, wanted: str) -> None:
        self._spec = spec
        self._wanted = wanted

    def missing_host_key(self, _client: Any, hostname: str, key: paramiko.PKey) -> None:
        """Accepts the pinned key alone."""
        shown = fingerprint(key)
        if shown != self._wanted:
            raise HostRefused(
                f"{hostname} shows {shown}, the host file pins {self._wanted}: either the host was "
                "set up anew (change the file), or this is not your host"
            )


def fingerprint(key: paramiko.PKey) -> str:
    """A key's fingerprint as ssh-keygen prints it."""
    digest = base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")
    return f"SHA256:{digest}"


def _refusal(spec: Ssh, error: Exception) -> str:
    if isinstance(error, paramiko.BadHostKeyException):
        return (
            f"{spec.host}:{spec.port} shows another key ({fingerprint(error.key)}) than the "
            "known_hosts file holds: set up anew, or not your host"
        )
    key = spec.key or "the SSH agent's keys"
    return f"{spec.user}@{spec.host}:{spec.port} refuses {key}: {error}"


def _say(error: BaseException) -> str:
    return str(error).strip() or type(error).__name__
