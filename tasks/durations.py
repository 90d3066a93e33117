"""How long recorded trials took, split into what another trial may share: start, and each probe."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from configs.bench_serving import BenchServing
from configs.layers import engine_of
from configs.probe import Profile, Stream, clients_of, profiles_of, rungs_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from configs.plan import Trial
    from configs.probe import Probe
    from configs.releases import EngineKind
    from configs.sweep import Sweep
    from tasks.record import TrialRecord

_PROBE = "probe:"
_MEASURED = ("ok", "suspect")


class Kind(NamedTuple):
    """What a trial's duration depends on besides its host, from near to far."""

    intent: str
    """Hash of everything that is asked for."""
    speculation: str
    """off, eagle3, ..."""
    engine: EngineKind
    target: str
    """Folder of the target on the host."""


class Boot(NamedTuple):
    """How long one trial took that was measured to its end."""

    kind: Kind
    host_class: str
    rehearsal: bool
    began: str
    """ISO 8601; for the order."""
    first: bool
    """Whether it was its run's first on its host: it may have read the model from a cold disk."""
    start_s: float
    """Everything but the probes: from claim to ready, warm-up, tear-down."""
    probes: dict[str, float]
    """Probe -> seconds."""
    work: dict[str, tuple[str, float]]
    """Probe -> what it was, and how much of it (:func:`work_of`)."""


def boots(sweep: Sweep, trials: Iterable[Trial], records: Sequence[TrialRecord]) -> Iterator[Boot]:
    """The measured trials of one run.

    A trial that failed tells nothing of how long another one takes, and is left out.

    Args:
        sweep: As it was in that run.
        trials: Of its plan.
        records: Of that run.
    """
    planned = {trial.id: trial for trial in trials}
    work = works(sweep)
    firsts: dict[str, str] = {}
    started = [record for record in records if record.stages]
    for record in sorted(started, key=lambda record: datetime.fromisoformat(record.started_at)):
        firsts.setdefault(record.host, record.trial)
    for record in records:
        trial = planned.get(record.trial)
        if trial is None or record.status not in _MEASURED or record.arm not in sweep.arms:
            continue
        probes = {
            stage.name.removeprefix(_PROBE): stage.seconds
            for stage in record.stages
            if stage.name.startswith(_PROBE)
        }
        yield Boot(
            kind=kind_of(sweep, trial),
            host_class=record.host_class,
            rehearsal=record.rehearsal,
            began=record.started_at,
            first=firsts.get(record.host) == record.trial,
            start_s=max(0.0, _whole(record) - sum(probes.values())),
            probes=probes,
            work={name: work[name] for name in probes if name in work},
        )


def kind_of(sweep: Sweep, trial: Trial) -> Kind:
    """What a trial's duration depends on."""
    engine = engine_of(sweep, trial.arm)
    speculation: Any = sweep.arms[trial.arm].speculation
    return Kind(trial.intent, speculation.kind, engine.kind, engine.model)


def works(sweep: Sweep) -> dict[str, tuple[str, float]]:
    """Every probe of a boot by its stage's name: what it is, and how much of it."""
    rungs = rungs_of(sweep.probes)
    return {name: work_of(probe, rungs) for name, probe in _measured(sweep).items()}


def work_of(probe: Probe, rungs: Mapping[str, Stream]) -> tuple[str, float]:
    """What a probe does and how much of it: answers in a row times their tokens, or recordings.

    The time of a probe is near proportional to it at the same concurrencies; across different ones
    it is a first estimate, as a step gets longer with the batch.
    """
    match probe:
        case Stream():
            return "stream", _answers(probe, probe.concurrency)
        case BenchServing():
            of = rungs[probe.of]
            return "bench-serving", _answers(of, probe.levels(of))
        case Profile():
            return "profile", float(len(probe.concurrency))
        case _:
            assert_never(probe)


def _answers(probe: Stream, levels: Sequence[int]) -> float:
    rows = sum(probe.requests(users) / users for users in levels)
    return rows * probe.sampling.max_new_tokens


def longest_s(sweep: Sweep) -> float:
    """What a trial cannot exceed by the sweep's own patience (s)."""
    rungs = rungs_of(sweep.probes)
    traffic = sum(_loads(probe, rungs) * probe.timeout_s for probe in _measured(sweep).values())
    patience = sweep.patience
    return patience.start_s + patience.stop_s + patience.gpu_free_s + traffic


def _loads(probe: Probe, rungs: Mapping[str, Stream]) -> int:
    levels = probe.levels(rungs[probe.of]) if isinstance(probe, BenchServing) else probe.concurrency
    return len(levels)


def _measured(sweep: Sweep) -> Mapping[str, Probe]:
    """Every probe of a boot, by the name of its stage."""
    probes = sweep.probes
    return {**rungs_of(probes), **clients_of(probes), **profiles_of(probes)}


def _whole(record: TrialRecord) -> float:
    """A trial's time: its stages', which are finer than its begin and end in whole seconds."""
    begun, ended = map(datetime.fromisoformat, (record.started_at, record.ended_at))
    return max((ended - begun).total_seconds(), sum(stage.seconds for stage in record.stages))
