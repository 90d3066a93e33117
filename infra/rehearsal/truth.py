"""What the pretend engine really does: step costs, acceptance and the numbers that follow.

Everything here is in real seconds, as a host with this truth would show them; the engine runs
``time_scale`` times faster. Nothing here is a claim about any GPU: the two anchors of the
baseline (63.6 tokens/s for one user, 2370 tokens/s for 64) and the all-reduce share of 51.5 %
are of the size that people report for Kimi-K2.5 on eight PCIe cards, and the drafters are made
up so that one does not pay, one loses clearly, and one wins.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

BASE_STEP_1_S = 1 / 63.6
BASE_STEP_64_S = 64 / 2370
ANCHORS = {
    "sglang": (BASE_STEP_1_S, BASE_STEP_64_S),
    "vllm": (1 / 82.5, 64 / 1536),
}
"""Seconds of a base step at 1 and at 64 users, by engine: the pretend vLLM is the faster one for
one user (82.5 tokens/s) and the slower one for 64 (1536), as in the report that this began with."""
ALL_REDUCE_SHARE = 0.515
"""Share of a decode or verify step that is all-reduce under NCCL's default choice."""
LL_SAVES = 0.12
"""What ``NCCL_PROTO=LL`` takes off the all-reduce part. No other variable changes anything."""
PREFILL_S = 0.080
"""From the moment a slot is free to the first token of the next request in it."""

# Step of a verify cycle over the base step at (3 steps, top-k 1, 4 draft tokens); chosen so
# that an accept length of 2.26 makes 0.99 of the base speed alone and 0.86 at 64 users.
_VERIFY_RATIO_1 = 2.26 / 0.99
_VERIFY_RATIO_64 = 2.26 / 0.86
_DRAFT_STEP_PART = 0.45
_TOPK_COST = 0.15
_SETTLES = 10

SIMULATE_LENGTH = "SGLANG_SIMULATE_ACC_LEN"
SIMULATE_METHOD = "SGLANG_SIMULATE_ACC_METHOD"

DRAFTERS: dict[str, tuple[float, ...]] = {
    "aq-medai-k2-drafter": (0.62, 0.40, 0.24),
    "k25-custom": (0.44, 0.21, 0.10),
    "k25-tuned": (0.78, 0.62, 0.46),
}
"""Share of verify steps that accept at least 1, 2, 3 drafts, by folder name of the drafter."""
NGRAM = (0.30, 0.14, 0.06)
"""The same for drafts copied from earlier text; looking them up takes no time."""


@dataclass(frozen=True)
class Arm:
    """What decides the speed of one server.

    Attributes:
        speculation: whether it speculates at all.
        accept_at: share of verify steps that accept at least k drafts, k from 1 (a chain).
        num_steps: draft steps.
        topk: branches per draft step.
        num_draft_tokens: tokens that one verify step looks at, the bonus position included.
        nccl_proto: value of ``NCCL_PROTO``, empty when unset.
        engine: whose base step it is.
    """

    speculation: bool = False
    accept_at: tuple[float, ...] = ()
    num_steps: int = 0
    topk: int = 1
    num_draft_tokens: int = 1
    nccl_proto: str = ""
    engine: str = "sglang"


@dataclass(frozen=True)
class Truth:
    """What a faultless measurement of one arm at one concurrency finds, in real seconds.

    Attributes:
        concurrency: requests in flight, all of the same output length.
        output_tokens: generated tokens per request.
        accept_length: tokens per verify step in requests of this length (the last step of a
            request is cut off at its length, so it lies a little below ``accept_length_long``).
        accept_length_long: the same without that cut.
        accept_at: share of verify steps that accept at least k drafts (without the cut).
        verify_steps: mean decode or verify steps per request.
        step_s: seconds per decode or verify step, at the mean batch of such a loop.
        user_tok_s: (output tokens - 1) / (last - first token time) of a request.
        ttft_s: seconds to the first token, without the network.
        output_tok_s: tokens of all requests over the time, without a client's turn-around.
    """

    concurrency: int
    output_tokens: int
    accept_length: float
    accept_length_long: float
    accept_at: tuple[float, ...]
    verify_steps: float
    step_s: float
    user_tok_s: float
    ttft_s: float
    output_tok_s: float

    def as_dict(self) -> dict[str, object]:
        """The fields by name, for JSON."""
        return asdict(self)


def _line(at_1: float, at_64: float, batch: float) -> float:
    return at_1 + (at_64 - at_1) * (batch - 1) / 63


def base_step_s(batch: float, engine: str = "sglang") -> float:
    """Seconds of a decode step without speculation; affine in the batch size."""
    return _line(*ANCHORS[engine], batch)


def all_reduce_factor(nccl_proto: str) -> float:
    """What the NCCL protocol does to a whole step (1 = NCCL's default)."""
    return 1 - ALL_REDUCE_SHARE * LL_SAVES if nccl_proto.strip().upper() == "LL" else 1.0


def step_s(arm: Arm, batch: float) -> float:
    """Seconds of one decode step, or of one draft-and-verify cycle, at a batch size.

    The cycle costs a base step, plus a part per draft step (more with branches), plus a part
    per draft token that the verify step looks at. All drafters cost the same.
    """
    whole = base_step_s(batch, arm.engine)
    if arm.speculation:
        base_1, base_64 = ANCHORS[arm.engine]
        extra_1 = (_VERIFY_RATIO_1 - 1) * base_1 / 3
        extra_64 = (_VERIFY_RATIO_64 - 1) * base_64 / 3
        unit = _line(extra_1, extra_64, batch)
        drafting = _DRAFT_STEP_PART * arm.num_steps * (1 + _TOPK_COST * (arm.topk - 1))
        verifying = (1 - _DRAFT_STEP_PART) * (arm.num_draft_tokens - 1)
        whole += unit * (drafting + verifying)
    return whole * all_reduce_factor(arm.nccl_proto)


def chain(
    accept_at: tuple[float, ...], steps: int, topk: int, draft_tokens: int
) -> tuple[float, ...]:
    """Acceptance at each position for other settings than the drafter's three known positions.

    Later positions fall by the ratio of the last two known ones; each further branch gives a
    rejected position a 35 % smaller chance to be rejected. A tree holds no more than
    ``draft_tokens - 1`` drafts.
    """
    depth = min(steps, draft_tokens - 1)
    known = list(accept_at)
    while known and len(known) < depth:
        ratio = known[-1] / known[-2] if len(known) > 1 and known[-2] > 0 else 0.5
        known.append(known[-1] * ratio)
    if topk <= 1:
        return tuple(known[:depth])
    widened: list[float] = []
    before, reached = 1.0, 1.0
    for share in known[:depth]:
        conditional = share / before if before > 0 else 0.0
        reached *= 1 - (1 - conditional) ** (1 + 0.35 * (topk - 1)) if conditional > 0 else 0.0
        widened.append(reached)
        before = share
    return tuple(widened)


def accepted_shares(accept_at: tuple[float, ...]) -> tuple[float, ...]:
    """Share of verify steps that accept exactly 0, 1, … drafts."""
    reached = (1.0, *accept_at, 0.0)
    return tuple(reached[k] - reached[k + 1] for k in range(len(accept_at) + 1))


def mean_verify_steps(accept_at: tuple[float, ...], tokens: int) -> float:
    """Mean steps until a request has made ``tokens`` tokens; the last step may be cut.

    Renewal equation ``steps(n) = 1 + sum of share(a) * steps(n - 1 - a)`` over accepted counts.
    """
    shares = accepted_shares(accept_at)
    steps = [0.0] * (tokens + 1)
    for left in range(1, tokens + 1):
        later = sum(p * steps[max(0, left - 1 - a)] for a, p in enumerate(shares))
        steps[left] = 1 + later
    return steps[tokens]


def expected(arm: Arm, concurrency: int, output_tokens: int, noise: float = 1.0) -> Truth:
    """What a faultless measurement finds in a closed loop of equal requests.

    Args:
        arm: the server.
        concurrency: requests kept in flight, within the server's limit.
        output_tokens: generated tokens per request, at least 2.
        noise: the boot's known factor on every step (1 = none).

    Raises:
        ValueError: fewer than two output tokens, or no request.
    """
    if output_tokens < 2 or concurrency < 1:
        raise ValueError("needs at least one request of at least two output tokens")
    steps = mean_verify_steps(arm.accept_at, output_tokens - 1)
    step = step_s(arm, concurrency) * noise
    # Requests of an unspeculated batch end together, so the next ones find an idle engine and
    # start together. Those of a speculating batch end apart: each next one waits for a step to
    # end, and the others decode in a batch that is smaller by those that wait.
    ttft = PREFILL_S
    if arm.speculation and concurrency > 1:
        for _ in range(_SETTLES):
            ttft = math.ceil(PREFILL_S / step) * step
            batch = concurrency * steps * step / (steps * step + ttft)
            step = step_s(arm, batch) * noise
    decode = steps * step
    return Truth(
        concurrency=concurrency,
        output_tokens=output_tokens,
        accept_length=(output_tokens - 1) / steps,
        accept_length_long=1 + sum(arm.accept_at),
        accept_at=arm.accept_at,
        verify_steps=steps,
        step_s=step,
        user_tok_s=(output_tokens - 1) / decode,
        ttft_s=ttft,
        output_tok_s=concurrency * output_tokens / (decode + ttft),
    )


def simulated_length(environment: Mapping[str, str]) -> float | None:
    """The accept length that the engine is told to pretend; None where it is told none."""
    length = float(environment.get(SIMULATE_LENGTH, -1))
    return length if length > 0 else None


def simulated_shares(length: float, method: str, steps: int) -> tuple[float, ...]:
    """Acceptance at each position under ``SGLANG_SIMULATE_ACC_LEN`` (0.5.9 spec_utils.py).

    ``match-expected`` draws the whole number below or above the length, so that the mean is it;
    ``multinomial``, the default of 0.5.9, rounds a normal draw of spread 1 that is cut to what is
    possible, whose mean is another one.

    Raises:
        ValueError: another method.
    """
    if method == "match-expected":
        wanted = max(1.0, min(steps + 1, length))
        return tuple(min(1.0, max(0.0, wanted - k)) for k in range(1, steps + 1))
    if method == "multinomial":
        drawn = NormalDist(length, 1.0)
        return tuple(1 - drawn.cdf(k + 0.5) for k in range(1, steps + 1))
    raise ValueError(f"Invalid simulate_acc_method: {method}")


def arm_of(
    args: Mapping[str, Any],
    accept_at: tuple[float, ...],
    environment: Mapping[str, str],
    engine: str = "sglang",
) -> Arm:
    """The arm that a server's settings, its drafter's acceptance and its environment make."""
    proto = environment.get("NCCL_PROTO", "")
    if args["speculative_algorithm"] is None:
        return Arm(nccl_proto=proto, engine=engine)
    draft_tokens = args["speculative_num_draft_tokens"]
    if args["speculative_algorithm"] == "NGRAM":
        # Whatever the breadth: the truth is of the whole tree, and nothing is drafted by a model.
        shares = chain(accept_at, draft_tokens - 1, 1, draft_tokens)
        return Arm(True, shares, 0, 1, draft_tokens, proto, engine)
    steps = args["speculative_num_steps"]
    topk = args["speculative_eagle_topk"]
    length = simulated_length(environment) if engine == "sglang" else None
    if length is not None:
        method = environment.get(SIMULATE_METHOD, "multinomial")
        shares = simulated_shares(length, method, steps)
        return Arm(True, shares, steps, topk, draft_tokens, proto)
    return Arm(
        speculation=True,
        accept_at=chain(accept_at, steps, topk, draft_tokens),
        num_steps=steps,
        topk=topk,
        num_draft_tokens=draft_tokens,
        nccl_proto=proto,
        engine=engine,
    )
