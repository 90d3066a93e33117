"""The table of guards: what makes a trial suspect, where the limit lies, what to do about it."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Guard(NamedTuple):
    """One guard."""

    name: str
    scope: Literal["probe", "server", "host", "client", "comparison"]
    reason: str
    """What was wrong, and why it spoils the figures."""
    limit: str
    """What would have been right; may name fields of tasks.check_limits.Limits."""
    advice: str
    """What to do."""


GUARDS: tuple[Guard, ...] = (
    Guard(
        "drafter_not_working",
        "probe",
        "Nothing of what the drafter proposes is accepted, so the server only pays for it.",
        "accept length above {accept_length_floor}",
        "check that the drafter belongs to this target and that its weights are complete; an "
        "EAGLE-3 head under algorithm EAGLE, or with missing tensors, serves without a word",
    ),
    Guard(
        "acceptance_too_good",
        "probe",
        "Acceptance next to its ceiling: real text is not that easy to guess.",
        "accept length below K + {accept_length_headroom}",
        "look at the outputs: acceptance next to its ceiling means loops, copied text or "
        "simulated acceptance (SGLANG_SIMULATE_ACC_LEN)",
    ),
    Guard(
        "simulation_not_in_effect",
        "probe",
        "Acceptance was to be pretended, and is another than was asked for: the figures are of "
        "something else.",
        "accept length within {simulated_share:.0%} of the simulated one",
        "this release does not know SGLANG_SIMULATE_ACC_LEN or its method, or answers are so short "
        "that their cut last step weighs; see meta_info of one request",
    ),
    Guard(
        "outputs_loop",
        "probe",
        "Answers repeat themselves, and repetition is accepted like nothing else.",
        "median share of distinct 4-grams at least {unique_ngram_ratio}",
        "use real prompts with the chat template and let answers end by themselves "
        "(no ignore_eos); loops flatter a drafter",
    ),
    Guard(
        "outside_cuda_graphs",
        "probe",
        "Decode steps ran without CUDA graphs, which costs each step time, more for some arms.",
        "graphs up to the concurrency; at most {outside_graph_share:.0%} of decode log lines without",
        "raise cuda-graph-max-bs to the largest concurrency in every arm",
    ),
    Guard(
        "requests_failed",
        "probe",
        "Requests failed or left no row: what was measured is not the load that was asked.",
        "every request completed",
        "read the errors in samples.jsonl and the server log",
    ),
    Guard(
        "requests_retracted",
        "probe",
        "The scheduler took requests back and computed them again.",
        "no request taken back",
        "the KV cache is too small for this load: fewer users, shorter outputs, or a larger "
        "mem-fraction-static; a drafter leaves less room than the baseline has",
    ),
    Guard(
        "pinned_at_server_limit",
        "probe",
        "Requests queued at the limit on running requests: the concurrency was not what it says.",
        "the server's limit on running requests at or above the concurrency",
        "set max-running-requests in every arm: SGLang lowers it to 48 when speculating",
    ),
    Guard(
        "queued_for_kv_cache",
        "probe",
        "Requests waited for room in the KV cache, although the server was below its limit.",
        "at most {queued_share:.0%} of decode log lines with a queue below the limit on running "
        "requests",
        "compare max-total-num-tokens of the arms: drafter weights and graphs leave less room than "
        "the baseline has; fewer users, shorter texts, or a larger mem-fraction-static",
    ),
    Guard(
        "context_exceeded",
        "probe",
        "Prompts were refused or answers cut short at the end of the model's context.",
        "prompts and answers that fit into the context",
        "raise context-length, or use shorter prompts or a smaller max_new_tokens, in every arm",
    ),
    Guard(
        "cached_prompts",
        "probe",
        "A cold probe found its prompts in the prefix cache.",
        "at most {cached_share:.0%} of prompt tokens from the prefix cache in a cold probe",
        "flush the cache before the probe and use each prompt once",
    ),
    Guard(
        "client_was_the_bottleneck",
        "client",
        "The load client was late or busy, so that it measured itself.",
        "loop lag and send delay (p99) within {client_lag_s} s or {client_lag_share:.0%} of a "
        "median request, and below {client_cpu_share:.0%} of a core",
        "give the client a core of its own, or lower the concurrency",
    ),
    Guard(
        "no_steady_window",
        "probe",
        "The concurrency was never held: ramp-up and drain are all there was.",
        "in-flight requests at 90 % of the concurrency for most of the probe",
        "send at least ten requests per concurrent slot",
    ),
    Guard(
        "too_few_requests",
        "probe",
        "Ramp-up and drain outweigh the rest.",
        "at least {requests_per_slot} completed requests per concurrent slot",
        "raise requests_per_slot; ten leave a steady state",
    ),
    Guard(
        "too_few_prompts",
        "probe",
        "Acceptance depends on the text; a few prompts say something about themselves only.",
        "at least {distinct_prompts} different prompts",
        "acceptance depends on the text: use more prompts, of more kinds",
    ),
    Guard(
        "outputs_too_short",
        "probe",
        "The first tokens and the cut last step weigh too much in the acceptance.",
        "at least {output_tokens:.0f} tokens per answer on average",
        "raise max_new_tokens: acceptance changes along the answer",
    ),
    Guard(
        "counts_missing",
        "probe",
        "Nobody says what was accepted.",
        "speculation counts from requests or counters",
        "this engine version gives no counts per request: enable its metrics",
    ),
    Guard(
        "counts_disagree",
        "probe",
        "Two accounts of the same tokens, steps or drafts do not fit together.",
        "histogram, verify steps and accepted drafts that agree",
        "compare meta_info with the version's own definition before trusting any of them",
    ),
    Guard(
        "samples_damaged",
        "probe",
        "Rows are torn, or a request is there twice.",
        "whole rows, each request once",
        "the client was cut off while writing: run the probe again as a new attempt",
    ),
    Guard(
        "speculation_not_active",
        "server",
        "The server does not speculate although asked to.",
        "a server that speculates, as asked",
        "look for a fallback in the start log and at the effective flags",
    ),
    Guard(
        "speculation_not_asked",
        "server",
        "The server speculates unasked: this baseline is none.",
        "a server that does not speculate, as asked",
        "an environment variable or a leftover flag turns it on: compare asked and effective",
    ),
    Guard(
        "flags_differ",
        "server",
        "The server uses other values than it was given, often in one arm only.",
        "effective flags as asked",
        "ask for the value that the engine takes anyway, in every arm",
    ),
    Guard(
        "clocks_throttled",
        "host",
        "A GPU was slowed down for heat or power while the last requests of the probe ran.",
        "no thermal or hardware slowdown under load",
        "let the host cool down, check fans and power; then repeat the block",
    ),
    Guard(
        "foreign_gpu_process",
        "host",
        "Somebody else's process came onto the GPUs after the trial had begun.",
        "the GPUs to itself",
        "find out whose it is and what it wants there; it is left alone; repeat when it is gone",
    ),
    Guard(
        "host_clock_off",
        "host",
        "The host's clock ran faster or slower than ours, and all times are taken on the host.",
        "both clocks within {clock_share:.1%} of the trial's length, beyond what the connection's "
        "delay explains",
        "a virtual machine that was paused or moved, or a broken clock source: ask who runs the "
        "host, and repeat the trial",
    ),
    Guard(
        "warm_up_not_stable",
        "server",
        "Speed or acceptance still changed when the probes began.",
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
        "host_clock_off",
        "warm_up_not_stable",
    }
)
"""Findings of the moment: the same trial may be clean when it is run again."""
