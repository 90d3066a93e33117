"""What every hand on a machine promises: here, over the rehearsal's SSH, and over OpenSSH."""

from __future__ import annotations

import os
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.errors import CommandKilled, ContactLost, FileRefused
from infra.shell import LocalShell, Shell
from infra.ssh import SshShell
from tests.conftest import host_of
from tests.openssh import Relay

if TYPE_CHECKING:
    from pathlib import Path

    from configs.host import Ssh

DOORS = ("local", "rehearsal", "openssh")


class Door(NamedTuple):
    shell: Shell
    relay: Relay | None


def spec_of(kind: str, request: pytest.FixtureRequest, port: int | None) -> Ssh:
    if kind == "openssh":
        found: Ssh = request.getfixturevalue("openssh").spec(port=port)
        return found
    connect = host_of(request.getfixturevalue("rehearsal").ready, port).connect
    assert connect.kind == "ssh"
    return connect


@pytest.fixture(params=DOORS, scope="module")
def shell(request):
    made: Shell = (
        LocalShell()
        if request.param == "local"
        else SshShell(spec_of(request.param, request, None))
    )
    yield made
    made.close()


@pytest.fixture(params=DOORS[1:])
def cuttable(request):
    """An SSH shell of its own behind a relay."""
    with Relay(spec_of(request.param, request, None).port) as relay:
        made = SshShell(spec_of(request.param, request, relay.port))
        yield Door(made, relay)
        made.close()


def test_a_command_gives_its_code_and_both_streams(shell):
    assert shell.run(["sh", "-c", "echo out; echo err >&2; exit 3"]) == (3, "out\n", "err\n")
    assert shell.run(["true"]) == (0, "", "")


def test_stdin_is_empty_not_a_terminal(shell):
    assert shell.run(["cat"]) == (0, "", "")


def test_a_program_that_is_not_there_is_a_code_not_an_exception(shell):
    assert shell.run(["/no/such/program"]).code == 127


HOSTILE = st.text(
    st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=["Cs"]), max_size=40
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arguments=st.lists(HOSTILE, min_size=1, max_size=6))
def test_arguments_arrive_one_by_one_whatever_they_hold(shell, arguments):
    printed = shell.run(["printf", r"%s\001", *arguments])
    assert printed.out == "\001".join([*arguments, ""])


@pytest.mark.parametrize(
    "word",
    ["", " ", "a b", "$(echo pwned)", "`id`", "it's", '"', "\\", "-n", "--", "*", "~", "a\nb",
     "a\tb", "; reboot", "&& true", "| cat", "> /tmp/x", "#", "!!", "é漢🙂", "${HOME}", "\r"],
)  # fmt: skip
def test_no_word_is_ever_read_by_a_shell(shell, word):
    assert shell.run(["printf", "<%s>", word, word]).out == f"<{word}><{word}>"


def test_an_argument_of_a_hundred_kilobytes_arrives(shell):
    assert shell.run(["sh", "-c", "echo ${#1}", "sh", "x" * 100_000]).out == "100000\n"


def test_characters_are_whole_however_the_bytes_were_cut(shell):
    done = shell.run(["sh", "-c", 'i=0; while [ $i -lt 3000 ]; do printf "a€漢"; i=$((i+1)); done'])
    assert done.out == "a€漢" * 3000


def test_bytes_that_are_no_text_are_replaced_not_raised(shell):
    assert shell.run(["printf", r"a\377b"]).out == "a\ufffdb"


def test_much_output_on_both_streams_takes_linear_time(shell):
    began = time.monotonic()
    done = shell.run(["sh", "-c", "head -c 8000000 /dev/zero | tr '\\0' x | tee /dev/stderr"])
    assert (len(done.out), len(done.err)) == (8_000_000, 8_000_000)
    assert time.monotonic() - began < 8  # Fabric's own run takes 13 s for one of them


@pytest.mark.parametrize("size", [0, 1, 32_768, 10_000_000])
def test_bytes_come_back_as_they_went(shell, tmp_path, size):
    data = os.urandom(size)
    shell.put(data, str(tmp_path / "data.bin"))
    assert (tmp_path / "data.bin").read_bytes() == data
    assert shell.get(str(tmp_path / "data.bin")) == data


def test_a_file_is_private_unless_asked_otherwise(shell, tmp_path):
    shell.put(b"secret", str(tmp_path / "a"))
    shell.put(b"tool", str(tmp_path / "b"), mode=0o755)
    assert [mode(tmp_path / name) for name in "ab"] == [0o600, 0o755]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("name", ["with space", "it's", "$(x)", "漢字", "-n", "a\nb"])
def test_file_names_are_taken_literally(shell, tmp_path, name):
    shell.put(b"x", str(tmp_path / name))
    assert shell.get(str(tmp_path / name)) == b"x"


def test_a_file_is_replaced_whole_and_leaves_nothing_beside(shell, tmp_path):
    path = tmp_path / "state.json"
    shell.put(b"a" * 3_000_000, str(path))
    seen, stop = set(), threading.Event()

    def read() -> None:
        while not stop.is_set():
            data = path.read_bytes()
            seen.add((data[:1], len(data)))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for letter in (b"b", b"c", b"d"):
            shell.put(letter * 3_000_000, str(path))
    finally:
        stop.set()
        reader.join()
    assert {size for _, size in seen} == {3_000_000}
    assert [found.name for found in tmp_path.iterdir()] == ["state.json"]


def test_a_missing_file_is_told_apart_from_lost_contact(shell, tmp_path):
    with pytest.raises(FileNotFoundError, match="absent"):
        shell.get(str(tmp_path / "absent"))
    with pytest.raises(FileNotFoundError):
        shell.put(b"x", str(tmp_path / "no folder" / "file"))
    assert shell.run(["echo", "on"]).out == "on\n"


def test_a_file_that_cannot_be_written_is_a_refusal_not_lost_contact(shell):
    # A write to /proc fails for root too, and is "Failure" in SFTP as a full disk is.
    with pytest.raises((FileRefused, FileNotFoundError)):
        shell.put(b"x", "/proc/self/file")
    with pytest.raises((FileRefused, FileNotFoundError)):
        shell.put(b"x" * 100_000, "/sys/kernel/file")


def test_a_command_that_does_not_end_is_lost_contact_in_time(shell):
    began = time.monotonic()
    with pytest.raises(ContactLost, match=r"no answer within 0\.5 s"):
        shell.run(["sleep", "60"], timeout_s=0.5)
    assert time.monotonic() - began < 3
    assert shell.run(["echo", "on"]).out == "on\n"


def test_a_background_process_that_holds_the_streams_is_bounded_too(shell):
    began = time.monotonic()
    with pytest.raises(ContactLost):
        shell.run(["sh", "-c", "sleep 5 & echo $!"], timeout_s=0.5)
    assert time.monotonic() - began < 3


def test_why_ssh_waited_is_said(cuttable):
    with pytest.raises(ContactLost, match="into the background holds stderr and stdout"):
        cuttable.shell.run(["sh", "-c", "sleep 5 & echo $!"], timeout_s=0.3)


def test_a_command_that_was_killed_is_not_an_exit_code(shell):
    with pytest.raises(CommandKilled, match="signal"):
        shell.run(["sh", "-c", "echo before; kill -9 $$"])
    assert shell.run(["echo", "on"]).out == "on\n"


def test_several_threads_share_one_hand(shell, tmp_path):
    def work(number: int) -> tuple[str, bytes]:
        path = str(tmp_path / f"{number}")
        shell.put(str(number).encode(), path)
        return shell.run(["echo", str(number)]).out, shell.get(path)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, range(24)))
    assert found == [(f"{n}\n", str(n).encode()) for n in range(24)]


def test_closing_twice_is_closing_and_a_closed_hand_opens_again(shell):
    shell.close()
    shell.close()
    assert shell.run(["echo", "again"]).out == "again\n"


def test_a_cut_between_calls_is_repaired_by_the_next(cuttable):
    cuttable.shell.run(["true"])
    cuttable.relay.cut()
    try:
        done = cuttable.shell.run(["echo", "back"])
    except ContactLost:  # the end of the connection was not heard yet
        done = cuttable.shell.run(["echo", "back"])
    assert done.out == "back\n"


def test_a_cut_during_a_command_is_lost_contact_then_the_next_call_connects(cuttable):
    cuttable.shell.run(["true"])
    timer = threading.Timer(0.3, cuttable.relay.cut)
    timer.start()
    began = time.monotonic()
    with pytest.raises(ContactLost):
        cuttable.shell.run(["sleep", "30"])
    assert time.monotonic() - began < 5
    assert cuttable.shell.run(["echo", "back"]).out == "back\n"


def test_a_cut_during_a_file_leaves_the_old_one(cuttable, tmp_path):
    path = tmp_path / "f"
    cuttable.shell.put(b"old", str(path))
    cuttable.relay.freeze()
    timer = threading.Timer(0.3, cuttable.relay.cut)
    timer.start()
    with pytest.raises(ContactLost, match="writing"):
        cuttable.shell.put(b"new" * 1_000_000, str(path))
    cuttable.relay.thaw()
    assert cuttable.shell.get(str(path)) == b"old"


def test_a_frozen_connection_is_lost_in_time(cuttable):
    """NAT forgot the session, or the machine hangs: TCP stays, and nothing comes any more."""
    cuttable.shell.run(["true"])
    cuttable.relay.freeze()
    began = time.monotonic()
    with pytest.raises(ContactLost):
        cuttable.shell.run(["echo", "x"], timeout_s=1.0)
    assert time.monotonic() - began < 4
    cuttable.relay.thaw()
    assert cuttable.shell.run(["echo", "back"]).out == "back\n"
