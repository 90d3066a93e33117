"""How long trials will take, by how long earlier ones took, and how far that can be trusted."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from configs.nodes import nodes_of
from tasks.durations import Kind, kind_of, longest_s, works

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from configs.host import Host
    from configs.plan import Trial
    from configs.sweep import Sweep
from tasks.durations import Boot

_LATEST = 8  # boots that are asked: last month's disk is not tonight's
RECORDED = "the same setting on this host class"


class Expected(NamedTuple):
    """How long one trial will take."""

    seconds: float
    """Median of what is recorded."""
    late_s: float
    """The slowest recorded of each part: what a deadline is held against."""
    grounds: str
    """Whose times these are."""
    boots: int
    """How many recorded trials it rests on."""

    @property
    def recorded(self) -> bool:
        """Whether this very setting has been measured on this host class."""
        return self.grounds == RECORDED


class Forecast(NamedTuple):
    """How long several trials will take, one after another."""

    trials: int
    seconds: float | None
    """None: for some trial nothing is known."""
    late_s: float | None
    grounds: dict[str, int]
    """Whose times -> for how many trials."""
    unknown: int
    """Trials of which nothing is known."""
    at_most_s: float
    """What they cannot exceed by the sweep's patience."""


def longest(forecasts: Sequence[Forecast]) -> Forecast:
    """Of several places at work at once: the times of the one that is over last.

    Args:
        forecasts: Of each place's share.
    """
    seconds = [each.seconds for each in forecasts]
    late = [each.late_s for each in forecasts]
    grounds: Counter[str] = Counter()
    for each in forecasts:
        grounds.update(each.grounds)
    return Forecast(
        trials=sum(each.trials for each in forecasts),
        seconds=None if None in seconds else max(filter(None, seconds), default=0.0),
        late_s=None if None in late else max(filter(None, late), default=0.0),
        grounds=dict(grounds),
        unknown=sum(each.unknown for each in forecasts),
        at_most_s=max((each.at_most_s for each in forecasts), default=0.0),
    )


class Oracle:
    """Says of each trial of one sweep how long it will take.

    Args:
        sweep: The sweep to come.
        hosts: Its hosts by name.
        past: Measured trials, of this run and of others.
    """

    def __init__(self, sweep: Sweep, hosts: Mapping[str, Host], past: Iterable[Boot]) -> None:
        self._sweep = sweep
        self._hosts = hosts
        self._past = sorted(past, key=lambda boot: boot.began, reverse=True)
        self._work = works(sweep)
        self._known: dict[tuple[str, str, bool], Expected | None] = {}

    def expected(self, trial: Trial, *, first: bool = False) -> Expected | None:
        """How long a trial will take; None where nothing like it is recorded.

        Args:
            trial: Of the sweep's plan.
            first: Whether it is the run's first on its host, with the model on a cold disk.
        """
        key = (trial.host, trial.intent, first)
        if key not in self._known:
            self._known[key] = self._look(trial, first=first)
        return self._known[key]

    def all(self, trials: Sequence[Trial], *, fresh: bool = True) -> Forecast:
        """How long trials will take together, one after another.

        Args:
            trials: In their order.
            fresh: Whether the run begins with them: each host's first reads from a cold disk.
        """
        seen: set[str] = set()
        found = []
        for trial in trials:
            found.append(self.expected(trial, first=fresh and trial.host not in seen))
            seen.add(trial.host)
        known = [each for each in found if each is not None]
        whole = len(known) == len(found)
        return Forecast(
            trials=len(found),
            seconds=sum(each.seconds for each in known) if whole else None,
            late_s=sum(each.late_s for each in known) if whole else None,
            grounds=dict(Counter(each.grounds for each in known)),
            unknown=len(found) - len(known),
            at_most_s=len(found) * longest_s(self._sweep),
        )

    def _look(self, trial: Trial, *, first: bool) -> Expected | None:
        kind, host = kind_of(self._sweep, trial), self._hosts[nodes_of(trial.host)[0]]
        real = [boot for boot in self._past if boot.rehearsal == host.rehearsal]
        here = [boot for boot in real if boot.host_class == host.host_class]
        start = _nearest(real, here, kind, first=first)
        if start is None:
            return None
        of, grounds = start
        low, high = median(boot.start_s for boot in of), max(boot.start_s for boot in of)
        far = grounds
        for name, work in self._work.items():
            probe = _probe_s(name, work, real, here, kind)
            if probe is None:
                return None
            low, high = low + probe[0], high + probe[1]
            far = max(far, probe[2], key=_distance)
        return Expected(low, high, far, len(of))


def _ways(kind: Kind) -> dict[str, Callable[[Boot], bool]]:
    """Whose times may stand for a setting's, from near to far."""
    return {
        RECORDED: lambda boot: boot.kind.intent == kind.intent,
        "other settings with the same kind of speculation on this host class": (
            lambda boot: boot.kind[1:] == kind[1:]
        ),
        "other settings of the same model on this host class": (
            lambda boot: boot.kind[2:] == kind[2:]
        ),
    }


_ELSEWHERE = "the same model on another host class"
_GROUNDS = (*_ways(Kind("", "", "sglang", "")), _ELSEWHERE)


def _distance(grounds: str) -> int:
    return _GROUNDS.index(grounds)


def _nearest(
    real: Sequence[Boot], here: Sequence[Boot], kind: Kind, *, first: bool
) -> tuple[list[Boot], str] | None:
    """The latest boots of the nearest kind, and which kind that is."""
    ways = _ways(kind)
    last = list(ways.values())[-1]
    tried = [(grounds, [boot for boot in here if fits(boot)]) for grounds, fits in ways.items()]
    tried.append((_ELSEWHERE, [boot for boot in real if last(boot)]))
    grounds, found = next((each for each in tried if each[1]), (_ELSEWHERE, []))
    if not found:
        return None
    # A cold start of the same model, whatever its arm, tells more of another one than a warm start.
    cold = [boot for boot in here if boot.first and last(boot)] if first else []
    return (cold or [b for b in found if not b.first] or found)[:_LATEST], grounds


def _probe_s(
    name: str,
    work: tuple[str, float],
    real: Sequence[Boot],
    here: Sequence[Boot],
    kind: Kind,
) -> tuple[float, float, str] | None:
    """Median and longest time of a probe (s), and whose; scaled by its work where it is new."""
    same = [b for b in here if b.kind.intent == kind.intent and name in b.probes][:_LATEST]
    if same:
        times = [boot.probes[name] for boot in same]
        return median(times), max(times), RECORDED
    ways = list(_ways(kind).items())[1:]
    for grounds, fits, among in [*((g, f, here) for g, f in ways), (_ELSEWHERE, ways[-1][1], real)]:
        rates = [
            boot.probes[other] / much
            for boot in among
            if fits(boot)
            for other, (what, much) in boot.work.items()
            if what == work[0]
        ][:_LATEST]
        if rates:
            return median(rates) * work[1], max(rates) * work[1], grounds
    return None
