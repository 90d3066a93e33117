"""An engine under supervision: found, watched, never started twice, never left to burn."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from infra.agent import processes
from tests.agent_host import BARE, AgentHost, is_alive, process, until

FOREVER = "while :; do sleep 1; done"


@pytest.fixture
def host(tmp_path):
    host = AgentHost(tmp_path)
    yield host
    host.clean_up()


@pytest.fixture
def trial(host):
    return host.trial()


def test_the_state_names_processes_by_identity(trial):
    state = trial.launch("sh", "-c", FOREVER)
    engine = state["engine"]
    assert state["phase"] == "running"
    assert state["exit_code"] is None
    assert engine["pid"] == engine["pgid"] == engine["sid"]
    assert processes.alive(engine)
    assert processes.alive(state["supervisor"])
    assert process(engine["pid"]).sid == engine["pid"]


def test_the_engine_gets_marker_environment_folder_and_no_stdin(trial, tmp_path):
    script = "echo $EAGLE3_SWEEP_TRIAL $SPT_NOENV $A ${HOME-unset}; pwd; cat; echo end >&2"
    trial.launch("sh", "-c", script, env={"A": "b c"}, unset=["HOME"], cwd=str(tmp_path))
    assert trial.wait_over()["exit_code"] == 0
    lines = (trial.path / "server.log").read_text().splitlines()
    assert lines == [f"{trial.name} 1 b c unset", str(tmp_path), "end"]


def test_secrets_in_the_launch_do_not_stay_and_files_are_private(trial):
    trial.launch("sh", "-c", "exit 0", env={"TOKEN": "secret"})
    trial.wait_over()
    until(lambda: not is_alive(trial.state["supervisor"]["pid"]))
    names = {path.name for path in trial.path.iterdir()}
    assert "launch.json" not in names
    for path in trial.path.iterdir():
        assert path.stat().st_mode & 0o077 == 0
        assert b"secret" not in path.read_bytes()


def test_signals_that_the_caller_ignores_reach_the_engine(host, trial):
    code = "import signal; print(*(signal.getsignal(n) for n in (1, 2, 3, 15, 17)))"
    trial.put_launch(sys.executable, "-S", "-c", code)
    request = {"dir": str(trial.path), "root": str(host.root)}
    words = [sys.executable, *BARE, str(host.agent), "supervise", json.dumps(request)]
    # A shell's background job ignores SIGINT and SIGQUIT, nohup SIGHUP.
    script = 'trap "" HUP INT QUIT; exec "$@"'
    subprocess.run(["sh", "-c", script, "sh", *words], check=True, capture_output=True, timeout=20)
    trial.wait_over()
    log = (trial.path / "server.log").read_text()
    assert "SIG_IGN" not in log


@pytest.mark.alone
@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -9 $$", -9)])
def test_a_crash_is_recorded_and_told_at_once(trial, script, code):
    go = trial.path / "go"
    os.mkfifo(go, 0o600)
    trial.launch("sh", "-c", f"cat {go} >/dev/null; echo bye; {script}")
    before = trial.wait(None)
    poll = subprocess.Popen(
        [
            sys.executable,
            *BARE,
            str(trial.host.agent),
            "wait",
            json.dumps({"dir": str(trial.path), "offset": None, "seen": before["seen"]}),
        ],
        stdout=subprocess.PIPE,
    )
    died = time.monotonic()
    go.write_bytes(b"")
    told, _ = poll.communicate(timeout=60)
    heard = time.monotonic()
    state = trial.state
    assert (state["phase"], state["exit_code"]) == ("exited", code)
    assert state["end_reason"] == "exited"
    assert state["ended_monotonic"] - died < 0.2
    # The call may still have been starting; a wait that was not woken would take 1.5 s.
    assert heard - died < 1.0
    assert json.loads(told)["engine_alive"] is False


@pytest.mark.parametrize(
    "wrong", [{"argv": ["/nowhere/python"]}, {"argv": ["true"], "cwd": "/nowhere"}]
)
def test_an_engine_that_cannot_start_is_a_state_not_a_mystery(trial, wrong):
    argv = wrong.pop("argv")
    state = trial.launch(*argv, **wrong)
    assert (state["phase"], state["end_reason"]) == ("exited", "launch_failed")
    assert state["engine"] is None
    assert "No such file" in state["message"]


@pytest.mark.parametrize(
    "launch", ["{", "[]", '{"trial": "t", "argv": []}', '{"trial": "t", "argv": ["x"]}']
)
def test_a_wrong_launch_is_refused_and_not_kept(host, trial, launch):
    (trial.path / "launch.json").write_text(launch)
    answer = host.refusal("supervise", dir=str(trial.path), root=str(host.root))
    assert answer["error"] == "bad_launch"
    assert not (trial.path / "launch.json").exists()


def test_a_second_launch_finds_the_first(host, trial):
    first = trial.launch("sh", "-c", FOREVER)
    trial.put_launch("sh", "-c", FOREVER)
    answer = host.refusal("supervise", dir=str(trial.path), root=str(host.root))
    assert answer["error"] == "already_supervised"
    assert answer["state"]["engine"] == first["engine"]


def test_a_launch_asked_for_again_after_its_end_tells_that_end(host, trial):
    trial.launch("sh", "-c", "exit 4")
    trial.wait_over()
    until(lambda: not is_alive(trial.state["supervisor"]["pid"]))
    answer = host.refusal("supervise", dir=str(trial.path), root=str(host.root))
    assert (answer["error"], answer["state"]["exit_code"]) == ("already_supervised", 4)


def test_simultaneous_launches_start_one_engine(host, trial):
    trial.put_launch("sh", "-c", FOREVER)
    request = json.dumps({"dir": str(trial.path), "root": str(host.root)})
    words = [sys.executable, *BARE, str(host.agent), "supervise", request]
    calls = [subprocess.Popen(words, stdout=subprocess.PIPE) for _ in range(3)]
    answers = [json.loads(call.communicate(timeout=60)[0]) for call in calls]
    assert sum(answer["ok"] for answer in answers) == 1
    engines = {json.dumps(answer["state"]["engine"]) for answer in answers}
    assert len(engines) == 1


STUBBORN = """
trap '' TERM
sh -c 'trap "" TERM; echo child=$$; while :; do sleep 1; done' &
setsid sh -c 'trap "" TERM; echo stray=$$; while :; do sleep 1; done' &
while :; do sleep 1; done
"""


def test_an_expired_lease_ends_the_engine_its_children_and_its_strays(trial):
    state = trial.launch("sh", "-c", STUBBORN, lease_s=0.5, grace_s=0.3)
    pids = [state["engine"]["pid"], trial.pid_in_log("child"), trial.pid_in_log("stray")]
    over = trial.wait_over()
    assert (over["phase"], over["end_reason"], over["exit_code"]) == (
        "stopped",
        "lease_expired",
        -9,
    )
    assert over["ended_monotonic"] - over["started_monotonic"] < 0.5 + 2.0
    assert not any(is_alive(pid) for pid in pids)


def test_a_renewed_lease_keeps_the_engine(trial):
    state = trial.launch("sh", "-c", FOREVER, lease_s=0.6)
    seen = None
    while time.monotonic() < state["started_monotonic"] + 1.0:
        answer = trial.wait(None, seen=seen, lease_s=0.6, timeout_s=0.2)
        seen = answer["seen"]
        assert answer["engine_alive"]


def test_an_unreadable_lease_neither_ends_nor_extends(trial):
    state = trial.launch("sh", "-c", FOREVER, lease_s=0.5)
    (trial.path / "lease.json").write_text("{")
    assert processes.alive(state["engine"])
    over = trial.wait_over()
    assert over["end_reason"] == "lease_expired"
    assert over["ended_monotonic"] - over["started_monotonic"] > 0.4


def test_strays_of_a_crashed_engine_go_too(trial):
    state = trial.launch(
        "sh", "-c", "setsid env -i sh -c 'echo stray=$$; while :; do sleep 1; done' & sleep 0.3"
    )
    stray = trial.pid_in_log("stray")
    assert trial.wait_over()["exit_code"] == 0
    until(lambda: not is_alive(stray))
    assert not is_alive(state["engine"]["pid"])


def test_a_polite_end_of_the_supervisor_ends_the_engine(trial):
    state = trial.launch("sh", "-c", FOREVER)
    os.kill(state["supervisor"]["pid"], signal.SIGTERM)
    assert trial.wait_over()["end_reason"] == "stopped"
    assert not is_alive(state["engine"]["pid"])


def test_a_killed_supervisor_is_replaced_and_the_exit_code_is_still_known(trial):
    go = trial.path / "go"
    os.mkfifo(go, 0o600)
    state = trial.launch("sh", "-c", f"cat {go} >/dev/null; exit 9")
    os.kill(state["supervisor"]["pid"], signal.SIGKILL)
    new = until(lambda: trial.state["supervisor"] != state["supervisor"] and trial.state)
    assert processes.alive(new["supervisor"])
    assert processes.alive(new["engine"])
    go.write_bytes(b"")
    over = trial.wait_over()
    assert (over["phase"], over["exit_code"]) == ("exited", 9)


def kill_supervisors(state: dict[str, Any]) -> None:
    supervisor = state["supervisor"]["pid"]
    guard = process(supervisor).ppid
    os.kill(guard, signal.SIGKILL)
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: not is_alive(supervisor) and not is_alive(guard))


def test_without_supervisor_and_guard_a_reap_ends_and_records(trial):
    state = trial.launch("sh", "-c", STUBBORN)
    pids = [state["engine"]["pid"], trial.pid_in_log("child"), trial.pid_in_log("stray")]
    kill_supervisors(state)
    assert all(is_alive(pid) for pid in pids)
    request = {"groups": [state["engine"]], "markers": [trial.name], "grace_s": 0.1}
    result = trial.job("reap", "reap", request)
    assert (result["ok"], result["outcome"]) == (True, "clean")
    assert not any(is_alive(pid) for pid in pids)
    assert (trial.state["phase"], trial.state["end_reason"]) == ("stopped", "stopped")


def test_without_supervisor_and_guard_the_next_wait_records_a_crash(trial):
    state = trial.launch("sh", "-c", FOREVER)
    kill_supervisors(state)
    os.kill(state["engine"]["pid"], signal.SIGKILL)
    until(lambda: not is_alive(state["engine"]["pid"]))
    answer = trial.wait(None)
    assert answer["supervisor_alive"] is False
    assert (answer["state"]["phase"], answer["state"]["exit_code"]) == ("exited", None)


ENDS_BETWEEN_TWO_LOOKS = """
import os, subprocess, sys
from infra.agent import processes, watch

child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
engine = watch.Engine(processes.identity(child.pid))
look = processes.alive

def ends_just_before(ident):
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    return look(ident)

engine.collect()
assert (engine.over, engine.code) == (False, None)
processes.alive = ends_just_before
engine.collect()
child.returncode = 0
print(engine.over, engine.code)
"""


def test_an_engine_that_ends_between_two_looks_keeps_its_exit_code():
    done = subprocess.run(
        [sys.executable, "-c", ENDS_BETWEEN_TWO_LOOKS],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "True -9\n"
