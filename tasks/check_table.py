"""The table of guards: what makes a trial suspect, where the limit lies, what to do about it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from configs.values import Value


class Limits(Value):
    """Where the guards draw their lines; the reasons stand at the guards."""

    accept_length_floor: float = 1.02
    """At or below it nothing is accepted (tokens/step)."""
    accept_length_headroom: float = 0.9
    """Accept length >= K + this is next to the ceiling K + 1."""
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


class Guard(NamedTuple):
    """One guard."""

    name: str
    scope: Literal["probe", "server", "host", "client"]
    limit: str
    """What would have been right; may name fields of Limits."""
    advice: str


GUARDS: tuple[Guard, ...] = (
    Guard(
        "drafter_not_working",
        "probe",
        "accept length above {accept_length_floor}",
        "check that the drafter belongs to this target and that its weights are complete; an "
        "EAGLE-3 head under algorithm EAGLE, or with missing tensors, serves without a word",
    ),
    Guard(
        "acceptance_too_good",
        "probe",
        "accept length below K + {accept_length_headroom}",
        "look at the outputs: acceptance next to its ceiling means loops, copied text or "
        "simulated acceptance (SGLANG_SIMULATE_ACC_LEN)",
    ),
    Guard(
        "outputs_loop",
        "probe",
        "median share of distinct 4-grams at least {unique_ngram_ratio}",
        "use real prompts with the chat template and let answers end by themselves "
        "(no ignore_eos); loops flatter a drafter",
    ),
    Guard(
        "outside_cuda_graphs",
        "probe",
        "at most {outside_graph_share:.0%} of decode log lines without a CUDA graph",
        "raise cuda-graph-max-bs to the largest concurrency in every arm",
    ),
    Guard(
        "requests_failed",
        "probe",
        "every request completed",
        "read the errors in samples.jsonl and the server log",
    ),
    Guard(
        "requests_retracted",
        "probe",
        "no request taken back",
        "the KV cache is too small for this load: fewer users, shorter outputs, or a larger "
        "mem-fraction-static; a drafter leaves less room than the baseline has",
    ),
    Guard(
        "pinned_at_server_limit",
        "probe",
        "the server's limit on running requests at or above the concurrency",
        "set max-running-requests in every arm: SGLang lowers it to 48 when speculating",
    ),
    Guard(
        "cached_prompts",
        "probe",
        "at most {cached_share:.0%} of prompt tokens from the prefix cache in a cold probe",
        "flush the cache before the probe and use each prompt once",
    ),
    Guard(
        "client_was_the_bottleneck",
        "client",
        "loop lag and send delay (p99) within {client_lag_s} s or {client_lag_share:.0%} of a "
        "median request, and below {client_cpu_share:.0%} of a core",
        "give the client a core of its own, or lower the concurrency",
    ),
    Guard(
        "no_steady_window",
        "probe",
        "in-flight requests at 90 % of the concurrency for most of the probe",
        "send at least ten requests per concurrent slot",
    ),
    Guard(
        "too_few_requests",
        "probe",
        "at least {requests_per_slot} completed requests per concurrent slot",
        "raise requests_per_slot; ten leave a steady state",
    ),
    Guard(
        "too_few_prompts",
        "probe",
        "at least {distinct_prompts} different prompts",
        "acceptance depends on the text: use more prompts, of more kinds",
    ),
    Guard(
        "outputs_too_short",
        "probe",
        "at least {output_tokens:.0f} tokens per answer on average",
        "raise max_new_tokens: acceptance changes along the answer",
    ),
    Guard(
        "counts_missing",
        "probe",
        "speculation counts from requests or counters",
        "this engine version gives no counts per request: enable its metrics",
    ),
    Guard(
        "counts_disagree",
        "probe",
        "histogram, verify steps and accepted drafts that agree",
        "compare meta_info with the version's own definition before trusting any of them",
    ),
    Guard(
        "samples_damaged",
        "probe",
        "whole rows, each request once",
        "the client was cut off while writing: run the probe again as a new attempt",
    ),
    Guard(
        "speculation_not_active",
        "server",
        "a server that speculates, as asked",
        "look for a fallback in the start log and at the effective flags",
    ),
    Guard(
        "speculation_not_asked",
        "server",
        "a server that does not speculate, as asked",
        "an environment variable or a leftover flag turns it on: compare asked and effective",
    ),
    Guard(
        "flags_differ",
        "server",
        "effective flags as asked",
        "ask for the value that the engine takes anyway, in every arm",
    ),
    Guard(
        "clocks_throttled",
        "host",
        "no thermal or hardware slowdown",
        "let the host cool down, check fans and power; then repeat the block",
    ),
    Guard(
        "foreign_gpu_process",
        "host",
        "the GPUs to itself",
        "find out whose it is; repeat the trial when it is gone",
    ),
    Guard(
        "warm_up_not_stable",
        "server",
        "two windows of warm-up traffic in succession within the probe's tolerance",
        "find what still changes (kernels that compile, clocks, a neighbour), or warm up longer: "
        "warm_up.max_windows and max_s",
    ),
)

BY_NAME = {guard.name: guard for guard in GUARDS}

PASSING = frozenset(
    {
        "client_was_the_bottleneck",
        "clocks_throttled",
        "foreign_gpu_process",
        "warm_up_not_stable",
    }
)
"""Findings of the moment: the same trial may be clean when it is run again."""
