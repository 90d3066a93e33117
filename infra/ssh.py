"""SSH over Fabric: the one door to it, with the traps that we measured closed.

Fabric accepts unknown host keys and ignores StrictHostKeyChecking (fabric#1804), inlines ``env=``
unquoted, decodes UTF-8 in pieces of 1,000 bytes (a torn character is two wrong ones), takes a
time that grows with the square of the output, and loses an interrupt until the remote command
ends; paramiko waits an hour for a channel, and never notices a dead peer (paramiko#918); without
TCP_NODELAY a command takes 53 and not 15 ms. So Fabric connects, and a command is one channel of
ours, read to its end within its time. See docs/design/ssh.md.
"""

from __future__ import annotations

import logging
import math
import posixpath
import secrets
import shlex
import socket
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fabric
import paramiko
from paramiko.ssh_exception import IncompatiblePeer, PasswordRequiredException

from infra.channel import bounded, read_both
from infra.detached import holds_streams
from infra.errors import CommandKilled, ContactLost, FileRefused, HostRefused
from infra.host_keys import changed_key, check_host_key
from infra.shell import Output

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from configs.host import Ssh

logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # it prints tracebacks; we raise our own

_LOST = (paramiko.SSHException, EOFError, ConnectionError, TimeoutError, OSError)
_CUT_AT_LOGIN = ("transport shut down or saw EOF", "Authentication timeout")
_USER_TIMEOUT_MS = 20_000
_CHANNEL_S = 15.0
_KEEPALIVE_S = 15
_FILE_S = 30.0  # without one byte of a file; a frozen sshd answers TCP for ever


class SshShell:
    """A Shell on another machine. One connection, opened when first used, reopened when lost."""

    def __init__(self, spec: Ssh) -> None:
        self._spec = spec
        self._connection: _Connection | None = None
        self._lock = threading.RLock()

    def __str__(self) -> str:
        return f"{self._spec.user}@{self._spec.host}:{self._spec.port}"

    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0) -> Output:
        """See Shell. The login shell of the host gets one quoted line, and gives way to it."""
        with self._alive("while a command ran") as connection:
            channel = connection.transport.open_session(timeout=min(_CHANNEL_S, timeout_s))
            deadline = time.monotonic() + timeout_s
            try:
                with bounded(channel, timeout_s):
                    channel.exec_command(f"exec {shlex.join(argv)}")
                channel.shutdown_write()  # whoever reads stdin sees its end
                out, err = read_both(channel, deadline)
                code = channel.recv_exit_status()
            except TimeoutError as error:
                held = " and ".join(holds_streams(argv[-1]))
                why = f": what it put into the background holds {held}" if held else ""
                raise ContactLost(f"{self}: no answer within {timeout_s:g} s{why}") from error
            finally:
                channel.close()
            if code == -1:
                # A signal, a stopped sshd and a cut link look the same here: ask once more.
                connection.transport.open_session(timeout=_CHANNEL_S).close()
                raise CommandKilled(f"{self}: {argv[0]} was ended by a signal there: {_last(err)}")
        return Output.of(code, out, err)

    def put(self, data: bytes, path: str, *, mode: int = 0o600) -> None:
        """See Shell."""
        folder, name = posixpath.split(path)
        part = posixpath.join(folder, f".{name}.{secrets.token_hex(4)}.part")
        with self._alive(f"while writing {path}") as connection:
            sftp = connection.files()
            try:
                with sftp.open(part, "wb") as file:
                    file.set_pipelined(pipelined=True)
                    sftp.chmod(part, mode)
                    file.write(data[:-1])
                    # Paramiko drops the answers to pipelined writes, so that a full disk would
                    # leave a short file; with the last byte all of them are waited for.
                    file.set_pipelined(pipelined=False)
                    file.write(data[-1:])
                sftp.posix_rename(part, path)
            except OSError as error:
                _forget(sftp, part)
                _raise_if_file(error, path, "written")
                raise

    def get(self, path: str) -> bytes:
        """See Shell."""
        with self._alive(f"while reading {path}") as connection:
            sftp = connection.files()
            try:
                with sftp.open(path, "rb") as file:
                    file.prefetch(file.stat().st_size or 0)
                    return bytes(file.read())
            except OSError as error:
                _raise_if_file(error, path, "read")
                raise

    def close(self) -> None:
        """See Shell."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    @contextmanager
    def _alive(self, when: str) -> Iterator[_Connection]:
        """The open connection, held by one thread; closed where it turns out to be lost."""
        with self._lock:
            connection = self._open()
            try:
                yield connection
            except (CommandKilled, FileRefused, FileNotFoundError):
                raise
            except ContactLost:
                self.close()
                raise
            except _LOST as error:
                self.close()
                raise ContactLost(f"{self}: connection lost {when}: {_say(error)}") from error

    def _open(self) -> _Connection:
        if self._connection is not None and not self._connection.is_connected:
            self.close()
        if self._connection is None:
            self._connection = _connect(self._spec)
        return self._connection


class _Connection(fabric.Connection):
    """A Fabric connection that checks host keys and notices a dead peer."""

    def __init__(self, spec: Ssh, gateway: _Connection | None) -> None:
        config = fabric.Config(
            # Whole seconds: Fabric cuts a fraction off, and 0 is for ever.
            overrides={"timeouts": {"connect": max(1, math.ceil(spec.connect_timeout_s))}},
            # The host file says all; a user's ssh_config would be honoured in part only.
            ssh_config=paramiko.SSHConfig(),
        )
        super().__init__(
            host=spec.host,
            user=spec.user,
            port=spec.port,
            config=config,
            gateway=gateway,
            connect_kwargs={
                **_key_of(spec),
                "allow_agent": spec.key is None,
                "look_for_keys": False,
                "channel_timeout": _CHANNEL_S,
                "banner_timeout": 10,
                "auth_timeout": 10,
            },
        )
        self._files: paramiko.SFTPClient | None = None
        check_host_key(self.client, spec)

    def open(self) -> Any:
        """Connects, then makes the socket quick and mortal."""
        opened = super().open()
        self.transport.set_keepalive(_KEEPALIVE_S)  # or a NAT forgets an idle session
        sock = self.transport.sock
        if isinstance(sock, socket.socket):  # not so through a jump host
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)
        return opened

    def files(self) -> paramiko.SFTPClient:
        """The SFTP session, bounded in time."""
        if self._files is None:
            channel = self.transport.open_session(timeout=_CHANNEL_S)
            channel.settimeout(_FILE_S)
            with bounded(channel, _CHANNEL_S):
                channel.invoke_subsystem("sftp")
            self._files = paramiko.SFTPClient(channel)
        return self._files

    def close(self) -> None:
        """Closes the way there too, which Fabric leaves open."""
        self._files = None
        super().close()
        self.client.close()  # also what was opened in part
        if isinstance(self.gateway, _Connection):
            self.gateway.close()


def _connect(spec: Ssh) -> _Connection:
    """An open connection, its way opened hop by hop so that an error names the right host."""
    gateway = _connect(spec.jump) if spec.jump else None
    name = f"{spec.user}@{spec.host}:{spec.port}"
    connection = None
    try:
        connection = _Connection(spec, gateway)
        connection.open()
    except BaseException as error:
        for opened in (connection, gateway):
            if opened is not None:
                opened.close()
        if isinstance(error, paramiko.BadHostKeyException):
            raise HostRefused(changed_key(spec, error.key)) from error
        if _is_refusal(error):
            key = spec.key or "the SSH agent's keys"
            raise HostRefused(f"{name} refuses {key}: {_say(error)}") from error
        if isinstance(error, _LOST):
            raise ContactLost(f"{name}: cannot connect: {_say(error)}") from error
        raise
    return connection


def _is_refusal(error: BaseException) -> bool:
    """Whether trying again is of no use.

    Paramiko gives a line that is cut, or silent, during the login the name of a refused login.
    """
    if any(words in str(error) for words in _CUT_AT_LOGIN):
        return False
    return isinstance(error, paramiko.AuthenticationException | IncompatiblePeer) or (
        "No authentication methods available" in str(error)  # an agent without keys
    )


def _key_of(spec: Ssh) -> dict[str, str]:
    """The private key's file, once it is certain that it can be used without asking anybody."""
    if spec.key is None:
        return {}
    path = Path(spec.key).expanduser()
    try:
        paramiko.PKey.from_path(path)
    except (PasswordRequiredException, TypeError) as error:  # TypeError: cryptography's own word
        raise HostRefused(
            f"{path} is protected by a passphrase: load it into ssh-agent and leave key out"
        ) from error
    except Exception as error:
        # paramiko lets through what its parsers raise: ValueError, struct.error, UnicodeError, ...
        raise HostRefused(f"{path} cannot be read as a private key: {_say(error)}") from error
    return {"key_filename": str(path)}


def _forget(sftp: paramiko.SFTPClient, part: str) -> None:
    """Takes away what was written in part, if the host still listens."""
    with suppress(OSError, EOFError, paramiko.SSHException):
        sftp.remove(part)


def _raise_if_file(error: OSError, path: str, verb: str) -> None:
    """Tells the host's word about a file from a lost connection: both are OSErrors.

    SFTP knows no word for a full disk: OpenSSH says "Failure".
    """
    if isinstance(error, FileNotFoundError):
        raise FileNotFoundError(path) from error
    # A status of SFTP comes as a bare OSError; what breaks the connection has a number or a type,
    # but for one that paramiko makes itself (channel.py).
    told = type(error) is OSError and error.errno is None and str(error) != "Socket is closed"
    if isinstance(error, PermissionError) or told:
        reason = f"{str(error).lower()} (a full disk?)" if told else "not permitted"
        raise FileRefused(f"{path} could not be {verb}: {reason}") from error


def _last(raw: bytes) -> str:
    lines = raw.decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else "it said nothing"


def _say(error: BaseException) -> str:
    return str(error).strip() or type(error).__name__
