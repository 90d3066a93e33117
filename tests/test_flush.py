"""A cold probe begins with an empty prefix cache, or not at all."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest

from configs.plan import make_plan
from infra.host_agent import HostAgent
from infra.masking import Mask
from infra.shell import LocalShell
from infra.store import Store
from tasks import drive
from tasks.drive import flush_cache
from tasks.launch import Handle
from tasks.venue import Site, StageFailedError
from tests import rehearsing
from tests.sweeps import host, sweep

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[rehearsing.Engine]:
    folder = rehearsing.build(tmp_path / "host", time_scale=1.0)
    with rehearsing.Engine(folder) as made:
        yield made.ready()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("HOME", str(tmp_path))
    box, asked = host(), sweep()
    trial = make_plan(asked).trials[0]
    run = Store(tmp_path / "runs").new_run(asked.name)
    agent = HostAgent(LocalShell(), box, patience_s=5)
    yield Site(agent, box, asked, trial, "h", "m", run.next_attempt(trial.id), Mask(()))
    agent.close()


def handle(port: int) -> Handle:
    return Handle(folder="/t", port=port, pid=1, pgid=1, sid=1, start_ticks=1, boot_id="b")


def test_what_was_cached_is_gone_after_a_flush(site: Site, engine: rehearsing.Engine) -> None:
    def cached() -> int:
        return int(engine.generate("The capital of France is", 4)["meta_info"]["cached_tokens"])

    assert cached() == 0
    assert cached() > 0
    flush_cache(site, handle(engine.port))
    assert cached() == 0


def test_a_flush_that_fails_is_told_and_nothing_is_measured(
    site: Site, engine: rehearsing.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drive, "FLUSH_S", 0.3)
    busy = threading.Thread(target=engine.generate, args=("Tell me a long story", 400))
    busy.start()
    engine.wait_for("Prefill batch")
    with pytest.raises(StageFailedError) as caught:
        flush_cache(site, handle(engine.port))
    busy.join()
    failure = caught.value.failure
    assert failure.failure_class == "probe_failed"
    assert "the prefix cache was not emptied before the probe (/flush_cache: 400" in failure.message


def test_a_server_without_a_flush_is_not_asked_for_ten_seconds(site: Site) -> None:
    asked: list[str] = []

    class NoFlush(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.send_error(404)

    with HTTPServer(("127.0.0.1", 0), NoFlush) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        with pytest.raises(StageFailedError, match="404"):
            flush_cache(site, handle(server.server_port))
        server.shutdown()
        serving.join()
    assert asked == ["/flush_cache"]
