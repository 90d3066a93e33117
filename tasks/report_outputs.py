"""What the traffic of a sweep was and what came back: lengths, finish reasons, repetition."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import TYPE_CHECKING

from tasks.comparison import setting_label
from tasks.report_tables import UNKNOWN, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tasks.record import Measurement, TrialRecord

THROUGHPUT_ONLY = "random-token prompts: throughput only"

_Key = tuple[str, str, int]


def outputs_section(records: Sequence[TrialRecord]) -> str:
    """One line for each probe, setting and concurrency, over the trials that were measured."""
    measured: dict[_Key, list[Measurement]] = {}
    for record in records:
        for m in record.measurements:
            key = (m.probe, setting_label(record.arm, record.levels), m.concurrency)
            measured.setdefault(key, []).append(m)
    if not measured:
        return ""
    rows = [_row(key, measured[key]) for key in sorted(measured)]
    head = ("probe", "setting", "users", "prompt", "answer p50", "p90", "ends", "distinct 4-grams")
    intro = (
        "Tokens per request as the engine counted them; how answers ended (*stop*: by themselves); "
        "and the share of distinct 4-grams in the median answer, low where answers loop."
    )
    return "\n\n".join([*_limits(measured), intro, table(head, rows)])


def _limits(measured: dict[_Key, list[Measurement]]) -> Iterator[str]:
    """What may not be concluded from some probes."""
    for probe in sorted({probe for probe, _, _ in measured}):
        every = [m for key, found in measured.items() if key[0] == probe for m in found]
        if any(m.counts_from == "not_claimed" for m in every):
            yield f"Probe {probe}: **{THROUGHPUT_ONLY}**. No acceptance is claimed."


def _row(key: _Key, found: Sequence[Measurement]) -> tuple[str, ...]:
    probe, setting, users = key
    reasons: Counter[str] = Counter()
    for m in found:
        reasons.update(m.finish_reasons)
    prompts = [m.prompt_tokens / m.completed for m in found if m.prompt_tokens and m.completed]
    lengths = [m.output_tokens for m in found if m.output_tokens is not None]
    return (
        probe,
        setting,
        str(users),
        _tokens(prompts),
        _tokens(length.p50 for length in lengths),
        _tokens(length.p90 for length in lengths),
        _shares(reasons),
        _middle((m.unique_ngram_ratio for m in found), "{:.0%}"),
    )


def _shares(reasons: Counter[str]) -> str:
    """Each finish reason with its share, the most frequent first."""
    whole = sum(reasons.values())
    return ", ".join(f"{name} {n / whole:.0%}" for name, n in reasons.most_common()) or UNKNOWN


def _tokens(values: Iterable[float]) -> str:
    return _middle(values, "{:,.0f}")


def _middle(values: Iterable[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    return form.format(statistics.median(known)) if known else UNKNOWN
