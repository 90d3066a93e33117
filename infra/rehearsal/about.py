"""What a pretend server tells about itself: health, settings, metrics, and the truth."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from infra.rehearsal import kernels, truth
from infra.rehearsal.flags import CONTEXT_LEN, VERSION
from infra.rehearsal.startup import TOKEN_BYTES
from infra.rehearsal.streams import CallSink
from infra.rehearsal.wire import Asked, Reply, parse_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from infra.rehearsal.console import Console
    from infra.rehearsal.serving import Server

_HEALTH_POLL_S = 1.0
_HEALTH_TIMEOUT_S = 20.0
_FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. (When there are running or "
    "waiting requests, the operation will not be performed.)\n"
)
_TRUTH_AT = (1, 2, 4, 8, 16, 32, 48, 64)
_TRUTH_TOKENS = 256


class About:
    """The endpoints that ask instead of generating."""

    def __init__(self, server: Server, console: Console, ranks: Console) -> None:
        self._server, self._console, self._ranks = server, console, ranks
        self._args = server.loaded.args

    def routes(self) -> dict[str, Callable[[Asked, Reply], None]]:
        """Paths and who answers them; ``/metrics`` only when it was asked for."""
        found: dict[str, Callable[[Asked, Reply], None]] = {
            "/health": self._health,
            "/health_generate": self._health,
            "/model_info": self._model_info,
            "/get_model_info": self._model_info,
            "/server_info": self._server_info,
            "/get_server_info": self._server_info,
            "/v1/models": self._models,
            "/flush_cache": self._flush,
            "/rehearsal/truth": self._truth,
        }
        if self._args["enable_metrics"]:
            found["/metrics"] = self._metrics
        return found

    def _health(self, asked: Asked, reply: Reply) -> None:
        """0.5.9: 503 while starting or draining; else a token must come within 20 s.

        A token is made for it when the server is idle; the answer takes a second at least.
        """
        del asked
        server = self._server
        if server.status in ("starting", "draining"):
            reply.whole(503, b"")
            return
        scale, loop = server.loaded.time_scale, server.loop
        began = loop.time()
        if not server.decoding.busy():
            probe = server.make_request(
                b"HEALTH_CHECK", 1, {"max_new_tokens": 1}, CallSink(lambda _request: None)
            )
            server.decoding.submit(probe)

        def look() -> None:
            if server.decoding.last_output > began:
                server.status = "up"
                reply.whole(200, b"")
            elif loop.time() - began < _HEALTH_TIMEOUT_S / scale:
                loop.call_later(_HEALTH_POLL_S / scale, look)
            else:
                server.status = "unhealthy"
                self._console.say(
                    "Health check failed. Server couldn't get a response from detokenizer for "
                    "last 20 seconds.",
                    "error",
                )
                reply.whole(503, b"")

        loop.call_later(_HEALTH_POLL_S / scale, look)

    def _deprecated(self, asked: Asked, name: str) -> None:
        if asked.path == f"/get_{name}":
            self._console.say(
                f"Endpoint '/get_{name}' is deprecated and will be removed in a future version. "
                f"Please use '/{name}' instead.",
                "warning",
            )

    def _model_info(self, asked: Asked, reply: Reply) -> None:
        self._deprecated(asked, "model_info")
        config = self._server.loaded.config
        reply.json(
            200,
            {
                "model_path": self._args["model_path"],
                "tokenizer_path": self._args["tokenizer_path"],
                "is_generation": True,
                "preferred_sampling_params": self._args["preferred_sampling_params"],
                "weight_version": "default",
                "has_image_understanding": True,
                "has_audio_understanding": False,
                "model_type": config.get("model_type"),
                "architectures": config.get("architectures"),
            },
        )

    def _server_info(self, asked: Asked, reply: Reply) -> None:
        self._deprecated(asked, "server_info")
        server, facts = self._server, self._server.loaded.facts
        state: dict[str, Any] = {
            **self._args,
            "last_gen_throughput": server.stats.gen_throughput,
            "memory_usage": {
                "weight": round(facts["weight_gib"], 2),
                "kvcache": round(facts["tokens"] * TOKEN_BYTES / 1024**3, 2),
                "token_capacity": facts["tokens"],
                "graph": round(facts["graph_gib"], 2),
            },
            "effective_max_running_requests_per_dp": server.max_running,
        }
        average = server.stats.average_accept_length()
        if average is not None:
            state["avg_spec_accept_length"] = average
        reply.json(
            200,
            {
                **self._args,
                "status": "ready",
                "max_total_num_tokens": facts["tokens"],
                "max_req_input_len": (self._args["context_length"] or CONTEXT_LEN) - 6,
                "internal_states": [state],
                "version": VERSION,
            },
        )

    def _models(self, asked: Asked, reply: Reply) -> None:
        del asked
        name = self._args["served_model_name"]
        card = {
            "id": name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "sglang",
            "root": name,
            "parent": None,
            "max_model_len": self._args["context_length"] or CONTEXT_LEN,
        }
        reply.json(200, {"object": "list", "data": [card]})

    def _flush(self, asked: Asked, reply: Reply) -> None:
        del asked
        decoding = self._server.decoding
        if decoding.busy():
            waiting = len(decoding.queue) + len(decoding.prefilling)
            self._ranks.say(
                "Cache not flushed because there are pending requests. "
                f"#queue-req: {waiting}, #running-req: {len(decoding.running)}",
                "warning",
            )
            reply.text(400, _FLUSHED)
            return
        self._server.forget_prefixes()
        self._server.stats.flush()
        self._ranks.say("Cache flushed successfully!")
        reply.text(200, _FLUSHED)

    def _metrics(self, asked: Asked, reply: Reply) -> None:
        del asked
        server = self._server
        text = server.stats.prometheus(
            self._args["served_model_name"],
            len(server.decoding.running),
            len(server.decoding.queue),
            server.held_tokens(),
        )
        reply.whole(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")

    def _truth(self, asked: Asked, reply: Reply) -> None:
        """Real-second truths of this boot; a body may ask for ``concurrency`` and lengths."""
        told = parse_json(asked) or {}
        loaded, decoding = self._server.loaded, self._server.decoding
        tokens = int(told.get("output_tokens", _TRUTH_TOKENS))
        users = [n for n in told.get("concurrency", _TRUTH_AT) if n <= self._server.max_running]
        reply.json(
            200,
            {
                "time_scale": loaded.time_scale,
                "noise": loaded.noise,
                "arm": asdict(loaded.arm),
                "max_running_requests": self._server.max_running,
                "step_s": {str(n): decoding.step_s(n) for n in users},
                "expected": {
                    str(n): truth.expected(loaded.arm, n, tokens, loaded.noise).as_dict()
                    for n in users
                },
                "shares": {
                    str(n): kernels.shares(loaded.arm, n)
                    | {"drafter": kernels.drafter_share(loaded.arm, n)}
                    for n in users
                },
                "lag": {
                    "steps": decoding.lag.steps,
                    "late_share": decoding.lag.late / max(1, decoding.lag.steps),
                    "max_s": decoding.lag.max_s,
                },
            },
        )
