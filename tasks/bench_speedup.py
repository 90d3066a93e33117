"""Compares two benchmark results, or refuses and says what differs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from configs.values import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tasks.bench_result import BenchResult

#: Traffic that must be equal on both sides.
TRAFFIC = ("backend", "dataset_name", "request_rate", "max_concurrency", "requested")
#: Share by which the prompts of both sides may differ in length.
PROMPT_SLACK = 0.01
#: Share of the asked rate from which a run was bound by arrivals, not by the server.
ARRIVAL_BOUND = 0.95
#: What speculation itself brings with it, and so may differ.
_SPECULATION = ("spec", "draft", "accept")


class Speedup(Value):
    """How much faster one result is than another, or why that is not said."""

    comparable: bool
    """Whether everything but speculation was equal."""
    speedup: float | None = None
    """Ratio of generated tokens/s."""
    reason: str | None = None
    """Why there is no ratio."""
    differs: tuple[str, ...] = ()
    """Names of what differs."""
    warnings: tuple[str, ...] = ()
    """What to know before using the ratio."""


def compare_results(
    baseline: BenchResult,
    other: BenchResult,
    baseline_server: Mapping[str, object] | None = None,
    other_server: Mapping[str, object] | None = None,
) -> Speedup:
    """The ratio of output throughput, if traffic and server settings agree.

    A server that speculates limits itself to 48 running requests where one without does not
    (sglang#34290), so that an unnoticed difference looks like a loss by speculation.

    Args:
        baseline: the result without speculation.
        other: the result to compare with it.
        baseline_server: settings in effect there; only what is equal may stay out.
        other_server: the same for the other server.
    """
    for name, result in (("baseline", baseline), ("compared", other)):
        if not result.valid:
            return Speedup(comparable=False, reason=f"{name} result is invalid: {result.reason}")
    pairs = {name: (getattr(baseline, name), getattr(other, name)) for name in TRAFFIC}
    pairs |= _settings(baseline_server or {}, other_server or {})
    unequal = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    tokens = baseline.total_input_tokens, other.total_input_tokens
    if None not in tokens and _apart(tokens[0] or 0, tokens[1] or 0):
        unequal["total_input_tokens"] = tokens
    if unequal:
        said = tuple(
            f"{name} differs ({_shown(a)}, {_shown(b)}): speedup will not be computed"
            for name, (a, b) in unequal.items()
        )
        return Speedup(
            comparable=False, reason="; ".join(said), differs=tuple(unequal), warnings=said
        )
    before, after = baseline.output_throughput, other.output_throughput
    if not before or after is None:
        return Speedup(comparable=True, reason="output throughput unknown")
    return Speedup(
        comparable=True, speedup=after / before, warnings=_arrival_bound(baseline, other)
    )


def _settings(
    baseline: Mapping[str, object], other: Mapping[str, object]
) -> dict[str, tuple[object, object]]:
    names = sorted({*baseline, *other})
    return {
        name: (baseline.get(name), other.get(name))
        for name in names
        if not any(word in name for word in _SPECULATION)
    }


def _apart(one: int, other: int) -> bool:
    return abs(one - other) > PROMPT_SLACK * max(one, other)


def _shown(value: object) -> object:
    return "unknown" if value is None else value


def _arrival_bound(*results: BenchResult) -> tuple[str, ...]:
    for result in results:
        asked, served = result.request_rate, result.request_throughput
        if isinstance(asked, float) and served and served >= ARRIVAL_BOUND * asked:
            said = f"requests arrived at {asked:g}/s and were served at {served:g}/s"
            return (f"{said}: the arrivals, not the server, set the throughput",)
    return ()
