"""Acceptance of drafts, from counts: one definition, everywhere."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

from tasks.clusters import Part, ratio_interval
from tasks.prompts import base_id
from tasks.record import KindAcceptance

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tasks.record import CountsFrom, Sample

FIRST_HALF = "output: first half"
SECOND_HALF = "output: second half"

COUNTED_SHARE = 0.9
"""Counts of requests speak for a probe when at least this share of its requests has them."""
PARTS_SHARE = 0.5
"""Chunks speak for output position when at least this share of the requests shows its steps."""


class CounterCounts(NamedTuple):
    """What the engine's counters grew by during a probe, for engines without counts per request."""

    verify_steps: int
    accepted: int
    proposed: int | None = None
    histogram: tuple[int, ...] | None = None
    source: Literal["counters", "server_average"] = "counters"
    """``server_average``: derived from the average accept length that the server shows."""

    @property
    def accept_length(self) -> float | None:
        """1 + accepted / verify steps; None without a step."""
        return 1.0 + self.accepted / self.verify_steps if self.verify_steps else None


class Acceptance(NamedTuple):
    """Acceptance over a probe; None is unknown."""

    source: CountsFrom
    verify_steps: int | None = None
    accepted: int | None = None
    proposed: int | None = None
    histogram: tuple[int, ...] | None = None

    @property
    def accept_length(self) -> float | None:
        """1 + accepted / verify steps: each step weighs the same, not each request."""
        if not self.verify_steps or self.accepted is None:
            return None
        return 1.0 + self.accepted / self.verify_steps

    @property
    def draft_accept_rate(self) -> float | None:
        """Accepted / proposed drafts, without the bonus token."""
        if not self.proposed or self.accepted is None:
            return None
        return self.accepted / self.proposed


NOT_CLAIMED = Acceptance("not_claimed")
"""Of random tokens: what was accepted there says nothing about text."""


def of_probe(samples: Sequence[Sample], counters: CounterCounts | None = None) -> Acceptance:
    """Acceptance over completed requests; from the engine's counters where requests say nothing.

    Requests with a single output token have no verify step and are not asked for counts.
    """
    asked = [s for s in samples if s.completion_tokens > 1]
    counted = [s for s in asked if s.verify_steps is not None and s.accepted is not None]
    if counted and len(counted) >= COUNTED_SHARE * len(asked):
        return Acceptance(
            "requests",
            sum(s.verify_steps or 0 for s in counted),
            sum(s.accepted or 0 for s in counted),
            _sum_or_none([s.proposed for s in counted]),
            _add_histograms([s.histogram for s in counted]),
        )
    if counters is not None:
        return Acceptance(
            counters.source,
            counters.verify_steps,
            counters.accepted,
            counters.proposed,
            counters.histogram,
        )
    return Acceptance("none")


def accept_at_k(
    histogram: Sequence[int] | None, draft_steps: int | None = None
) -> tuple[float, ...] | None:
    """Share of verify steps that accepted at least k drafts, k = 1, 2, ... (unconditional).

    Args:
        histogram: verify steps by accepted drafts; engines leave out trailing zeros.
        draft_steps: the deepest k of the drafter (K), to have all figures even where no step
            reached it.
    """
    if not histogram or not sum(histogram):
        return None
    depth = max(len(histogram) - 1, draft_steps or 0)
    steps = sum(histogram)
    return tuple(sum(histogram[k:]) / steps for k in range(1, depth + 1))


def conditional(shares: Sequence[float] | None) -> tuple[float, ...] | None:
    """Share of steps that accepted draft k among those that accepted k - 1.

    The tuple ends where no step got to k - 1: nothing is known about what was never tried.
    """
    if shares is None:
        return None
    before = (1.0, *shares[:-1])
    return tuple(now / prior for now, prior in zip(shares, before, strict=True) if prior > 0)


def parts(samples: Sequence[Sample]) -> tuple[KindAcceptance, ...]:
    """Acceptance by kind of text, then by half of the output."""
    return (*by_kind(samples), *by_part(samples))


def by_kind(samples: Iterable[Sample]) -> tuple[KindAcceptance, ...]:
    """Acceptance for each kind of text, in order of first appearance."""
    groups: dict[str, list[Part]] = {}
    for s in samples:
        if s.verify_steps and s.accepted is not None:
            part = Part(base_id(s.id), s.accepted, s.verify_steps)
            groups.setdefault(s.kind, []).append(part)
    return tuple(_group(name, counts) for name, counts in groups.items())


def by_part(samples: Sequence[Sample]) -> tuple[KindAcceptance, ...]:
    """Acceptance in the first and the second half of the outputs, where chunks show steps.

    Counts per request say nothing about where in the output a draft was taken. Chunks do, as
    long as each verify step came as a chunk of its own: that is checked for each request
    (chunks after the first = verify steps, one either way). The last step is left out, since
    the output's end cuts it. Empty when fewer than half of the requests can be read so.
    """
    speculated = [s for s in samples if s.verify_steps]
    readable = [(s.id, steps) for s in speculated if len(steps := _steps(s)) > 1]
    if not readable or len(readable) < PARTS_SHARE * len(speculated):
        return ()
    halves: tuple[list[Part], list[Part]] = ([], [])
    for name, steps in readable:
        total = sum(steps)
        seen = 0
        parts: tuple[list[int], list[int]] = ([], [])
        for tokens in steps:
            parts[2 * seen >= total].append(tokens)
            seen += tokens
        for half, part in zip(halves, parts, strict=True):
            half.append(Part(base_id(name), sum(part) - len(part), len(part)))
    return tuple(
        _group(name, half)
        for name, half in zip((FIRST_HALF, SECOND_HALF), halves, strict=True)
        if sum(part.denominator for part in half)
    )


def _steps(sample: Sample) -> list[int]:
    """Tokens of each verify step but the last; empty when chunks are not steps."""
    counts = [count for _, count in sample.chunks]
    sizes = [b - a for a, b in pairwise(counts)]
    if sample.verify_steps is None or abs(len(sizes) - sample.verify_steps) > 1:
        return []
    return sizes[:-1] if all(size >= 1 for size in sizes) else []


def _group(name: str, found: Sequence[Part]) -> KindAcceptance:
    """Sums, and an interval over prompts: a repeated prompt is no further evidence."""
    steps = sum(int(part.denominator) for part in found)
    accepted = sum(int(part.numerator) for part in found)
    interval = ratio_interval(found)
    return KindAcceptance(
        name=name,
        requests=len(found),
        verify_steps=steps,
        accepted=accepted,
        accept_length=1.0 + accepted / steps,
        low=max(1.0, 1.0 + interval[0]) if interval else None,
        high=1.0 + interval[1] if interval else None,
    )


def _sum_or_none(values: Sequence[int | None]) -> int | None:
    """The sum, unless one of them is unknown: a part of a sum is not a smaller sum."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _add_histograms(histograms: Sequence[tuple[int, ...] | None]) -> tuple[int, ...] | None:
    known = [h for h in histograms if h is not None]
    if not known or len(known) < len(histograms):
        return None
    return tuple(sum(h[k] for h in known if k < len(h)) for k in range(max(len(h) for h in known)))
