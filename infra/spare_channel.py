"""The next channel of an SSH connection, opened while the last command still runs.

Opening one is a round trip of its own, in front of every command: at 30 ms a third of what a short
command takes.
"""

from __future__ import annotations

import threading
from contextlib import suppress

import paramiko

# So wide that its reader never has to widen it: paramiko may say so of a channel that it has just
# closed, and asyncssh (not OpenSSH) then drops the whole connection.
_WINDOW = 1 << 30


class SpareChannel:
    """One channel ahead; taken by one thread at a time."""

    def __init__(self, transport: paramiko.Transport, open_s: float) -> None:
        self._transport = transport
        self._open_s = open_s
        self._opening: threading.Thread | None = None
        self._ready: paramiko.Channel | None = None

    def prepare(self) -> None:
        """Begins to open the next one, without waiting for it."""
        self._opening = threading.Thread(target=self._prepare, daemon=True)
        self._opening.start()

    def take(self, within_s: float) -> paramiko.Channel:
        """A fresh channel: the one that was prepared, else another.

        Raises:
            TimeoutError: It did not open in time; the line is silent.
            paramiko.SSHException, OSError, EOFError: The connection is lost.
        """
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.join(within_s)
            if opening.is_alive():
                raise TimeoutError(f"no channel within {within_s:g} s")
        ready, self._ready = self._ready, None
        if ready is not None and not ready.closed:
            return ready
        return self._open(within_s)

    def _open(self, within_s: float) -> paramiko.Channel:
        return self._transport.open_session(window_size=_WINDOW, timeout=within_s)

    def _prepare(self) -> None:
        # Whoever wants a channel then opens one himself, and hears why there is none.
        with suppress(paramiko.SSHException, OSError, EOFError):
            self._ready = self._open(self._open_s)
