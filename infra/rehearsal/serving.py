"""One pretend server: takes requests in, counts them, and answers them."""

from __future__ import annotations

import json
import time
import uuid
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infra.rehearsal import truth
from infra.rehearsal.decoding import Decoding, Request
from infra.rehearsal.flags import CONTEXT_LEN
from infra.rehearsal.stats import Stats
from infra.rehearsal.streams import CallSink, GenerateSink
from infra.rehearsal.tokens import Answer, count, prepare
from infra.rehearsal.wire import Asked, Reply, parse_json

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from infra.rehearsal.accidents import Accidents
    from infra.rehearsal.console import Says

_NATURAL_END_ID = 163_586
_OPEN = ("/health", "/metrics")  # what SGLang leaves open although it has an API key


@dataclass(frozen=True)
class Loaded:
    """What the start found out.

    Attributes:
        args: effective server settings.
        config: the target's ``config.json``.
        arm: what decides the speed.
        noise: this boot's factor on every step.
        time_scale: how many times faster than the truth the engine runs.
        facts: rank 0's findings (tokens, weight_gib, graph_gib, captured).
        counts: where speculation is counted (``Knobs.counts``).
    """

    args: dict[str, Any]
    config: dict[str, Any]
    arm: truth.Arm
    noise: float
    time_scale: float
    facts: dict[str, Any]
    counts: str = "requests"


class Server:
    """One server: its requests, its counters and its answers."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, loaded: Loaded, console: Says, ranks: Says
    ) -> None:
        args = loaded.args
        self.loop, self.loaded, self._args = loop, loaded, args
        self._scale = loaded.time_scale
        self._console, self._ranks = console, ranks
        prepare()
        self.status = "starting"
        self.accidents: Accidents | None = None
        self.on_step: Callable[[int, float, float], None] = lambda *_step: None
        self.max_running = args["max_running_requests"] or 2048
        graphs = [] if args["disable_cuda_graph"] else loaded.facts["captured"]
        self.decoding = Decoding(
            loop,
            loaded.arm,
            time_scale=loaded.time_scale,
            noise=loaded.noise,
            max_running=self.max_running,
            largest_graph=max(graphs, default=0),
            on_step=self._stepped,
        )
        self.decoding.on_prefill = self._prefilled
        self.stats = Stats(
            time_scale=loaded.time_scale,
            draft_tokens=args["speculative_num_draft_tokens"] or 0,
            interval=args["decode_log_interval"],
            capacity=loaded.facts["tokens"],
            counts_steps=loaded.counts in ("both", "metrics"),
        )
        self.decoding.on_first = lambda r: self.stats.ttft.see(loop.time() - r.arrived)
        self._seen: set[int] = set()
        self._routes: dict[str, Callable[[Asked, Reply], None]] = {
            "/generate": self._generate,
            "/v1/chat/completions": self._chat,
        }

    def add_routes(self, more: dict[str, Callable[[Asked, Reply], None]]) -> None:
        """Further paths that this server answers."""
        self._routes.update(more)

    def handle(self, asked: Asked, reply: Reply) -> None:
        """Answer one request."""
        route = self._routes.get(asked.path)
        if route is None:
            reply.json(404, {"detail": "Not Found"})
            return
        if asked.method not in ("GET", "POST"):
            reply.json(405, {"detail": "Method Not Allowed"})
            return
        key = self._args["api_key"]
        if key and asked.path not in _OPEN and asked.authorization != f"Bearer {key}":
            reply.json(401, {"error": "Unauthorized"})
            return
        route(asked, reply)

    def access(self, client: str, line: str, status: int) -> None:
        """The access log, as uvicorn writes it."""
        word = {200: "OK", 400: "Bad Request", 404: "Not Found", 503: "Service Unavailable"}
        text = f'INFO:     {client} - "{line}" {status} {word.get(status, "")}'
        self._console.say(text.rstrip())

    def held_tokens(self) -> int:
        """Tokens in the KV cache now."""
        return sum(r.prompt_tokens + r.done for r in self.decoding.running)

    def _stepped(self, batch: int, made: int, accepted: int) -> None:
        speculation = self.loaded.arm.speculation
        if self.stats.step(batch, made, accepted, speculation=speculation):
            graph = batch <= self.decoding.largest_graph
            queued = len(self.decoding.queue)
            line = self.stats.decode_line(batch, queued, self.held_tokens(), graph=graph)
            self._ranks.say(line)
        self.on_step(batch, self.decoding.moment, self.decoding.step_s(batch) / self._scale)
        if self.accidents is not None:
            self.accidents.stepped()

    def _prefilled(self, request: Request) -> None:
        new = request.prompt_tokens - request.cached_tokens
        rate = new / truth.PREFILL_S
        self._ranks.say(
            f"Prefill batch, #new-seq: 1, #new-token: {new}, "
            f"#cached-token: {request.cached_tokens}, token usage: 0.00, "
            f"#running-req: {len(self.decoding.running)}, "
            f"#queue-req: {len(self.decoding.queue)}, "
            f"input throughput (token/s): {rate:.2f}, cuda graph: False"
        )

    def _prompt(self, asked: dict[str, Any]) -> tuple[bytes, int] | None:
        ids, text = asked.get("input_ids"), asked.get("text")
        if isinstance(ids, list) and ids:
            return json.dumps(ids).encode(), len(ids)
        if isinstance(text, str):
            return text.encode(), count(text)
        return None

    def forget_prefixes(self) -> None:
        """Empty the prefix cache."""
        self._seen.clear()

    def make_request(
        self, prompt: bytes, tokens: int, sampling: dict[str, Any], sink: Any
    ) -> Request:
        """Make a request; decides its length, its finish reason and what was cached."""
        limit = sampling.get("max_new_tokens")
        limit = 128 if limit is None else int(limit)
        finish: dict[str, object] = {"type": "length", "length": limit}
        mark = zlib.crc32(prompt)
        natural = 48 + mark % 464
        if not sampling.get("ignore_eos") and natural < limit:
            limit, finish = natural, {"type": "stop", "matched": _NATURAL_END_ID}
        answer = Answer(prompt, limit)
        stops = sampling.get("stop") or []
        for stop in [stops] if isinstance(stops, str) else stops:
            at = answer.text(limit).decode().find(stop)
            if at >= 0:
                limit, finish = at // 2 + 1, {"type": "stop", "matched": stop}
        cached = 0
        if not self._args["disable_radix_cache"]:
            cached = tokens - 1 if mark in self._seen else 0
            self._seen.add(mark)
        return Request(
            rid=uuid.uuid4().hex,
            answer=answer,
            prompt_tokens=tokens,
            cached_tokens=cached,
            limit=limit,
            finish=finish,
            sink=sink,
        )

    def _refusal(self, told: dict[str, Any] | None, tokens: int | None) -> str | None:
        """Why 0.5.9 answers 400, if it does."""
        if told is None or tokens is None:
            return "Either text, input_ids or input_embeds should be provided."
        limit = (told.get("sampling_params") or {}).get("max_new_tokens")
        if limit is not None and limit < 0:
            return f"max_new_tokens must be at least 0, got {limit}."
        room = self._args["context_length"] or CONTEXT_LEN
        if tokens >= room:
            return (
                f"The input ({tokens} tokens) is longer than the model's context length "
                f"({room} tokens)."
            )
        return None

    def _generate(self, asked: Asked, reply: Reply) -> None:
        told = parse_json(asked)
        prompt = self._prompt(told) if told is not None else None
        refusal = self._refusal(told, prompt[1] if prompt else None)
        if refusal is not None or told is None or prompt is None:
            reply.json(400, {"error": {"message": refusal}})
            return
        sink = GenerateSink(
            reply,
            stream=bool(told.get("stream")),
            interval=self._args["stream_interval"],
            draft_tokens=self.stats.draft_tokens,
            counted=self.loaded.counts in ("requests", "both"),
            loop=self.loop,
            done=self._ended,
        )
        request = self.make_request(*prompt, told.get("sampling_params") or {}, sink)
        request.rid = str(told.get("rid") or request.rid)
        self._submit(request, reply)

    def _submit(self, request: Request, reply: Reply) -> None:
        def gone() -> None:
            if not request.finished:
                self.decoding.abort(request)
                self.stats.aborted += 1

        reply.on_gone = gone
        self.decoding.submit(request)

    def _ended(self, request: Request) -> None:
        self.stats.ended(request, self.loop.time() - request.arrived)
        if self.accidents is not None:
            self.accidents.ended()

    def _chat(self, asked: Asked, reply: Reply) -> None:
        told = parse_json(asked) or {}
        prompt = json.dumps(told.get("messages", "")).encode()
        limit = told.get("max_tokens") or told.get("max_completion_tokens") or 128
        sampling = {"max_new_tokens": limit, "ignore_eos": told.get("ignore_eos", False)}

        def done(request: Request) -> None:
            self._ended(request)
            reason = request.finish["type"]
            reply.json(
                200,
                {
                    "id": request.rid,
                    "object": "chat.completion",
                    "created": int(time.time()),
                    "model": told.get("model") or self._args["served_model_name"],
                    "choices": [
                        {
                            "index": 0,
                            "message": {
                                "role": "assistant",
                                "content": request.answer.text(request.done).decode(),
                                "reasoning_content": None,
                                "tool_calls": None,
                            },
                            "logprobs": None,
                            "finish_reason": reason,
                            "matched_stop": None,
                        }
                    ],
                    "usage": {
                        "prompt_tokens": request.prompt_tokens,
                        "total_tokens": request.prompt_tokens + request.done,
                        "completion_tokens": request.done,
                        "prompt_tokens_details": None,
                    },
                },
            )

        request = self.make_request(prompt, count(prompt.decode()), sampling, CallSink(done))
        self._submit(request, reply)
