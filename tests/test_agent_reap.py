"""The reap job: ends a trial from outside, and says how it left the host."""

from __future__ import annotations

import os
import socket
import sys

import pytest

from tests.agent_host import AgentHost, until

FOREVER = "while :; do sleep 1; done"


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
    trial = host.trial()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        result = trial.job("reap", "reap", {"port": port, "gpu_wait_s": 0.1})
    assert (result["outcome"], result["port_free"]) == ("port_held", False)
