"""A message that leaves a moment late must not cost the connection.

Paramiko makes a message under a lock and sends it without: here the thread is put aside in
between, as on a busy controller, until the host has closed the channel.
"""

from __future__ import annotations

import threading
import time

import paramiko
import pytest
from paramiko.common import MSG_CHANNEL_EOF, MSG_CHANNEL_WINDOW_ADJUST

from infra.errors import FileRefused
from infra.ssh import SshShell
from tests.test_shell_contract import spec_of

LATE_S = 0.3


@pytest.fixture(params=["rehearsal", "openssh"])
def shell(request):
    made = SshShell(spec_of(request.param, request, None))
    made.run(["true"])
    yield made
    made.close()


@pytest.fixture(autouse=True)
def late(monkeypatch):
    """Every such message waits for the host's word, or a while where it waits for ours."""
    name = "_send_user_message"
    send = getattr(paramiko.Transport, name)

    def send_late(transport, message):
        said = message.asbytes()
        if said[0] in (MSG_CHANNEL_EOF, MSG_CHANNEL_WINDOW_ADJUST):
            number = int.from_bytes(said[1:5], "big")
            if threading.current_thread() is not transport:
                wait_closed(transport, number)
        send(transport, message)

    monkeypatch.setattr(paramiko.Transport, name, send_late)


def wait_closed(transport, number: int) -> None:
    end, pause = time.monotonic() + LATE_S, threading.Event()
    open_still = [c for c in transport._channels.values() if c.remote_chanid == number]
    while time.monotonic() < end and not all(channel.closed for channel in open_still):
        pause.wait(0.005)


def test_a_short_command(shell):
    for _ in range(3):
        assert shell.run(["echo", "x"]).out == "x\n"


def test_much_output(shell):
    for _ in range(3):
        assert len(shell.run(["sh", "-c", "head -c 2000000 /dev/zero"]).out) == 2_000_000


def test_a_file_that_is_refused(shell, tmp_path):
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            shell.put(b"x" * 3_000_000, str(tmp_path / "none" / "file"))
        with pytest.raises(FileRefused, match="is a folder"):
            shell.put(b"x", str(tmp_path))
    shell.put(b"whole", str(tmp_path / "file"))
    assert shell.get(str(tmp_path / "file")) == b"whole"
