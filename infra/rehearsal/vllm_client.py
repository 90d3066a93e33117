"""The pretend ``vllm bench serve`` of 0.33: real traffic, and the file that it writes."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from infra.rehearsal import client_traffic as traffic
from infra.rehearsal.client_traffic import Output, Prompt
from infra.rehearsal.tokens import count

_VOCABULARY = 163_840
_BUSIEST = ("max_output_tokens_per_s", "max_concurrent_requests")
_COUNTER = re.compile(
    r"^vllm:spec_decode_(num_drafts|num_draft_tokens|num_accepted_tokens(?:_per_pos)?)_total"
    r'\{(?:[^}]*?position="(\d+)")?[^}]*\} (\S+)$',
    re.MULTILINE,
)


def parser() -> argparse.ArgumentParser:
    """The options of 0.33 that a sweep gives, with their types and defaults; no other ones."""
    made = argparse.ArgumentParser(prog="vllm")
    bench = made.add_subparsers(required=True).add_parser("bench")
    serve = bench.add_subparsers(required=True).add_parser("serve", prog="vllm bench serve")
    serve.add_argument("--seed", type=int, default=0)
    serve.add_argument("--num-prompts", type=int, default=1000)
    serve.add_argument("--dataset-name", type=str, default="random", choices=("custom", "random"))
    serve.add_argument("--dataset-path", type=str, default=None)
    serve.add_argument("--no-oversample", action="store_true")
    serve.add_argument("--skip-chat-template", action="store_true")
    serve.add_argument("--disable-shuffle", action="store_true")
    serve.add_argument("--custom-output-len", type=int, default=256)
    serve.add_argument("--random-input-len", type=int, default=1024)
    serve.add_argument("--random-output-len", type=int, default=128)
    serve.add_argument("--random-range-ratio", type=str, default="0.0")
    serve.add_argument("--backend", type=str, default="openai", choices=("openai", "vllm"))
    serve.add_argument("--base-url", type=str, default=None)
    serve.add_argument("--endpoint", type=str, default="/v1/completions")
    serve.add_argument("--max-concurrency", type=int, default=None)
    serve.add_argument("--model", type=str, default=None)
    serve.add_argument("--tokenizer", type=str)
    serve.add_argument("--tokenizer-mode", type=str, default="auto")
    serve.add_argument("--trust-remote-code", action="store_true")
    serve.add_argument("--request-rate", type=float, default=float("inf"))
    serve.add_argument("--disable-tqdm", action="store_true")
    serve.add_argument("--num-warmups", type=int, default=0)
    serve.add_argument("--save-result", action="store_true")
    serve.add_argument("--append-result", action="store_true")
    serve.add_argument("--result-dir", type=str, default=None)
    serve.add_argument("--result-filename", type=str, default=None)
    serve.add_argument("--ignore-eos", action="store_true")
    serve.add_argument("--percentile-metrics", type=str, default=None)
    serve.add_argument("--temperature", type=float, default=None)
    serve.add_argument("--served-model-name", type=str, default=None)
    serve.add_argument("--ready-check-timeout-sec", type=int, default=0)
    serve.add_argument("--extra-body", type=json.loads, default=None)
    return made


def main(arguments: list[str]) -> int:
    """One run; the exit code of the real one."""
    args = parser().parse_args(arguments)
    print(args)
    random.seed(args.seed)
    folder = args.tokenizer or args.model or ""
    if not traffic.has_tokenizer(folder):
        print(f"OSError: Can't load the configuration of '{folder}'.", file=sys.stderr)
        return 1
    try:
        prompts = _prompts(args)
    except (ValueError, OSError) as wrong:
        print(f"{type(wrong).__name__}: {wrong}", file=sys.stderr)
        return 1
    line = asyncio.run(_benchmark(args, prompts))
    if args.save_result or args.append_result:
        path = Path(args.result_dir or ".") / args.result_filename
        with path.open("a" if args.append_result else "w", encoding="utf-8") as file:
            if args.append_result and file.tell() != 0:
                file.write("\n")
            json.dump(line, file)
    return 0


def _prompts(args: argparse.Namespace) -> list[Prompt]:
    if args.dataset_name == "random":
        return [
            Prompt(
                [random.randrange(_VOCABULARY) for _ in range(args.random_input_len)],
                args.random_input_len,
                args.random_output_len,
            )
            for _ in range(args.num_prompts)
        ]
    if not str(args.dataset_path).endswith(".jsonl"):
        raise ValueError("Only JSONL format is supported for CustomDataset.")
    rows = Path(args.dataset_path).read_text(encoding="utf-8").splitlines()
    texts = [json.loads(row)["prompt"] for row in rows if row.strip()]
    if not args.disable_shuffle:
        random.shuffle(texts)
    found = [Prompt(text, count(text), args.custom_output_len) for text in texts]
    while not args.no_oversample and len(found) < args.num_prompts:
        found.append(random.choice(found))
    return found[: args.num_prompts]


async def _benchmark(args: argparse.Namespace, prompts: list[Prompt]) -> dict[str, Any]:
    sampling = {} if args.temperature is None else {"temperature": args.temperature}
    extra = {**sampling, **(args.extra_body or {})}
    connector = aiohttp.TCPConnector(limit=args.max_concurrency or 0)
    limit = aiohttp.ClientTimeout(total=traffic.LIMIT_S)
    async with aiohttp.ClientSession(connector=connector, timeout=limit) as session:

        async def send(prompt: Prompt) -> Output:
            return await _request(args, session, prompt, extra)

        for _ in range(args.num_warmups):
            await send(prompts[0])
        before = await _drafts(args, session)
        began = time.perf_counter()
        outputs = await traffic.send_all(send, prompts, args.max_concurrency)
        duration = time.perf_counter() - began
        after = await _drafts(args, session)
    return _line(args, outputs, duration, _speculation(before, after))


async def _request(
    args: argparse.Namespace, session: aiohttp.ClientSession, prompt: Prompt, extra: dict[str, Any]
) -> Output:
    body = {
        "model": args.served_model_name or args.model,
        "prompt": prompt.given,
        "repetition_penalty": 1.0,
        "max_tokens": prompt.answer,
        "logprobs": None,
        "stream": True,
        "stream_options": {"include_usage": True},
        **({"ignore_eos": True} if args.ignore_eos else {}),
        **extra,
    }
    output = Output(prompt)
    last = output.started
    try:
        url = f"{args.base_url}{args.endpoint}"
        async with session.post(url, json=body, headers=traffic.bearer()) as response:
            if response.status != 200:
                output.error = response.reason or ""
                return output
            async for raw in response.content:
                text = raw.strip().removeprefix(b"data: ")
                if not text or text == b"[DONE]":
                    continue
                told = json.loads(text)
                now = time.perf_counter()
                if told.get("choices"):
                    if output.success:
                        output.gaps.append(now - last)
                    else:
                        output.ttft, output.success = now - output.started, True
                    last = now
                    output.latency = now - output.started
                elif told.get("usage"):
                    output.tokens = told["usage"]["completion_tokens"]
    except (aiohttp.ClientError, ValueError, KeyError) as wrong:
        output.success, output.error = False, f"{type(wrong).__name__}: {wrong}"
    return output


Drafts = dict[str, float]
"""Counter -> value; accepted tokens by position as ``pos0``, ``pos1``, ..."""


async def _drafts(args: argparse.Namespace, session: aiohttp.ClientSession) -> Drafts | None:
    try:
        async with session.get(f"{args.base_url}/metrics") as response:
            text = await response.text() if response.status == 200 else ""
    except aiohttp.ClientError:
        return None
    found: Drafts = {}
    for name, position, value in _COUNTER.findall(text):
        key = f"pos{position}" if position else name
        found[key] = found.get(key, 0.0) + float(value)
    return found or None


def _speculation(before: Drafts | None, after: Drafts | None) -> dict[str, Any]:
    """The growth of the counters over the run, in percent where the real one says percent."""
    if before is None or after is None:
        return {}
    grown = {key: after[key] - before.get(key, 0.0) for key in after}
    drafts, proposed = grown["num_drafts"], grown["num_draft_tokens"]
    accepted = grown["num_accepted_tokens"]
    if proposed <= 0:
        return {}
    positions = sorted((key for key in grown if key.startswith("pos")), key=lambda k: int(k[3:]))
    return {
        "spec_decode_acceptance_rate": 100 * accepted / proposed,
        "spec_decode_acceptance_length": 1 + accepted / drafts if drafts else 0.0,
        "spec_decode_num_drafts": int(drafts),
        "spec_decode_draft_tokens": int(proposed),
        "spec_decode_accepted_tokens": int(accepted),
        "spec_decode_per_position_acceptance_rates": [grown[key] / drafts for key in positions],
    }


def _line(
    args: argparse.Namespace, outputs: list[Output], duration: float, speculation: dict[str, Any]
) -> dict[str, Any]:
    """The result as 0.33 writes it, without ``--save-detailed``."""
    done = [output for output in outputs if output.success]
    asked, made = sum(o.prompt.tokens for o in done), sum(o.tokens for o in done)
    rate = args.request_rate
    line: dict[str, Any] = {
        "date": datetime.now(UTC).strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": args.backend,
        "backend": args.backend,
        "label": None,
        "model_id": args.model,
        "tokenizer_id": args.tokenizer or args.model,
        "num_prompts": args.num_prompts,
        "request_rate": rate if rate < float("inf") else "inf",
        "burstiness": 1.0,
        "max_concurrency": args.max_concurrency,
        "duration": duration,
        "completed": len(done),
        "failed": len(outputs) - len(done),
        "total_input_tokens": asked,
        "total_output_tokens": made,
        "request_throughput": len(done) / duration,
        "request_goodput": None,
        "output_throughput": made / duration,
        "total_token_throughput": (asked + made) / duration,
        "latencies": [output.latency for output in outputs],
        "queue_times": [output.started - outputs[0].started for output in outputs],
        **dict(zip(_BUSIEST, traffic.busiest(outputs), strict=True)),
        "rtfx": 0.0,
        **speculation,
    }
    times = traffic.spread(outputs)
    for key in (args.percentile_metrics or "ttft,tpot,itl").split(","):
        values = [1000 * t for t in times["e2e" if key == "e2el" else key]] or [0.0]
        line[f"mean_{key}_ms"] = traffic.mean(values)
        line[f"median_{key}_ms"] = traffic.percentile(values, 50)
        line[f"std_{key}_ms"] = traffic.deviation(values)
        line[f"p99_{key}_ms"] = traffic.percentile(values, 99)
    return line


def run() -> None:
    """Entry of the pretend ``vllm bench serve``."""
    sys.exit(main(sys.argv[1:]))
