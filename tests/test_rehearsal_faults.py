"""Faults on demand strike at their stage, once, with the text of that stage."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from infra.rehearsal import faults
from infra.rehearsal.faults import Fault
from tests.rehearsing import Engine, build, closed_loop, eagle3, patch, stream, wait_free


@pytest.fixture
def host(tmp_path):
    folder = build(tmp_path / "host")
    patch(folder)
    return folder


TORN = (asyncio.IncompleteReadError, ConnectionResetError)
SPEAKING = {
    "arguments": (1, "ValueError: Unknown attention backend", "server_args="),
    "distributed_init": (137, "DistBackendError: NCCL error in", "Init torch distributed ends."),
    "target_weights": (137, "SafetensorError: Error while deserializing", "Load weight end."),
    "kv_cache": (137, "Not enough memory. Please try to increase", "KV Cache is allocated."),
    "graph_capture": (137, "Capture cuda graph failed: CUDA error", "Capture cuda graph end."),
    "draft_weights": (137, "Attempted to load weight", "Capture draft cuda graph begin."),
    "draft_graph_capture": (137, "Possible solutions:", "Capture draft cuda graph end."),
    "warmup": (137, "Initialization failed. warmup error:", "fired up"),
}


@pytest.mark.parametrize("stage", faults.START_STAGES)
def test_each_start_stage_dies_with_its_own_text(host, stage):
    code, text, never = SPEAKING[stage]
    faults.plant(host, Fault(stage))
    with Engine(host, *eagle3()) as engine:
        assert engine.ended() == code
    assert text in engine.log
    assert never not in engine.log
    assert faults.read(host) == []
    wait_free(host, 0)


def test_a_fault_happens_only_as_often_as_planted(host):
    faults.plant(host, Fault("kv_cache", "oom", times=2))
    for _ in range(2):
        with Engine(host) as engine:
            assert engine.ended() == 137
        assert "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate" in engine.log
    with Engine(host) as engine:
        engine.ready()


def test_oom_at_capture_comes_with_the_advice(host):
    faults.plant(host, Fault("graph_capture", "oom"))
    with Engine(host) as engine:
        assert engine.ended() == 137
    assert "Exception: Capture cuda graph failed: CUDA out of memory." in engine.log
    assert "1. set --mem-fraction-static to a smaller value" in engine.log


def test_a_hanging_rank_holds_all_others(host):
    faults.plant(host, Fault("distributed_init", "hang", rank=6))
    with Engine(host) as engine:
        engine.wait_for("Init torch distributed begin.", times=8)
        engine.wait_for("Init torch distributed ends.", times=7)
        assert engine.process.poll() is None
        assert "Load weight begin." not in engine.log
        with socket.socket() as client:
            assert client.connect_ex(("127.0.0.1", engine.port)) != 0


def test_one_dying_rank_is_the_only_one_that_speaks(host):
    faults.plant(host, Fault("target_weights", rank=6))
    with Engine(host) as engine:
        assert engine.ended() == 137
    assert engine.log.count("Scheduler hit an exception") == 1
    assert " TP6] Scheduler hit an exception" in engine.log


def test_killed_rank_zero_is_reported_at_start(host):
    faults.plant(host, Fault("target_weights", "sigkill_scheduler"))
    with Engine(host) as engine:
        assert engine.ended() == 1
    assert "Rank 0 scheduler is dead. Please check if there are relevant logs." in engine.log
    assert "Exit code: -9" in engine.log


def test_faults_choose_their_trial_and_arm(host):
    faults.plant(host, Fault("kv_cache", trial="^night-2$"), Fault("kv_cache", arm="k25-custom"))
    with Engine(host, EAGLE3_SWEEP_TRIAL="night-1") as engine:
        engine.ready()
    with Engine(host, *eagle3("k25-custom"), EAGLE3_SWEEP_TRIAL="night-1") as engine:
        assert engine.ended() == 137
    with Engine(host, EAGLE3_SWEEP_TRIAL="night-2") as engine:
        assert engine.ended() == 137
    assert faults.read(host) == []


@pytest.mark.parametrize(
    ("what", "text"),
    [("die", "CUDA error: an illegal memory access"), ("oom", "torch.OutOfMemoryError: CUDA out")],
)
def test_dying_during_decode_breaks_the_streams(host, what, text):
    faults.plant(host, Fault("decode", what))
    with Engine(host) as engine:
        engine.ready()
        with pytest.raises(TORN):
            asyncio.run(stream(engine.port, "x", 200))
        assert engine.ended() == 137
    assert text in engine.log
    assert "SIGQUIT received. signum=None, frame=None." in engine.log


def test_dying_after_some_requests(host):
    faults.plant(host, Fault("after_requests", after_requests=3))
    with Engine(host) as engine:
        engine.ready()
        for number in range(3):
            engine.generate(f"prompt {number}", 4)
        assert engine.ended() == 137


def test_dying_right_after_ready(host):
    faults.plant(host, Fault("ready", rank=2))
    with Engine(host) as engine:
        assert engine.ended() == 137
    ready = engine.log.index("fired up")
    assert engine.log.index(" TP2] Scheduler hit an exception") > ready


async def killed_under_load(engine, watched) -> None:
    client = asyncio.create_task(stream(engine.port, "x", 100))
    if watched:
        assert await asyncio.to_thread(engine.ended) == 137
    else:
        await asyncio.to_thread(wait_free, engine.folder, 3)
        assert (await asyncio.to_thread(engine.ask, "/health"))[0] == 503
        assert engine.process.poll() is None
        engine.process.kill()
    with pytest.raises(TORN):
        await client


@pytest.mark.parametrize("watched", [False, True])
def test_a_killed_scheduler_is_noticed_only_by_later_versions(tmp_path, watched):
    host = build(tmp_path, watch_children=watched, time_scale=20.0)
    faults.plant(host, Fault("decode", "sigkill_scheduler", rank=3))
    with Engine(host) as engine:
        engine.ready()
        asyncio.run(killed_under_load(engine, watched))
    if watched:
        assert "Subprocess scheduler_3 (pid=" in engine.log
        assert "crashed with exit code -9. Triggering SIGQUIT" in engine.log
    wait_free(host, 3)


def test_no_tokens_leaves_a_live_process_that_is_unhealthy(tmp_path):
    host = build(tmp_path, time_scale=40.0)
    faults.plant(host, Fault("ready", "no_tokens"))
    with Engine(host) as engine:
        engine.ready()
        assert engine.ask("/health")[0] == 503
        assert engine.json("/model_info")["is_generation"]
        engine.wait_for("Health check failed. Server couldn't get a response")


def test_slow_and_retract(host):
    faults.plant(host, Fault("ready", "slow", factor=2.0), Fault("decode", "retract"))
    with Engine(host, "--enable-metrics") as engine:
        engine.ready()
        assert engine.json("/rehearsal/truth")["step_s"]["1"] == pytest.approx(2 / 63.6)
        seen = asyncio.run(closed_loop(engine.port, 4, 1, 24))
        engine.wait_for("KV cache pool is full. Retract requests. #retracted_reqs: 1,")
        assert sum(one.meta["total_retractions"] for one in seen) in (0, 1)
        assert all(one.meta["completion_tokens"] == 24 for one in seen)


def test_misspelt_faults_are_refused(host):
    (host / faults.FILE).write_text(json.dumps([{"when": "kv_cache", "waht": "die"}]))
    with pytest.raises(ValueError, match="unknown keys"):
        faults.read(host)
    with pytest.raises(ValueError, match="no stage"):
        Fault("lunch")
    with pytest.raises(ValueError, match="while running"):
        Fault("kv_cache", "slow")


def test_moments_may_be_written_briefly(host):
    entries = [{"after_requests": 5}, {"when": {"after_requests": 6}, "what": "hang"}]
    (host / faults.FILE).write_text(json.dumps(entries))
    assert faults.read(host) == [
        Fault("after_requests", after_requests=5),
        Fault("after_requests", "hang", after_requests=6),
    ]
