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

from infra.agent import ending, processes
from infra.agent.ending import Ours
from infra.agent.processes import Environment, Process
from tests.agent_host import is_alive, process, until

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


SPAWNER = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "1000"], start_new_session=True)
print("ready", flush=True)
while True:
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
    signal.sigtimedwait([], 0.01)
"""


def test_a_process_that_goes_on_making_sessions_is_caught_up_with():
    with running(f"exec {sys.executable} -S -c '{SPAWNER}'", MARKED) as child:
        said(child)
        ended = ending.end(Ours(markers=[MINE]), 0.3, collecting(child))
        assert ended.survivors == []
        assert len(ended.signalled) > 1
        table = processes.table()
        marks = processes.environments(table.values())
        assert not [pid for pid, mark in marks.items() if mark.marker == MINE]


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
