"""A job runs once, detached, and its result is there whoever comes back for it."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from infra.agent import commands, ports
from infra.agent.refusal import Refusal
from infra.agent.web import http_call
from tests.agent_host import AgentHost, is_alive, until

if TYPE_CHECKING:
    from collections.abc import Iterator


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
topo*) echo "GPU0 X" ;;
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
    assert (smi["gpus"]["exit"], smi["topology"]["stdout"]) == (0, "GPU0 X\n")
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


def test_a_program_that_hangs_is_left_behind_in_time():
    got = commands.run(["sh", "-c", "echo half; trap '' TERM; exec sleep 1000"], 0.2)
    assert (got["error"], got["exit"], got["stdout"]) == ("timeout", None, "half\n")


def test_a_program_that_is_not_there_is_said():
    assert commands.run(["/nowhere/nvidia-smi"], 1.0)["error"] == "not_found"


# Ports and short HTTP requests.


def test_a_port_is_free_unless_somebody_holds_it():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not ports.is_free(port)
    assert ports.is_free(port)


def test_a_port_that_is_bound_but_not_yet_listened_on_is_not_free():
    with socket.socket() as early:
        early.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        early.bind(("127.0.0.1", 0))
        assert not ports.is_free(early.getsockname()[1])


def test_finished_connections_do_not_hold_a_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        served, _ = server.accept()
        served.close()  # the server closes first: its side goes to TIME_WAIT
        client.recv(1)
        client.close()
    until(lambda: ports._states(port) == {"06"})
    assert ports.is_free(port)


def test_picked_ports_differ_and_are_free():
    picked = ports.ports({"pick": 5})["picked"]
    assert len(set(picked)) == 5
    assert all(ports.is_free(port) for port in picked)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/hang":
            self.server.hang.wait(5)  # type: ignore[attr-defined]
        body = b"x" * (2 << 20) if self.path == "/big" else b'{"status": "\xff"}'
        self.send_response(503 if self.path == "/starting" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True

    def do_POST(self):
        said = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(said + str(self.headers.get("Authorization")).encode())

    def log_message(self, *_):
        pass


@contextmanager
def serving() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.hang = threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.hang.set()  # type: ignore[attr-defined]
        server.shutdown()
        thread.join()
        server.server_close()


def get(port: int, path: str, **more: Any) -> dict[str, Any]:
    return http_call({"port": port, "method": "GET", "path": path, **more})


def test_any_status_is_an_answer_and_bodies_are_bounded(monkeypatch):
    monkeypatch.setenv("KEY", "k1")
    with serving() as port:
        assert get(port, "/health")["body"] == '{"status": "�"}'
        assert get(port, "/starting")["status"] == 503
        assert len(get(port, "/big")["body"]) == 1 << 20
        asked = {"port": port, "method": "POST", "path": "/x", "body": "hi", "api_key_env": "KEY"}
        assert http_call(asked)["body"] == "hiBearer k1"
        with pytest.raises(Refusal) as refused:
            http_call({**asked, "api_key_env": "NO_SUCH_KEY"})
        assert refused.value.error == "no_api_key"
        with pytest.raises(Refusal) as refused:
            get(port, "/hang", timeout_s=0.2)
        assert refused.value.error == "timeout"


def test_nobody_there_and_no_http_are_told_apart():
    with pytest.raises(Refusal) as refused:
        get(ports.pick(1)[0], "/health")
    assert refused.value.error == "unreachable"
    with socket.create_server(("127.0.0.1", 0)) as server:

        def talk() -> None:
            there, _ = server.accept()
            there.recv(4096)
            there.sendall(b"SSH-2.0-OpenSSH\r\n")
            there.close()

        thread = threading.Thread(target=talk)
        thread.start()
        with pytest.raises(Refusal) as refused:
            get(server.getsockname()[1], "/")
        thread.join()
    assert refused.value.error == "not_http"


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
        assert (shown["in_flight"], shown["done"]) == (2, 0)
        engine = trial.state["engine"]["pid"]
        os.kill(engine, signal.SIGKILL)
        result = until(lambda: trial.wait(None, job="p")["job"]["result"])
    assert not is_alive(engine)
    assert (result["ok"], result["error"], result["unsent"]) == (False, "engine_gone", 1)
    rows = (trial.path / "jobs/p/samples.jsonl").read_text().splitlines()
    assert [json.loads(row)["error"]["class"] for row in rows] == ["engine_gone"] * 2
    assert trial.wait_over()["exit_code"] == -9
