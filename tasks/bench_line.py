"""Reads result files of ``sglang.bench_serving`` and ``vllm bench serve`` line by line."""

from __future__ import annotations

from typing import Literal, NamedTuple

from tasks.foreign_json import NotJsonError, count, number, read_json

#: Names of 2024 and of other tools -> names of today.
OLD_NAMES = {
    "total_input": "total_input_tokens",
    "total_output": "total_output_tokens",
    "output_token_throughput": "output_throughput",
    "input_token_throughput": "input_throughput",
    "total_token_throughput": "total_throughput",
    "num_completed": "completed",
    "successful_requests": "completed",
    "benchmark_duration": "duration",
    "num_failed": "failed",
    "failed_requests": "failed",
    "mean_ttft": "mean_ttft_ms",
    "median_ttft": "median_ttft_ms",
    "p99_ttft": "p99_ttft_ms",
    "mean_tpot": "mean_tpot_ms",
    "median_tpot": "median_tpot_ms",
    "p99_tpot": "p99_tpot_ms",
    "mean_itl": "mean_itl_ms",
    "median_itl": "median_itl_ms",
    "p99_itl": "p99_itl_ms",
    "mean_e2e_latency": "mean_e2e_latency_ms",
    "median_e2e_latency": "median_e2e_latency_ms",
}

Torn = Literal["no_result", "line_incomplete", "not_json"]


class BenchFile(NamedTuple):
    """The results of a file, oldest first, under the names of today; ``torn``: what is missing."""

    results: tuple[dict[str, object], ...]
    torn: Torn | None


def read_bench_file(text: str, tag: str | None = None) -> BenchFile:
    """Read a result file: both clients append one line per run.

    ``NaN`` and bare ``Infinity``, which strict readers refuse, are read. If the last line is cut
    off (a full disk, a killed client), the run that was meant has no result, however many stand
    before it.

    Args:
        text: the file.
        tag: only results of this ``--tag``.
    """
    found: list[dict[str, object]] = []
    torn: Torn | None = "no_result"
    for line in text.replace("\x00", "").splitlines():
        if not line.strip():
            continue
        try:
            value = read_json(line)
        except NotJsonError:
            torn = "line_incomplete" if line.lstrip().startswith("{") else "not_json"
            continue
        if isinstance(value, dict):
            torn = None
            found.append(_renamed(value))
    if not found and (whole := _over_several_lines(text)) is not None:
        found, torn = [whole], None
    if tag is not None:
        found = [line for line in found if line.get("tag") == tag]
    return BenchFile(tuple(found), torn or (None if found else "no_result"))


def _over_several_lines(text: str) -> dict[str, object] | None:
    try:
        value = read_json(text)
    except NotJsonError:
        return None
    return _renamed(value) if isinstance(value, dict) else None


def _renamed(line: dict[str, object]) -> dict[str, object]:
    renamed = {OLD_NAMES[key]: value for key, value in line.items() if key in OLD_NAMES}
    return {**renamed, **{key: value for key, value in line.items() if key not in OLD_NAMES}}


def acceptance(line: dict[str, object]) -> tuple[float | None, float | None]:
    """Accept length with the bonus token, and accepted / proposed drafts; None where unknown.

    vLLM prints counts of the run itself, and the rate in percent (benchmarks/serve.py in 0.33.0);
    the counts are more exact. SGLang prints the server's average since start.
    """
    drafts = count(line.get("spec_decode_num_drafts"))
    proposed = count(line.get("spec_decode_draft_tokens"))
    accepted = count(line.get("spec_decode_accepted_tokens"))
    length = number(line.get("spec_decode_acceptance_length"))
    if length is None:
        length = number(line.get("accept_length"))
    percent = number(line.get("spec_decode_acceptance_rate"))
    rate = percent / 100 if percent is not None else None
    if accepted is not None and drafts:
        length = 1 + accepted / drafts
    if accepted is not None and proposed:
        rate = accepted / proposed
    return length if length is not None and length >= 1 else None, rate


def not_finite(line: dict[str, object]) -> list[str]:
    """Names of the figures that were written as NaN or Infinity."""
    return [
        key
        for key, value in line.items()
        if isinstance(value, float) and number(value) is None and key != "request_rate"
    ]
