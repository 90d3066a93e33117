"""The agent over real SSH: installed once, asked again while contact is lost, never run twice."""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from infra.agent_answers import read_answer
from infra.agent_file import agent_file
from infra.connect import address, connect
from infra.errors import AgentBroken, AgentRefusal, ContactLost, FileRefused, HostRebooted
from infra.host_agent import HostAgent
from infra.shell import Output
from infra.ssh import SshShell
from tests.conftest import host_of
from tests.openssh import Relay

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from infra.shell import Shell

Ran = tuple[list[str], Output]


class Spy:
    """A shell that passes everything on, remembers it, and can be told to interfere."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self.ran: list[list[str]] = []
        self.written: list[str] = []
        self.before: Callable[[list[str]], None] = lambda _argv: None
        self.after: Callable[[Output], Output] = lambda output: output
        self.before_put: Callable[[str], None] = lambda _path: None

    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0) -> Output:
        self.ran.append(list(argv))
        self.before(list(argv))
        return self.after(self._shell.run(argv, timeout_s=timeout_s))

    def ask(self, program: Sequence[str], line: str, *, timeout_s: float = 30.0) -> Output:
        command, request = json.loads(line)
        argv = [*program, command, json.dumps(request)]
        self.ran.append(argv)
        self.before(argv)
        return self.after(self._shell.ask(program, line, timeout_s=timeout_s))

    def put(self, data: bytes, path: str, *, mode: int = 0o600) -> None:
        self.written.append(path)
        self.before_put(path)
        self._shell.put(data, path, mode=mode)

    def get(self, path: str) -> bytes:
        return self._shell.get(path)

    def close(self) -> None:
        self._shell.close()

    def asked(self) -> list[str]:
        """The agent's commands, in order."""
        return [argv[-2] for argv in self.ran if argv[-1].startswith("{")]


@pytest.fixture
def spy(rehearsal):
    made = Spy(SshShell(address(rehearsal.host)))
    yield made
    made.close()


@pytest.fixture
def agent(rehearsal, spy):
    return HostAgent(spy, rehearsal.host, patience_s=5)


@pytest.fixture
def folder(agent):
    path = f"{agent.root}/trials/t-{uuid.uuid4().hex[:8]}"
    agent.make_folder(path)
    return path


def test_it_is_installed_once_under_a_name_that_tells_its_content(rehearsal, spy, agent):
    shutil.rmtree(Path(rehearsal.ready.home) / ".eagle3-sweep", ignore_errors=True)
    file = agent_file()
    assert agent.hello.version == file.name
    installed = Path(rehearsal.ready.home) / ".eagle3-sweep" / "agent" / file.name
    assert installed.read_bytes() == file.data
    assert installed.parent.stat().st_mode & 0o777 == 0o700
    assert agent.hello.home == rehearsal.ready.home
    again = HostAgent(spy, rehearsal.host)
    assert again.hello == agent.hello
    assert len(spy.written) == 1
    assert spy.asked() == ["hello", "hello"]


@pytest.mark.skipif(os.getuid() != 0, reason="making a folder of another user needs root")
@pytest.mark.parametrize("whose", ["root", "agent", "file"])
def test_nothing_is_run_from_a_folder_of_another_user(rehearsal, spy, tmp_path, whose):
    """Who owns the folder could have put a program of his under our program's name."""
    root = tmp_path / "shared"
    program = root / "agent" / agent_file().name
    program.parent.mkdir(parents=True)
    program.write_text("open('/dev/null')\n")
    os.chown({"root": root, "agent": program.parent, "file": program}[whose], 12345, 12345)
    agent = HostAgent(spy, rehearsal.host.model_copy(update={"folder": str(root)}))
    with pytest.raises(AgentRefusal, match="belongs to another user: name one of your own") as no:
        agent.call("port", ports=[1])
    assert no.value.error == "foreign_folder"
    assert not [argv for argv in spy.ran if str(program) in argv and argv[0] != "sh"]
    assert not spy.written


def test_paths_of_a_host_file_are_the_hosts(rehearsal, agent):
    home = rehearsal.ready.home
    assert agent.root == f"{home}/.eagle3-sweep"
    assert [agent.path(p) for p in ("~", "~/a b", "a", "/a")] == [
        home, f"{home}/a b", f"{home}/a", "/a",
    ]  # fmt: skip


def test_a_call_is_one_round_trip_and_a_refusal_has_a_class(agent, spy):
    assert agent.call("port", ports=[1])["ok"] is True
    before = len(spy.ran)
    with pytest.raises(AgentRefusal) as refused:
        agent.call("file", op="turn")
    assert refused.value.error == "unknown_op"
    with pytest.raises(AgentRefusal) as refused:
        agent.call("port", colour="red")
    assert (refused.value.error, refused.value.answer["ok"]) == ("bad_request", False)
    assert len(spy.ran) == before + 2


def test_a_hostile_value_reaches_the_agent_as_it_is(agent, rehearsal):
    path = Path(rehearsal.ready.home) / 'it\'s $(reboot) \n 漢 "x"'
    path.write_bytes(b"data")
    assert agent.head(str(path), 10) == (b"data", 4)
    assert agent.head(str(path) + "?", 10) is None


def test_waiting_answers_within_two_seconds_whatever_happens(agent, folder):
    first = agent.wait(folder, 0, timeout_s=0.0)
    began = time.monotonic()
    poll = agent.wait(folder, 0, seen=first.seen, timeout_s=1.0)
    assert 0.8 < time.monotonic() - began < 3
    assert (poll.state, poll.engine_alive, poll.log, poll.job) == (None, False, b"", None)


def test_waiting_brings_new_log_bytes_from_an_offset_at_once(agent, folder):
    log = Path(folder) / "server.log"
    log.write_bytes(b"0123456789\xff\n")
    poll = agent.wait(folder, 4)
    assert (poll.log, poll.offset, poll.log_size) == (b"456789\xff\n", 12, 12)
    log.write_bytes(b"ab")  # cut by somebody: read from its beginning, not past its end
    assert agent.wait(folder, 12).log == b"ab"


def test_a_job_runs_once_however_often_it_is_asked_for(agent, folder):
    first = agent.job(folder, "facts", "facts", {"paths": [folder]}, timeout_s=20)
    assert first["host"]["boot_id"] == agent.hello.boot_id
    assert agent.job(folder, "facts", "facts", {"paths": []}, timeout_s=20) == first


def test_a_large_request_travels_as_a_file(agent, folder, spy):
    paths = [f"/nowhere/{'x' * 90}/{n}" for n in range(1000)]
    result = agent.job(folder, "facts", "facts", {"paths": paths}, timeout_s=20)
    assert len(result["paths"]) == 1000
    assert [path for path in spy.written if path.endswith("facts/request.json")]
    assert max(len(word) for argv in spy.ran for word in argv) < 1000


def test_a_job_that_dies_without_a_result_is_told_with_its_last_words(agent, folder, rehearsal):
    bad = f"{rehearsal.ready.home}/no-python"
    Path(bad).write_text("#!/bin/sh\necho the environment is broken >&2\nexit 3\n")
    Path(bad).chmod(0o755)
    with pytest.raises(AgentBroken, match="job warm died: the environment is broken"):
        agent.job(folder, "warm", "facts", {}, python=bad, timeout_s=20)


def test_a_job_that_does_not_end_is_given_up_in_time(agent, folder, rehearsal):
    slow = f"{rehearsal.ready.home}/slow-python"
    Path(slow).write_text("#!/bin/sh\nexec sleep 20\n")
    Path(slow).chmod(0o755)
    began = time.monotonic()
    with pytest.raises(AgentBroken, match="job warm did not end within 1 s"):
        agent.job(folder, "warm", "facts", {}, python=slow, timeout_s=1)
    assert time.monotonic() - began < 5


def losing(count: int) -> Callable[[list[str]], None]:
    """Loses contact so many times before anything is sent."""
    left = [count]

    def lose(_argv: list[str]) -> None:
        if left[0] > 0:
            left[0] -= 1
            raise ContactLost("link down")

    return lose


def test_lost_contact_is_tried_again_with_growing_pauses_and_said(rehearsal, spy):
    notes: list[str] = []
    agent = HostAgent(spy, rehearsal.host, patience_s=20, note=notes.append)
    agent.call("port", ports=[1])
    spy.before = losing(3)
    began = time.monotonic()
    assert agent.call("port", ports=[1])["ok"] is True
    assert 1.3 < time.monotonic() - began < 5
    assert [note.rsplit("in ", 1)[1] for note in notes] == ["0.2 s", "0.4 s", "0.8 s"]
    assert all("link down" in note for note in notes)


def test_patience_has_an_end(rehearsal, spy):
    agent = HostAgent(spy, rehearsal.host, patience_s=1)
    spy.before = losing(1000)
    began = time.monotonic()
    with pytest.raises(ContactLost):
        agent.call("port", ports=[1])
    assert time.monotonic() - began < 2


def test_a_host_that_is_given_up_or_was_rebooted_is_told_as_lost(rehearsal, spy):
    lost: list[str] = []
    agent = HostAgent(spy, rehearsal.host, patience_s=0.5, lost=lost.append)
    agent.call("port", ports=[1])
    spy.before = losing(1)
    agent.call("port", ports=[1])
    assert lost == [], "it came back within the patience"
    spy.before = losing(1000)
    with pytest.raises(ContactLost):
        agent.call("port", ports=[1])
    spy.before, spy.after = losing(0), other_boot
    with pytest.raises(HostRebooted):
        agent.call("hello")
    assert [text for text in lost if "was rebooted" in text] == [lost[-1]]
    assert len(lost) == 2


def test_a_lost_answer_does_not_run_a_job_twice(agent, folder, spy):
    agent.call("port", ports=[1])
    lost: list[str] = []

    def lose_first_answer(output: Output) -> Output:
        if '"seen"' in output.out and not lost:
            lost.append(output.out)
            raise ContactLost("cut after the host had done it")
        return output

    spy.after = lose_first_answer
    result = agent.job(folder, "once", "facts", {"paths": []}, timeout_s=20)
    assert result["host"]
    assert spy.asked().count("wait") >= 2
    assert lost
    assert len(list((Path(folder) / "jobs" / "once").glob("pid.json"))) == 1


def test_a_cut_line_is_reopened_under_the_agent(rehearsal):
    with Relay(rehearsal.ready.port) as relay:
        host = host_of(rehearsal.ready, relay.port)
        notes: list[str] = []
        agent = connect(host, patience_s=10, note=notes.append)
        agent.call("port", ports=[1])
        relay.cut(and_refuse=2)
        assert agent.call("port", ports=[1])["ok"] is True
        assert notes
        agent.close()


def other_boot(output: Output) -> Output:
    """As after a reboot."""
    try:
        answer = json.loads(output.out)
    except ValueError:
        return output
    if isinstance(answer, dict) and "boot_id" in answer:
        answer["boot_id"] = "11111111-2222-3333-4444-555555555555"
    return output._replace(out=json.dumps(answer))


def test_a_reboot_is_noticed_once_and_then_the_host_is_used_again(agent, folder, spy):
    agent.wait(folder, 0, timeout_s=0.0)
    spy.after = other_boot
    with pytest.raises(HostRebooted, match="was rebooted: what ran there is gone"):
        agent.wait(folder, 0, timeout_s=0.0)
    assert agent.wait(folder, 0, timeout_s=0.0).engine_alive is False
    assert agent.hello.boot_id.startswith("11111111")


def test_a_reboot_with_a_fresh_disk_is_noticed_too(rehearsal, agent, spy):
    agent.call("port", ports=[1])
    shutil.rmtree(Path(rehearsal.ready.home) / ".eagle3-sweep")
    spy.after = other_boot
    with pytest.raises(AgentBroken, match="can't open file"):
        agent.call("port", ports=[1])
    with pytest.raises(HostRebooted):
        agent.call("port", ports=[1])
    assert agent.call("port", ports=[1])["ok"] is True


def test_a_host_without_python_is_told_as_such(rehearsal, spy):
    host = rehearsal.host.model_copy(update={"agent_python": "/no/python3"})
    with pytest.raises(AgentBroken, match=r"agent hello: exit 127: .*/no/python3"):
        HostAgent(spy, host).call("hello")


def test_files_come_and_go_through_the_agents_hand(agent, folder):
    agent.put_json({"a": "é"}, f"{folder}/x.json")
    assert json.loads(agent.get(f"{folder}/x.json")) == {"a": "é"}
    assert (Path(folder) / "x.json").stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileNotFoundError):
        agent.get(f"{folder}/y.json")


def test_a_full_disk_is_told_from_missing_rights(agent, folder, spy):
    def refuse(_path: str) -> None:
        raise FileRefused(f"{folder}/a could not be written: {reason}")

    spy.before_put = refuse
    reason = "permission denied"
    with pytest.raises(FileRefused, match="permission"):
        agent.put(b"x", f"{folder}/a")
    reason = "no space left on device"
    with pytest.raises(AgentRefusal, match="disk_full"):
        agent.put(b"x", f"{folder}/a")


ANSWERS: list[tuple[Output, str]] = [
    (Output(0, "", ""), "no output"),
    (Output(1, "", "Traceback\nSyntaxError: x"), "exit 1: Traceback | SyntaxError: x"),
    (Output(0, "[1]", ""), "not an object"),
    (Output(0, "{", ""), "exit 0"),
    (Output(255, "Permission denied", ""), "exit 255: Permission denied"),
]


@pytest.mark.parametrize(("output", "said"), ANSWERS)
def test_what_is_no_answer_is_broken_not_guessed(output, said):
    with pytest.raises(AgentBroken) as broken:
        read_answer("wait", output)
    assert said in str(broken.value)


def test_a_greeting_of_the_login_shell_does_not_hide_the_answer():
    answer: dict[str, Any] = read_answer("x", Output(0, 'Welcome!\n{"ok": true, "a": 1}\n', ""))
    assert answer["a"] == 1
