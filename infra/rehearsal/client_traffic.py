"""The traffic of the pretend load generators: real requests over HTTP to the pretend server, timed.

``infra.rehearsal.sglang_client`` and ``vllm_client`` stand in for ``sglang.bench_serving`` and
``vllm bench serve``: what they ask, count and write was read in the source of SGLang 0.5.9 and
vLLM 0.33; prompts are counted in the pretend tokenizer's tokens.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

LIMIT_S = 6 * 60 * 60.0
"""For a request, in both clients."""


@dataclass(frozen=True)
class Prompt:
    """One request to come.

    Attributes:
        given: text, or token ids.
        tokens: of the prompt.
        answer: tokens to ask for.
    """

    given: str | list[int]
    tokens: int
    answer: int


@dataclass
class Output:
    """What came of a request; times in seconds, from its sending on."""

    prompt: Prompt
    started: float = field(default_factory=time.perf_counter)
    success: bool = False
    error: str = ""
    ttft: float = 0.0
    latency: float = 0.0
    tokens: int = 0
    gaps: list[float] = field(default_factory=list)

    @property
    def since(self) -> float:
        """Seconds since it was sent."""
        return time.perf_counter() - self.started


async def send_all(
    send: Callable[[Prompt], Awaitable[Output]], prompts: Sequence[Prompt], concurrency: int | None
) -> list[Output]:
    """Sends all of them at once, so many in flight as a semaphore lets through (both clients)."""
    if concurrency is None:
        return list(await asyncio.gather(*map(send, prompts)))
    slots = asyncio.Semaphore(concurrency)

    async def one(prompt: Prompt) -> Output:
        async with slots:
            return await send(prompt)

    return list(await asyncio.gather(*map(one, prompts)))


def bearer() -> dict[str, str]:
    """The engine's key, where both clients look for it."""
    key = os.environ.get("OPENAI_API_KEY")
    return {"Authorization": f"Bearer {key}"} if key else {}


def has_tokenizer(folder: str) -> bool:
    """Whether a folder is one from which a tokenizer could be loaded."""
    return (Path(folder) / "config.json").is_file()


def spread(outputs: Sequence[Output]) -> dict[str, list[float]]:
    """Times of the requests that came back, in seconds: ttft, tpot, itl, e2e."""
    done = [output for output in outputs if output.success]
    return {
        "ttft": [output.ttft for output in done],
        "tpot": [(o.latency - o.ttft) / (o.tokens - 1) for o in done if o.tokens > 1],
        "itl": [gap for output in done for gap in output.gaps],
        "e2e": [output.latency for output in done],
    }


def busiest(outputs: Sequence[Output]) -> tuple[float, int]:
    """Most tokens in one second of the run, and most requests that touched one (both clients)."""
    done = [output for output in outputs if output.success]
    begin = min((output.started for output in done), default=0.0)
    tokens: Counter[int] = Counter()
    requests: Counter[int] = Counter()
    for output in done:
        at = output.started - begin
        requests.update(range(int(at), int(at + output.latency) + 1))
        arrived = at + output.ttft
        tokens[int(arrived)] += 1
        for gap in output.gaps:
            arrived += gap
            tokens[int(arrived)] += 1
    return float(max(tokens.values(), default=0)), max(requests.values(), default=0)


def percentile(values: Sequence[float], percent: float) -> float:
    """As numpy works it out: NaN of nothing, a straight line between neighbours."""
    if not values:
        return math.nan
    ranked = sorted(values)
    at = percent / 100 * (len(ranked) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (ranked[high] - ranked[low]) * (at - low)


def mean(values: Sequence[float]) -> float:
    """NaN of nothing."""
    return sum(values) / len(values) if values else math.nan


def deviation(values: Sequence[float]) -> float:
    """Of the whole population; NaN of nothing."""
    middle = mean(values)
    return math.sqrt(mean([(value - middle) ** 2 for value in values]))
