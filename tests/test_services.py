"""Services beside a sweep: started once, recognised by identity, and only ours are stopped."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flows import services
from infra.services import (
    LOOPBACK,
    Service,
    ServiceDown,
    answers,
    ensure,
    free_port,
    module,
    port_of,
    read_ready,
    running,
    service_file,
    stop,
)
from tests.agent_host import is_alive

WEB = """
import http.server, sys
class Quiet(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *a): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Quiet).serve_forever()
"""
STUBBORN = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal, time; "
    "signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"],
    stdout=subprocess.PIPE)
child.stdout.readline()
open(sys.argv[1], "w").write(str(child.pid))
signal.pause()
"""


@pytest.fixture
def room(tmp_path, monkeypatch):
    """A state folder of its own, empty of services afterwards."""
    monkeypatch.setenv("EAGLE3_HOME", str(tmp_path / "state"))
    yield tmp_path
    for file in (tmp_path / "state" / "services").glob("*.json"):
        stop(file.stem, lambda _text: None, patience_s=1)


def web(port: int, name: str = "web") -> Service:
    argv = [sys.executable, "-c", WEB, str(port)]
    return Service(
        name, argv, {"WEB_SETTING": "1"}, port, lambda: answers(f"http://{LOOPBACK}:{port}")
    )


def test_started_twice_is_started_once(room):
    said: list[str] = []
    service = web(free_port(0))
    assert ensure(service, said.append) is True
    first = running("web")
    assert first is not None
    assert ensure(service, said.append) is False
    assert running("web") == first
    assert said[1] == "web: up already"
    assert service_file("web").stat().st_mode & 0o777 == 0o600
    assert b"WEB_SETTING=1" in Path(f"/proc/{first['pid']}/environ").read_bytes()
    assert port_of("web", 1) == first["port"]


def test_it_outlives_who_started_it_in_a_session_of_its_own(room):
    ensure(web(free_port(0)), print)
    known = running("web")
    assert known is not None
    assert os.getsid(known["pid"]) == known["pid"] != os.getsid(0)


def test_a_dead_one_is_started_again(room):
    service = web(free_port(0))
    ensure(service, print)
    before = running("web")
    assert before is not None
    os.kill(before["pid"], signal.SIGKILL)
    os.waitpid(before["pid"], 0)
    assert running("web") is None
    assert ensure(service, print) is True
    after = running("web")
    assert after is not None
    assert after["pid"] != before["pid"]


def test_one_that_lives_but_does_not_answer_is_replaced(room):
    port = free_port(0)
    hung = Service(
        "web", [sys.executable, "-c", "import signal; signal.pause()"], {}, port, lambda: True
    )
    ensure(hung, print)
    first = running("web")
    assert ensure(web(port), print) is True
    assert running("web") != first
    assert answers(f"http://{LOOPBACK}:{port}")


def test_stopping_ends_it_and_forgets_it(room):
    service = web(free_port(0))
    ensure(service, print)
    said: list[str] = []
    stop("web", said.append)
    assert said == ["web: stopped"]
    assert running("web") is None
    assert not service_file("web").exists()
    assert not service.ready()
    stop("web", said.append)
    assert said == ["web: stopped"]


def test_one_that_ignores_a_polite_word_goes_with_its_children(room):
    mark = room / "mark"
    ensure(
        Service(
            "deaf",
            [sys.executable, "-c", STUBBORN, str(mark)],
            {},
            None,
            lambda: mark.exists() and mark.read_text() != "",
        ),
        print,
    )
    known = running("deaf")
    assert known is not None
    began = time.monotonic()
    stop("deaf", print, patience_s=0.5)
    assert time.monotonic() - began < 5
    assert not is_alive(known["pid"])
    assert not is_alive(int(mark.read_text()))


def test_a_process_that_got_the_number_of_a_dead_service_is_not_touched(room):
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as stranger:
        service_file("web").parent.mkdir(parents=True)
        known = {"name": "web", "pid": stranger.pid, "start_ticks": 1, "port": 1, "argv": []}
        service_file("web").write_text(json.dumps(known))
        assert running("web") is None
        stop("web", print)
        assert stranger.poll() is None
        stranger.kill()


def test_one_that_died_before_it_was_written_down_is_not_taken_for_alive(room):
    service_file("web").parent.mkdir(parents=True)
    known = {"name": "web", "pid": 999_999_999, "start_ticks": None, "port": 1, "argv": []}
    service_file("web").write_text(json.dumps(known))
    assert running("web") is None


def test_one_that_ends_at_once_is_told_with_its_code_and_log(room):
    broken = Service(
        "web", [sys.executable, "-c", "print('no config'); exit(3)"], {}, 1, lambda: False
    )
    with pytest.raises(ServiceDown, match=r"web ended at once \(exit 3\): see .*web\.log"):
        ensure(broken, print)
    assert "no config" in service_file("web").with_suffix(".log").read_text()


def test_one_that_cannot_be_started_is_told(room):
    with pytest.raises(ServiceDown, match=r"cannot be started.*no/such"):
        ensure(Service("web", ["/no/such/program"], {}, 1, lambda: False), print)


def test_a_strangers_server_on_the_port_is_not_taken_for_ours(room):
    port = free_port(0)
    ensure(web(port, "first"), print)
    with pytest.raises(ServiceDown, match=f"second: port {port} is another program's"):
        ensure(web(port, "second"), print)
    assert running("second") is None


def test_the_preferred_port_is_taken_if_it_is_free():
    port = free_port(0)
    assert free_port(port) == port
    with socket.create_server((LOOPBACK, port)):
        assert free_port(port) != port


def test_whether_a_server_answers_is_never_an_exception():
    port = free_port(0)
    assert answers(f"http://{LOOPBACK}:{port}") is False
    assert answers("not an address") is False


def test_this_python_runs_modules():
    assert module("infra.rehearsal", "serve") == [sys.executable, "-m", "infra.rehearsal", "serve"]


def test_half_an_address_file_is_none(tmp_path):
    path = tmp_path / "ready.json"
    assert read_ready(path) is None
    path.write_text('{"port": 1')
    assert read_ready(path) is None
    path.write_text('{"port": 1}')
    assert read_ready(path) == {"port": 1}


@pytest.mark.parametrize("make", [services._mlflow, services._prefect])
def test_what_up_starts_listens_on_loopback(room, make):
    argv = list(make({}, 4321, "http://x").argv)
    assert argv[argv.index("--host") + 1] == LOOPBACK
    assert argv[argv.index("--port") + 1] == "4321"


def test_two_who_start_it_at_once_share_it(room):
    service = web(free_port(0))
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda _n: ensure(service, lambda _text: None), range(2)))
    assert sorted(outcomes) == [False, True]
    assert running("web") is not None
