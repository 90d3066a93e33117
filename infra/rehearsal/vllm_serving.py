"""The pretend vLLM while it serves: its endpoints, its counters, and its line every ten seconds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from infra.rehearsal.serving import Server
from infra.rehearsal.startup import TOKEN_BYTES
from infra.rehearsal.tokens import count
from infra.rehearsal.vllm_args import VERSION
from infra.rehearsal.vllm_streams import CompletionsSink
from infra.rehearsal.wire import Asked, Reply, parse_json

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from infra.rehearsal.decoding import Request
    from infra.rehearsal.serving import Loaded
    from infra.rehearsal.vllm_console import VllmConsole

_LOG_EVERY_S = 10.0
_KEYED = ("/v1", "/v2", "/inference")


class VllmServer(Server):
    """One server; what decides its speed is what decides SGLang's here."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, loaded: Loaded, console: VllmConsole
    ) -> None:
        super().__init__(loop, loaded, _Uvicorn(console), _Silent())
        self._log = console
        self._ended_counts = Counts(loaded.arm.num_steps)
        self._printed = Counts(loaded.arm.num_steps)
        self._routes = {"/v1/completions": self._completions, **self._about()}
        self._every_s = _LOG_EVERY_S / loaded.time_scale
        loop.call_later(self._every_s, self._statistics)

    def handle(self, asked: Asked, reply: Reply) -> None:
        """Answer one request; only some paths ask for the key."""
        key = self._args["api_key"]
        keyed = asked.path.startswith(_KEYED)
        if key and keyed and asked.authorization != f"Bearer {key}":
            reply.json(401, {"error": "Unauthorized"})
            return
        route = self._routes.get(asked.path)
        if route is None:
            reply.json(404, {"detail": "Not Found"})
            return
        route(asked, reply)

    def _about(self) -> dict[str, Callable[[Asked, Reply], None]]:
        found: dict[str, Callable[[Asked, Reply], None]] = {
            "/health": lambda _, reply: reply.whole(200, b""),
            "/version": lambda _, reply: reply.json(200, {"version": VERSION}),
            "/v1/models": self._models,
            "/metrics": lambda _, reply: reply.text(200, self._metrics()),
        }
        if self._args["dev_mode"]:
            found |= {"/reset_prefix_cache": self._reset, "/server_info": self._info}
        return found

    def _stepped(self, batch: int, made: int, accepted: int) -> None:
        self.stats.step(batch, made, accepted, speculation=self.loaded.arm.speculation)
        if self.accidents is not None:
            self.accidents.stepped()

    def _prefilled(self, request: Request) -> None:
        """VLLM says nothing of a prefill."""

    def _completions(self, asked: Asked, reply: Reply) -> None:
        told = parse_json(asked) or {}
        if told.get("model") not in {None, self.name}:
            text = f"The model `{told['model']}` does not exist."
            error = {"message": text, "type": "NotFoundError", "param": "model", "code": 404}
            reply.json(404, {"error": error})
            return
        prompt = told.get("prompt")
        if isinstance(prompt, list) and prompt:
            given = json.dumps(prompt).encode(), len(prompt)
        elif isinstance(prompt, str) and prompt:
            given = prompt.encode(), count(prompt)
        else:
            reply.json(
                400, {"error": {"message": "Either prompt or prompt_embeds must be provided"}}
            )
            return
        limit, room = int(told.get("max_tokens") or 16), self._args["context_length"]
        if given[1] + limit > room:
            text = (
                f"This model's maximum context length is {room} tokens. However, you requested "
                f"{limit} output tokens and your prompt contains {given[1]} input tokens."
            )
            reply.json(400, {"error": {"message": text, "type": "BadRequestError", "code": 400}})
            return
        sink = CompletionsSink(
            reply,
            told,
            self.name,
            interval=self._args["stream_interval"],
            details=bool(self._args["enable_prompt_tokens_details"]),
            done=self._over,
        )
        sampling = {"max_new_tokens": limit, "ignore_eos": told.get("ignore_eos", False)}
        self._submit(self.make_request(*given, {**sampling, "stop": told.get("stop")}, sink), reply)

    @property
    def name(self) -> str:
        """The served model's name."""
        return str(self._args["served_model_name"] or self._args["model"])

    def _over(self, request: Request) -> None:
        self._ended_counts.add([request])
        self._ended(request)

    def _models(self, asked: Asked, reply: Reply) -> None:
        del asked
        card = {
            "id": self.name,
            "object": "model",
            "created": 0,
            "owned_by": "vllm",
            "root": self._args["model"],
            "parent": None,
            "max_model_len": self._args["context_length"],
        }
        reply.json(200, {"object": "list", "data": [card]})

    def _reset(self, asked: Asked, reply: Reply) -> None:
        del asked
        self._log.say("Resetting prefix cache...", "api_router.py:39")
        free = not self.decoding.busy()
        if free:
            self.forget_prefixes()
        reply.json(200, {"success": free})

    def _info(self, asked: Asked, reply: Reply) -> None:
        del asked
        args, tokens = self._args, self.loaded.facts["tokens"]
        config = {
            "model_config": {
                "model": args["model"],
                "max_model_len": args["context_length"],
                "enforce_eager": bool(args["enforce_eager"]),
                "trust_remote_code": bool(args["trust_remote_code"]),
                "seed": args["seed"],
                "dtype": "torch.bfloat16",
            },
            "cache_config": {
                "gpu_memory_utilization": args["gpu_memory_utilization"],
                "block_size": args["block_size"],
                "num_gpu_blocks": tokens // args["block_size"],
                "enable_prefix_caching": not args["disable_radix_cache"],
                "cache_dtype": args["kv_cache_dtype"] or "auto",
            },
            "parallel_config": {
                "tensor_parallel_size": args["tensor_parallel_size"],
                "pipeline_parallel_size": args["pipeline_parallel_size"],
                "data_parallel_size": args["data_parallel_size"],
            },
            "scheduler_config": {
                "max_num_seqs": args["max_num_seqs"],
                "max_num_batched_tokens": args["max_num_batched_tokens"] or 8192,
                "stream_interval": args["stream_interval"],
            },
            "speculative_config": args["speculation"]
            and {**args["speculation"], "num_speculative_tokens": args["speculative_num_steps"]},
            "compilation_config": {
                "max_cudagraph_capture_size": args["max_cudagraph_capture_size"]
            },
        }
        reply.json(200, {"vllm_config": config, "vllm_env": {}, "system_env": {}})

    def counts(self) -> Counts:
        """What was counted since the start, the requests under way included."""
        now = self._ended_counts.copy()
        now.add(self.decoding.running)
        return now

    def _metrics(self) -> str:
        """``/metrics``: counters move with every step."""
        now, running = self.counts(), self.decoding.running
        label = f'engine="0",model_name="{self.name}"'
        counters: dict[str, float] = {
            "prompt_tokens_total": self.stats.prompt_tokens + sum(r.prompt_tokens for r in running),
            "generation_tokens_total": self.stats.generated_tokens + sum(r.done for r in running),
        }
        if self.loaded.arm.speculation:
            counters |= {
                "spec_decode_num_drafts_total": now.drafts,
                "spec_decode_num_draft_tokens_total": now.drafts * self.loaded.arm.num_steps,
                "spec_decode_num_accepted_tokens_total": sum(now.positions),
            }
        gauges = {
            "num_requests_running": len(running),
            "num_requests_waiting": len(self.decoding.queue),
            "kv_cache_usage_perc": self.held_tokens() / max(1, self.loaded.facts["tokens"]),
        }
        lines = []
        for kind, values in (("counter", counters), ("gauge", gauges)):
            for name, value in values.items():
                lines.append(f"# TYPE vllm:{name.removesuffix('_total')} {kind}")
                lines.append(f"vllm:{name}{{{label}}} {float(value)}")
        for position, accepted in enumerate(now.positions if self.loaded.arm.speculation else ()):
            lines.append(
                "vllm:spec_decode_num_accepted_tokens_per_pos_total"
                f'{{{label},position="{position}"}} {float(accepted)}'
            )
        return "\n".join(lines) + "\n"

    def _statistics(self) -> None:
        """The lines that 0.33 prints every ten seconds while it works."""
        running, queued = len(self.decoding.running), len(self.decoding.queue)
        now = self.counts()
        made = now.tokens - self._printed.tokens
        if made or running:
            scale = self.loaded.time_scale
            share = 100 * self.held_tokens() * TOKEN_BYTES / (TOKEN_BYTES * self.stats.capacity)
            self._log.say(
                "Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: "
                f"{made / (self._every_s * scale):.1f} tokens/s, Running: {running} reqs, "
                f"Waiting: {queued} reqs, GPU KV cache usage: {share:.1f}%, Prefix cache hit rate: "
                "0.0%",
                "loggers.py:283",
            )
        drafts = now.drafts - self._printed.drafts
        if drafts:
            since = [a - b for a, b in zip(now.positions, self._printed.positions, strict=True)]
            proposed = drafts * self.loaded.arm.num_steps
            rates = ", ".join(f"{accepted / drafts:.3f}" for accepted in since)
            self._log.say(
                f"SpecDecoding metrics: Mean acceptance length: {1 + sum(since) / drafts:.2f}, "
                f"Accepted throughput: {sum(since) / _LOG_EVERY_S:.2f} tokens/s, Drafted "
                f"throughput: {proposed / _LOG_EVERY_S:.2f} tokens/s, Accepted: {sum(since)} "
                f"tokens, Drafted: {proposed} tokens, Per-position acceptance rate: {rates}, Avg "
                f"Draft acceptance rate: {100 * sum(since) / proposed:.1f}%",
                "metrics.py:116",
            )
        self._printed = now
        self.loop.call_later(self._every_s, self._statistics)


class Counts:
    """Verify steps, tokens, and accepted drafts by position."""

    def __init__(self, positions: int) -> None:
        self.drafts = self.tokens = 0
        self.positions = [0] * positions

    def copy(self) -> Counts:
        """The same counts, to be added to."""
        made = Counts(len(self.positions))
        made.drafts, made.tokens, made.positions = self.drafts, self.tokens, list(self.positions)
        return made

    def add(self, requests: Iterable[Request]) -> None:
        """Add what these requests have so far."""
        for request in requests:
            self.drafts += request.steps
            self.tokens += request.done
            for position in range(len(self.positions)):
                self.positions[position] += sum(request.histogram[position + 1 :])


class _Uvicorn:
    """The access log of uvicorn, through vLLM's log."""

    def __init__(self, console: VllmConsole) -> None:
        self._console = console

    def say(self, message: str, level: str = "info") -> None:
        del level
        self._console.plain(message)


class _Silent:
    """Where SGLang's own lines of decoding would go."""

    def say(self, message: str, level: str = "info") -> None:
        """Nothing."""
