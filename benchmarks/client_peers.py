"""The load clients that are compared: how each is run, and what its own report calls the figures."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from statistics import mean
from typing import TYPE_CHECKING

from infra.agent_file import agent_file
from tasks.measure import measure
from tasks.samples import read_samples

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PROMPT_TOKENS = 32
QUIET = (("DO_NOT_TRACK", "1"), ("HF_HUB_DISABLE_TELEMETRY", "1"))
"""For every client: nobody is told of these runs."""


@dataclass(frozen=True)
class Asked:
    """One load: so many requests, so many at once."""

    url: str
    requests: int
    streams: int
    longest: int
    """Most tokens of an answer; the endpoint decides the length of each."""
    folder: Path
    """Of this run alone."""
    tools: Path
    """Where the peers' environments, the tokenizer and bench_serving.py are."""


@dataclass(frozen=True)
class Figures:
    """What a client reports, in seconds and tokens per second; means over requests."""

    requests: int
    output_tok_s: float
    ttft_s: float
    tpot_s: float
    tpot_by_token: bool = False
    """Whether the mean TPOT weights each request by its tokens."""
    after_cpu_s: float = 0.0
    """CPU that the figures cost elsewhere, afterwards: ours are worked out by the controller."""


@dataclass(frozen=True)
class Client:
    """One load client."""

    name: str
    command: Callable[[Asked], list[str]]
    read: Callable[[Asked], Figures]
    environment: tuple[tuple[str, str], ...] = ()


def lay_out(tools: Path) -> None:
    """A tokenizer of pairs of characters: the endpoint's tokens are such pairs, so it counts right."""
    signs = [chr(code) for code in range(32, 127)] + ["\n"]
    pairs = [a + b for a in signs for b in signs]
    vocabulary = {word: at for at, word in enumerate(["<unk>", *signs, *pairs])}
    unknown = {"id": 0, "content": "<unk>", "special": True, "normalized": False}
    unknown |= {"single_word": False, "lstrip": False, "rstrip": False}
    split = {"type": "Split", "pattern": {"Regex": r"[\s\S]{1,2}"}}
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [unknown],
        "normalizer": None,
        "pre_tokenizer": {**split, "behavior": "Isolated", "invert": False},
        "post_processor": None,
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    }
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>"}
    folder = tools / "tokenizer"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def _ours(asked: Asked) -> list[str]:
    """The job's own process, as ``start`` spawns it on a host."""
    job = asked.folder / "jobs" / "probe"
    job.mkdir(parents=True)
    sampling = {"temperature": 0.0, "max_new_tokens": asked.longest, "ignore_eos": True}
    payload = {"text": "ab" * PROMPT_TOKENS, "sampling_params": sampling, "stream": True}
    request = {
        "base_url": asked.url,
        "path": "/generate",
        "concurrency": asked.streams,
        "timeout_s": 120,
        "deadline_s": 200,
        "requests": [
            {"id": f"r{n}", "kind": "text", "payload": payload} for n in range(asked.requests)
        ],
    }
    (job / "request.json").write_text(json.dumps(request))
    agent = asked.folder / agent_file().name
    agent.write_bytes(agent_file().data)
    words = {"dir": str(asked.folder), "name": "probe", "job": "drive"}
    return [sys.executable, str(agent), "run-job", json.dumps(words)]


def _read_ours(asked: Asked) -> Figures:
    began = time.thread_time()
    job = asked.folder / "jobs" / "probe"
    samples = read_samples((job / "samples.jsonl").read_text().splitlines(), 1.0)
    found = measure(samples, "probe", asked.streams, speculating=False)
    after_cpu_s = time.thread_time() - began
    timed = [s for s in samples if s.error is None and s.first_s is not None]
    return Figures(
        requests=found.completed,
        output_tok_s=found.full_output_tok_s or 0.0,
        ttft_s=mean(s.first_s - s.sent_s for s in timed if s.first_s is not None),
        tpot_s=mean(
            (s.last_s - s.first_s) / (s.completion_tokens - s.chunks[0][1])
            for s in timed
            if s.first_s is not None and s.last_s is not None
        ),
        after_cpu_s=after_cpu_s,
    )


def _bench_serving(asked: Asked) -> list[str]:
    words = f"--backend sglang --dataset-name random-ids --random-input-len {PROMPT_TOKENS} "
    words += f"--random-output-len {asked.longest} --random-range-ratio 1 --warmup-requests 0 "
    words += f"--num-prompts {asked.requests} --max-concurrency {asked.streams} --disable-tqdm"
    python, tokenizer = asked.tools / "aiperf/bin/python", asked.tools / "tokenizer"
    return [
        str(python),
        str(asked.tools / "bench_serving.py"),
        *words.split(),
        f"--base-url={asked.url}",
        f"--model={tokenizer}",
        f"--output-file={asked.folder / 'report.jsonl'}",
    ]


def _read_bench_serving(asked: Asked) -> Figures:
    told = json.loads((asked.folder / "report.jsonl").read_text())
    return Figures(
        requests=told["completed"],
        output_tok_s=told["output_throughput"],
        ttft_s=told["mean_ttft_ms"] / 1000,
        tpot_s=told["mean_tpot_ms"] / 1000,
    )


def _aiperf(asked: Asked) -> list[str]:
    words = "profile --model paced --endpoint-type completions --streaming "
    words += f"--concurrency {asked.streams} --request-count {asked.requests} "
    words += f"--prompt-input-tokens-mean {PROMPT_TOKENS} --use-server-token-count "
    words += f"--prompt-output-tokens-mean {asked.longest} --extra-inputs ignore_eos:true "
    words += "--no-gpu-telemetry --no-server-metrics --ui none --workers-max 1 "
    words += "--record-processor-service-count 1"
    return [
        str(asked.tools / "aiperf/bin/aiperf"),
        *words.split(),
        f"--tokenizer={asked.tools / 'tokenizer'}",
        f"--url={asked.url}",
        f"--output-artifact-dir={asked.folder / 'report'}",
    ]


def _read_aiperf(asked: Asked) -> Figures:
    told = json.loads((asked.folder / "report/profile_export_aiperf.json").read_text())
    return Figures(
        requests=round(told["request_count"]["avg"]),
        output_tok_s=told["output_token_throughput"]["avg"],
        ttft_s=told["time_to_first_token"]["avg"] / 1000,
        tpot_s=told["inter_token_latency"]["avg"] / 1000,
    )


def _guidellm(asked: Asked) -> list[str]:
    tokenizer = asked.tools / "tokenizer"
    return [
        str(asked.tools / "guidellm/bin/guidellm"),
        "run",
        f"--backend=kind=openai_http,target={asked.url},request_format=/v1/completions,model=paced",
        f"--profile=kind=concurrent,streams={asked.streams}",
        f"--constraint=kind=max_requests,count={asked.requests}",
        f"--tokenizer=kind=huggingface_auto,model={tokenizer}",
        f"--data=kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},output_tokens={asked.longest}",
        f"--output=kind=json,path={asked.folder / 'report.json'}",
        "--disable-console",
    ]


def _read_guidellm(asked: Asked) -> Figures:
    told = json.loads((asked.folder / "report.json").read_text())["benchmarks"][0]["metrics"]
    return Figures(
        requests=told["request_totals"]["successful"],
        output_tok_s=told["output_tokens_per_second"]["successful"]["mean"],
        ttft_s=told["time_to_first_token_ms"]["successful"]["mean"] / 1000,
        tpot_s=told["inter_token_latency_ms"]["successful"]["mean"] / 1000,
        tpot_by_token=True,
    )


CLIENTS = (
    Client("ours", _ours, _read_ours),
    Client("bench_serving", _bench_serving, _read_bench_serving),
    Client("aiperf", _aiperf, _read_aiperf),
    # One worker process: its clients have one core here, and ten would be dearer.
    Client(
        "guidellm",
        _guidellm,
        _read_guidellm,
        (("GUIDELLM__MAX_WORKER_PROCESSES", "1"),),
    ),
)
