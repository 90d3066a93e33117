"""What every hand on a machine promises about a program that stays: local, rehearsal, OpenSSH."""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from infra.agent_file import agent_file
from infra.errors import CommandKilled, ContactLost
from infra.shell import LocalShell, Shell
from infra.ssh import SshShell
from tests.openssh import Relay
from tests.test_shell_contract import DOORS, spec_of

if TYPE_CHECKING:
    from collections.abc import Iterator

# Does what a line says, and ends its answer as the agent does.
STAYS = r"""while read -r line; do (eval "$line"); printf '\036%d\n' $?; done"""
PROGRAM = ["sh", "-c", STAYS]


@pytest.fixture(params=DOORS, scope="module")
def shell(request) -> Iterator[Shell]:
    local = request.param == "local"
    made: Shell = LocalShell() if local else SshShell(spec_of(request.param, request, None))
    yield made
    made.close()


def test_it_stays_from_line_to_line(shell):
    first = shell.ask(PROGRAM, "echo $PPID $$")
    assert first.code == 0
    assert shell.ask(PROGRAM, "echo $PPID $$") == first


def test_each_line_has_its_code_and_both_streams(shell):
    assert shell.ask(PROGRAM, "echo out; exit 10") == (10, "out\n", "")
    said = shell.ask(PROGRAM, "echo err >&2; sleep 0.2; echo out; exit 1")
    assert said == (1, "out\n", "err\n")


def test_an_answer_of_ten_megabytes_is_whole(shell):
    said = shell.ask(PROGRAM, "head -c 10000000 /dev/zero | tr '\\0' x; echo")
    assert said == (0, "x" * 10_000_000 + "\n", "")


def test_a_line_of_a_megabyte_arrives(shell):
    program = ["sh", "-c", r"""while read -r line; do echo ${#line}; printf '\0360\n'; done"""]
    assert shell.ask(program, "x" * 1_000_000).out == "1000000\n"


def test_one_that_does_not_answer_is_lost_contact_in_time_and_begun_anew(shell):
    before = shell.ask(PROGRAM, "echo $$").out
    began = time.monotonic()
    with pytest.raises(ContactLost, match=r"no answer within 0\.5 s"):
        shell.ask(PROGRAM, "exec sleep 5", timeout_s=0.5)
    assert time.monotonic() - began < 3
    assert shell.ask(PROGRAM, "echo $$").out != before


def test_one_that_has_ended_is_lost_contact_and_begun_anew(shell):
    ends = ["sh", "-c", "read -r line; exit 0"]
    with pytest.raises(ContactLost, match="ended"):
        shell.ask(ends, "x")
    once = ["sh", "-c", r"""read -r line; echo once; printf '\0360\n'"""]
    assert shell.ask(once, "x").out == "once\n"
    with pytest.raises(ContactLost):
        shell.ask(once, "x")
    assert shell.ask(once, "x").out == "once\n"


def test_one_that_cannot_start_says_why(shell):
    assert shell.ask(["/no/such/program"], "x").code == 127
    said = shell.ask(["sh", "-c", "echo broken >&2; exit 3"], "x")
    assert (said.code, said.err) == (3, "broken\n")


def test_one_that_was_killed_is_told_and_begun_anew(shell):
    with pytest.raises(CommandKilled, match="signal"):
        shell.ask(["sh", "-c", "read -r line; kill -9 $$"], "x")
    assert shell.ask(PROGRAM, "echo on").out == "on\n"


def test_several_threads_ask_one_after_another(shell):
    with ThreadPoolExecutor(8) as pool:
        said = pool.map(lambda n: shell.ask(PROGRAM, f"echo {n}").out, range(24))
    assert [*said] == [f"{n}\n" for n in range(24)]


@pytest.mark.parametrize("kind", DOORS[1:])
def test_it_goes_with_its_connection(request, kind):
    with Relay(spec_of(kind, request, None).port) as relay:
        shell = SshShell(spec_of(kind, request, relay.port))
        pid = shell.ask(PROGRAM, "echo $$").out
        relay.cut()
        try:
            again = shell.ask(PROGRAM, "echo $$")
        except ContactLost:  # the end of the connection was not heard yet
            again = shell.ask(PROGRAM, "echo $$")
        assert again.out not in ("", pid)
        shell.close()


class Agent:
    """The real one, asked line by line."""

    def __init__(self, shell: Shell, path: str) -> None:
        self._shell, self._program = shell, [sys.executable, "-I", "-S", path, "serve"]

    def ask(self, command: str, **request: object) -> tuple[int, dict[str, object], str]:
        said = self._shell.ask(self._program, json.dumps([command, request]))
        return said.code, json.loads(said.out) if said.out else {}, said.err


@pytest.fixture
def agent(shell, tmp_path) -> Agent:
    path = tmp_path / "agent.pyz"
    shell.put(agent_file().data, str(path))
    return Agent(shell, str(path))


def test_the_agent_answers_refuses_and_goes_on(agent):
    code, said, _ = agent.ask("port", ports=[])
    assert (code, said["ok"]) == (0, True)
    code, said, _ = agent.ask("port", nonsense=1)
    assert (code, said["error"]) == (10, "bad_request")
    assert agent.ask("port", ports=[])[0] == 0


def test_a_fault_of_the_agent_is_shown_and_ends_that_request_alone(agent):
    code, said, err = agent.ask("port", ports="nonsense")
    assert (code, said) == (1, {})
    assert "Traceback" in err
    assert agent.ask("port", ports=[])[0] == 0


def test_an_agent_whose_file_is_gone_says_so(agent, tmp_path):
    agent.ask("port", ports=[])
    (tmp_path / "agent.pyz").unlink()
    code, _, err = agent.ask("port", ports=[])
    assert code == 2
    assert "can't open file" in err
