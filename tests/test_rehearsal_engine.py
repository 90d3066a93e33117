"""The pretend engine starts, serves and ends like SGLang 0.5.9, at the speed of its truth."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import statistics
import subprocess
import time
from pathlib import Path

import pytest

from infra.rehearsal import memory
from tests.rehearsing import (
    BOUND_S,
    Engine,
    Streamed,
    build,
    closed_loop,
    eagle3,
    model_file,
    patch,
    stream,
    wait_free,
)


@pytest.fixture
def host(tmp_path):
    """A pristine host with free cards."""
    return build(tmp_path / "host")


@pytest.fixture
def patched(host):
    """A host with free cards whose target has the hooks."""
    patch(host)
    return host


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A running server without speculation."""
    folder = build(tmp_path_factory.mktemp("base"))
    with Engine(folder, "--enable-metrics", "--decode-log-interval", "10") as engine:
        yield engine.ready()


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A running server that speculates with the good drafter."""
    folder = build(tmp_path_factory.mktemp("tuned"))
    patch(folder)
    with Engine(folder, *eagle3(), "--enable-metrics", SPT_NOENV="1") as engine:
        yield engine.ready()


def start_of(log) -> list[str]:
    """Rank 0's and the main process's messages up to readiness, without bars."""
    lines = re.split(r"[\r\n]+", log)
    found = []
    for line in lines:
        told = re.match(r"\[[\d :-]+( TP0)?\] (.*)", line)
        if told:
            found.append(told[2])
    return found


def in_order(messages, *heads) -> None:
    rest = iter(messages)
    for head in heads:
        assert any(message.startswith(head) for message in rest), f"{head!r} is missing or late"


def test_start_log_has_the_real_order_without_speculation(base):
    in_order(
        start_of(base.log),
        "server_args=ServerArgs(model_path=",
        "Init torch distributed begin.",
        "sglang is using nccl==",
        "Init torch distributed ends. elapsed=",
        "Load weight begin. avail mem=",
        "Load weight end. elapsed=",
        "Using KV cache dtype: torch.bfloat16",
        "KV Cache is allocated. #tokens: ",
        "Memory pool end. avail mem=",
        "Capture cuda graph begin.",
        "Capture cuda graph bs [1, 2, 4, 8,",
        "Capture cuda graph end.",
        "max_total_num_tokens=",
        "INFO:     Started server process",
        "INFO:     Application startup complete.",
        "INFO:     Uvicorn running on http://127.0.0.1:",
        "The server is fired up and ready to roll!",
    )
    assert "\rLoading safetensors checkpoint shards: 100%" in base.log
    assert "accept len" not in base.log
    for rank in range(8):
        assert base.log.count(f" TP{rank}] Load weight begin.") == 1


def test_start_log_loads_the_drafter_after_the_targets_graphs(tuned):
    in_order(
        start_of(tuned.log),
        "Max running requests is reset to 48 for speculative decoding.",
        "Load weight begin.",
        "Capture cuda graph end.",
        "Load weight begin.",
        "Load weight end. elapsed=",
        "KV Cache is allocated. #tokens: ",
        "Capture draft cuda graph begin.",
        "Capture draft cuda graph end.",
        "Capture draft extend cuda graph begin.",
        "max_total_num_tokens=",
    )
    assert "type=LlamaForCausalLMEagle3" in tuned.log
    assert "max_running_requests=48" in tuned.log


def test_unset_running_limit_is_48_when_speculating_and_the_set_one_stands(patched, tuned):
    state = tuned.json("/server_info")["internal_states"][0]
    assert state["effective_max_running_requests_per_dp"] == 48
    with Engine(patched, *eagle3(max_running_requests=64)) as engine:
        engine.ready()
        assert "reset to 48" not in engine.log
        state = engine.json("/server_info")["internal_states"][0]
        assert state["effective_max_running_requests_per_dp"] == 64


def test_unpatched_target_dies_of_the_missing_hook(host):
    with Engine(host, *eagle3()) as engine:
        assert engine.ended() == 137
    assert (
        "AttributeError: 'KimiK25ForConditionalGeneration' object has no attribute "
        "'set_eagle3_layers_to_capture'" in engine.log
    )
    # Eight as a rule; whoever is behind when the first rank dies goes with it, unheard.
    deaths = list(re.finditer(r" TP\d\] Scheduler hit an exception: Traceback", engine.log))
    assert 1 <= len(deaths) <= 8
    assert engine.log.index("Capture cuda graph bs [") < deaths[0].start()
    assert engine.log.rstrip().endswith(
        "Received sigquit from a child process. It usually means the child failed."
    )
    wait_free(host, 0)


def test_half_patched_target_dies_of_the_next_hook(host):
    patch(host, "\n    def set_eagle3_layers_to_capture(self, layer_ids=None):\n        pass\n")
    with Engine(host, *eagle3()) as engine:
        assert engine.ended() == 137
    assert "has no attribute 'get_embed_and_head'" in engine.log
    # Of target and drafter; whoever is behind when the first rank dies goes with it.
    assert 8 < engine.log.count("Load weight end.") <= 16


def test_broken_patch_leaves_an_unknown_architecture(host):
    model_file(host).write_text("def broken(:\n")
    with Engine(host) as engine:
        assert engine.ended() == 137
    assert "Ignore import error when loading sglang.srt.models.kimi_k25: " in engine.log
    assert "are not supported for now. Supported architectures: " in engine.log


@pytest.mark.parametrize(
    ("flags", "code", "text"),
    [
        (["--speculative-num-step-typo", "3"], 2, "error: unrecognized arguments: --speculative"),
        (["--speculative-draft", "x"], 2, "error: ambiguous option: --speculative-draft"),
        (["--attention-backend", "fast"], 2, "argument --attention-backend: invalid choice"),
        (["--model-path", "shared/none"], 1, "OSError: Repo id must be in the form"),
        (eagle3("none"), 137, "OSError: Repo id must be in the form"),
        (["--mem-fraction-static", "0.4"], 137, "Not enough memory. Please try to increase"),
        (["--mem-fraction-static", "0.995"], 137, "Capture cuda graph failed: CUDA out of memory"),
    ],
)
def test_wrong_flags_fail_as_in_sglang(patched, flags, code, text):
    with Engine(patched, *flags) as engine:
        assert engine.ended() == code
    assert text in engine.log


def test_drafter_that_is_no_drafter(patched, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with Engine(patched, *eagle3(), "--speculative-draft-model-path", str(tmp_path)) as engine:
        assert engine.ended() == 137
    assert f"ValueError: Unrecognized model in {tmp_path}. Should have a `model_type`" in engine.log


def test_too_few_visible_gpus(host):
    with Engine(host, CUDA_VISIBLE_DEVICES="0,1,2,3") as engine:
        assert engine.ended() == 137
    assert "CUDA error: invalid device ordinal" in engine.log


def test_occupied_card_is_noticed(host):
    memory.plant(host, 3, "neighbour", 40_000, pid=os.getpid())
    with Engine(host) as engine:
        assert engine.ended() == 137
    assert "The memory capacity is unbalanced. Some GPUs may be occupied" in engine.log


def test_port_is_closed_until_everything_is_loaded(tmp_path):
    folder = build(tmp_path, start_s=1.0)
    with Engine(folder) as engine:
        engine.wait_for("Load weight begin.")
        with socket.socket() as client:
            assert client.connect_ex(("127.0.0.1", engine.port)) != 0
        engine.ready()
        assert engine.json("/model_info")["architectures"] == ["KimiK25ForConditionalGeneration"]


def test_taken_port_ends_late_and_still_says_ready(host, base):
    with Engine(host, port=base.port) as engine:
        assert engine.ended() == 3
    assert "[Errno 98] error while attempting to bind on address" in engine.log
    assert "The server is fired up and ready to roll!" in engine.log


def test_children_are_named_hold_memory_and_go_with_the_parent(host, tuned):
    children = Path(f"/proc/{tuned.process.pid}/task/{tuned.process.pid}/children")
    pids = [int(pid) for pid in children.read_text().split()]
    titles = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode() for pid in pids}
    assert sorted(titles.values()) == sorted(
        [*(f"sglang::scheduler_TP{rank}" for rank in range(8)), "sglang::detokenizer"]
    )
    held = memory.holders(tuned.folder, 5)
    assert [titles.get(one.pid or 0) for one in held] == ["sglang::scheduler_TP5"]
    assert held[0].mib > 80_000
    assert b"SPT_NOENV" in Path(f"/proc/{pids[0]}/environ").read_bytes()
    with Engine(host) as engine:
        engine.ready()
        found = Path(f"/proc/{engine.process.pid}/task/{engine.process.pid}/children")
        pids = [int(pid) for pid in found.read_text().split()]
        assert Path(f"/proc/{pids[0]}/environ").read_bytes().strip(b"\0") == b""
        engine.process.kill()
    wait_free(host, 0)


def test_sigterm_drains_and_ends_with_137(host):
    with Engine(host) as engine:
        engine.ready()

        async def stream_through_the_end() -> Streamed:
            task = asyncio.create_task(stream(engine.port, "a long one", 60))
            while "#new-token" not in engine.log:
                await asyncio.to_thread(engine.wait_for, "Prefill batch")
            engine.terminate()
            return await task

        seen = asyncio.run(stream_through_the_end())
        assert seen.meta["completion_tokens"] == 60
        assert engine.ended() == 137
    assert "Gracefully exiting... Remaining number of requests 1." in engine.log
    assert "Gracefully exiting... Remaining number of requests 0." in engine.log


def test_generate_answers_in_the_shape_of_059(base):
    answer = base.generate("tell me about ships", 24)
    assert len(answer["output_ids"]) == 24
    assert len(answer["text"]) == 48
    meta = answer["meta_info"]
    assert meta["completion_tokens"] == 24
    assert meta["finish_reason"] == {"type": "length", "length": 24}
    assert meta["cached_tokens"] == 0
    assert "spec_verify_ct" not in meta
    again = base.generate("tell me about ships", 24)
    assert again["output_ids"] == answer["output_ids"]
    assert again["meta_info"]["cached_tokens"] == meta["prompt_tokens"] - 1
    assert base.ask("/flush_cache", method="POST")[0] == 200
    assert base.generate("tell me about ships", 8)["meta_info"]["cached_tokens"] == 0


def test_generate_takes_ids_stops_and_natural_ends(base):
    sampling = {"max_new_tokens": 8, "ignore_eos": True}
    answer = base.json("/generate", {"input_ids": [5, 6, 7], "sampling_params": sampling})
    assert answer["meta_info"]["prompt_tokens"] == 3
    word = base.generate("stop there", 40)["text"][20:23]
    stopped = base.generate("stop there", 40, stop=[word])
    assert stopped["meta_info"]["finish_reason"] == {"type": "stop", "matched": word}
    ended = base.generate("ends by itself", 2000, ignore_eos=False)
    assert ended["meta_info"]["finish_reason"]["type"] == "stop"
    assert ended["meta_info"]["completion_tokens"] < 600


def test_wrong_requests_are_told_so(base):
    status, text = base.ask("/generate", {"nonsense": 1})
    assert (status, json.loads(text)["error"]["message"]) == (
        400,
        "Either text, input_ids or input_embeds should be provided.",
    )
    negative = {"text": "x", "sampling_params": {"max_new_tokens": -4}}
    assert base.ask("/generate", negative)[0] == 400
    assert base.ask("/no_such_path") == (404, '{"detail":"Not Found"}')


def test_streams_are_cumulative_and_counted(tuned):
    seen = asyncio.run(stream(tuned.port, "count with me", 64, keep=True))
    counts = [one["meta_info"]["completion_tokens"] for one in seen.payloads]
    assert counts == sorted(counts)
    assert counts[-1] == 64
    for payload in seen.payloads:
        assert len(payload["output_ids"]) == payload["meta_info"]["completion_tokens"]
        assert seen.payloads[-1]["text"].startswith(payload["text"])
    meta = seen.meta
    assert 1 + meta["spec_verify_ct"] + meta["spec_accept_token_num"] == 64
    assert sum(meta["spec_accept_histogram"]) == meta["spec_verify_ct"]
    assert meta["spec_draft_token_num"] == 3 * meta["spec_verify_ct"]
    assert meta["spec_accept_length"] == 64 / meta["spec_verify_ct"]
    assert set(meta) >= {"e2e_latency", "spec_accept_rate", "id", "prompt_tokens"}


def test_speculation_changes_no_answer(base, tuned):
    assert base.generate("same words", 40)["text"] == tuned.generate("same words", 40)["text"]


def measured(engine, users, rounds, tokens) -> tuple[float, float, float]:
    """Ratios of what a client measures to the truth: user speed, output speed, accept length."""
    engine.ask("/flush_cache", method="POST")
    seen = asyncio.run(closed_loop(engine.port, users, rounds, tokens))
    told = engine.json("/rehearsal/truth", {"output_tokens": tokens, "concurrency": [users]})
    truth, scale = told["expected"][str(users)], told["time_scale"]
    assert all(one.meta["completion_tokens"] == tokens for one in seen)
    speeds = [(tokens - 1) / (one.times[-1] - one.times[0]) for one in seen]
    whole = max(one.times[-1] for one in seen) - min(one.sent for one in seen)
    steps = sum(one.meta.get("spec_verify_ct", tokens - 1) for one in seen)
    accepted = sum(one.meta.get("spec_accept_token_num", 0) for one in seen)
    return (
        statistics.fmean(speeds) / scale / truth["user_tok_s"],
        len(seen) * tokens / whole / scale / truth["output_tok_s"],
        (1 + accepted / steps) / truth["accept_length"],
    )


def undisturbed(engine, users, rounds, tokens, near) -> tuple[float, float, float]:
    """The first of three measurements that nothing held up; else the last one."""
    for _ in range(3):
        found = measured(engine, users, rounds, tokens)
        if abs(found[0] - 1) <= near and abs(found[1] - 1) <= near:
            break
    return found


@pytest.mark.alone
@pytest.mark.parametrize(("users", "rounds"), [(1, 1), (8, 1)])
def test_speed_without_speculation_is_the_truth(base, users, rounds):
    user, output, _ = undisturbed(base, users, rounds, 200, 0.02)
    assert user == pytest.approx(1, abs=0.02)
    assert output == pytest.approx(1, abs=0.03)


@pytest.mark.alone
@pytest.mark.parametrize(("users", "rounds"), [(1, 2), (8, 1)])
def test_speed_and_acceptance_with_speculation_are_the_truth(tuned, users, rounds):
    user, output, accept = undisturbed(tuned, users, rounds, 256, 0.02)
    assert user == pytest.approx(1, abs=0.02)
    assert output == pytest.approx(1, abs=0.04)
    assert accept == pytest.approx(1, abs=0.01)


def test_requests_above_the_limit_wait_in_turn(patched):
    with Engine(patched, *eagle3(max_running_requests=2, decode_log_interval=5)) as engine:
        engine.ready()
        seen = asyncio.run(closed_loop(engine.port, 6, 1, 48))
        engine.wait_for("#queue-req: 4")
    firsts = sorted(one.times[0] - one.sent for one in seen)
    assert firsts[-1] > 4 * firsts[0]


def test_a_client_that_leaves_frees_its_place(base):
    with socket.create_connection(("127.0.0.1", base.port)) as client:
        body = (
            b'{"text":"x","stream":true,"sampling_params":{"max_new_tokens":9000,"ignore_eos":1}}'
        )
        client.sendall(b"POST /generate HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        assert b"200 OK" in client.recv(4096)
        assert base.ask("/flush_cache", method="POST")[0] == 400
    until = time.monotonic() + BOUND_S
    while base.ask("/flush_cache", method="POST")[0] != 200:
        assert time.monotonic() < until
    assert 'sglang:num_aborted_requests_total{model_name="' in base.ask("/metrics")[1]


def test_averages_metrics_and_decode_lines_use_the_old_rate(tuned):
    tuned.ask("/flush_cache", method="POST")
    assert "avg_spec_accept_length" not in tuned.json("/server_info")["internal_states"][0]
    tuned.generate("long enough for two lines", 300)
    info = tuned.json("/get_server_info")
    average = info["internal_states"][0]["avg_spec_accept_length"]
    assert average == pytest.approx(2.86, rel=0.03)
    assert info["version"] == "0.5.9"
    assert info["speculative_num_draft_tokens"] == 4
    metrics = tuned.ask("/metrics")[1]
    shown = dict(re.findall(r"^sglang:spec_accept_(length|rate){.*} (\S+)$", metrics, re.MULTILINE))
    length, rate = float(shown["length"]), float(shown["rate"])
    assert rate == pytest.approx(length / 4)
    tuned.wait_for("accept len: 2.")
    assert re.search(r"accept len: \d\.\d\d, accept rate: 0\.7\d, cuda graph: True", tuned.log)


def test_health_and_models_and_chat(base):
    assert base.ask("/health")[0] == 200
    assert base.json("/v1/models")["data"][0]["id"] == "shared/kimi-k2.5-int4"
    chat = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
    assert base.json("/v1/chat/completions", chat)["usage"]["completion_tokens"] == 4


def test_metrics_only_when_asked_for(host, tuned):
    assert "sglang:num_running_reqs" in tuned.ask("/metrics")[1]
    with Engine(host) as engine:
        assert engine.ready().ask("/metrics")[0] == 404


@pytest.mark.alone
def test_nccl_level_shortens_the_step(host):
    with Engine(host, NCCL_PROTO="LL") as engine:
        engine.ready()
        told = engine.json("/rehearsal/truth")
    assert told["step_s"]["1"] == pytest.approx((1 - 0.515 * 0.12) / 63.6)
    assert told["arm"]["nccl_proto"] == "LL"


def test_incomplete_drafter_serves_and_accepts_nothing(patched):
    config = patched / "home/data/eagle3/k25-tuned/config.json"
    lame = patched / "home/data/eagle3/lame"
    lame.mkdir()
    (lame / "config.json").write_text(config.read_text())
    with Engine(patched, *eagle3("lame")) as engine:
        engine.ready()
        meta = engine.generate("x", 32)["meta_info"]
    assert meta["spec_accept_histogram"][0] == meta["spec_verify_ct"] == 31


def test_reproducible_noise(tmp_path):
    folder = build(tmp_path, noise_cv=0.003)
    told = []
    for trial in ("a", "b", "a"):
        with Engine(folder, EAGLE3_SWEEP_TRIAL=trial) as engine:
            told.append(engine.ready().json("/rehearsal/truth")["noise"])
    assert told[0] == told[2] != told[1]
    assert all(abs(noise - 1) < 0.015 for noise in told)


def test_engine_runs_in_the_trees_own_python(host):
    code = (
        "import importlib.metadata as m, importlib.util as u, aiohttp;"
        "print(m.version('sglang'), m.version('torch'),"
        " u.find_spec('sglang').submodule_search_locations[0])"
    )
    python = host / "home/venv/bin/python"
    told = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["0.5.9", "2.9.1", str(host / "home/site/sglang")]
