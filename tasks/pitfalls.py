"""The known ways of fooling oneself with speculative decoding, and what stands against each."""

from __future__ import annotations

from typing import NamedTuple

from tasks.check_limits import Limits
from tasks.check_table import GUARDS, PASSING
from tasks.level_findings import COMPARISON_GUARDS


class Pitfall(NamedTuple):
    """One of them."""

    name: str
    seen: str
    """Where people fell into it."""
    findings: tuple[str, ...]
    """Guards that make a trial suspect (tasks/check_table)."""
    otherwise: str
    """What else stands against it: refused before the night, kept equal, or shown in the report."""
    left: str = ""
    """What nothing here sees."""


PITFALLS: tuple[Pitfall, ...] = (
    Pitfall(
        "Random tokens as prompts distort acceptance both ways",
        "SpecForge#164",
        ("outputs_loop", "acceptance_too_good"),
        "prompts are texts with the model's chat template; a probe of random tokens claims "
        "throughput only, and the plan warns",
    ),
    Pitfall(
        "Chat template or thinking switch missing",
        "InferenceX checklist",
        (),
        "both are keys of the probe, part of the fingerprint, and equal in what is compared",
    ),
    Pitfall(
        "Other temperature or sampling",
        "EAGLE#143",
        (),
        "keys of the probe, part of the fingerprint; trials with other probes are not compared",
    ),
    Pitfall(
        "ignore_eos, another mix of lengths",
        "sglang#34145",
        ("outputs_loop",),
        "natural stops are counted; arms whose answers end or last otherwise than the baseline's "
        "get a note in the comparison (no single trial can show it)",
    ),
    Pitfall(
        "Outputs too short: acceptance climbs along the answer",
        "sglang#34145",
        ("outputs_too_short",),
        "warned about when the sweep is read; acceptance by half of the output in the report",
    ),
    Pitfall(
        "One prompt, or a few",
        "sglang#34145",
        ("too_few_prompts",),
        "warned about when the sweep is read; acceptance by kind of text in the report",
        "intervals are over blocks, and every block has the same prompts: they say nothing about "
        "other texts",
    ),
    Pitfall(
        "The server's lifetime average, of rank 0",
        "sglang#34743",
        ("counts_missing",),
        "counts come from each request's own answer, weighted by verify steps; the server's "
        "average stands beside them only",
    ),
    Pitfall(
        "Two definitions of acceptance",
        "vllm#42508",
        ("counts_disagree",),
        "one definition, from counts (docs/words.md)",
    ),
    Pitfall(
        "A drafter that silently does nothing",
        "sglang#21272, SpecForge#310, vllm#55605",
        ("drafter_not_working", "speculation_not_active"),
        "the drafter's files are checked before the launch, the server's own word after it",
        "the acceptance is judged after the probes, not after the warm-up",
    ),
    Pitfall(
        "48 running requests at most, in the speculating arm only",
        "sglang#34290",
        ("pinned_at_server_limit", "flags_differ"),
        "refused when the sweep is read, unless set for all arms; the limit in effect must be "
        "equal in what is compared",
    ),
    Pitfall(
        "Batches above the largest CUDA graph",
        "fastrl PR 4",
        ("outside_cuda_graphs",),
        "warned about when the sweep is read; the limit must be equal in what is compared",
    ),
    Pitfall(
        "Drafter weights and graphs take room from the KV cache",
        "KLAUD_DEBUG",
        ("requests_retracted", "queued_for_kv_cache"),
        "the room is recorded; a note in the comparison where it differs from the baseline's",
    ),
    Pitfall(
        "Prefix cache hits on repeated prompts",
        "vllm-ascend#9705",
        ("cached_prompts",),
        "the cache is flushed before each measurement, and each prompt gets a beginning of its own "
        "when it is used again",
    ),
    Pitfall(
        "Warm-up: graphs, kernels, first batch, clocks",
        "llama.cpp PR 21282",
        ("warm_up_not_stable",),
        "two requests per slot at the highest concurrency before the first probe, not counted, "
        "then windows of traffic until two agree",
    ),
    Pitfall(
        "Ramp-up and drain in short probes",
        "Guardrails PR 2323",
        ("no_steady_window", "too_few_requests"),
        "rates are of the steady window; ten requests per slot by default, a note in the comparison "
        "below that",
    ),
    Pitfall(
        "Gains that depend on the batch size, up to reversal",
        "vllm#17984, vllm#48627",
        (),
        "a ladder of concurrencies in one boot, verdicts for each, the crossover in the report",
    ),
    Pitfall(
        "Percentiles of gaps between chunks that hold several tokens",
        "tt-inference-server#4681",
        ("counts_disagree",),
        "time per token is from the first to the last token of a request; chunks are kept with "
        "their counts",
    ),
    Pitfall(
        "Flags, environment or image that differ unnoticed",
        "inference-perf demo",
        ("flags_differ", "speculation_not_asked"),
        "everything but arm and factors must be equal in what is compared; differences are printed",
        "what an image holds besides engine, torch and driver",
    ),
    Pitfall(
        "Order, heat, neighbours on rented hosts",
        "sglang-omni#783",
        ("clocks_throttled", "foreign_gpu_process", "host_clock_off"),
        "arms take turns in shuffled blocks, ratios are inside a block; each measurement keeps "
        "what nvidia-smi said of clocks, power and temperature (gpus/*.json)",
        "a neighbour on CPU, memory or network; a slowdown that begins and ends before the last "
        "requests are sent",
    ),
    Pitfall(
        "The client was the bottleneck",
        "vllm#39963",
        ("client_was_the_bottleneck",),
        "the client runs on the host and measures itself",
    ),
    Pitfall(
        "Processes or memory left by the arm before",
        "sglang#31645",
        ("foreign_gpu_process",),
        "nothing is launched before the GPUs are free (`foreign_gpu_process` and "
        "`gpu_memory_held` as failures); a trial ends when they are free again",
    ),
    Pitfall(
        "Health answers 200 before the model is usable",
        "ATOM PR 631, vllm PR 32927",
        (),
        "ready is a real answer from our own process that serves our model",
    ),
    Pitfall(
        "Speculation taken to be lossless",
        "vllm#22987",
        (),
        "the share of answers that equal the baseline's token by token is in the report, no "
        "finding: batching alone flips some",
        "the quality of the answers",
    ),
    Pitfall(
        "The drafter inherits the target's attention backend",
        "sglang#23490",
        (),
        "warned about when the sweep is read; `attention_backend_incompatible` as a failure",
    ),
    Pitfall(
        "Acceptance taken to be the same at every concurrency",
        "vllm#53436",
        (),
        "measured at each; a note in the comparison where a test over blocks says that it differs",
        "a larger load has more prompts, so part of a difference may be the text's",
    ),
)

_HEAD = """\
# Findings

Generated from `tasks/check_table.py`, `tasks/level_findings.py` and `tasks/pitfalls.py`; a test compares them. A trial
with a finding is `suspect` and enters no ratio, unless the sweep tolerates it by name ([sweeps.md](sweeps.md)). What is
unknown trips nothing, except the speculation counts: a drafter whose acceptance is not known is not measured. A finding
of a comparison stands in the report, and makes no trial suspect.

GPUs are looked at once in each measurement, when the last request has been sent: all slots are still taken, which is
when throttling shows (an idle card gives other reasons, or none), and no later request can be held up. Of what
`nvidia-smi` says then, clocks and the processes on the cards are judged; all of it is kept in the trial's folder. A
process that is not the trial's is named and left alone.
"""


def findings_markdown() -> str:
    """Write docs/findings.md from the tables."""
    limits = Limits().model_dump()
    lines = [_HEAD]
    for guard in sorted([*GUARDS, *COMPARISON_GUARDS], key=lambda one: one.name):
        against = [str(n) for n, p in enumerate(PITFALLS, start=1) if guard.name in p.findings]
        lines += [
            f"## {guard.name}",
            "",
            guard.reason,
            "",
            f"- of: {guard.scope}",
            f"- right would be: {guard.limit.format(**limits)}",
            f"- what to do: {guard.advice}",
        ]
        if guard.name in PASSING:
            lines.append("- of the moment: the trial is tried once more by itself")
        if against:
            lines.append(f"- against pitfall: {', '.join(against)}")
        lines.append("")
    lines += [
        "## The pitfalls, and what stands against each",
        "",
        "| # | pitfall | seen in | findings | what else | what is not seen |",
        "|---|---|---|---|---|---|",
    ]
    for number, pitfall in enumerate(PITFALLS, start=1):
        names = ", ".join(f"[`{name}`](#{name})" for name in pitfall.findings)
        cells = (pitfall.name, pitfall.seen, names, pitfall.otherwise, pitfall.left)
        lines.append(f"| {number} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
