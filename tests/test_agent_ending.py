"""Only the trial's own processes are ended: by identity, session, marker, descent; never by name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.agent import ending, processes
from infra.agent.ending import Ours
from infra.agent.processes import Environment, Process
from tests.agent_host import AgentHost, is_alive, process, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOREVER = "echo ready; while :; do sleep 1; done"
STUBBORN = "trap '' TERM; " + FOREVER
MINE = f"mine-{uuid.uuid4().hex[:12]}"
MARKED = {"EAGLE3_SWEEP_TRIAL": MINE}


@contextmanager
def running(script: str, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """A session leader that has said its first line."""
    child = subprocess.Popen(
        ["sh", "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **(env or {})},
    )
    try:
        yield child
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


def collecting(child: subprocess.Popen[str]) -> Callable[[], None]:
    """What a parent does in every round."""

    def collect() -> None:
        child.poll()

    return collect


def said(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def group(pid: int) -> dict[str, Any]:
    return {**processes.identity(pid), "pgid": pid, "sid": pid}


def test_a_polite_leader_gets_sigterm_only():
    with running("trap 'exit 3' TERM; echo ready; while :; do sleep 0.05; done") as child:
        said(child)
        ended = ending.end(Ours([group(child.pid)]), 5.0, collecting(child))
        assert child.returncode == 3
        assert [s["signal"] for s in ended.signalled if s["pid"] == child.pid] == [signal.SIGTERM]
        assert ended.survivors == []


def test_a_stubborn_leader_and_its_group_are_killed():
    with running("trap '' TERM; sleep 1000 & echo $!; while :; do sleep 1; done") as child:
        member = int(said(child))
        ended = ending.end(Ours([group(child.pid)]), 0.1, collecting(child))
        assert child.returncode == -signal.SIGKILL
        until(lambda: not is_alive(member))
        assert {child.pid, member} <= ended.pids


def test_the_answer_to_sigterm_is_not_waited_for_longer_than_needed():
    with running(FOREVER) as child:
        said(child)
        ending.end(Ours([group(child.pid)]), 60.0, collecting(child))
        assert child.returncode == -signal.SIGTERM


@pytest.mark.parametrize(
    "wrong", [{"start_ticks": 1}, {"boot_id": "00000000-0000-0000-0000-000000000000"}]
)
def test_a_recycled_number_is_left_alone(wrong):
    with running(FOREVER) as child:
        said(child)
        ident = {**group(child.pid), **wrong}
        ended = ending.end(Ours([ident], processes=[ident]), 0.0)
        assert ended.signalled == []
        assert is_alive(child.pid)


def test_the_last_look_before_the_signal_is_what_counts():
    with running(FOREVER) as child:
        said(child)
        now = process(child.pid)
        assert (
            processes.send(now._replace(start_ticks=now.start_ticks + 1), signal.SIGKILL) is False
        )
        assert is_alive(child.pid)
        assert processes.send(now, signal.SIGKILL) is True


def test_a_leader_that_is_gone_leaves_members_that_carry_the_marker():
    with running("sleep 1000 & echo $!; exec sleep 1000", MARKED) as leader:
        member = int(said(leader))
        ident = group(leader.pid)
        leader.kill()
        leader.wait()
        ended = ending.end(Ours([ident], markers=[MINE]), 5.0)
        assert [s["pid"] for s in ended.signalled] == [member]
        assert not is_alive(member)


def test_a_session_of_the_same_number_with_a_readable_foreign_environment_is_left_alone():
    with running("sleep 1000 & echo $!; exec sleep 1000") as leader:
        member = int(said(leader))
        ident = group(leader.pid)
        leader.kill()
        leader.wait()
        try:
            ended = ending.end(Ours([ident], markers=[MINE]), 0.0)
            assert ended.signalled == []
            assert is_alive(member)
        finally:
            os.kill(member, signal.SIGKILL)


def test_another_trial_of_the_same_user_is_left_alone():
    with (
        running(FOREVER, MARKED) as mine,
        running(FOREVER, {"EAGLE3_SWEEP_TRIAL": MINE + "0"}) as o,
    ):
        said(mine)
        said(o)
        ending.end(Ours(markers=[MINE]), 0.0, collecting(mine))
        assert mine.returncode == -signal.SIGKILL
        assert is_alive(o.pid)


def test_descendants_go_with_their_parents_whatever_their_session_and_environment():
    script = "setsid env -i sh -c 'echo $$; while :; do sleep 1; done' & exec sleep 1000"
    with running(script, MARKED) as child:
        stray = int(said(child))
        ending.end(Ours(markers=[MINE]), 0.0, collecting(child))
        until(lambda: not is_alive(stray))


def test_what_is_spared_stays_with_its_children():
    with running("sleep 1000 & echo $!; wait", MARKED) as child:
        member = int(said(child))
        ours = Ours(markers=[MINE], spared=[processes.identity(child.pid)])
        assert ending.end(ours, 0.0).signalled == []
        assert is_alive(child.pid)
        assert is_alive(member)


def test_we_and_our_ancestors_are_never_among_them():
    pid = os.getpid()
    me = {**processes.identity(pid), "pgid": os.getpgid(0), "sid": os.getsid(0)}
    parent = processes.identity(os.getppid())
    found = ending.members(Ours([me], processes=[me, parent]), processes.table())
    assert (pid, me["start_ticks"]) not in found
    assert (parent["pid"], parent["start_ticks"]) not in found


def test_zombies_hold_nothing_and_are_named():
    with running("exit 0") as child:
        until(lambda: process(child.pid).state == "Z")
        ended = ending.end(Ours([group(child.pid)]), 5.0)
        assert ended.survivors == []
        assert [z["pid"] for z in ended.zombies] == [child.pid]


def test_what_will_not_go_is_reported_in_time():
    with running(STUBBORN) as child:
        said(child)
        known = {process(child.pid).key: process(child.pid)}
        # A process of which every signal is lost, as of one that hangs in a driver.
        living = ending._kill_rounds(Ours(), dict(known), [], lambda: os.kill(child.pid, 0), -1.0)
        assert [p.pid for p in living] == [child.pid]


# A table that no machine has: the rules alone.

ME = os.getpid()
UID = os.getuid()


def row(pid: int, ppid: int = 1, sid: int = 0, ticks: int = 500, uid: int = UID) -> Process:
    return Process(pid, ppid, sid or pid, sid or pid, uid, "S", ticks, "x")


def chosen(monkeypatch, ours: Ours, rows: list[Process], marks: dict[int, Environment]) -> set[int]:
    monkeypatch.setattr(processes, "environments", lambda _: marks)
    return {p.pid for p in ending.members(ours, {p.pid: p for p in rows}).values()}


def recorded(pid: int, ticks: int) -> dict[str, Any]:
    return {
        "pid": pid,
        "start_ticks": ticks,
        "boot_id": processes.boot_id(),
        "pgid": pid,
        "sid": pid,
    }


BLANK = Environment(None, blank=True)
FOREIGN = Environment(None, blank=False)


def test_members_without_environment_count_after_the_leader(monkeypatch):
    rows = [row(900, sid=800), row(901, sid=800), row(902, sid=800, ticks=100), row(903)]
    marks = {900: BLANK, 901: FOREIGN, 902: BLANK, 903: BLANK}
    assert chosen(monkeypatch, Ours([recorded(800, 400)]), rows, marks) == {900}


def test_a_living_leader_vouches_for_its_whole_session(monkeypatch):
    rows = [row(800, ticks=400), row(900, sid=800), row(901, sid=800)]
    marks = {900: BLANK, 901: FOREIGN}
    assert chosen(monkeypatch, Ours([recorded(800, 400)]), rows, marks) == {800, 900, 901}


def test_a_recycled_leader_voids_the_session(monkeypatch):
    rows = [row(800, ticks=450), row(900, sid=800)]
    assert chosen(monkeypatch, Ours([recorded(800, 400)]), rows, {900: BLANK}) == set()


def test_other_users_and_kernel_threads_are_never_chosen(monkeypatch):
    rows = [row(800, ticks=400, uid=UID + 1), row(900, sid=800, uid=UID + 1), row(901, ppid=2)]
    marks = {pid: Environment(MINE, blank=False) for pid in (800, 900, 901)}
    ours = Ours([recorded(800, 400)], markers=[MINE])
    assert chosen(monkeypatch, ours, rows, marks) == set()


@given(
    pid=st.integers(1, 4_194_304),
    comm=st.binary(min_size=0, max_size=15).filter(lambda b: b"\0" not in b),
    state=st.sampled_from("RSDZTX"),
    ticks=st.integers(0, 2**63),
)
def test_any_name_of_a_process_leaves_its_fields_in_place(pid, comm, state, ticks):
    fields = [b"7", b"8", b"9", *([b"0"] * 15), str(ticks).encode(), b"0"]
    raw = b"%d (%s) %s " % (pid, comm, state.encode()) + b" ".join(fields) + b"\n"
    number, name, found, rest = processes.parse_stat(raw)
    assert (number, found) == (pid, state)
    assert name == comm.decode("utf-8", "replace")
    assert [int(f) for f in rest[:3]] == [7, 8, 9]
    assert int(rest[18]) == ticks


@given(st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\0", b""))))
def test_the_marker_is_found_among_any_environment(entries):
    marker = b"EAGLE3_SWEEP_TRIAL=t-1"
    raw = b"\0".join([*(e for e in entries if not e.startswith(b"EAGLE3")), marker]) + b"\0"
    assert processes.parse_environment(raw) == Environment("t-1", blank=False)


@pytest.mark.parametrize(("raw", "blank"), [(b"", True), (b"\0" * 500, True), (b"A=1\0", False)])
def test_an_environment_that_a_title_overwrote_is_blank(raw, blank):
    assert processes.parse_environment(raw) == Environment(None, blank=blank)


def test_the_kernel_and_python_agree_on_who_we_are():
    me = process(os.getpid())
    assert (me.ppid, me.pgid, me.sid, me.uid) == (
        os.getppid(),
        os.getpgid(0),
        os.getsid(0),
        os.getuid(),
    )
    assert processes.alive(processes.identity(os.getpid()))
    assert not processes.alive(None)


# The reap job, from outside.


@pytest.fixture
def host(tmp_path):
    host = AgentHost(tmp_path)
    yield host
    host.clean_up()


SMI = """#!/bin/sh
case "$*" in
*compute-apps*) cat {apps} ;;
*) echo "0, GPU-1, {used}, 143771, 0" ;;
esac
"""


def smi(tmp_path, used: int, apps: str = "") -> dict[str, str]:
    folder = tmp_path / "bin"
    folder.mkdir()
    rows = tmp_path / "apps.csv"
    rows.write_text(apps)
    program = folder / "nvidia-smi"
    program.write_text(SMI.format(apps=rows, used=used))
    program.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_a_reap_is_recorded_as_asked_for_and_repeatable(host):
    trial = host.trial()
    state = trial.launch("sh", "-c", "trap '' TERM; " + FOREVER, grace_s=5)
    request = {"groups": [state["engine"]], "markers": [trial.name], "grace_s": 0.1}
    result = trial.job("reap", "reap", request)
    assert result["outcome"] == "clean"
    assert result["gpu_free"] is None
    assert {s["signal"] for s in result["signalled"]} == {15, 9}
    over = trial.wait_over()
    assert (over["phase"], over["end_reason"], over["exit_code"]) == ("stopped", "stopped", -9)
    assert trial.job("again", "reap", request)["signalled"] == []


def test_a_reap_by_marker_ends_a_running_job_but_not_itself(host):
    trial = host.trial()
    server = 'import socket,time; s=socket.create_server(("127.0.0.1",0)); print("port=%d" % s.getsockname()[1], flush=True); time.sleep(999)'
    trial.launch(sys.executable, "-S", "-c", server)
    load = {
        "base_url": f"http://127.0.0.1:{trial.pid_in_log('port')}",
        "path": "/generate",
        "concurrency": 1,
        "timeout_s": 60,
        "deadline_s": 60,
        "requests": [{"id": "a", "kind": "k", "payload": {}}],
    }
    host.call("start", dir=str(trial.path), name="probe", job="drive", request=load)
    result = trial.job("reap", "reap", {"markers": [trial.name], "grace_s": 0})
    assert (result["ok"], result["outcome"]) == (True, "clean")
    status = trial.wait(None, job="probe")["job"]
    assert (status["alive"], status["result"]) == (False, None)


@pytest.mark.parametrize(
    ("used", "bound", "told"),
    [
        (500, 1000, ("clean", True)),
        (90_000, 1000, ("gpu_memory_held", False)),
        (90_000, None, ("clean", True)),
    ],
)
def test_gpu_memory_is_waited_for_and_its_holding_is_said(host, tmp_path, used, bound, told):
    trial = host.trial()
    env = smi(tmp_path, used)
    request = {"gpu_wait_s": 0.3, "free_below_mib": bound}
    host.call("start", dir=str(trial.path), name="reap", job="reap", request=request, env=env)
    result = until(lambda: trial.wait(None, job="reap")["job"]["result"])
    assert (result["outcome"], result["gpu_free"]) == told
    assert result["gpus"] == [f"0, GPU-1, {used}, 143771, 0"]


def test_a_port_that_stays_held_is_said(host):
    import socket

    trial = host.trial()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        result = trial.job("reap", "reap", {"port": port, "gpu_wait_s": 0.1})
    assert (result["outcome"], result["port_free"]) == ("port_held", False)
