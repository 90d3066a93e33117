"""What is asked of each engine: the same sampling, in its own words."""

from __future__ import annotations

import json

import pytest

from configs.probe import Sampling
from tasks.asking import flushed, question, request
from tasks.server_info import ServerInfo
from tasks.vllm_info import effective_flags, read_vllm_info, vllm_settings


def test_the_same_sampling_reaches_both():
    sampling = Sampling(temperature=0.6, top_p=0.9, ignore_eos=True)
    assert request("sglang", "Hi", sampling, 8) == {
        "text": "Hi",
        "sampling_params": {
            "temperature": 0.6,
            "max_new_tokens": 8,
            "top_p": 0.9,
            "ignore_eos": True,
        },
        "stream": True,
    }
    assert request("vllm", (1, 2), sampling, 8) == {
        "prompt": [1, 2],
        "max_tokens": 8,
        "temperature": 0.6,
        "top_p": 0.9,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "return_token_ids": True,
    }


def test_what_a_model_brings_along_is_not_used():
    """vLLM takes unsaid sampling from generation_config.json, SGLang's /generate does not."""
    asked = question("vllm", "Hi", 7, stream=False)
    assert asked.path == "/v1/completions"
    assert asked.body["repetition_penalty"] == 1.0
    assert "stream" not in asked.body
    assert question("sglang", "Hi", 7, stream=True).body["stream"] is True


@pytest.mark.parametrize(
    ("engine", "status", "body", "done"),
    [
        ("sglang", 200, "Cache flushed.", True),
        ("sglang", 400, "", False),
        ("vllm", 200, '{"success": true}', True),
        ("vllm", 200, '{"success": false}', False),
        ("vllm", 200, "", True),
        ("vllm", 200, "not JSON", True),
        ("vllm", 404, '{"detail": "Not Found"}', False),
    ],
)
def test_whether_the_cache_is_empty(engine, status, body, done):
    assert flushed(engine, {"status": status, "body": body}) is done


CONFIG = {
    "model_config": {"model": "/m", "enforce_eager": False, "seed": 0, "quantization": None},
    "cache_config": {"num_gpu_blocks": 100, "block_size": 16, "cache_dtype": "auto"},
    "parallel_config": {"tensor_parallel_size": 8, "data_parallel_size": 2, "seed": 1},
    "scheduler_config": {"max_num_seqs": 64},
    "speculative_config": {"method": "eagle3", "model": "/d", "num_speculative_tokens": 3},
    "compilation_config": {"max_cudagraph_capture_size": 256},
}
BODY = json.dumps({"vllm_config": CONFIG, "system_env": {}})


def test_the_settings_in_effect():
    info = read_vllm_info(BODY)
    assert info == ServerInfo(
        layout="data_parallel",
        model_path="/m",
        tp_size=8,
        dp_size=2,
        spec_active=True,
        algorithm="eagle3",
        draft_path="/d",
        num_steps=3,
        topk=1,
        num_draft_tokens=4,
        max_running_requests=128,
        max_running_requests_per_dp=64,
        max_total_num_tokens=1600,
        cuda_graph_max_bs=64,
    )
    plain = read_vllm_info(json.dumps({"vllm_config": {**CONFIG, "speculative_config": None}}))
    assert plain.spec_active is False
    assert plain.cuda_graph_max_bs == 256
    assert read_vllm_info(json.dumps({"vllm_config": {}})).spec_active is None


@pytest.mark.parametrize("body", ["", "[]", "<html>", '{"vllm_config": "VllmConfig(...)"}', "1"])
def test_what_is_no_account_says_so(body):
    assert read_vllm_info(body).error == "not_server_info"
    assert read_vllm_info(body, status=404).error == "not_found"
    assert vllm_settings(body) == {}


def test_asked_flags_are_found_by_their_names():
    asked = {
        "tensor-parallel-size": 8,
        "max-num-seqs": 64,
        "kv-cache-dtype": "auto",
        "seed": 0,
        "no-such": 1,
    }
    assert effective_flags(asked, BODY) == {"tensor-parallel-size": "8", "max-num-seqs": "64"}
    assert effective_flags({"kv-cache-dtype": "fp8"}, BODY) == {"kv-cache-dtype": "auto"}
