"""From a host file to a hand on that host."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from configs.host import AddressFile, KnownHosts, Ssh
from infra.errors import ContactLost
from infra.host_agent import HostAgent
from infra.places import state_folder
from infra.ssh import SshShell

if TYPE_CHECKING:
    from collections.abc import Callable

    from configs.host import Host


def connect(
    host: Host,
    *,
    patience_s: float = 120.0,
    note: Callable[[str], None] | None = None,
    lost: Callable[[str], None] | None = None,
) -> HostAgent:
    """A hand on the host; nothing is sent before its first use.

    Args:
        host: Its file.
        patience_s: How long lost contact is tried again.
        note: Told of every lost contact.
        lost: Told why when the host is given up: not reached within the patience, or rebooted.

    Raises:
        ContactLost: The host's address is not known yet (its address file is not there).
    """
    return HostAgent(SshShell(address(host)), host, patience_s=patience_s, note=note, lost=lost)


def address(host: Host) -> Ssh:
    """How the host is reached, its address file read where it has one."""
    match host.connect:
        case Ssh():
            return host.connect
        case AddressFile(path=path):
            file = state_folder() / path
            try:
                found = json.loads(file.read_text(encoding="utf-8"))
            except FileNotFoundError as error:
                raise ContactLost(
                    f"{host.name}: {file} is not there: is the host up? (eagle3-sweep up)"
                ) from error
            return Ssh(
                host=found["host"],
                port=found["port"],
                user=found["user"],
                key=found["key"],
                host_key=KnownHosts(path=found["known_hosts"]),
            )
