"""Says whether the result of a benchmark client may be used, and why not."""

from __future__ import annotations

from typing import Literal

from configs.values import Value
from tasks.bench_line import acceptance, not_finite, read_bench_file
from tasks.foreign_json import count, number, words

#: Share by which tokens / duration may miss the printed throughput.
THROUGHPUT_SLACK = 0.02
#: Share of the wanted output length that requests must reach on average: all of it, if the end
#: token is ignored (the default of both clients); some play for a client's own counting.
LENGTH_SHARE = 0.9
#: The same where lengths were drawn at random: the mean of a sample strays.
RANDOM_LENGTH_SHARE = 0.8
#: The same where requests may stop by themselves: only a collapse is caught.
NATURAL_LENGTH_SHARE = 0.05
#: Share by which the client's own count may miss the count of the tokenizer.
RETOKENIZED_SLACK = 0.1

Reason = Literal[
    "no_result",
    "line_incomplete",
    "not_json",
    "completed_unknown",
    "all_requests_failed",
    "server_failed_during_run",
    "requests_failed",
    "more_completed_than_requested",
    "throughput_inconsistent",
    "no_output_tokens",
    "output_length_not_reached",
]


class BenchResult(Value):
    """One result line. None: the line does not say."""

    valid: bool
    """Whether the figures may be used."""
    reason: Reason | None = None
    """Why not."""
    backend: str | None = None
    """Client backend."""
    dataset_name: str | None = None
    """Where the prompts came from."""
    request_rate: float | Literal["inf"] | None = None
    """Asked requests/s; ``inf``: all at once."""
    max_concurrency: int | None = None
    """Requests in flight at most."""
    requested: int | None = None
    """Prompts that were to be sent."""
    completed: int | None = None
    """Requests that came back."""
    failed: int | None = None
    """Requests that did not."""
    duration_s: float | None = None
    """Length of the run, s."""
    total_input_tokens: int | None = None
    """Prompt tokens."""
    total_output_tokens: int | None = None
    """Generated tokens."""
    mean_output_len: float | None = None
    """Generated tokens per completed request."""
    wanted_output_len: float | None = None
    """What it should be."""
    request_throughput: float | None = None
    """Requests/s."""
    output_throughput: float | None = None
    """Generated tokens/s."""
    mean_ttft_ms: float | None = None
    """Mean time to first token, ms."""
    median_ttft_ms: float | None = None
    """Median time to first token, ms."""
    p99_ttft_ms: float | None = None
    """99th percentile of the time to first token, ms."""
    median_tpot_ms: float | None = None
    """Median time per output token after the first, ms."""
    median_itl_ms: float | None = None
    """Median time between chunks, ms; misleads when a chunk holds several tokens."""
    accept_len: float | None = None
    """Accept length with the bonus token. SGLang's client prints the server's average since start,
    of data-parallel rank 0; vLLM's counts over the run."""
    draft_accept_rate: float | None = None
    """Accepted drafts / proposed drafts, 1."""
    per_position: tuple[float, ...] = ()
    """Share of drafts accepted at each position, 1."""
    results_in_file: int = 0
    """Result lines in the file: both clients append."""
    warnings: tuple[str, ...] = ()
    """What to know before using the figures."""


class Circumstances(Value):
    """What is known of the run besides its result line."""

    requested: int | None = None
    """Prompts that were sent."""
    max_failed_share: float = 0.0
    """Share of requests that may fail."""
    wanted_output_len: float | None = None
    """Output tokens asked per request."""
    ignore_eos: bool = True
    """Whether requests ran to the asked length whatever the model said."""
    spec_active: bool | None = None
    """Whether the server speculates."""
    dp_size: int = 1
    """Data-parallel ranks."""
    server_failure: str | None = None
    """Failure class that the server log shows."""
    server_failed_at_s: float | None = None
    """When it failed, seconds after the run began; None: within the run."""
    tag: str | None = None
    """The ``--tag`` of the run, to find its line in a file of many."""


def read_bench(text: str, known: Circumstances | None = None) -> BenchResult:
    """Read the last result in a file of result lines and say whether it may be used.

    A clean exit is no proof: a client prints a line when every request failed, when streams were
    cut by a dying server (vllm#57519), and when each request stopped after one token.
    """
    known = known or Circumstances()
    file = read_bench_file(text, known.tag)
    if file.torn is not None:
        return BenchResult(
            valid=False,
            reason=file.torn,
            requested=known.requested,
            results_in_file=len(file.results),
        )
    line = file.results[-1]
    result = _figures(line, known).model_copy(update={"results_in_file": len(file.results)})
    reason = _doubt(result, line, known)
    warnings = tuple(_warnings(result, line, known))
    return result.model_copy(
        update={"valid": reason is None, "reason": reason, "warnings": warnings}
    )


def _figures(line: dict[str, object], known: Circumstances) -> BenchResult:
    completed, failed = count(line.get("completed")), count(line.get("failed"))
    requested = known.requested if known.requested is not None else count(line.get("num_prompts"))
    if requested is None and completed is not None and failed is not None:
        requested = completed + failed
    if failed is None and requested is not None and completed is not None:
        failed = max(requested - completed, 0)
    tokens, duration = count(line.get("total_output_tokens")), number(line.get("duration"))
    throughput = number(line.get("output_throughput"))
    if throughput is None and tokens is not None and duration:
        throughput = tokens / duration
    # A run without a completed request, or without speculation, has no acceptance of its own:
    # what the line carries is left over from earlier traffic.
    mine = completed != 0 and known.spec_active is not False
    accept_len, accept_rate = acceptance(line) if mine else (None, None)
    rate = line.get("request_rate")
    positions = line.get("spec_decode_per_position_acceptance_rates")
    return BenchResult(
        valid=True,
        backend=words(line.get("backend")),
        dataset_name=words(line.get("dataset_name")),
        request_rate="inf" if str(rate).lower() in ("inf", "infinity") else number(rate),
        max_concurrency=count(line.get("max_concurrency")),
        requested=requested,
        completed=completed,
        failed=failed,
        duration_s=duration,
        total_input_tokens=count(line.get("total_input_tokens")),
        total_output_tokens=tokens,
        mean_output_len=tokens / completed if tokens is not None and completed else None,
        wanted_output_len=_wanted_length(line, known),
        request_throughput=number(line.get("request_throughput")),
        output_throughput=throughput,
        mean_ttft_ms=number(line.get("mean_ttft_ms")),
        median_ttft_ms=number(line.get("median_ttft_ms")),
        p99_ttft_ms=number(line.get("p99_ttft_ms")),
        median_tpot_ms=number(line.get("median_tpot_ms")),
        median_itl_ms=number(line.get("median_itl_ms")),
        accept_len=accept_len,
        draft_accept_rate=accept_rate,
        per_position=_positions(positions) if mine else (),
    )


def _positions(listed: object) -> tuple[float, ...]:
    shares = map(number, listed) if isinstance(listed, list) else ()
    return tuple(share for share in shares if share is not None)


def _random(line: dict[str, object]) -> bool:
    return str(line.get("dataset_name")).startswith("random")


def _wanted_length(line: dict[str, object], known: Circumstances) -> float | None:
    if known.wanted_output_len is not None:
        return known.wanted_output_len
    return number(line.get("random_output_len" if _random(line) else "sharegpt_output_len"))


def _doubt(result: BenchResult, line: dict[str, object], known: Circumstances) -> Reason | None:
    """The first reason not to use a result."""
    if result.completed is None:
        return "completed_unknown"
    if result.completed == 0:
        return "all_requests_failed"
    if known.server_failure is not None and _failed_within(result, known):
        return "server_failed_during_run"
    if result.requested is not None and result.completed > result.requested:
        return "more_completed_than_requested"
    if result.failed and result.failed > known.max_failed_share * (result.requested or 0):
        return "requests_failed"
    if result.total_output_tokens == 0:
        return "no_output_tokens"
    if _inconsistent(result):
        return "throughput_inconsistent"
    if _too_short(result, line, known):
        return "output_length_not_reached"
    return None


def _failed_within(result: BenchResult, known: Circumstances) -> bool:
    at, duration = known.server_failed_at_s, result.duration_s
    return at is None or duration is None or at <= duration


def _inconsistent(result: BenchResult) -> bool:
    tokens, duration, speed = (
        result.total_output_tokens,
        result.duration_s,
        result.output_throughput,
    )
    if duration is not None and duration <= 0:
        return True
    if tokens is None or duration is None or speed is None:
        return False
    return abs(tokens / duration - speed) > THROUGHPUT_SLACK * max(tokens / duration, speed)


def _too_short(result: BenchResult, line: dict[str, object], known: Circumstances) -> bool:
    wanted, mean = result.wanted_output_len, result.mean_output_len
    if wanted is None or mean is None:
        return False
    if not known.ignore_eos:
        return mean < NATURAL_LENGTH_SHARE * wanted
    ratio = number(line.get("random_range_ratio"))
    if _random(line) and ratio is not None and ratio < 1:
        # The client draws lengths evenly from ratio * N to N.
        return mean < RANDOM_LENGTH_SHARE * wanted * (1 + ratio) / 2
    return mean < LENGTH_SHARE * wanted


def _warnings(result: BenchResult, line: dict[str, object], known: Circumstances) -> list[str]:
    found = []
    if result.results_in_file > 1:
        found.append(
            f"the file holds {result.results_in_file} results (appended): the last is read"
        )
    if known.spec_active and result.completed and result.accept_len is None:
        found.append(
            "accept_length missing although speculation is on: data-parallel rank 0 idle?"
            if known.dp_size > 1
            else "accept_length missing although speculation is on: fewer than 40 decode steps?"
        )
    if known.dp_size > 1 and result.accept_len is not None and line.get("accept_length"):
        found.append(f"accept_length is that of data-parallel rank 0 of {known.dp_size} alone")
    if result.requested is None and result.completed:
        found.append("number of requested prompts unknown: failed requests cannot be counted")
    elif result.failed:
        found.append(f"{result.failed} of {result.requested} requests failed")
    again, tokens = count(line.get("total_output_tokens_retokenized")), result.total_output_tokens
    if again is not None and tokens and abs(again - tokens) > RETOKENIZED_SLACK * tokens:
        found.append(f"client counted {tokens} output tokens, the tokenizer {again}")
    if odd := not_finite(line):
        found.append(f"not a number: {', '.join(odd)}")
    return found
