"""Ports and short HTTP requests: who listens on this host, and what he answers."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from infra.agent import ports
from infra.agent.refusal import Refusal
from infra.agent.web import http_call, http_calls
from tests.agent_host import until

if TYPE_CHECKING:
    from collections.abc import Iterator


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


def test_any_status_is_an_answer_and_bodies_are_bounded(tmp_path):
    key = tmp_path / "headers.json"
    key.write_text('{"Authorization": "Bearer k1"}')
    with serving() as port:
        assert get(port, "/health")["body"] == '{"status": "�"}'
        assert get(port, "/starting")["status"] == 503
        assert len(get(port, "/big")["body"]) == 1 << 20
        asked = {"port": port, "method": "POST", "path": "/x", "body": "hi"}
        assert http_call({**asked, "headers_path": str(key)})["body"] == "hiBearer k1"
        with pytest.raises(Refusal) as refused:
            http_call({**asked, "headers_path": str(tmp_path / "none.json")})
        assert refused.value.error == "no_headers"
        with pytest.raises(Refusal) as refused:
            get(port, "/hang", timeout_s=0.2)
        assert refused.value.error == "timeout"


def test_several_requests_go_in_order_up_to_the_first_that_fails():
    def asked(*paths: str) -> Any:
        requests = [{"method": "GET", "path": path} for path in paths]
        return http_calls({"port": port, "requests": requests, "timeout_s": 0.2})["answers"]

    with serving() as port:
        assert [one["status"] for one in asked("/a", "/starting", "/b")] == [200, 503]
        whole, late = asked("/a", "/hang", "/b")
        assert (whole["error"], late["error"]) == (None, "timeout")
        assert late["message"].startswith("timeout: port")


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
