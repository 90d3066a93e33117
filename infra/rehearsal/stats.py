"""The engine's own counters: decode log lines, server averages and the Prometheus text.

Numbers that SGLang derives from a clock (throughput) are given in real seconds, as the truth
has them: the wall clock of the rehearsal is multiplied by the time scale first. What a client
times itself, ``e2e_latency`` included, is the rehearsal's own faster clock.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infra.rehearsal.decoding import Request

_EDGES = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)


@dataclass
class Histogram:
    """A Prometheus histogram of seconds.

    Attributes:
        buckets: counts at or below each edge.
        total: sum of what was seen.
        count: how much was seen.
    """

    buckets: list[int] = field(default_factory=lambda: [0] * len(_EDGES))
    total: float = 0.0
    count: int = 0

    def see(self, value: float) -> None:
        """Count one value."""
        self.total += value
        self.count += 1
        for position, edge in enumerate(_EDGES):
            self.buckets[position] += value <= edge

    def lines(self, name: str, labels: str) -> list[str]:
        """The histogram as text."""
        made = [f"# TYPE {name} histogram"]
        for edge, count in zip(_EDGES, self.buckets, strict=True):
            made.append(f'{name}_bucket{{{labels},le="{edge}"}} {float(count)}')
        made.append(f'{name}_bucket{{{labels},le="+Inf"}} {float(self.count)}')
        made.append(f"{name}_sum{{{labels}}} {self.total}")
        made.append(f"{name}_count{{{labels}}} {float(self.count)}")
        return made


@dataclass
class Stats:
    """Counters of one server.

    Attributes:
        time_scale: wall seconds times this are real seconds.
        draft_tokens: of the server's speculation, 0 without.
        interval: decode steps between two log lines.
        capacity: tokens in the KV cache.
        counts_steps: whether ``/metrics`` counts verify steps, as from 0.5.13 on.
    """

    time_scale: float
    draft_tokens: int
    interval: int
    capacity: int
    counts_steps: bool = False
    gen_throughput: float = 0.0
    accept_length: float = 0.0
    accept_rate: float = 0.0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    cached_tokens: int = 0
    requests: int = 0
    aborted: int = 0
    finished: int = 0
    retracted: int = 0
    verify_calls: int = 0
    ttft: Histogram = field(default_factory=Histogram)
    e2e: Histogram = field(default_factory=Histogram)
    _steps: int = 0
    _tokens: int = 0
    _accepted: int = 0
    _forwards: int = 0
    _all_accepted: int = 0
    _all_forwards: int = 0
    _since: float = field(default_factory=time.monotonic)

    def step(self, batch: int, made: int, accepted: int, *, speculation: bool) -> bool:
        """Count one decode step; true when its log line is due."""
        self._steps += 1
        self._tokens += made
        if speculation:
            self._accepted += accepted + batch
            self._forwards += batch
        return self._steps % self.interval == 0

    def decode_line(self, running: int, queued: int, held: int, *, graph: bool) -> str:
        """The decode log line of 0.5.9; starts the next interval.

        Its accept rate is the old one: accept length over draft tokens, the bonus included.
        """
        now = time.monotonic()
        gap_s = (now - self._since) * self.time_scale
        self._since = now
        self.gen_throughput = self._tokens / gap_s if gap_s > 0 else 0.0
        self._tokens = 0
        line = (
            f"Decode batch, #running-req: {running}, #token: {held}, "
            f"token usage: {held / max(1, self.capacity):.2f}, "
        )
        if self._forwards:
            self.accept_length = self._accepted / self._forwards
            self.accept_rate = self.accept_length / max(1, self.draft_tokens)
            self._all_accepted += self._accepted
            self._all_forwards += self._forwards
            self._accepted = self._forwards = 0
            line += f"accept len: {self.accept_length:.2f}, accept rate: {self.accept_rate:.2f}, "
        return line + (
            f"cuda graph: {graph}, gen throughput (token/s): {self.gen_throughput:.2f}, "
            f"#queue-req: {queued}"
        )

    def average_accept_length(self) -> float | None:
        """The server's average since the last flush; only whole log intervals count."""
        return self._all_accepted / self._all_forwards if self._all_forwards else None

    def flush(self) -> None:
        """What ``/flush_cache`` resets in 0.5.9."""
        self._steps = self._tokens = self._accepted = self._forwards = 0
        self._all_accepted = self._all_forwards = 0
        self.accept_length = self.accept_rate = 0.0

    def ended(self, request: Request, e2e_s: float) -> None:
        """Count a finished request of a client."""
        self.finished += 1
        self.requests += 1
        self.prompt_tokens += request.prompt_tokens
        self.cached_tokens += request.cached_tokens
        self.generated_tokens += request.done
        self.verify_calls += request.steps
        self.e2e.see(e2e_s)

    def prometheus(self, model: str, running: int, queued: int, held: int) -> str:
        """``/metrics`` with the names of 0.5.9, and the verify steps of 0.5.13 where wanted."""
        labels = f'model_name="{model}"'
        ranks = f'engine_type="unified",{labels},moe_ep_rank="0",pp_rank="0",tp_rank="0"'
        gauges = {
            "num_running_reqs": running,
            "num_used_tokens": held,
            "token_usage": held / max(1, self.capacity),
            "gen_throughput": self.gen_throughput,
            "num_queue_reqs": queued,
            "cache_hit_rate": 0.0,
            "max_total_num_tokens": self.capacity,
            "spec_accept_length": self.accept_length,
            "spec_accept_rate": self.accept_rate,
            "num_retracted_reqs": 0,
        }
        counters = {
            "prompt_tokens_total": self.prompt_tokens,
            "generation_tokens_total": self.generated_tokens,
            "cached_tokens_total": self.cached_tokens,
            "num_requests_total": self.requests,
            "num_aborted_requests_total": self.aborted,
            "num_retracted_requests_total": self.retracted,
        }
        if self.counts_steps:
            counters["spec_verify_calls_total"] = self.verify_calls
        lines: list[str] = []
        for name, value in gauges.items():
            lines += [f"# TYPE sglang:{name} gauge", f"sglang:{name}{{{ranks}}} {float(value)}"]
        for name, value in counters.items():
            lines += [f"# TYPE sglang:{name} counter", f"sglang:{name}{{{labels}}} {float(value)}"]
        lines += self.ttft.lines("sglang:time_to_first_token_seconds", labels)
        lines += self.e2e.lines("sglang:e2e_request_latency_seconds", labels)
        return "\n".join(lines) + "\n"
