"""What a faultless client finds in a short probe: the engine's own rules, played through.

``truth.expected`` is the closed form for a long closed loop. A probe of two requests a slot is
mostly beginning and end: all arrive at once, batches start and end together. Here the loop of
``decoding`` is played through for exactly the requests of a probe, with a client that needs no
time at all; what a measurement lacks against it is the time that real clients and sockets take.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from infra.rehearsal import truth

_GOLDEN = (math.sqrt(5) - 1) / 2
_PLASTIC = 0.7548776662466927
_STEADY = 0.9


class Forecast(NamedTuple):
    """The figures of one probe at one concurrency, in real time."""

    output_tok_s: float
    """Tokens of the steady window (in-flight >= 90 %) / its length."""
    user_tok_s: float
    """Mean over requests of (tokens - 1) / (last - first)."""
    accept_length: float
    """1 + accepted drafts / verify steps."""
    accept_at: tuple[float, ...]
    """Share of verify steps that accepted at least 1, 2, ... drafts."""


@dataclass
class _One:
    due: float
    phase: float
    limit: int
    done: int = 0
    steps: int = 0
    accepted: int = 0
    histogram: list[int] = field(default_factory=list)
    first: float = 0.0
    last: float = 0.0
    moments: list[tuple[float, int]] = field(default_factory=list)

    def take(self, moment: float, tokens: int) -> None:
        self.done += tokens
        self.last = moment
        self.moments.append((moment, tokens))


def forecast(
    arm: truth.Arm, concurrency: int, output_tokens: int, requests: int, noise: float = 1.0
) -> Forecast:
    """Plays one probe through.

    Args:
        arm: The server.
        concurrency: Requests kept in flight.
        output_tokens: Generated tokens per request, at least two.
        requests: Requests in all.
        noise: The boot's known factor on every step.
    """
    if output_tokens < 2 or not 1 <= concurrency <= requests:
        raise ValueError("needs two output tokens, and at least as many requests as are in flight")
    sent = [0]
    finished: list[_One] = []
    waiting: list[_One] = []
    running: list[_One] = []

    def send(now: float) -> None:
        number = sent[0]
        sent[0] += 1
        waiting.append(_One(now + truth.PREFILL_S, (number * _PLASTIC) % 1, output_tokens))

    for _ in range(concurrency):
        send(0.0)
    moment = 0.0
    while waiting or running:
        if running:
            moment += truth.step_s(arm, len(running)) * noise
            for one in running:
                one.take(moment, _draw(arm, one) + 1)
            ended = [one for one in running if one.done >= one.limit]
            running = [one for one in running if one.done < one.limit]
            finished += ended
            for _ in range(min(len(ended), requests - sent[0])):
                send(moment)
        else:
            moment = max(moment, min(one.due for one in waiting))
        for one in [one for one in waiting if one.due <= moment + 1e-9]:
            waiting.remove(one)
            one.take(moment, 1)
            one.first = moment
            running.append(one)
    return _sum_up(finished, concurrency)


def _draw(arm: truth.Arm, one: _One) -> int:
    """Accepted drafts of one request in one step, as decoding draws them."""
    if not arm.speculation:
        return 0
    one.phase = (one.phase + _GOLDEN) % 1
    drafts = next((k for k, at in enumerate(arm.accept_at) if one.phase >= at), len(arm.accept_at))
    drafts = min(drafts, one.limit - one.done - 1)
    one.steps += 1
    one.accepted += drafts
    one.histogram += [0] * (drafts + 1 - len(one.histogram))
    one.histogram[drafts] += 1
    return drafts


def _sum_up(finished: list[_One], concurrency: int) -> Forecast:
    level = math.ceil(_STEADY * concurrency - 1e-9)
    ends = sorted(one.last for one in finished)
    # The loop is full until fewer than `level` requests are left.
    end = ends[len(ends) - level]
    tokens = sum(n for one in finished for at, n in one.moments if at <= end)
    steps = sum(one.steps for one in finished)
    speeds = [(one.done - 1) / (one.last - one.first) for one in finished]
    return Forecast(
        output_tok_s=tokens / end,
        user_tok_s=sum(speeds) / len(speeds),
        accept_length=1 + sum(one.accepted for one in finished) / steps if steps else 1.0,
        accept_at=_at_least([one.histogram for one in finished], steps),
    )


def _at_least(histograms: list[list[int]], steps: int) -> tuple[float, ...]:
    depth = max(map(len, histograms), default=0)
    return tuple(sum(sum(h[k:]) for h in histograms) / steps for k in range(1, depth))
