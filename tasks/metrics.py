"""The table of measured figures: name, unit, direction, meaning; used by measure, compare, report."""

from __future__ import annotations

from typing import Literal

from configs.values import Value


class Metric(Value):
    """One measured figure."""

    name: str
    unit: str
    better: Literal["higher", "lower", "neither"]
    meaning: str


METRICS: tuple[Metric, ...] = (
    Metric(
        name="output_tok_s",
        unit="tokens/s",
        better="higher",
        meaning="generated tokens in the steady window / its length; steady = in-flight requests "
        "at >= 90 % of the asked concurrency",
    ),
    Metric(
        name="user_tok_s",
        unit="tokens/s",
        better="higher",
        meaning="per request (output tokens - 1) / (last - first token time), mean over requests",
    ),
    Metric(name="ttft_s", unit="s", better="lower", meaning="from sending to the first token"),
    Metric(
        name="tpot_s",
        unit="s",
        better="lower",
        meaning="(last - first token time) / (output tokens - 1); not the time between chunks, "
        "which misleads when a chunk holds several tokens",
    ),
    Metric(name="e2e_s", unit="s", better="lower", meaning="from sending to the end"),
    Metric(
        name="accept_length",
        unit="tokens/step",
        better="higher",
        meaning="1 + accepted drafts / verify steps, summed over the probe's own requests",
    ),
    Metric(
        name="draft_accept_rate",
        unit="1",
        better="higher",
        meaning="accepted drafts / proposed drafts (no bonus token)",
    ),
    Metric(
        name="step_s",
        unit="s",
        better="lower",
        meaning="accept_length / user_tok_s: one decode or verify step as a user sees it",
    ),
)

BY_NAME = {metric.name: metric for metric in METRICS}
