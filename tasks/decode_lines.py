"""One line of an engine's statistics: sglang's decode batches, vLLM's speculation metrics."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tasks.log_lines import LogLine

# A head is matched, then each field is searched by itself: fields come and go between releases,
# and one pattern with optional parts between lazy gaps loses the accept length without a sign.
_SGLANG_HEAD = re.compile(r"(?P<kind>Decode|Prefill) batch(?: ?\[\d+\])?[.,] ?")
_VLLM_ENGINE = re.compile(r"(?:Engine (?P<engine>\d+): )?Avg prompt throughput: ")
_VLLM_DRAFTS = re.compile(r"(?:SpecDecoding metrics|Speculative metrics): ")
_RANK = re.compile(r"\bDP\d+")
_RETRACTED = re.compile(r"KV cache pool is full\. Retract requests")

_NUMBER = r"(\d{1,15}(?:\.\d{1,15})?)(?![\d.]*[A-Za-z])"


def _field(text: str) -> re.Pattern[str]:
    return re.compile(text + _NUMBER)


_RUNNING = _field(r"#running-req: ")
_QUEUED = _field(r"#queue-req: ")
_RETRACTED_FIELD = _field(r"#retracted-req: ")
_TOKENS = _field(r"#(?:full )?token: ")
_ACCEPT_LENGTH = _field(r"(?<!block )accept len: ")
_ACCEPT_RATE = _field(r"(?<!block )accept rate: ")
_THROUGHPUT = _field(r"gen throughput \(token/s\): ")
_GRAPH = re.compile(r"(?:cuda|cpu|npu|musa|xpu|hip) graph: (True|False)")

_VLLM_THROUGHPUT = _field(r"Avg generation throughput: ")
_VLLM_RUNNING = _field(r"Running: ")
_VLLM_WAITING = _field(r"(?:Waiting|Pending): ")
_ACCEPTED = _field(r"(?:Number of accepted tokens|Accepted): ")
_DRAFTED = _field(r"(?:Number of draft tokens|Drafted): ")
_EMITTED = _field(r"Number of emitted tokens: ")
_SPECULATIVE = _field(r"Number of speculative tokens: ")
_LENGTH = _field(r"[Mm]ean acceptance length: ")
_RATE = _field(r"[Dd]raft acceptance rate: ")
_POSITIONS = re.compile(r"Per-position acceptance rate: ((?:[01](?:\.\d{1,9})?(?:, )?)+)")


class DecodeSample(NamedTuple):
    """One interval of decoding, as a scheduler (sglang) or the logger (vLLM) prints it.

    Attributes:
        group: The data-parallel rank or engine; throughputs add up over groups.
        source: The process that printed it.
        stamp: The printed time.
        running: Requests that ran.
        queued: Requests that waited.
        tokens: Tokens in the KV cache.
        accept_length: Tokens per verify step, bonus token included.
        accept_rate: The rate as printed; its meaning changed (see `decode_log`).
        gen_throughput: Tokens per second since the line before, idle time included.
        graph: Whether the batch ran in CUDA graphs.
        retracted: Requests thrown out of the batch for want of memory.
        by_clock: Printed every few seconds (vLLM), not every few steps (sglang).
    """

    group: str
    source: str
    stamp: str | None
    running: int | None = None
    queued: int | None = None
    tokens: int | None = None
    accept_length: float | None = None
    accept_rate: float | None = None
    gen_throughput: float | None = None
    graph: bool | None = None
    retracted: int | None = None
    by_clock: bool = False


class PrefillSample(NamedTuple):
    """One prefill batch: how many requests were running when it came."""

    group: str
    stamp: str | None
    running: int | None


class DraftCounts(NamedTuple):
    """vLLM's speculation counters of one line.

    Attributes:
        cumulative: Counted since the server's start (V0), not since the line before (V1).
        accepted: Drafts accepted.
        drafted: Drafts proposed.
        emitted: Tokens emitted (V0 only).
        speculative_tokens: Drafts per step (V0 prints it; else the number of positions).
        printed_length: The acceptance length as printed.
        printed_rate: The acceptance rate as printed, as a share.
        positions: Share of steps that accepted the draft at each position.
    """

    cumulative: bool
    accepted: int
    drafted: int
    emitted: int | None
    speculative_tokens: int | None
    printed_length: float | None
    printed_rate: float | None
    positions: tuple[float, ...]


class Retraction(NamedTuple):
    """sglang threw requests out of the batch: the KV pool was full."""

    stamp: str | None


Statistics = DecodeSample | PrefillSample | DraftCounts | Retraction


def read_statistics(line: LogLine) -> Statistics | None:
    """Read a line if it is one of statistics; None for every other line."""
    text = line.text
    if not line.framed:
        return None
    if head := _SGLANG_HEAD.match(text):
        group = _RANK.search(line.source)
        rank = group.group() if group else ""
        if head["kind"] == "Prefill":
            return PrefillSample(rank, line.stamp, _integer(_RUNNING, text))
        return _decode(line, rank)
    if head := _VLLM_ENGINE.match(text):
        return DecodeSample(
            group=head["engine"] or "",
            source=line.source,
            stamp=line.stamp,
            running=_integer(_VLLM_RUNNING, text),
            queued=_integer(_VLLM_WAITING, text),
            gen_throughput=_number(_VLLM_THROUGHPUT, text),
            by_clock=True,
        )
    if _VLLM_DRAFTS.match(text):
        return _drafts(text)
    return Retraction(line.stamp) if _RETRACTED.match(text) else None


def _decode(line: LogLine, group: str) -> DecodeSample:
    text = line.text
    graph = _GRAPH.search(text)
    return DecodeSample(
        group=group,
        source=line.source,
        stamp=line.stamp,
        running=_integer(_RUNNING, text),
        queued=_integer(_QUEUED, text),
        tokens=_integer(_TOKENS, text),
        accept_length=_number(_ACCEPT_LENGTH, text),
        accept_rate=_number(_ACCEPT_RATE, text),
        gen_throughput=_number(_THROUGHPUT, text),
        graph=None if graph is None else graph[1] == "True",
        retracted=_integer(_RETRACTED_FIELD, text),
    )


def _drafts(text: str) -> DraftCounts | None:
    accepted, drafted = _integer(_ACCEPTED, text), _integer(_DRAFTED, text)
    if accepted is None or drafted is None:
        return None
    emitted = _integer(_EMITTED, text)
    rate = _number(_RATE, text)
    listed = _POSITIONS.search(text)
    positions = () if listed is None else tuple(map(float, listed[1].strip(", ").split(", ")))
    return DraftCounts(
        cumulative=text.startswith("Speculative"),
        accepted=accepted,
        drafted=drafted,
        emitted=emitted,
        speculative_tokens=_integer(_SPECULATIVE, text) or len(positions) or None,
        printed_length=_number(_LENGTH, text),
        # V1 prints percent, V0 a share.
        printed_rate=rate if rate is None or text.startswith("Speculative") else rate / 100,
        positions=positions,
    )


def _number(pattern: re.Pattern[str], text: str) -> float | None:
    found = pattern.search(text)
    return None if found is None else float(found[1])


def _integer(pattern: re.Pattern[str], text: str) -> int | None:
    number = _number(pattern, text)
    return None if number is None else int(number)
