"""The probe client: closed loop, true counts and times, every bad end with its name."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from infra.agent import lease, ports
from infra.agent.drive import drive
from infra.agent.jobs import Job
from infra.agent.refusal import Refusal
from tests.agent_host import until
from tests.test_agent_streams import LENGTH, event

if TYPE_CHECKING:
    from collections.abc import Iterator


class Server:
    """An engine that streams what its requests ask for, and watches how many there are at once."""

    def __init__(self) -> None:
        self.now = self.most = self.seen = 0
        self.freed = asyncio.Event()
        self.port = 0

    async def generate(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        self.now += 1
        self.seen += 1
        self.most = max(self.most, self.now)
        try:
            return await self._stream(request, asked)
        finally:
            self.now -= 1

    async def _stream(self, request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
        kind = asked.get("do", "ok")
        if kind == "status":
            return web.Response(status=500, text="CUDA error")
        if kind == "json":
            return web.json_response({"text": "whole", "meta_info": {"completion_tokens": 3}})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        gap = asked.get("gap", 0.0)
        for count in range(1, asked.get("tokens", 4) + 1):
            last = count == asked.get("tokens", 4)
            if last and kind in ("cut", "drop", "hang", "error", "abort"):
                break
            await response.write(event(count, LENGTH if last else None))
            await asyncio.sleep(gap)
        if kind == "drop" and request.transport is not None:
            request.transport.abort()
        if kind == "hang":
            await self.freed.wait()
        if kind == "until":
            await asyncio.to_thread(until, Path(asked["path"]).exists)
        if kind == "error":
            await response.write(b'data: {"error": {"message": "out of memory"}}\n\n')
        if kind == "abort":
            await response.write(event(3, {"type": "abort", "message": "KV cache is full"}))
        if kind not in ("cut", "drop"):
            await response.write(b"data: [DONE]\n\n")
        return response


@contextmanager
def serving() -> Iterator[Server]:
    """The server in a loop of its own, in a thread of its own."""
    ready, loop = threading.Event(), asyncio.new_event_loop()
    server, ended = Server(), asyncio.Event()

    async def serve() -> None:
        app = web.Application()
        app.router.add_post("/generate", server.generate)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        server.port = ports.pick(1)[0]
        await web.TCPSite(runner, "127.0.0.1", server.port).start()
        ready.set()
        await ended.wait()
        server.freed.set()
        await runner.cleanup()

    def run() -> None:
        loop.run_until_complete(serve())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(60)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()


@pytest.fixture(scope="module")
def server():
    with serving() as server:
        yield server


@pytest.fixture
def driven(tmp_path, server):
    """Drives payloads; gives the result and the samples by id."""

    def run(payloads: list[dict[str, Any]], **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        where = tmp_path / "jobs" / "p"
        where.mkdir(parents=True)
        request = {
            "base_url": f"http://127.0.0.1:{server.port}",
            "path": "/generate",
            "concurrency": 2,
            "timeout_s": 5,
            "deadline_s": 20,
            "requests": [
                {"id": f"r{i}", "kind": "code", "payload": p} for i, p in enumerate(payloads)
            ],
            **more,
        }
        result = drive(Job(str(tmp_path), str(where), request))
        raw = (where / "samples.jsonl").read_bytes()
        assert hashlib.sha256(raw).hexdigest() == result["samples_sha256"]
        assert len(raw) == result["samples_bytes"]
        assert json.loads((where / "progress.json").read_text())["in_flight"] == 0
        rows = [json.loads(line) for line in raw.splitlines()]
        return result, {row["id"]: row for row in rows}

    return run


def test_counts_times_and_the_engines_own_account(driven):
    result, samples = driven([{"tokens": 6, "gap": 0.01}] * 3)
    assert (result["ok"], result["completed"], result["failed"]) == (True, 3, 0)
    for sample in samples.values():
        assert sample["chunks"][-1][1] == 6
        times = [at for at, _ in sample["chunks"]]
        assert sample["sent"] <= sample["first"] == times[0] <= times[-1] == sample["last"]
        assert sample["last"] <= sample["done"]
        assert 0.04 < sample["last"] - sample["first"] < 2
        assert times == sorted(times)
        assert sample["meta"]["finish_reason"] == LENGTH
        assert sample["output_ids"] == list(range(6))
        assert sample["text_tail"] == "tok " * 6
        assert (sample["status"], sample["error"], sample["kind"]) == (200, None, "code")


def test_exactly_the_asked_number_is_in_flight(driven, server):
    server.most = server.seen = 0
    driven([{"tokens": 3, "gap": 0.005}] * 17, concurrency=5)
    assert (server.most, server.seen, server.now) == (5, 17, 0)


def test_fewer_requests_than_slots(driven):
    result, _ = driven([{}], concurrency=64)
    assert result["completed"] == 1


def test_the_client_tells_how_it_did_itself(driven):
    result, _ = driven([{"tokens": 20, "gap": 0.01}] * 2)
    client = result["client"]
    assert 0 <= client["loop_lag_p50_s"] <= client["loop_lag_p99_s"] <= client["loop_lag_max_s"] < 1
    assert 0 <= client["send_delay_p99_s"] < 1
    assert 0 < client["cpu_s"] < result["seconds"] * 2
    assert 0 <= result["started_monotonic"] <= time.monotonic()


@pytest.mark.parametrize(
    ("kind", "error", "tokens"),
    [
        ("status", "http_error", 0),
        ("json", "not_a_stream", 0),
        ("cut", "cut_stream", 3),
        ("drop", "disconnected", 3),
        ("hang", "timeout", 3),
        ("error", "engine_error", 3),
        ("abort", "aborted", 3),
    ],
)
def test_every_bad_end_has_a_name_and_keeps_what_came(driven, kind, error, tokens):
    result, samples = driven([{"do": kind}, {}], timeout_s=0.4)
    assert (result["completed"], result["failed"]) == (1, 1)
    bad = samples["r0"]
    assert bad["error"]["class"] == error
    assert (bad["chunks"][-1][1] if bad["chunks"] else 0) == tokens
    assert (bad["meta"] or {}).get("completion_tokens", 0) == tokens
    assert samples["r1"]["error"] is None


def test_messages_of_the_engine_are_kept(driven):
    _, samples = driven([{"do": "error"}, {"do": "status"}, {"do": "abort"}])
    said = [samples[f"r{i}"]["error"]["message"] for i in range(3)]
    assert said == ["out of memory", "500: CUDA error", "KV cache is full"]


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """A driver's tool that names this process; the file that it leaves when it was asked."""
    left = tmp_path / "asked"
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$*" >> {left}\n'
        f'case "$1" in *apps*) echo "GPU-1, {os.getpid()}, python, 10";; *) echo "0, GPU-1";; esac\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return left


def test_the_gpus_are_looked_at_while_the_last_requests_run(driven, nvidia_smi):
    """These end only when nvidia-smi was asked: a look after the load would come too late."""
    payloads: list[dict[str, Any]] = [{}] * 4
    payloads += [{"do": "until", "path": str(nvidia_smi)}] * 2
    result, samples = driven(payloads, look_at_gpus=True)
    assert (result["completed"], result["failed"], len(samples)) == (6, 0, 6)
    asked = nvidia_smi.read_text().splitlines()
    assert "clocks_event_reasons.active" in asked[0], "the clocks come first"
    assert len(asked) == 2, "one question about the cards, one about who is on them"
    gpus = result["gpus"]
    assert gpus["gpus"]["stdout"] == "0, GPU-1\n"
    rows = {row["pid"]: row for row in gpus["processes"]}
    assert rows[os.getpid()]["uid"] == os.getuid()
    assert os.getppid() in rows, "whoever started it is seen too"
    assert not any("args" in row for row in rows.values()), "arguments may hold keys"


def test_nobody_looks_unasked(driven, nvidia_smi):
    result, _ = driven([{}] * 3)
    assert result["gpus"] is None
    assert not nvidia_smi.exists()


def test_a_host_without_the_drivers_tool_can_be_driven(driven, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    result, _ = driven([{}] * 3, look_at_gpus=True)
    assert (result["completed"], result["gpus"]["gpus"]["error"]) == (3, "not_found")


def test_nobody_there(driven):
    url = f"http://127.0.0.1:{ports.pick(1)[0]}"
    result, samples = driven([{}] * 3, base_url=url)
    assert {s["error"]["class"] for s in samples.values()} == {"refused"}
    assert {s["status"] for s in samples.values()} == {None}
    assert (result["failed"], result["client"]["send_delay_p99_s"]) == (3, None)


def test_too_many_failures_end_it_early(driven):
    result, samples = driven([{"do": "status"}] * 50, concurrency=1, abort_after_failures=3)
    assert (result["ok"], result["error"]) == (False, "too_many_failures")
    assert (len(samples), result["unsent"]) == (3, 47)


def test_the_deadline_ends_it_and_keeps_the_partial_samples(driven):
    result, samples = driven([{"do": "hang"}] * 5, timeout_s=30, deadline_s=0.3)
    assert (result["ok"], result["error"], result["unsent"]) == (False, "deadline", 3)
    assert {s["error"]["class"] for s in samples.values()} == {"deadline"}
    assert {s["chunks"][-1][1] for s in samples.values()} == {3}
    assert result["seconds"] < 3


def test_an_expired_lease_ends_it(driven, tmp_path):
    lease.renew(str(tmp_path), 0.1)
    result, _ = driven([{"do": "hang"}] * 2, timeout_s=30)
    assert (result["ok"], result["error"]) == (False, "lease_expired")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"path": "/v1/dance"}, "unknown_path"),
        ({"concurrency": 0}, "bad_request"),
        ({"requests": [{"id": "a"}]}, "bad_request"),
    ],
)
def test_what_cannot_be_driven_is_refused(driven, change, error):
    with pytest.raises(Refusal) as refused:
        driven([{}], **change)
    assert refused.value.error == error
