"""A probe of kind bench-serving: the engine's own load generator, beside a probe of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, Self

from pydantic import model_validator

from configs.names import Count, Seconds, Text
from configs.problems import Said, WrongKeyError
from configs.values import Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from configs.probe import Stream

LEAST_ANSWER: Final = 4
"""Tokens: SGLang's client refuses to ask for fewer ("output_len too small", 0.5.9 to 0.5.23)."""


class BenchServing(Value):
    """A cross-check: ``sglang.bench_serving`` or ``vllm bench serve`` with another probe's traffic.

    It runs on the host, after all probes that measure speed, wherever it stands in the file. Its
    figures stand beside ours in the report and enter no verdict.
    """

    kind: Literal["bench-serving"] = "bench-serving"
    of: Text
    """The probe of kind stream whose prompts, answers and number of requests it takes; a length of
    a ladder by the name under which it is measured (load-ctx2048)."""
    concurrency: tuple[Count, ...] = ()
    """Some of that probe's; none: all of them."""
    timeout_s: Seconds = 3600.0
    """For one run, the client's own start (it imports torch) included."""

    @model_validator(mode="after")
    def _ladder_without_repeats(self) -> Self:
        twice = sorted({c for c in self.concurrency if self.concurrency.count(c) > 1})
        if twice:
            shown = ", ".join(map(str, twice))
            raise WrongKeyError("concurrency", f"{shown} stands twice: name each level once")
        return self

    def levels(self, of: Stream) -> tuple[int, ...]:
        """Requests in flight, one run each."""
        return self.concurrency or of.concurrency

    def words(self, of: Stream) -> str:
        """What it does, for who reads the plan."""
        levels = self.levels(of)
        shown = ", ".join(map(str, levels))
        return (
            f"after those, the engine's own load generator with the traffic of {self.of} at "
            f"{shown} user{'' if levels == (1,) else 's'}; a cross-check, in no ratio"
        )


def client_problems(
    probes: Mapping[str, BenchServing], rungs: Mapping[str, Stream]
) -> Iterator[Said]:
    """What a client cannot be asked for.

    Args:
        probes: those of kind bench-serving, by name.
        rungs: all that is measured by ours, by the name that its measurements bear.
    """
    for name, probe in probes.items():
        of = rungs.get(probe.of)
        if of is None:
            there = ", ".join(rungs) or "none"
            yield Said(
                f"probes.{name}.of",
                f"no probe of kind stream is measured as {probe.of!r}: name one of {there}",
            )
            continue
        beyond = [str(level) for level in probe.concurrency if level not in of.concurrency]
        if beyond:
            yield Said(
                f"probes.{name}.concurrency",
                f"{', '.join(beyond)} is not measured by {probe.of}, so there would be nothing "
                f"beside it: choose from {', '.join(map(str, of.concurrency))}, or leave it out",
            )
        if of.sampling.max_new_tokens < LEAST_ANSWER:
            yield Said(
                f"probes.{name}.of",
                f"{probe.of} asks for {of.sampling.max_new_tokens} tokens, and SGLang's client for "
                f"no fewer than {LEAST_ANSWER}: name another probe, or raise its max_new_tokens",
            )
        if of.random is not None and of.random.shortest != of.random.tokens:
            yield Said(
                f"probes.{name}.of",
                f"{probe.of} draws lengths from {of.random.shortest} to {of.random.tokens} tokens, "
                "and each client draws in a way of its own: name a probe with range_ratio 1",
            )
