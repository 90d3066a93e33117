"""Processes are named by what the kernel never gives out twice, and reading them never hangs."""

from __future__ import annotations

import os
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.agent import processes
from infra.agent.processes import Environment
from tests.agent_host import process


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


@pytest.mark.alone
def test_a_process_whose_environment_hangs_holds_up_nobody(monkeypatch):
    hang, real = threading.Event(), processes._environment

    def read(pid: int) -> Environment:
        if pid == 1:
            hang.wait(30)
        return real(pid)

    monkeypatch.setattr(processes, "_environment", read)
    monkeypatch.setattr(processes, "_stuck", set())
    first, me = process(1), process(os.getpid())
    began = time.monotonic()
    found = processes.environments([first, me])
    assert found[1].blank
    assert me.pid in found
    assert time.monotonic() - began < 2
    began = time.monotonic()
    assert processes.environments([first, me])[1].blank
    assert time.monotonic() - began < 0.2
    hang.set()


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
