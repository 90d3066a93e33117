"""A start is followed stage by stage, and only the engine's own words make it ready."""

from datetime import datetime
from pathlib import Path

import pytest

from tasks.start_facts import silence_s, stalled
from tasks.start_log import StartLog, read_start

REAL = Path(__file__).parent / "fixtures" / "real"


def test_a_real_start_with_a_drafter_tells_its_facts():
    facts = read_start((REAL / "eagle3-good.log").read_bytes())
    assert facts.framework == "sglang"
    assert facts.was_ready
    assert (facts.target_class, facts.draft_class) == ("LlamaForCausalLM", "LlamaForCausalLMEagle3")
    assert (facts.load_s, facts.draft_load_s) == (0.3, 0.01)
    assert facts.capture_s == 4.94
    assert facts.draft_capture_s == pytest.approx(9.4)
    assert facts.start_s == 43.0
    assert facts.warmup_s == 5.0
    assert facts.max_total_num_tokens == facts.kv_cache_tokens == 676708
    assert facts.max_running_requests == facts.max_running_requests_reset_to == 48
    assert facts.context_len == 4096
    assert facts.cuda_graph_max_bs == 16
    assert facts.spec_worker == "v2"
    assert facts.warnings == ("cuda graphs captured only up to batch 16",)


def test_two_ranks_tell_nccl_and_the_slowest_rank():
    facts = read_start((REAL / "nccl" / "nccl-default.log").read_bytes())
    assert facts.ready
    assert facts.nccl_version == "2.28.9"
    assert facts.distributed_init_s == 3.97
    assert facts.warnings[0] == "gpus_unbalanced: least free 119.0 GB, here 135.8 GB"


def test_stages_of_a_real_start_come_in_order():
    log = StartLog()
    seen: list[str] = []
    for line in (REAL / "eagle3-good.log").read_bytes().splitlines(keepends=True):
        log.feed(line)
        stage, percent = log.progress()
        assert percent is None or 0 <= percent <= 100
        if not seen or seen[-1] != stage:
            seen.append(stage)
    assert seen == [
        "arguments",
        "starting",
        "distributed_init",
        "target_weights",
        "after_target_weights",
        "kv_cache",
        "graph_capture",
        "draft_load",
        "after_draft_load",
        "draft_kv_cache",
        "draft_graph_capture",
        "http_start",
        "warmup",
        "serving",
        "stopping",
    ]


def test_0_5_23_loads_both_before_it_makes_pools():
    stamp = "[2026-03-04 09:12:0{} TP0] "
    log = StartLog()
    seen = []
    for second, text in enumerate(
        [
            (
                "server_args=ServerArgs(model_path='/m', speculative_algorithm='EAGLE3',"
                " speculative_draft_model_path='/d')"
            ),
            "Load weight begin. avail mem=138.20 GB",
            (
                "Load weight end. elapsed=9.5 s, type=KimiK25ForConditionalGeneration, quant=int4,"
                " avail mem=63.11 GB, mem usage=75.09 GB."
            ),
            "Load weight begin. avail mem=63.11 GB",
            (
                "Load weight end. elapsed=0.5 s, type=LlamaForCausalLMEagle3, avail mem=62.11 GB,"
                " mem usage=1.00 GB."
            ),
            "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 402112, KV size: 26.30 GB",
            (
                "Draft KV Cache VA upper bound. dtype: torch.bfloat16, #tokens: 402112, K size: 0.30"
                " GB, V size: 0.30 GB"
            ),
            "Capture target verify CUDA graph begin. backend=full, num_tokens_per_req=4",
            (
                "Capture target verify CUDA graph end. bs=[1, 2, 4, 8], elapsed=28.70 s, mem usage=1"
                " GB"
            ),
            "Capture draft decode CUDA graph begin. backend=full",
        ]
    ):
        log.feed((stamp.format(second) + text + "\n").encode())
        seen.append(log.progress()[0])
    assert seen == [
        "starting",
        "target_weights",
        "after_target_weights",
        "draft_load",
        "after_draft_load",
        "kv_cache",
        "draft_kv_cache",
        "graph_capture",
        "graph_capture",
        "draft_graph_capture",
    ]
    facts = log.facts()
    assert facts.draft_class == "LlamaForCausalLMEagle3"
    assert facts.capture_s == 28.7
    assert facts.cuda_graph_bs == (1, 2, 4, 8)


def test_vllm_says_its_version_and_port_in_the_words_of_033():
    log = StartLog()
    log.feed(
        b"(APIServer pid=5) INFO 05-06 20:59:01 [startup.py:38] vLLM server version 0.33.0, "
        b"serving model /m\n"
        b"(APIServer pid=5) INFO 05-06 20:59:02 [entry.py:139] Starting vLLM server on "
        b"http://127.0.0.1:8123\n"
    )
    facts = log.facts()
    assert (facts.framework, facts.version, facts.port) == ("vllm", "0.33.0", 8123)
    logo = StartLog()
    logo.feed(
        b"(EngineCore pid=7) INFO 05-06 20:59:02 [core.py:140] Initializing a V1 LLM engine "
        b"(v0.33.0) with config: model='/m'\n"
    )
    assert logo.facts().version == "0.33.0"


def test_vllm_start_is_followed_and_wants_a_token_as_proof():
    prefix = "(EngineCore_DP0 pid=7) INFO 05-06 20:59:{:02d} [a.py:1] "
    log = StartLog()
    seen = []
    for second, text in enumerate(
        [
            "Initializing a V1 LLM engine (v0.13.0) with config: model='/m'",
            "vLLM is using nccl==2.27.5",
            "Starting to load model /m...",
            "Loading weights took 24.84 seconds",
            "Loading drafter model...",
            "Loading weights took 0.14 seconds",
            "Model loading took 12.66 GiB memory and 31.657031 seconds",
            "Dynamo bytecode transform time: 3.54 s",
            "GPU KV cache size: 176,240 tokens",
            "Graph capturing finished in 23 secs, took 1.20 GiB",
        ]
    ):
        log.feed((prefix.format(second) + text + "\n").encode())
        seen.append(log.progress()[0])
    log.feed(b"(APIServer pid=5) INFO:     Application startup complete.\n")
    facts = log.facts()
    assert facts.ready
    assert facts.needs_generate_probe
    assert (facts.load_s, facts.draft_load_s, facts.capture_s) == (24.84, 0.14, 23.0)
    assert facts.nccl_version == "2.27.5"
    assert seen[4] == "draft_load"
    assert seen[-3:] == ["kernel_compile", "kv_cache", "kv_cache"]


def test_a_taken_port_is_never_ready_although_the_ready_line_follows():
    facts = read_start((REAL / "failures" / "port-in-use.log").read_bytes())
    assert not facts.ready
    assert not facts.was_ready
    assert facts.failure is not None
    assert (facts.failure.failure, facts.failure.port) == ("port_in_use", 30000)


def test_the_ready_words_in_a_prompt_are_not_ready():
    log = StartLog()
    log.feed(
        b"[2026-03-04 09:14:00] Receive: obj=GenerateReqInput(text='The server is fired up and"
        b" ready to roll! Traceback (most recent call last):')\n"
        b"[2026-03-04 09:14:00] Finish: obj=GenerateReqInput(text='Received sigquit')\n"
    )
    facts = log.facts()
    assert not facts.ready
    assert facts.failure is None


def test_uvicorn_is_not_readiness_for_sglang():
    log = StartLog("sglang")
    log.feed(
        b"[2026-03-04 09:18:30] INFO:     Application startup complete.\n"
        b"[2026-03-04 09:18:30] INFO:     Uvicorn running on http://0.0.0.0:30000\n"
    )
    assert log.progress() == ("warmup", None)
    assert not log.facts().ready


def test_a_server_that_ended_without_a_word_is_engine_dead_and_137_proves_nothing():
    log = StartLog("sglang")
    log.feed(b"[2026-03-04 09:12:32 TP0] Load weight begin. avail mem=138.20 GB\n")
    facts = log.finish(exit_code=137)
    assert facts.failure is not None
    assert facts.failure.failure == "engine_dead"
    assert facts.failure.stage == "target_weights"
    assert facts.failure.exit_code == 137


def test_silence_is_patience_until_the_stage_has_had_its_time():
    log = StartLog("sglang")
    log.feed(b"[2026-03-04 09:12:32 TP0] Load weight begin. avail mem=138.20 GB\n")
    facts = log.facts()
    assert silence_s(facts, datetime.fromisoformat("2026-03-04 09:19:32")) == 420.0
    assert stalled(facts, 420.0) is None
    hung = stalled(facts, 420.0, {"target_weights": 300})
    assert hung is not None
    assert (hung.failure, hung.stage) == ("hang", "target_weights")
    assert stalled(facts, 1e9, {}) is None


def test_a_moving_bar_is_a_sign_of_work():
    log = StartLog("sglang")
    log.feed(
        b"[2026-03-04 09:21:00 TP0] Entering DeepGEMM JIT Pre-Compile session. It may take long.\n"
        b"\rDeepGEMM warmup:  77%|###| 12616/16384 [09:51<02:56, 21.33it/s]\r"
    )
    assert log.progress() == ("kernel_compile", 77)
    assert silence_s(log.facts(), datetime.fromisoformat("2026-03-04 09:31:20")) == 29.0


def test_silence_is_unknown_without_a_time_and_knows_vllm_at_new_year():
    assert silence_s(StartLog().facts(), datetime.fromisoformat("2026-01-01")) is None
    log = StartLog("vllm")
    log.feed(b"INFO 12-31 23:59:00 [a.py:1] Starting to load model /m...\n")
    assert silence_s(log.facts(), datetime.fromisoformat("2026-01-01 00:01:00")) == 120.0


def test_the_servers_arguments_are_read_in_both_spellings():
    for text in (
        "server_args=ServerArgs(model_path='/m', port=30001, speculative_draft_model_path='/d')",
        "server_args={'model_path': '/m', 'port': 30001, 'speculative_draft_model_path': '/d'}",
    ):
        facts = read_start(f"[2026-03-04 09:12:01] {text}\n".encode())
        assert (facts.model_path, facts.draft_path, facts.port) == ("/m", "/d", 30001)
        assert facts.stage == "starting"
