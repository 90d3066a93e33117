"""The figures of the engine's own client beside ours, and how far apart they may be."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Final, NamedTuple

from tasks.client_record import seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tasks.bench_result import BenchResult
    from tasks.client_record import ClientRun
    from tasks.record import Measurement, TrialRecord

_LEAST_TTFT_S: Final = 0.01
# Of few requests the median time to the first token hangs on where in a step each of them arrived,
# and so on the order of the prompts: of six, 27 % between two clients of the rehearsal host.
_LEAST_REQUESTS: Final = 32
_MEASURED = ("ok", "suspect")


class Figure(NamedTuple):
    """One figure that both tell."""

    name: str
    title: str
    ours: Callable[[Measurement], float | None]
    theirs: Callable[[BenchResult], float | None]
    limit: float
    """Share by which theirs may miss ours."""
    least: float
    """So much apart is nothing, whatever the share; in the figure's unit."""
    why: str
    """Where the limit comes from."""
    requests: int = 1
    """With fewer requests it is not judged."""


_HELD: Final = "against a known truth bench_serving itself erred by up to"
_PAGE: Final = "(docs/evidence/client.md)"
FIGURES: Final = (
    Figure(
        "output_tok_s",
        "tokens/s over the whole run",
        lambda ours: ours.full_output_tok_s,
        lambda told: told.output_throughput,
        0.10,
        0.0,
        f"{_HELD} 7.6 % {_PAGE}",
    ),
    Figure(
        "ttft_s",
        "first token, p50",
        lambda ours: ours.ttft_s.p50 if ours.ttft_s else None,
        lambda told: seconds_of(told.median_ttft_ms),
        0.20,
        _LEAST_TTFT_S,
        f"{_HELD} 15.0 %, and 6 ms with a single stream {_PAGE}; judged from "
        f"{_LEAST_REQUESTS} requests on",
        requests=_LEAST_REQUESTS,
    ),
    Figure(
        "tpot_s",
        "token after the first, p50",
        lambda ours: ours.tpot_s.p50 if ours.tpot_s else None,
        lambda told: seconds_of(told.median_tpot_ms),
        0.10,
        0.0,
        f"{_HELD} 7.9 % {_PAGE}",
    ),
    Figure(
        "accept_length",
        "accept length",
        lambda ours: ours.accept_length,
        lambda told: told.accept_len,
        0.10,
        0.0,
        "SGLang's average counts a request's first token too, and is up to 40 decode steps old",
    ),
)
"""What is set side by side. Ours over the whole run, not over the steady window: a client tells
nothing else."""


class Pair(NamedTuple):
    """A figure as both tell it."""

    figure: Figure
    ours: float | None
    theirs: float | None
    requests: int
    judged: bool = True
    """False: theirs is another thing than ours, and is shown only."""

    @property
    def off(self) -> float | None:
        """By how much theirs is above ours, as a share of ours."""
        if not self.ours or self.theirs is None:
            return None
        return self.theirs / self.ours - 1

    @property
    def beyond(self) -> bool:
        """Whether they are further apart than the limit says."""
        if self.off is None or self.ours is None or self.theirs is None:
            return False
        if not self.judged or self.requests < self.figure.requests:
            return False
        apart = abs(self.theirs - self.ours)
        return abs(self.off) > self.figure.limit and apart > self.figure.least


def pairs_of(run: ClientRun, measurements: Sequence[Measurement]) -> list[Pair]:
    """What both told of the same traffic; empty where either has nothing to tell."""
    ours = next(
        (m for m in measurements if (m.probe, m.concurrency) == (run.of, run.concurrency)), None
    )
    told = run.usable
    if ours is None or told is None:
        return []
    return [_pair(figure, figure.ours(ours), figure.theirs(told), run) for figure in FIGURES]


def _pair(figure: Figure, ours: float | None, theirs: float | None, run: ClientRun) -> Pair:
    """The accept length of one rank is another thing than ours of all of them."""
    judged = run.every_rank or figure.name != "accept_length"
    return Pair(figure, ours, theirs, run.requests, judged)


class Line(NamedTuple):
    """One setting at one concurrency, means over its trials."""

    run: ClientRun
    """The first of them: tool, probe, concurrency, and what could not be matched."""
    arm: str
    levels: dict[str, str]
    baseline: bool
    trials: int
    pairs: list[Pair]
    offs: dict[str, float]
    """Figure -> mean over trials of the difference within each, where both tell it."""


def beside(records: Sequence[TrialRecord]) -> list[Line]:
    """Every setting that a client looked at, the baseline first, then as they ran."""
    groups: dict[tuple[object, ...], list[tuple[TrialRecord, ClientRun]]] = {}
    for record, run in _runs(records):
        if pairs_of(run, record.measurements):
            levels = tuple(sorted(record.levels.items()))
            key = (run.probe, run.of, run.concurrency, record.arm, levels)
            groups.setdefault(key, []).append((record, run))
    lines = [_line(group) for group in groups.values()]
    probes = list(dict.fromkeys(line.run.probe for line in lines))
    return sorted(lines, key=lambda line: (probes.index(line.run.probe), line.run.concurrency))


def without_figures(records: Sequence[TrialRecord]) -> list[tuple[TrialRecord, ClientRun]]:
    """The runs that left nothing to set beside ours."""
    return [found for found in _runs(records) if found[1].usable is None]


def _runs(records: Sequence[TrialRecord]) -> Iterator[tuple[TrialRecord, ClientRun]]:
    for record in sorted(records, key=lambda r: (not r.baseline, r.order, r.attempt)):
        if record.status in _MEASURED:
            for run in record.clients:
                yield record, run


def _line(group: Sequence[tuple[TrialRecord, ClientRun]]) -> Line:
    record, run = group[0]
    trials = [pairs_of(run, record.measurements) for record, run in group]
    pairs, offs = [], {}
    for index, figure in enumerate(FIGURES):
        column = [trial[index] for trial in trials]
        ours, theirs = _mean(p.ours for p in column), _mean(p.theirs for p in column)
        pairs.append(_pair(figure, ours, theirs, run))
        apart = _mean(p.off for p in column)
        if apart is not None:
            offs[figure.name] = apart
    return Line(run, record.arm, record.levels, record.baseline, len(group), pairs, offs)


def _mean(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
