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
import shlex
import socket
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fabric
import paramiko
from paramiko.ssh_exception import IncompatiblePeer, PasswordRequiredException

from infra.channel import Bound, bounded, feed, read_both, send
from infra.detached import holds_streams
from infra.errors import CommandKilled, ContactLost, HostRefused
from infra.host_keys import changed_key, check_host_key
from infra.remote_file import check_done, reading, writing
from infra.resident import Said, answer, whole
from infra.shell import Output, said_by
from infra.spare_channel import SpareChannel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from configs.host import Ssh

logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # it prints tracebacks; we raise our own

_LOST = (paramiko.SSHException, EOFError, ConnectionError, TimeoutError, OSError)
_CUT_AT_LOGIN = ("transport shut down or saw EOF", "Authentication timeout")
_USER_TIMEOUT_MS = 20_000
_CHANNEL_S = 15.0
_KEEPALIVE_S = 15
_FILE = Bound(30.0, quiet=True)  # a frozen sshd answers TCP for ever


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
            code, out, err = self._carry_out(connection, argv, Bound(timeout_s))
        return Output.of(code, out, err)

    def put(self, data: bytes, path: str, *, mode: int = 0o600) -> None:
        """See Shell."""
        argv = writing(path, len(data), mode)
        with self._alive(f"while writing {path}") as connection:
            said = Output.of(*self._carry_out(connection, argv, _FILE, stdin=data))
        check_done(said, path, "written")

    def get(self, path: str) -> bytes:
        """See Shell."""
        with self._alive(f"while reading {path}") as connection:
            code, data, err = self._carry_out(connection, reading(path), _FILE)
        check_done(Output.of(code, b"", err), path, "read")
        return data

    def ask(self, program: Sequence[str], line: str, *, timeout_s: float = 30.0) -> Output:
        """See Shell. The program stays as long as the connection does, at most."""
        with self._alive(f"while {program[0]} was asked") as connection:
            said = self._said(connection, program, line.encode() + b"\n", Bound(timeout_s))
        return said_by(program[0], said)

    def _said(
        self, connection: _Connection, program: Sequence[str], line: bytes, bound: Bound
    ) -> Said:
        words = shlex.join(program)
        with self._in_time(program, bound):
            channel = connection.residents.pop(words, None)
            channel = channel or self._begin(connection, words, bound)
            bound = bound.begun()
            feed(channel, line, bound)
            out, err = read_both(channel, bound, whole)
        if whole(out):
            connection.residents[words] = channel
            return answer(out, err)
        channel.close()
        return Said(self._code(connection, channel, program, err), out, err, ended=True)

    def _carry_out(
        self,
        connection: _Connection,
        argv: Sequence[str],
        bound: Bound,
        stdin: bytes | None = None,
    ) -> tuple[int, bytes, bytes]:
        """One command on a channel of its own: exit code and both streams."""
        # An end of input that meets the end of its command loses the connection: none is sent.
        words = shlex.join(argv) + (" </dev/null" if stdin is None else "")
        with self._in_time(argv, bound):
            channel = self._begin(connection, words, bound)
            try:
                bound = bound.begun()
                if stdin is not None:
                    send(channel, stdin, bound)
                out, err = read_both(channel, bound)
            finally:
                channel.close()
        return self._code(connection, channel, argv, err), out, err

    def _begin(self, connection: _Connection, words: str, bound: Bound) -> paramiko.Channel:
        """A channel on which a command has begun; the next one is opened meanwhile."""
        channel = connection.spare.take(min(_CHANNEL_S, bound.seconds))
        with bounded(channel, bound.seconds):
            channel.exec_command(f"exec {words}")
        connection.spare.prepare()
        return channel

    @contextmanager
    def _in_time(self, argv: Sequence[str], bound: Bound) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            held = " and ".join(holds_streams(argv[-1]))
            why = f": what it put into the background holds {held}" if held else ""
            said = f"{self}: no answer within {bound.seconds:g} s{why}"
            raise ContactLost(said) from error

    def _code(
        self, connection: _Connection, channel: paramiko.Channel, argv: Sequence[str], err: bytes
    ) -> int:
        """The exit code of a command that has ended."""
        code = channel.recv_exit_status()
        if code == -1:
            # A signal, a stopped sshd and a cut link look the same here: ask once more.
            connection.transport.open_session(timeout=_CHANNEL_S).close()
            raise CommandKilled(f"{self}: {argv[0]} was ended by a signal there: {_last(err)}")
        return code

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
            except CommandKilled:
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

    spare: SpareChannel
    residents: dict[str, paramiko.Channel]

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
        check_host_key(self.client, spec)

    def open(self) -> Any:
        """Connects, then makes the socket quick and mortal."""
        opened = super().open()
        # Not by assignment, which Invoke would take for a setting.
        self._set(spare=SpareChannel(self.transport, _CHANNEL_S), residents={})
        self.transport.set_keepalive(_KEEPALIVE_S)  # or a NAT forgets an idle session
        sock = self.transport.sock
        if isinstance(sock, socket.socket):  # not so through a jump host
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)
        return opened

    def close(self) -> None:
        """Closes the way there too, which Fabric leaves open."""
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


def _last(raw: bytes) -> str:
    lines = raw.decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else "it said nothing"


def _say(error: BaseException) -> str:
    return str(error).strip() or type(error).__name__
