"""Reading the load client's raw rows into samples, over all spellings that engines gave the counts."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from tasks.count_names import ACCEPTED_NAMES, HISTOGRAM_NAMES, PROPOSED_NAMES, STEP_NAMES
from tasks.foreign_json import BIGGEST_COUNT
from tasks.record import Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

NGRAM = 4
SHA_LENGTH = 16
BEYOND_CONTEXT = "beyond_context"
"""Error class of a prompt that the engine refused for its length."""


class Reading(NamedTuple):
    """Samples, and what was odd about the rows they came from."""

    samples: tuple[Sample, ...]
    notes: tuple[str, ...]
    """One line per kind of oddity, with how often and one example; for tasks/check."""


class Counts(NamedTuple):
    """Speculation counts of one request; None where the engine does not say."""

    verify_steps: int | None
    accepted: int | None
    proposed: int | None
    histogram: tuple[int, ...] | None


class _Notes:
    """Counts oddities by kind, so that a thousand bad rows are one line."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()
        self._example: dict[str, str] = {}

    def add(self, kind: str, example: str) -> None:
        self._seen[kind] += 1
        self._example.setdefault(kind, example)

    def lines(self) -> tuple[str, ...]:
        return tuple(
            f"{kind}: {count} row{'s' if count > 1 else ''}, e.g. {self._example[kind]}"
            for kind, count in self._seen.items()
        )


def read_samples(lines: Iterable[str], time_scale: float) -> tuple[Sample, ...]:
    """The samples of a drive job's rows; see :func:`read_rows` for what was odd about them."""
    return read_rows(lines, time_scale).samples


def read_rows(lines: Iterable[str], time_scale: float) -> Reading:
    """Read the rows that the agent's drive job wrote (samples.jsonl).

    This is the only place that applies the host's time scale: every time is multiplied by it,
    so that a rehearsal host may run faster than the engine it pretends to be.

    Args:
        lines: rows in any order; empty lines are skipped, and a last line that was torn off
            is left out and noted.
        time_scale: seconds of meaning per second on the host's clock; 1 on a real host.

    Raises:
        ValueError: the time scale is not positive, a line other than the last is not JSON, or a
            row lacks what the drive job writes (then the file is not what it wrote).
    """
    if not time_scale > 0:
        raise ValueError(f"time scale must be positive, is {time_scale}")
    notes = _Notes()
    samples: list[Sample] = []
    torn: tuple[int, str] | None = None
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text:
            continue
        if torn is not None:
            raise ValueError(f"line {torn[0]} is not JSON and not the last one: {torn[1][:120]!r}")
        row = _object(text)
        if row is None:
            torn = (number, text)
        else:
            samples.append(_read(row, number, time_scale, notes))
    if torn is not None:
        notes.add("torn last line left out", f"line {torn[0]}")
    for name, times in Counter(sample.id for sample in samples).items():
        if times > 1:
            notes.add("request id more than once", f"{name} ({times} times)")
    return Reading(tuple(samples), notes.lines())


def read_counts(meta: Mapping[str, Any]) -> Counts:
    """The speculation counts of one request's ``meta_info``, under whichever names it has.

    What is missing is derived from the histogram where there is one (steps = its sum, accepted
    = its first moment). Counts that contradict each other are kept as given.
    """
    return _counts(meta, "request", _Notes())


def unique_ngram_ratio(ids: Sequence[int]) -> float | None:
    """Distinct 4-grams over all 4-grams; None for outputs too short to have one.

    Ordinary text stays above about 0.5 even for code; a loop falls towards 0.
    """
    grams = [tuple(ids[i : i + NGRAM]) for i in range(len(ids) - NGRAM + 1)]
    return len(set(grams)) / len(grams) if grams else None


def output_sha(ids: Sequence[int]) -> str:
    """A short hash over output token ids, equal for equal outputs only."""
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()[:SHA_LENGTH]


def _object(text: str) -> dict[str, Any] | None:
    try:
        row = json.loads(text)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _read(row: Mapping[str, Any], number: int, scale: float, notes: _Notes) -> Sample:
    try:
        return _sample(row, scale, notes)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        words = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ValueError(f"line {number} is not a row of the drive job: {words}") from error


def _sample(row: Mapping[str, Any], scale: float, notes: _Notes) -> Sample:
    who = str(row["id"])
    told = row.get("meta")
    meta: Mapping[str, Any] = told if isinstance(told, dict) else {}
    chunks = tuple((float(t) * scale, int(n)) for t, n in row.get("chunks") or ())
    finish = _finish(meta)
    counts = _counts(meta, who, notes)
    tokens = _int(meta.get("completion_tokens"))
    if tokens is None:
        tokens = chunks[-1][1] if chunks else 0
    error = _error(row, meta, finish)
    if error is None and chunks and chunks[-1][1] != tokens:
        notes.add("chunks and counted tokens disagree", f"{who}: {chunks[-1][1]} and {tokens}")
    ids = _whole_output(row, tokens, notes)
    return Sample(
        id=who,
        kind=str(row.get("kind", "")),
        sent_s=float(row["sent"]) * scale,
        first_s=_scaled(row.get("first"), scale),
        last_s=_scaled(row.get("last"), scale),
        done_s=float(row["done"]) * scale,
        prompt_tokens=_int(meta.get("prompt_tokens")),
        completion_tokens=tokens,
        cached_tokens=_cached(meta),
        verify_steps=counts.verify_steps,
        accepted=counts.accepted,
        proposed=counts.proposed,
        histogram=counts.histogram,
        retractions=_int(meta.get("num_retractions")),
        finish=finish,
        chunks=chunks,
        output_sha=output_sha(ids) if ids is not None else None,
        unique_ngram_ratio=unique_ngram_ratio(ids) if ids is not None else None,
        error=error,
    )


def _counts(meta: Mapping[str, Any], who: str, notes: _Notes) -> Counts:
    steps = _first_int(meta, STEP_NAMES, who, notes)
    accepted = _first_int(meta, ACCEPTED_NAMES, who, notes)
    proposed = _first_int(meta, PROPOSED_NAMES, who, notes)
    histogram = _histogram(meta, who, notes)
    if histogram is not None:
        by_steps, by_accepted = sum(histogram), sum(k * n for k, n in enumerate(histogram))
        if steps is not None and steps != by_steps:
            notes.add("histogram and verify steps disagree", f"{who}: {by_steps} and {steps}")
        if accepted is not None and accepted != by_accepted:
            notes.add("histogram and accepted drafts disagree", f"{who}: {by_accepted}, {accepted}")
        steps = by_steps if steps is None else steps
        accepted = by_accepted if accepted is None else accepted
    if accepted is not None and proposed is not None and accepted > proposed:
        notes.add("more drafts accepted than proposed", f"{who}: {accepted} of {proposed}")
    if (steps is None) != (accepted is None):
        notes.add("verify steps or accepted drafts missing", who)
        return Counts(None, None, None, None)
    return Counts(steps, accepted, proposed, histogram)


def _error(row: Mapping[str, Any], meta: Mapping[str, Any], finish: str | None) -> str | None:
    """The error class; a stream that stopped without a finish reason is an error too."""
    error = row.get("error")
    if isinstance(error, dict):
        beyond = "context length" in str(error.get("message"))
        return BEYOND_CONTEXT if beyond else str(error.get("class", "error"))
    if error:
        return str(error)
    status = _int(row.get("status"))
    if status is not None and status != 200:
        return f"http_{status}"
    if finish == "abort":
        return "aborted"
    if finish is None and "finish_reason" in meta:
        return "cut_stream"
    if row.get("last") is None:
        return "empty_response"
    return None


def _finish(meta: Mapping[str, Any]) -> str | None:
    """SGLang gives an object with a type, OpenAI's interfaces a plain word."""
    reason = meta.get("finish_reason")
    if isinstance(reason, dict):
        reason = reason.get("type")
    return str(reason) if reason is not None else None


def _cached(meta: Mapping[str, Any]) -> int | None:
    cached = _int(meta.get("cached_tokens"))
    details = meta.get("prompt_tokens_details")
    if cached is None and isinstance(details, dict):
        return _int(details.get("cached_tokens"))
    return cached


def _whole_output(row: Mapping[str, Any], tokens: int, notes: _Notes) -> list[int] | None:
    """Output ids, but only if they are the whole output and not the last piece of a stream."""
    ids = row.get("output_ids")
    if not isinstance(ids, list) or not ids:
        return None
    if len(ids) < tokens - 1:  # some versions leave the stop token out
        notes.add("output ids incomplete", f"{row['id']}: {len(ids)} of {tokens}")
        return None
    known = [value for i in ids if (value := _int(i)) is not None]
    if len(known) < len(ids):
        notes.add("output ids are not numbers", str(row["id"]))
        return None
    return known


def _first_int(
    meta: Mapping[str, Any], names: Sequence[str], who: str, notes: _Notes
) -> int | None:
    found = {name: value for name in names if (value := _int(meta.get(name))) is not None}
    if len(set(found.values())) > 1:
        notes.add("old and new name of a count disagree", f"{who}: {found}")
    return next(iter(found.values()), None)


def _histogram(meta: Mapping[str, Any], who: str, notes: _Notes) -> tuple[int, ...] | None:
    found = []
    for name in HISTOGRAM_NAMES:
        listed = meta.get(name)
        counts = [_int(value) for value in listed] if isinstance(listed, list) else []
        known = tuple(value for value in counts if value is not None)
        if known and len(known) == len(counts):
            found.append(known)
        elif listed:
            notes.add("histogram is not a list of counts", who)
    if len(set(found)) > 1:
        notes.add("old and new name of the histogram disagree", f"{who}: {found}")
    return found[0] if found else None


def _int(value: object) -> int | None:
    """A count; None for anything that is not a whole number from 0 on (true is no count)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= BIGGEST_COUNT and value == int(value) else None


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else float(value) * scale
