"""Which host keys are accepted: the rule of the host file, and what a refusal says."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import paramiko

from configs.host import AcceptNew, Fingerprint, KnownHosts
from infra.errors import HostRefused

if TYPE_CHECKING:
    from configs.host import Ssh


def check_host_key(client: paramiko.SSHClient, spec: Ssh) -> None:
    """Sets the rule of the host file; there is no way to connect without one.

    Raises:
        HostRefused: The known_hosts file that the rule names is not there, or cannot be read.
    """
    match spec.host_key:
        case KnownHosts(path=path):
            _load(client, Path(path).expanduser())
            client.set_missing_host_key_policy(_Refuse())
        case Fingerprint(sha256=wanted):
            client.set_missing_host_key_policy(_Pin(wanted))
        case AcceptNew(path=path):
            file = Path(path).expanduser()
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.touch(mode=0o600, exist_ok=True)
            _load(client, file)
            client.set_missing_host_key_policy(_Remember(file))


def fingerprint(key: paramiko.PKey) -> str:
    """A key's fingerprint as ssh-keygen prints it."""
    digest = base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")
    return f"SHA256:{digest}"


def changed_key(spec: Ssh, key: paramiko.PKey) -> str:
    """What is said where a host shows another key than the one known."""
    return (
        f"{spec.host}:{spec.port} shows another key ({fingerprint(key)}) than the known_hosts file "
        "holds: either the host was set up anew (take its line out of that file), or this is not "
        "your host"
    )


class _Refuse(paramiko.MissingHostKeyPolicy):
    def missing_host_key(self, _client: Any, hostname: str, key: paramiko.PKey) -> None:
        """Refuses, and says what would make it acceptable."""
        shown = fingerprint(key)
        raise HostRefused(
            f"{hostname} is not in the known_hosts file; it shows {shown}. If that is right, pin "
            f"it in the host file: host_key: {{kind: fingerprint, sha256: '{shown}'}}"
        )


class _Pin(paramiko.MissingHostKeyPolicy):
    def __init__(self, wanted: str) -> None:
        self._wanted = wanted

    def missing_host_key(self, _client: Any, hostname: str, key: paramiko.PKey) -> None:
        """Accepts the pinned key alone."""
        shown = fingerprint(key)
        if shown != self._wanted:
            raise HostRefused(
                f"{hostname} shows {shown}, the host file pins {self._wanted}: either the host was "
                "set up anew (change the file), or this is not your host"
            )


class _Remember(paramiko.MissingHostKeyPolicy):
    """Appends one line; paramiko's own policy writes the file anew and loses its comments."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def missing_host_key(self, _client: Any, hostname: str, key: paramiko.PKey) -> None:
        """Accepts the first key that a host shows, and remembers it."""
        with self._file.open("ab+") as known:
            known.seek(0)
            before = known.read()
            start = b"" if not before or before.endswith(b"\n") else b"\n"
            line = f"{hostname} {key.get_name()} {key.get_base64()}\n"
            known.write(start + line.encode())


def _load(client: paramiko.SSHClient, file: Path) -> None:
    try:
        client.load_host_keys(str(file))
    except FileNotFoundError as error:
        raise HostRefused(
            f"{file}: no such known_hosts file; see host_key in docs/hosts.md"
        ) from error
    except (OSError, paramiko.SSHException) as error:
        raise HostRefused(f"{file}: cannot be read as a known_hosts file: {error}") from error
