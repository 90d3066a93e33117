"""Which hosts we talk to and which we refuse; a refusal says what to do, and is never retried."""

from __future__ import annotations

import shutil
import socket
import time
from typing import TYPE_CHECKING

import asyncssh
import pytest

from configs.host import AcceptNew, Fingerprint, KnownHosts, Ssh
from infra.errors import ContactLost, HostRefused
from infra.host_agent import HostAgent
from infra.ssh import SshShell
from tests.conftest import host_of
from tests.openssh import LOOPBACK, Relay, make_key

if TYPE_CHECKING:
    from pathlib import Path

    from configs.host import HostKey

WRONG_PIN = "SHA256:" + "A" * 43


def spec(ready, *, host_key: HostKey, key: str | None = None, port: int | None = None) -> Ssh:
    return Ssh(
        host=ready.host,
        port=port or ready.port,
        user=ready.user,
        key=key or ready.key,
        host_key=host_key,
        connect_timeout_s=5,
    )


def says(spec: Ssh, word: str = "hello") -> str:
    """What the host prints; the connection is closed whatever happens."""
    shell = SshShell(spec)
    try:
        return shell.run(["echo", word]).out
    finally:
        shell.close()


def known_hosts_line(port: int, key_file: Path) -> str:
    public = asyncssh.read_private_key(str(key_file)).export_public_key().decode().split()[:2]
    return f"[{LOOPBACK}]:{port} {' '.join(public)}\n"


@pytest.fixture
def other_key(tmp_path):
    make_key(tmp_path / "other")
    return tmp_path / "other"


def test_a_known_host_is_accepted(rehearsal):
    ready = rehearsal.ready
    assert says(spec(ready, host_key=KnownHosts(path=ready.known_hosts))) == "hello\n"


def test_an_unknown_host_is_refused_with_its_fingerprint_and_what_to_do(rehearsal, tmp_path):
    (tmp_path / "known_hosts").touch()
    with pytest.raises(HostRefused) as refused:
        says(spec(rehearsal.ready, host_key=KnownHosts(path=str(tmp_path / "known_hosts"))))
    text = str(refused.value)
    assert rehearsal.ready.fingerprint in text
    assert "kind: fingerprint" in text
    assert f"{rehearsal.ready.port}" in text
    assert (tmp_path / "known_hosts").read_text() == ""


def test_the_advice_of_the_refusal_works_when_it_is_followed(rehearsal):
    assert says(spec(rehearsal.ready, host_key=Fingerprint(sha256=rehearsal.ready.fingerprint)))


def test_a_changed_host_key_is_refused(rehearsal, tmp_path, other_key):
    known = tmp_path / "known_hosts"
    known.write_text(known_hosts_line(rehearsal.ready.port, other_key))
    with pytest.raises(HostRefused, match=r"another key.*set up anew.*not your host") as refused:
        says(spec(rehearsal.ready, host_key=KnownHosts(path=str(known))))
    assert rehearsal.ready.fingerprint in str(refused.value)


def test_a_wrong_pin_is_refused_with_both_fingerprints(rehearsal):
    with pytest.raises(HostRefused) as refused:
        says(spec(rehearsal.ready, host_key=Fingerprint(sha256=WRONG_PIN)))
    assert rehearsal.ready.fingerprint in str(refused.value)
    assert WRONG_PIN in str(refused.value)


def test_the_users_own_known_hosts_do_not_weaken_a_pin(rehearsal, tmp_path, monkeypatch):
    (tmp_path / ".ssh").mkdir()
    shutil.copy(rehearsal.ready.known_hosts, tmp_path / ".ssh" / "known_hosts")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(HostRefused):
        says(spec(rehearsal.ready, host_key=Fingerprint(sha256=WRONG_PIN)))


def test_a_known_hosts_file_that_is_not_there_is_refused_by_name(rehearsal, tmp_path):
    with pytest.raises(HostRefused, match=r"nowhere: no such known_hosts file; see .*docs/"):
        says(spec(rehearsal.ready, host_key=KnownHosts(path=str(tmp_path / "nowhere"))))


def test_accept_new_remembers_the_first_key_and_keeps_the_rest_of_the_file(rehearsal, tmp_path):
    known = tmp_path / "new" / "known_hosts"
    rule = AcceptNew(path=str(known))
    assert says(spec(rehearsal.ready, host_key=rule)) == "hello\n"
    remembered = known.read_text()
    assert remembered.startswith(f"[{LOOPBACK}]:{rehearsal.ready.port} ssh-ed25519 ")
    assert says(spec(rehearsal.ready, host_key=rule)) == "hello\n"
    assert known.read_text() == remembered
    assert known.stat().st_mode & 0o777 == 0o600


def test_accept_new_appends_to_a_file_whose_last_line_has_no_end(rehearsal, tmp_path, other_key):
    known = tmp_path / "known_hosts"
    known.write_text("# mine\n" + known_hosts_line(1, other_key).rstrip())
    assert says(spec(rehearsal.ready, host_key=AcceptNew(path=str(known))))
    assert known.read_text().splitlines()[0] == "# mine"
    assert len(known.read_text().splitlines()) == 3
    assert says(spec(rehearsal.ready, host_key=KnownHosts(path=str(known))))


def test_accept_new_refuses_a_key_that_changed_since(rehearsal, tmp_path, other_key):
    known = tmp_path / "known_hosts"
    known.write_text(known_hosts_line(rehearsal.ready.port, other_key))
    before = known.read_text()
    with pytest.raises(HostRefused, match="another key"):
        says(spec(rehearsal.ready, host_key=AcceptNew(path=str(known))))
    assert known.read_text() == before


def test_a_key_that_the_host_does_not_know_is_refused_at_once(rehearsal, other_key):
    pin = Fingerprint(sha256=rehearsal.ready.fingerprint)
    with Relay(rehearsal.ready.port) as relay:
        connect = spec(rehearsal.ready, host_key=pin, key=str(other_key), port=relay.port)
        notes: list[str] = []
        agent = HostAgent(
            SshShell(connect), host_of(rehearsal.ready), patience_s=30, note=notes.append
        )
        with pytest.raises(HostRefused, match=r"refuses .*other"):
            agent.call("hello")
        agent.close()
        assert (relay.accepted, notes) == (1, [])


def test_a_key_file_that_is_not_there_is_refused_not_waited_for(rehearsal, tmp_path):
    pin = Fingerprint(sha256=rehearsal.ready.fingerprint)
    with pytest.raises(HostRefused, match="absent cannot be read as a private key"):
        says(spec(rehearsal.ready, host_key=pin, key=str(tmp_path / "absent")))
    (tmp_path / "garbage").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nnonsense\n")
    with pytest.raises(HostRefused, match="garbage cannot be read as a private key"):
        says(spec(rehearsal.ready, host_key=pin, key=str(tmp_path / "garbage")))


def test_a_key_behind_a_passphrase_is_refused_with_the_way_out(rehearsal, tmp_path):
    key = asyncssh.generate_private_key("ssh-ed25519")
    (tmp_path / "locked").write_bytes(key.export_private_key("pkcs8-pem", passphrase="x"))
    pin = Fingerprint(sha256=rehearsal.ready.fingerprint)
    with pytest.raises(HostRefused, match="passphrase: load it into ssh-agent and leave key out"):
        says(spec(rehearsal.ready, host_key=pin, key=str(tmp_path / "locked")))


def test_no_key_at_all_is_refused(rehearsal):
    asked = spec(rehearsal.ready, host_key=Fingerprint(sha256=rehearsal.ready.fingerprint))
    with pytest.raises(HostRefused, match="SSH agent's keys"):
        says(asked.model_copy(update={"key": None}))


def test_a_port_that_nobody_listens_on_is_lost_contact_at_once(rehearsal):
    with socket.socket() as bound:
        bound.bind((LOOPBACK, 0))
        asked = spec(
            rehearsal.ready, host_key=Fingerprint(sha256=WRONG_PIN), port=bound.getsockname()[1]
        )
        with pytest.raises(ContactLost, match=f"{asked.port}: cannot connect"):
            says(asked)


def test_a_port_that_says_nothing_is_lost_contact_in_time(rehearsal):
    with socket.create_server((LOOPBACK, 0)) as silent:
        asked = spec(
            rehearsal.ready, host_key=Fingerprint(sha256=WRONG_PIN), port=silent.getsockname()[1]
        ).model_copy(update={"connect_timeout_s": 0.5})
        began = time.monotonic()
        with pytest.raises(ContactLost, match="cannot connect"):
            says(asked)
        assert time.monotonic() - began < 4


def test_a_name_that_nobody_knows_is_lost_contact(rehearsal):
    asked = spec(rehearsal.ready, host_key=Fingerprint(sha256=WRONG_PIN))
    with pytest.raises(ContactLost, match=r"gpu\.invalid"):
        says(asked.model_copy(update={"host": "gpu.invalid"}))


def test_openssh_is_known_by_its_pin_and_refused_by_another(openssh):
    assert says(openssh.spec()) == "hello\n"
    with pytest.raises(HostRefused, match="pins"):
        says(openssh.spec(host_key=Fingerprint(sha256=WRONG_PIN)))


def test_openssh_with_a_wrong_key_is_refused(openssh, other_key):
    with pytest.raises(HostRefused, match="refuses"):
        says(openssh.spec().model_copy(update={"key": str(other_key)}))


def test_a_host_behind_another_is_reached_and_each_key_is_checked(openssh, rehearsal):
    inner = spec(rehearsal.ready, host_key=Fingerprint(sha256=rehearsal.ready.fingerprint))
    assert says(inner.model_copy(update={"jump": openssh.spec()})) == "hello\n"
    wrong_way = openssh.spec(host_key=Fingerprint(sha256=WRONG_PIN))
    with pytest.raises(HostRefused, match=f"{openssh.port}"):
        says(inner.model_copy(update={"jump": wrong_way}))
    wrong_end = inner.model_copy(update={"host_key": Fingerprint(sha256=WRONG_PIN)})
    with pytest.raises(HostRefused, match=f"{rehearsal.ready.port}"):
        says(wrong_end.model_copy(update={"jump": openssh.spec()}))


def test_a_refusal_leaves_no_thread_and_no_connection_behind(rehearsal):
    with Relay(rehearsal.ready.port) as relay:
        asked = spec(rehearsal.ready, host_key=Fingerprint(sha256=WRONG_PIN), port=relay.port)
        for _ in range(3):
            with pytest.raises(HostRefused):
                says(asked)
        assert relay.accepted == 3
        assert relay.closed_within(5)
