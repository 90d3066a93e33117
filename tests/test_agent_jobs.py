"""A job runs once, detached, and its result is there whoever comes back for it."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from typing import Any

import pytest

from infra.agent import commands, topology
from tests.agent_host import AgentHost, is_alive, until


@pytest.fixture
def host(tmp_path):
    host = AgentHost(tmp_path)
    yield host
    host.clean_up()


@pytest.fixture
def trial(host):
    return host.trial()


FACTS: dict[str, Any] = {"python": None, "paths": [], "ports": []}


def test_a_job_asked_for_twice_runs_once(host, trial):
    result = trial.job("survey", "facts", FACTS)
    pid = json.loads((trial.path / "jobs/survey/pid.json").read_text())
    again = host.call("start", dir=str(trial.path), name="survey", job="facts", request=FACTS)
    assert (again["already"], again["alive"]) == (True, False)
    assert again["result"] == result
    assert json.loads((trial.path / "jobs/survey/pid.json").read_text()) == pid


def test_a_running_job_asked_for_again_tells_how_it_stands(host, trial, tmp_path):
    slow = tmp_path / "slow-python"
    slow.write_text(f'#!/bin/sh\nread x <{tmp_path}/go\nexec {sys.executable} "$@"\n')
    slow.chmod(0o755)
    os.mkfifo(tmp_path / "go")
    request = {"dir": str(trial.path), "name": "a", "job": "facts", "python": str(slow)}
    first = host.call("start", request=FACTS, **request)
    second = host.call("start", request=FACTS, **request)
    assert (first["already"], first["alive"]) == (False, True)
    assert (second["already"], second["alive"], second["result"]) == (True, True, None)
    (tmp_path / "go").write_text("\n")
    assert until(lambda: trial.wait(None, job="a")["job"]["result"])["ok"] is True


def test_a_job_that_died_without_a_result_says_so_and_its_name_is_used(host, trial):
    request = {"dir": str(trial.path), "name": "a", "job": "facts", "request": FACTS}
    host.call("start", python="/bin/false", **request)
    until(lambda: not trial.wait(None, job="a")["job"]["alive"])
    again = host.call("start", **request)
    assert (again["already"], again["alive"], again["result"]) == (True, False, None)


def test_a_request_may_lie_in_its_folder_already(host, trial):
    folder = trial.path / "jobs" / "a"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "request.json").write_text(json.dumps(FACTS))
    host.call("start", dir=str(trial.path), name="a", job="facts")
    assert until(lambda: trial.wait(None, job="a")["job"]["result"])["ok"] is True
    assert (folder / "result.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"name": "../x"}, "bad_name"),
        ({"name": ""}, "bad_name"),
        ({"job": "dance"}, "unknown_job"),
        ({"request": None}, "no_request"),
        ({"python": "/nowhere/python"}, "no_python"),
    ],
)
def test_what_cannot_be_started_is_refused(host, trial, change, error):
    request = {"dir": str(trial.path), "name": "a", "job": "facts", "request": FACTS, **change}
    assert host.refusal("start", **request)["error"] == error


@pytest.mark.parametrize(
    ("request_", "error"), [({"base_url": "x"}, "bad_request"), ([1], "bad_request")]
)
def test_a_wrong_request_is_a_result_not_a_crash(trial, request_, error):
    folder = trial.path / "jobs" / "a"
    folder.mkdir(parents=True)
    (folder / "request.json").write_text(json.dumps(request_))
    trial.host.call("start", dir=str(trial.path), name="a", job="drive")
    result = until(lambda: trial.wait(None, job="a")["job"]["result"])
    assert (result["ok"], result["error"]) == (False, error)


SMI = """#!/bin/sh
case "$*" in
*clocks_event_reasons*) echo 'Field "clocks_event_reasons.active" is not a valid field to query.'; exit 2 ;;
*compute-apps*) echo "GPU-1, 1, python, 500" ;;
"topo -m") echo "GPU0 X" ;;
topo*) exec sleep 1000 ;;
nvlink*) echo "no such thing" >&2; exit 3 ;;
*) echo "0, GPU-1, NVIDIA H200, 570.1" ;;
esac
"""


def test_facts_are_raw_and_complete(host, trial, tmp_path):
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(SMI)
    program.chmod(0o755)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "a.safetensors").write_bytes(b"x" * 1000)
    trial.launch("sh", "-c", "exec sleep 1000")
    paths = [str(tmp_path / "model"), "/nowhere/at/all"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        host.call(
            "start",
            dir=str(trial.path),
            name="f",
            job="facts",
            request={"python": sys.executable, "paths": paths, "ports": [port]},
            env={"PATH": f"{program.parent}:/usr/bin:/bin"},
        )
        facts = until(lambda: trial.wait(None, job="f")["job"]["result"])
    smi = facts["nvidia_smi"]
    assert "clocks_throttle_reasons.active" in smi["gpus"]["argv"][1]
    assert smi["gpus"]["exit"] == 0
    assert facts["topology"] is None  # only a sweep's arrival asks for it
    rows = {row["pid"]: row for row in facts["processes"]}
    engine = trial.state["engine"]
    assert rows[engine["pid"]]["marker"] == trial.name
    assert rows[engine["pid"]]["start_ticks"] == engine["start_ticks"]
    assert rows[engine["pid"]]["args"] == "sleep 1000"
    assert 1 in rows
    assert facts["engine_python"]["packages"]["aiohttp"]
    assert facts["engine_python"]["packages"]["vllm"] is None
    assert facts["paths"][paths[0]]["size_bytes"] == 1000
    assert facts["paths"][paths[1]]["exists"] is False
    assert facts["paths"][paths[1]]["disk_free_bytes"] > 0
    assert facts["ports_free"] == {str(port): False}
    assert facts["host"]["memory_total_bytes"] > facts["host"]["memory_available_bytes"] > 0


def test_a_topology_is_whatever_can_be_asked(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text(SMI)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(topology, "_TIMEOUT_S", 0.5)
    found = topology.ask()
    assert found["matrix"]["stdout"] == "GPU0 X\n"
    assert [found[name]["error"] for name in ("p2p_read", "p2p_write")] == ["timeout", "timeout"]
    assert (found["nvlink"]["exit"], found["nvlink"]["stderr"]) == (3, "no such thing\n")
    assert found["devices"] == [{"bus": "gpu-1", "node": None, "group": None}]
    assert found["kernel"] is not None
    json.dumps(found)
    monkeypatch.setenv("PATH", "/nowhere")
    assert topology.ask()["matrix"]["error"] == "not_found"


def test_of_the_kernels_command_line_only_what_concerns_pcie_leaves_the_host(tmp_path):
    line = tmp_path / "cmdline"
    line.write_text("root=UUID=1 iommu=pt intel_iommu=on token=hush pci=realloc=off quiet\n")
    assert topology._kernel(str(line)) == ["iommu=pt", "intel_iommu=on", "pci=realloc=off"]
    assert topology._kernel(str(tmp_path / "none")) is None


def test_a_program_that_hangs_is_left_behind_in_time():
    got = commands.run(["sh", "-c", "echo half; trap '' TERM; exec sleep 1000"], 0.2)
    assert (got["error"], got["exit"], got["stdout"]) == ("timeout", None, "half\n")


def test_a_program_that_is_not_there_is_said():
    assert commands.run(["/nowhere/nvidia-smi"], 1.0)["error"] == "not_found"


def test_a_job_outlives_the_call_that_started_it(host, trial):
    trial.launch("sh", "-c", "exec sleep 1000")
    with socket.create_server(("127.0.0.1", 0)) as server:
        load = {
            "base_url": f"http://127.0.0.1:{server.getsockname()[1]}",
            "path": "/generate",
            "concurrency": 2,
            "timeout_s": 60,
            "deadline_s": 60,
            "requests": [{"id": str(i), "kind": "k", "payload": {}} for i in range(3)],
        }
        host.call("start", dir=str(trial.path), name="p", job="drive", request=load)

        def news() -> Any:
            job = trial.wait(None, job="p")["job"]
            assert job["alive"], job
            return job["progress"]

        shown = until(news)
        assert (shown["in_flight"], shown["done"], shown["tokens"]) == (2, 0, 0)
        engine = trial.state["engine"]["pid"]
        os.kill(engine, signal.SIGKILL)
        result = until(lambda: trial.wait(None, job="p")["job"]["result"])
    assert not is_alive(engine)
    assert (result["ok"], result["error"], result["unsent"]) == (False, "engine_gone", 1)
    rows = (trial.path / "jobs/p/samples.jsonl").read_text().splitlines()
    assert [json.loads(row)["error"]["class"] for row in rows] == ["engine_gone"] * 2
    assert trial.wait_over()["exit_code"] == -9


def test_programs_are_asked_side_by_side_and_the_first_fault_is_told():
    arrived = threading.Barrier(2, timeout=60)

    def meet(name: str) -> str:
        arrived.wait()  # each waits for the other: one after the other they would never meet
        return name

    assert commands.at_once(lambda: meet("a"), lambda: meet("b")) == ["a", "b"]
    with pytest.raises(ZeroDivisionError):
        commands.at_once(lambda: 1, lambda: 1 // 0)
