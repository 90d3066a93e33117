"""Where the guards draw their lines."""

from __future__ import annotations

from configs.values import Value


class Limits(Value):
    """Where the guards draw their lines; the reasons stand at the guards."""

    accept_length_floor: float = 1.02
    """At or below it nothing is accepted (tokens/step)."""
    accept_length_headroom: float = 0.9
    """Accept length >= K + this is next to the ceiling K + 1."""
    simulated_share: float = 0.05
    """Of a simulated accept length: the cut last step of each answer takes one or two percent."""
    unique_ngram_ratio: float = 0.3
    """Median share of distinct 4-grams below this: outputs loop. Code repeats itself, down to
    about 0.5; a model stuck in a two-token loop is near 0.1."""
    outside_graph_share: float = 0.05
    """Of decode log lines; a stray one happens at the end of a probe."""
    cached_share: float = 0.3
    """Of prompt tokens in a cold probe; the chat template's beginning is shared by all prompts."""
    client_lag_s: float = 0.05
    """p99 of the client's event loop lag and send delay ..."""
    client_lag_share: float = 0.05
    """... or this share of a median request, whichever is larger."""
    client_cpu_share: float = 0.9
    """Of one core."""
    requests_per_slot: int = 2
    """Fewer completed requests per concurrent slot: all ramp-up and drain."""
    distinct_prompts: int = 4
    """Fewer say nothing about a drafter."""
    output_tokens: float = 32.0
    """Mean per request; below, the cut last step and the first tokens weigh too much."""
    queued_share: float = 0.1
    """Of decode log lines: requests wait while fewer run than may; a few do while others prefill."""
    clock_share: float = 0.002
    """Of the trial's length: NTP bends a clock by 0.0005 at most (adjtimex(2))."""
