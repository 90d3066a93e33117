"""What a trial's own processes have in their environments is told, and nothing else of them."""

from __future__ import annotations

import sys

import pytest

from tests.agent_host import AgentHost

# A launcher that changes its environment before it starts the process that does the work.
ENGINE = """
import os, subprocess, sys, time
os.environ["CHANGED"] = "8"
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
print(f"child={child.pid}", flush=True)
child.wait()
"""


@pytest.fixture
def host(tmp_path):
    host = AgentHost(tmp_path)
    yield host
    host.clean_up()


def test_the_working_process_has_what_its_launcher_made_of_it(host):
    trial = host.trial()
    trial.launch(sys.executable, "-S", "-c", ENGINE, env={"CHANGED": "1", "SECRET": "x"})
    child = trial.pid_in_log("child")
    told = host.call("given", dir=str(trial.path), names=["CHANGED", "MISSING"])["processes"]
    by_pid = {one["pid"]: one for one in told}
    assert by_pid[child]["values"] == {"CHANGED": "8", "MISSING": None}
    launcher = trial.state["engine"]["pid"]
    assert by_pid[launcher]["values"]["CHANGED"] == "1"
    assert "SECRET" not in str(told)


def test_of_a_trial_without_processes_nothing_is_told(host):
    assert host.call("given", dir=str(host.trial().path), names=["PATH"])["processes"] == []


def test_the_files_of_a_folder_are_listed(host):
    trial = host.trial()
    (trial.path / "nccl.box.12").write_text("12345")
    (trial.path / "sub").mkdir()
    assert host.call("file", op="list", path=str(trial.path))["files"] == {"nccl.box.12": 5}
    assert host.call("file", op="list", path=f"{trial.path}/none")["files"] == {}
