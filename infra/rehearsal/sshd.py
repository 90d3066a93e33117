"""The SSH door of the pretend host: a real server on loopback that runs real commands.

As OpenSSH does: public keys only, commands through ``/bin/sh -c`` in an environment of the
host's own, SFTP on the real file system, several sessions at once. When a channel or the
connection goes, only the session's own process hears of it (SIGHUP); what detached itself
lives on.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import json
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import asyncssh

from infra.rehearsal import latency, tree
from infra.rehearsal.knobs import write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_CHUNK = 65_536
_HOST = "127.0.0.1"


@dataclass(frozen=True)
class Keys:
    """Files of the host's keys.

    Attributes:
        host: private host key.
        client: private key that the server accepts.
        authorized: the accepted public key.
        known_hosts: for clients.
    """

    host: Path
    client: Path
    authorized: Path
    known_hosts: Path


def make_keys(folder: Path) -> Keys:
    """The key pairs under ``ssh``, made once, readable by the owner alone."""
    place = folder / "ssh"
    place.mkdir(parents=True, exist_ok=True)
    place.chmod(0o700)
    keys = Keys(
        host=place / "host_ed25519",
        client=place / "id_ed25519",
        authorized=place / "authorized_keys",
        known_hosts=place / "known_hosts",
    )
    for path in (keys.host, keys.client):
        if not path.exists():
            made = asyncssh.generate_private_key("ssh-ed25519", comment="rehearsal")
            write_atomically(path, made.export_private_key().decode(), 0o600)
    public = asyncssh.read_private_key(str(keys.client)).export_public_key().decode()
    write_atomically(keys.authorized, public, 0o600)
    return keys


def environment(folder: Path, given: Mapping[str, str]) -> dict[str, str]:
    """What a login on the pretend host sees: nothing of the controller's own environment."""
    user = getpass.getuser()
    return {
        "HOME": str(folder / "home"),
        "PATH": f"{folder / 'bin'}:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
        "USER": user,
        "LOGNAME": user,
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "TMPDIR": str(folder / "tmp"),
        **given,
    }


class _Server(asyncssh.SSHServer):
    """Accepts the one key, for whatever user name."""

    def password_auth_supported(self) -> bool:
        """No passwords."""
        return False

    def kbdint_auth_supported(self) -> bool:
        """No questions either."""
        return False


class Sessions:
    """Runs the commands of all sessions."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def run(self, process: Any) -> None:
        """One session: a command, or a shell that reads its commands from stdin."""
        peer = process.get_extra_info("peername") or (_HOST, 0)
        near = process.get_extra_info("sockname") or (_HOST, 0)
        given = {
            name: value
            for name, value in (process.env or {}).items()
            if isinstance(name, str) and (name == "LANG" or name.startswith("LC_"))
        }
        given["SSH_CLIENT"] = f"{peer[0]} {peer[1]} {near[1]}"
        given["SSH_CONNECTION"] = f"{peer[0]} {peer[1]} {near[0]} {near[1]}"
        command = ["-c", process.command] if process.command else ["-s"]
        child = await asyncio.create_subprocess_exec(
            "/bin/sh",
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment(self._folder, given),
            cwd=self._folder / "home",
            start_new_session=True,
        )
        feeding = asyncio.create_task(_feed(process, child))
        draining = asyncio.gather(
            _drain(child.stdout, process.stdout), _drain(child.stderr, process.stderr)
        )
        draining.add_done_callback(_known)
        gone = asyncio.create_task(process.channel.wait_closed())
        ending = asyncio.create_task(_outcome(child, draining))
        await asyncio.wait({gone, ending}, return_when=asyncio.FIRST_COMPLETED)
        feeding.cancel()
        if ending.done():
            _tell_outcome(process, ending.result())
            gone.cancel()
            return
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(signal.SIGHUP)
        # Its pipes stay open until it ends, as those of sshd's child would.
        await child.wait()
        draining.cancel()
        ending.cancel()


def _known(over: asyncio.Future[Any]) -> None:
    """Takes note of how the streams ended: at the server's end nobody else asks, and asyncio warns."""
    if not over.cancelled():
        over.exception()


async def _outcome(child: asyncio.subprocess.Process, draining: Any) -> int:
    """The exit code, once the process ended and all its output was read (as sshd waits)."""
    code = await child.wait()
    await draining
    return code


def _tell_outcome(process: Any, code: int) -> None:
    with contextlib.suppress(OSError):
        if code < 0:
            name = signal.Signals(-code).name.removeprefix("SIG")
            process.exit_with_signal(name)
        else:
            process.exit(code)


async def _feed(process: Any, child: asyncio.subprocess.Process) -> None:
    """The client's bytes and signals to the process."""
    assert child.stdin is not None
    while True:
        try:
            data = await process.stdin.read(_CHUNK)
        except asyncssh.SignalReceived as received:
            number = getattr(signal, f"SIG{received.signal}", None)
            if number is not None and child.returncode is None:
                child.send_signal(number)
            continue
        except (asyncssh.BreakReceived, asyncssh.TerminalSizeChanged):
            continue
        except (asyncssh.Error, OSError):
            data = b""
        try:
            if not data:
                child.stdin.close()
                break
            child.stdin.write(data)
            await child.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            break
    await _only_signals(process, child)


async def _only_signals(process: Any, child: asyncio.subprocess.Process) -> None:
    """After the end of input a client may still send signals."""
    while child.returncode is None and not process.is_closing():
        try:
            if not await process.stdin.read(_CHUNK):
                return
        except asyncssh.SignalReceived as received:
            number = getattr(signal, f"SIG{received.signal}", None)
            if number is not None and child.returncode is None:
                child.send_signal(number)
        except (asyncssh.Error, OSError):
            return


async def _drain(source: asyncio.StreamReader | None, sink: Any) -> None:
    """The process's bytes to the client; read on even when nobody listens any more."""
    assert source is not None
    listening = True
    while data := await source.read(_CHUNK):
        if listening:
            try:
                sink.write(data)
                await sink.drain()
            except (asyncssh.Error, OSError):
                listening = False


async def serve(folder: Path, port: int = 0, name: str = "rehearsal", delay_s: float = 0.0) -> None:
    """Build the host if need be, listen, and run until SIGTERM or SIGINT.

    Args:
        folder: of the host.
        port: to listen on; 0 picks a free one.
        name: of the host, told in ``ready.json``.
        delay_s: one-way delay put on all SSH traffic.
    """
    if not (folder / "home" / "site").exists():
        tree.build(folder)
    os.chdir(folder / "home")  # where SFTP's relative paths begin
    keys = make_keys(folder)
    sessions = Sessions(folder)
    acceptor = await asyncssh.create_server(
        _Server,
        _HOST,
        0 if delay_s > 0 else port,
        server_host_keys=[str(keys.host)],
        authorized_client_keys=str(keys.authorized),
        process_factory=sessions.run,
        sftp_factory=True,
        allow_scp=True,
        encoding=None,
        agent_forwarding=False,
        login_timeout=30,
    )
    inner_port: int = acceptor.get_port()
    relay = await latency.relay(_HOST, port, inner_port, delay_s) if delay_s > 0 else None
    listening = relay.sockets[0].getsockname()[1] if relay is not None else inner_port
    host_key = asyncssh.read_private_key(str(keys.host))
    public = host_key.export_public_key().decode().split()[:2]
    write_atomically(keys.known_hosts, f"[{_HOST}]:{listening} {' '.join(public)}\n", 0o600)
    ready = {
        "name": name,
        "host": _HOST,
        "port": listening,
        "user": getpass.getuser(),
        "key": str(keys.client),
        "known_hosts": str(keys.known_hosts),
        "fingerprint": host_key.get_fingerprint(),
        "pid": os.getpid(),
        "home": str(folder / "home"),
    }
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stopped.set)
    # A handler, so that sessions do not inherit an ignored SIGHUP (nohup): sshd resets it too.
    loop.add_signal_handler(signal.SIGHUP, lambda: None)
    write_atomically(folder / "ready.json", json.dumps(ready, indent=2) + "\n", 0o600)
    try:
        await stopped.wait()
    finally:
        (folder / "ready.json").unlink(missing_ok=True)
        if relay is not None:
            relay.close()
        acceptor.close()
