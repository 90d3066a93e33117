"""Speculation counts of a measurement from what the engine itself counts, over all of its ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tasks.acceptance import CounterCounts
from tasks.prometheus import read_metrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tasks.prometheus import Engine, MetricsReading
    from tasks.record import Measurement, Sample

AGREE_SHARE = 0.005
"""Two ways to count the same steps differ by less than this."""
ANEW = "the engine's counters went back: it was started anew, so acceptance by them is unknown"
UNFLUSHED = (
    "the server's average accept length goes back beyond this measurement (the cache was not "
    "flushed before it), so it is not used"
)


class Answered(NamedTuple):
    """What the requests of a measurement themselves show."""

    requests: int
    tokens: int
    """Generated, the first token of each request included."""
    failed: int

    @classmethod
    def of(cls, samples: Iterable[Sample]) -> Answered:
        """What these requests show."""
        rows = list(samples)
        good = [s for s in rows if s.error is None]
        return cls(len(good), sum(s.completion_tokens for s in good), len(rows) - len(good))


class Told(NamedTuple):
    """Counts, or why there are none; empty where the engine says nothing at all."""

    counts: CounterCounts | None = None
    remarks: tuple[str, ...] = ()


def from_metrics(
    before: str, after: str, engine: Engine, answered: Answered, verified: int | None = None
) -> Told:
    """Counts from two answers of ``/metrics``, one before and one after the measurement.

    Differences are taken over all data-parallel ranks (tasks/counters). They are the
    measurement's own only if nobody else had tokens from the engine meanwhile: the generated
    tokens that the engine counted must be those that our requests got.

    Args:
        before: body of the earlier answer.
        after: body of the later one.
        engine: whose metrics they are.
        answered: what our requests show.
        verified: tokens that one verify step checks, the bonus included; where known, SGLang's
            own definition gives the proposed drafts (steps x one less).
    """
    reading = read_metrics(after, engine, before=before)
    if not reading.valid:
        return Told(remarks=(ANEW,))
    if not reading.drafts or reading.generation_tokens is None:
        return Told()
    if answered.failed:
        return Told(remarks=("requests failed, and the engine's counters do not tell them apart",))
    if reading.generation_tokens != answered.tokens:
        return Told(
            remarks=(
                (
                    f"the engine counted {reading.generation_tokens} generated tokens, our requests "
                    f"got {answered.tokens}: others use it too, so its counters are not ours"
                ),
            )
        )
    counts = _sglang(reading, answered, verified) if engine == "sglang" else _vllm(reading)
    if counts is None or counts.accepted < 0:
        return Told(remarks=("the engine's counters contradict each other",))
    return Told(counts)


def from_averages(
    before: Sequence[float | None],
    after: Sequence[float | None],
    answered: Answered,
    verified: int | None = None,
) -> Told:
    """Counts from the average accept length that each data-parallel rank of SGLang shows.

    For engines that count neither per request nor in ``/metrics``. The average runs from the
    last flush of the cache, so it is the measurement's own only if it was empty before. A rank
    does not say how many steps it is over: the tokens are taken to be spread evenly over ranks,
    as the engine's round robin does.

    Args:
        before: the ranks' averages before the first request; all None after a flush.
        after: the ranks' averages after the last one.
        answered: what our requests show.
        verified: tokens that one verify step checks, the bonus included.
    """
    if any(length is not None for length in before):
        return Told(remarks=(UNFLUSHED,))
    known = [length for length in after if length is not None and length >= 1]
    decoded = answered.tokens - answered.requests
    if not known or decoded <= 0:
        return Told()
    if len(known) < len(after):
        return Told(
            remarks=(
                (
                    f"{len(after) - len(known)} of {len(after)} data-parallel ranks show no accept "
                    "length, so the average over all is unknown"
                ),
            )
        )
    steps = round(sum(decoded / len(known) / length for length in known))
    return Told(
        CounterCounts(steps, decoded - steps, _proposed(steps, verified), source="server_average"),
        (
            (
                "accept length is the server's average since the flush, updated every "
                "decode_log_interval steps: its last steps are not in it"
            ),
        ),
    )


def disagreement(measured: Measurement) -> tuple[str, ...]:
    """In words, if the requests' own counts and the engine's counters say different things.

    Both count the same verify steps; the engine's definitions changed often enough (0.5.11,
    0.5.12, 0.5.13) to look at both where both are there.
    """
    ours, theirs = measured.accept_length, measured.counter_accept_length
    if measured.counts_from != "requests" or ours is None or theirs is None:
        return ()
    if abs(theirs / ours - 1) <= AGREE_SHARE:
        return ()
    return (f"requests and counters disagree: accept length {ours:.3f} and {theirs:.3f}",)


def _sglang(
    reading: MetricsReading, answered: Answered, verified: int | None
) -> CounterCounts | None:
    """A request's tokens are one from its prefill, and accepted + 1 of each verify step."""
    if reading.drafts is None or reading.generation_tokens is None:
        return None
    accepted = reading.generation_tokens - answered.requests - reading.drafts
    return CounterCounts(reading.drafts, accepted, _proposed(reading.drafts, verified))


def _vllm(reading: MetricsReading) -> CounterCounts | None:
    if reading.drafts is None or reading.accepted is None:
        return None
    return CounterCounts(
        reading.drafts, reading.accepted, reading.draft_tokens, _histogram(reading, reading.drafts)
    )


def _histogram(reading: MetricsReading, drafts: int) -> tuple[int, ...] | None:
    """Steps by accepted drafts, from the steps that accepted at least so many."""
    if not reading.per_position:
        return None
    least = [drafts, *(round(share * drafts) for share in reading.per_position), 0]
    exactly = tuple(least[k] - least[k + 1] for k in range(len(least) - 1))
    return exactly if all(count >= 0 for count in exactly) else None


def _proposed(steps: int, verified: int | None) -> int | None:
    return steps * (verified - 1) if verified and verified > 1 else None
