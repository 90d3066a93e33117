"""The pretend ``sglang.bench_serving`` of 0.5.9: real traffic, and the line that it appends."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp

from infra.rehearsal import client_traffic as traffic
from infra.rehearsal.client_traffic import Output, Prompt
from infra.rehearsal.tokens import count

_BACKENDS = ("sglang", "sglang-native")
_DATASETS = ("custom", "random-ids")
_VOCABULARY = 163_840
_LEAST = 4


def parser() -> argparse.ArgumentParser:
    """The options of 0.5.9 that a sweep gives, with their types and defaults; no other ones."""
    made = argparse.ArgumentParser(description="Benchmark the online serving throughput.")
    made.add_argument("--backend", type=str, choices=_BACKENDS, default="sglang")
    made.add_argument("--base-url", type=str, default=None)
    made.add_argument("--dataset-name", type=str, choices=_DATASETS, default="custom")
    made.add_argument("--dataset-path", type=str, default="")
    made.add_argument("--model", type=str)
    made.add_argument("--tokenizer", type=str)
    made.add_argument("--num-prompts", type=int, default=1000)
    made.add_argument("--sharegpt-output-len", type=int, default=None)
    made.add_argument("--random-input-len", type=int, default=1024)
    made.add_argument("--random-output-len", type=int, default=1024)
    made.add_argument("--random-range-ratio", type=float, default=0.0)
    made.add_argument("--request-rate", type=float, default=float("inf"))
    made.add_argument("--max-concurrency", type=int, default=None)
    made.add_argument("--output-file", type=str)
    made.add_argument("--disable-tqdm", action="store_true")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--disable-ignore-eos", action="store_true")
    made.add_argument("--extra-request-body", type=str)
    made.add_argument("--flush-cache", action="store_true")
    made.add_argument("--warmup-requests", type=int, default=1)
    made.add_argument("--tokenize-prompt", action="store_true")
    made.add_argument("--tag", type=str, default=None)
    return made


def main(arguments: list[str]) -> int:
    """One run; the exit code of the real one."""
    args = parser().parse_args(arguments)
    print(f"benchmark_args={args}")
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
    with Path(args.output_file).open("a", encoding="utf-8") as file:
        # json.dumps, as the real one: bare Infinity and NaN.
        file.write(json.dumps(line) + "\n")
    return 0


def _prompts(args: argparse.Namespace) -> list[Prompt]:
    if args.dataset_name == "random-ids":
        starts = [random.randrange(_VOCABULARY) for _ in range(args.num_prompts)]
        return [
            Prompt(
                [(start + number + i) % _VOCABULARY for i in range(args.random_input_len)],
                args.random_input_len,
                args.random_output_len,
            )
            for number, start in enumerate(starts)
        ]
    if args.tokenize_prompt:
        raise ValueError("--tokenize-prompt is not for the custom dataset")
    if args.sharegpt_output_len is not None and args.sharegpt_output_len < _LEAST:
        raise ValueError("output_len too small")
    lines = Path(args.dataset_path).read_text(encoding="utf-8").splitlines()
    turns = [json.loads(line)["conversations"] for line in lines if line.strip()]
    pairs = [(two[0]["content"], two[1]["content"]) for two in turns if len(two) >= 2]
    random.shuffle(pairs)
    found = [Prompt(q, count(q), args.sharegpt_output_len or count(a)) for q, a in pairs]
    return [prompt for prompt in found if prompt.tokens >= 2][: args.num_prompts]


async def _benchmark(args: argparse.Namespace, prompts: list[Prompt]) -> dict[str, Any]:
    extra = json.loads(args.extra_request_body) if args.extra_request_body else {}

    async def send(prompt: Prompt) -> Output:
        return await _request(args, prompt, extra)

    for _ in range(args.warmup_requests):
        await send(Prompt(prompts[0].given, prompts[0].tokens, min(prompts[0].answer, 32)))
    if args.flush_cache:
        async with aiohttp.ClientSession() as session:
            await session.post(f"{args.base_url}/flush_cache", headers=traffic.bearer())
    began = time.perf_counter()
    outputs = await traffic.send_all(send, prompts, args.max_concurrency)
    info = await _server_info(args)
    # The real one's clock runs until it has that answer.
    duration = time.perf_counter() - began
    states = (info or {}).get("internal_states") or [{}]
    accept = states[0].get("avg_spec_accept_length")
    return _line(args, outputs, duration, {"server_info": info, "accept_length": accept})


async def _request(args: argparse.Namespace, prompt: Prompt, extra: dict[str, Any]) -> Output:
    """One request, over a connection of its own (as the real one)."""
    word = "text" if isinstance(prompt.given, str) else "input_ids"
    body = {
        word: prompt.given,
        "sampling_params": {
            "temperature": 0.0,
            "max_new_tokens": prompt.answer,
            "ignore_eos": not args.disable_ignore_eos,
        },
        "stream": True,
        **extra,
    }
    limit = aiohttp.ClientTimeout(total=traffic.LIMIT_S)
    async with aiohttp.ClientSession(timeout=limit, read_bufsize=10 * 1024**2) as session:
        output = Output(prompt)
        last = output.started
        try:
            url = f"{args.base_url}/generate"
            async with session.post(url, json=body, headers=traffic.bearer()) as response:
                if response.status != 200:
                    output.error = f"{response.reason}: {await response.text()}"
                    return output
                async for raw in response.content:
                    text = raw.strip().removeprefix(b"data: ")
                    if not text or text == b"[DONE]":
                        continue
                    told = json.loads(text)
                    if not told.get("text"):
                        continue
                    made, now = told["meta_info"]["completion_tokens"], time.perf_counter()
                    if output.ttft == 0.0:
                        output.ttft = now - output.started
                    elif made > output.tokens:
                        new = made - output.tokens
                        output.gaps += [(now - last) / new] * new
                    last, output.tokens = now, made
                    output.latency = output.since
                output.success = True
        except (aiohttp.ClientError, ValueError, KeyError) as wrong:
            output.error = f"{type(wrong).__name__}: {wrong}"
            print(f"output.error={output.error!r}")
    return output


async def _server_info(args: argparse.Namespace) -> dict[str, Any] | None:
    async with aiohttp.ClientSession() as session:
        url = f"{args.base_url}/get_server_info"
        try:
            async with session.get(url, headers=traffic.bearer()) as response:
                return await response.json() if response.status == 200 else None
        except aiohttp.ClientError:
            return None


def _line(
    args: argparse.Namespace, outputs: list[Output], duration: float, server: dict[str, Any]
) -> dict[str, Any]:
    """The result as 0.5.9 writes it, key by key; it does not say how many requests failed."""
    done = [output for output in outputs if output.success]
    asked, made = sum(o.prompt.tokens for o in done), sum(o.tokens for o in done)
    times = {name: [1000 * t for t in values] for name, values in traffic.spread(outputs).items()}
    line: dict[str, Any] = {
        "tag": args.tag,
        "backend": args.backend,
        "dataset_name": args.dataset_name,
        "request_rate": args.request_rate,
        "max_concurrency": args.max_concurrency,
        "sharegpt_output_len": args.sharegpt_output_len,
        "random_input_len": args.random_input_len,
        "random_output_len": args.random_output_len,
        "random_range_ratio": args.random_range_ratio,
        "server_info": server["server_info"],
        "duration": duration,
        "completed": len(done),
        "total_input_tokens": asked,
        "total_input_text_tokens": asked,
        "total_input_vision_tokens": 0,
        "total_output_tokens": made,
        "total_output_tokens_retokenized": made,
        "request_throughput": len(done) / duration,
        "input_throughput": asked / duration,
        "output_throughput": made / duration,
        "total_throughput": (asked + made) / duration,
    }
    for name, key in (("e2e", "e2e_latency"), ("ttft", "ttft"), ("tpot", "tpot"), ("itl", "itl")):
        # Of nothing, the real one writes NaN for the first and 0.0 for the others.
        values = times[name] or ([] if name == "e2e" else [0.0])
        line[f"mean_{key}_ms"] = traffic.mean(values)
        line[f"median_{key}_ms"] = traffic.percentile(values, 50)
        line[f"std_{key}_ms"] = traffic.deviation(values)
        if name == "e2e":
            line[f"p90_{key}_ms"] = traffic.percentile(values, 90)
        if name == "itl":
            line[f"p95_{key}_ms"] = traffic.percentile(values, 95)
        line[f"p99_{key}_ms"] = traffic.percentile(values, 99)
    line["concurrency"] = sum(o.latency for o in done) / duration
    line["accept_length"] = server["accept_length"]
    line["max_output_tokens_per_s"], line["max_concurrent_requests"] = traffic.busiest(outputs)
    return line


def run() -> None:
    """Entry of the pretend ``sglang.bench_serving``."""
    sys.exit(main(sys.argv[1:]))
