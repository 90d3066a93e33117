"""The next channel is there before it is wanted, and one that did not come is told in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from configs.host import Fingerprint
from infra.errors import ContactLost
from infra.ssh import SshShell
from tests.agent_host import until
from tests.openssh import Relay
from tests.test_ssh import spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infra.spare_channel import SpareChannel


@pytest.fixture
def relay(rehearsal) -> Iterator[Relay]:
    with Relay(rehearsal.ready.port) as made:
        yield made


@pytest.fixture
def shell(rehearsal, relay: Relay) -> Iterator[SshShell]:
    pin = Fingerprint(sha256=rehearsal.ready.fingerprint)
    made = SshShell(spec(rehearsal.ready, host_key=pin, port=relay.port))
    assert made.run(["echo", "first"]).out == "first\n"
    yield made
    made.close()


def spare_of(shell: SshShell) -> SpareChannel:
    assert shell._connection is not None
    return shell._connection.spare


def test_the_next_channel_is_taken_without_a_word_from_the_host(shell, relay):
    spare = spare_of(shell)
    until(lambda: spare._ready)
    relay.freeze()
    channel = spare.take(0.5)
    assert not channel.closed
    relay.thaw()
    channel.exec_command("echo whole")
    assert until(lambda: channel.recv(100)) == b"whole\n"


def test_a_silent_line_is_told_in_time(shell, relay):
    spare = spare_of(shell)
    until(lambda: spare._ready)
    relay.freeze()
    spare.take(0.5).close()
    spare.prepare()
    with pytest.raises(TimeoutError, match=r"no channel within 0\.2 s"):
        spare.take(0.2)
    relay.thaw()


def test_a_channel_that_went_with_its_line_is_lost_contact_and_then_another(shell, relay):
    until(lambda: spare_of(shell)._ready)
    relay.cut()
    try:
        said = shell.run(["echo", "again"]).out
    except ContactLost:
        said = shell.run(["echo", "again"]).out
    assert said == "again\n"


def test_one_that_was_closed_meanwhile_is_replaced(shell):
    spare = spare_of(shell)
    prepared = until(lambda: spare._ready)
    prepared.close()
    assert not spare.take(5.0).closed
