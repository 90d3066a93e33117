"""Lost contact is unknown, not dead; what the host shows decides."""

from __future__ import annotations

import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.detached import holds_streams
from tasks.contact import Sight, conclude, silent

SIGHTS = st.builds(
    Sight,
    alive=st.booleans(),
    same_process=st.none() | st.booleans(),
    boot_same=st.none() | st.booleans(),
    exit_code=st.none() | st.integers(0, 255),
    log_size=st.none() | st.integers(0, 10**9),
)


@given(st.none() | SIGHTS, st.integers(0, 10**9))
def test_nothing_is_ever_launched_a_second_time(sight, offset):
    assert conclude(sight, offset).relaunch is False


@given(SIGHTS, st.integers(0, 10**9))
def test_a_failure_is_only_concluded_from_what_the_host_shows(sight, offset):
    found = conclude(sight, offset)
    assert (found.failure is None) == (found.state == "running")
    if found.state == "running":
        assert sight.alive
        assert sight.exit_code is None
        assert found.resume_from in {offset, 0}


def test_a_host_that_does_not_answer_is_unknown_until_it_does():
    found = conclude(None, 7)
    assert (found.state, found.failure, found.teardown) == ("unknown", None, False)
    assert (found.resume_from, found.on_return) == (7, "adopt_or_teardown")


def sight(**fields) -> Sight:
    shown = {"alive": True, "same_process": True, "boot_same": True, "exit_code": None}
    return Sight(**(shown | fields))


@pytest.mark.parametrize(
    ("shown", "state", "failure"),
    [
        (sight(), "running", None),
        (sight(same_process=None), "running", None),
        (sight(same_process=False), "pid_reused", "engine_dead"),
        (sight(alive=False), "ended_unseen", "engine_dead"),
        (sight(alive=False, exit_code=137), "exited", "engine_dead"),
        (sight(alive=False, exit_code=0), "exited", "engine_dead"),
        (sight(alive=True, boot_same=False), "host_rebooted", "host_lost"),
        (sight(alive=False, boot_same=False, exit_code=0), "host_rebooted", "host_lost"),
    ],
)
def test_what_each_sight_means(shown, state, failure):
    found = conclude(shown)
    assert (found.state, found.failure) == (state, failure)


def test_a_log_that_was_cut_is_read_from_its_beginning():
    assert conclude(sight(log_size=100), 60).resume_from == 60
    assert conclude(sight(log_size=10), 60).resume_from == 0


def test_silence_is_lost_contact_after_the_limit_and_not_before():
    assert silent(10, 30) is None
    lost = silent(1800, 30)
    assert lost is not None
    assert (lost.action, lost.state) == ("treat_as_lost", "unknown")


HELD = [
    ("nohup sleep 3 &", ("stderr", "stdout")),
    ("sleep 3 & echo $!", ("stderr", "stdout")),
    ("sleep 3 > log &", ("stderr",)),
    ("sleep 3 2>log &", ("stdout",)),
    ("sleep 3 2>&1 > log &", ("stdout",)),
    ("setsid -f sleep 3", ("stderr", "stdout")),
    ("sleep 3 2>&1 | tee log &", ("stderr", "stdout")),
    ("sleep 3 | tee log >/dev/null 2>&1 &", ("stderr",)),
    ("(sleep 3; sleep 1) &", ("stderr", "stdout")),
]
FREE = [
    "sleep 3 > log 2>&1 &",
    "sleep 3 >log 2>log2 & echo $!",
    "sleep 3 >> log 2>> log &",
    "setsid sleep 3 </dev/null >log 2>&1 & echo $!",
    "setsid -f sleep 3 </dev/null >log 2>&1",
    "(sleep 3) > log 2>&1 &",
    "sleep 3 2>&1 | tee log >/dev/null 2>&1 &",
    "echo a && echo b",
    "echo 'a & b'",
    "echo a\\&b",
    "echo 'open",
]


@pytest.mark.parametrize(("command", "held"), HELD)
def test_what_keeps_ssh_waiting_is_named(command, held):
    assert tuple(name for name in holds_streams(command)) == held


@pytest.mark.parametrize("command", FREE)
def test_what_lets_go_is_let_go(command):
    assert holds_streams(command) == ()


def test_both_redirected_at_once_as_bash_does():
    assert holds_streams("sleep 3 &> log &") == ()
    assert holds_streams("sleep 3 >& log &") == ()


@pytest.mark.parametrize("command", [HELD[2][0], HELD[4][0], FREE[0], FREE[3]])
def test_a_real_shell_agrees(command, tmp_path):
    began = time.monotonic()
    short = command.replace("sleep 3", "sleep 0.7")
    subprocess.run(["sh", "-c", short], capture_output=True, cwd=tmp_path, check=True)
    assert (time.monotonic() - began > 0.5) == bool(holds_streams(command))
