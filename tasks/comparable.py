"""Which trials may stand beside each other: facts that must be equal, or a refusal with the diff."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from tasks.comparison import Difference, Excluded, Refusal, levels_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tasks.record import TrialRecord


SPECULATES = frozenset({"speculative-algorithm", "speculative-config"})
"""Flags that ask for speculation, of SGLang and of vLLM."""
ENGINES_OWN: Final = frozenset({"engine", "torch", "cuda-graph-max-bs"})
"""Facts of an engine, beside its patches: equal among its own arms, another's are its own."""

UNSEEN: Final = "unknown"
"""The class of the host of a trial of which nothing was seen (tasks/record_trial.bare_record)."""

Acceptance = Literal["none", "real", "simulated"]


class Selection(NamedTuple):
    """Trials sorted by whether they enter a ratio."""

    kept: tuple[TrialRecord, ...]
    refused: tuple[Refusal, ...]
    excluded: tuple[Excluded, ...]
    notes: tuple[str, ...]


def select(records: Sequence[TrialRecord]) -> Selection:
    """Ok trials with equal facts; everything else with its reason.

    Only ``ok`` trials have a speed. Of several ok attempts at the same trial the first counts,
    so that repeating until the number pleases does not work. The facts of the baseline (those of
    most of its trials) are the measure; where no baseline trial is ok, those of most trials are.
    """
    ordered = sorted(records, key=_place)
    ok: dict[tuple[object, ...], TrialRecord] = {}
    excluded, notes = [], []
    for record in ordered:
        place = (record.sweep_run, record.host, record.block, setting(record))
        if record.status != "ok":
            excluded.append(_excluded(record, why(record)))
        elif place in ok:
            first = ok[place].attempt
            excluded.append(_excluded(record, f"attempt {first} was ok already and counts"))
        else:
            ok[place] = record
    kept, refused = _with_equal_facts(list(ok.values()))
    if refused:
        notes.append(f"{len(refused)} trials refused: they differ in facts that must be equal")
    return Selection(tuple(kept), tuple(refused), tuple(excluded), tuple(notes))


def setting(record: TrialRecord) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The arm with its levels, hashable."""
    return record.arm, levels_key(record.levels)


def block_of(record: TrialRecord) -> tuple[str, str, int]:
    """The block that a trial is paired in: of one run, on one host."""
    return record.sweep_run, record.host, record.block


def host_of(block: tuple[str, str, int]) -> str:
    """The host of a block, as :func:`block_of` gives it."""
    return block[1]


def facts(record: TrialRecord) -> dict[str, str]:
    """What must be equal for two trials to be compared; arm and factor levels are no part of it."""
    return {
        **record.must_match,
        "host_class": record.host_class,
        "rehearsal": str(record.rehearsal).lower(),
        "weights": record.synthetic.weights if record.synthetic else "real",
    }


def acceptance(record: TrialRecord) -> Acceptance:
    """Whether a trial's acceptance is a drafter's, pretended by the engine, or of no matter."""
    if record.synthetic is not None and record.synthetic.accept_length is not None:
        return "simulated"
    return "real" if SPECULATES & set(record.asked) else "none"


def made_up(records: Sequence[TrialRecord]) -> tuple[str, ...]:
    """What was made up in these trials, each once."""
    weights = any(r.synthetic is not None and r.synthetic.weights == "dummy" for r in records)
    lengths = any(acceptance(r) == "simulated" for r in records)
    return ("dummy weights",) * weights + ("simulated acceptance",) * lengths


def differences(expected: Mapping[str, str], found: Mapping[str, str]) -> tuple[Difference, ...]:
    """The facts in which two trials differ, by name; a fact that one of them lacks differs."""
    return tuple(
        Difference(fact=name, expected=expected.get(name), found=found.get(name))
        for name in sorted({*expected, *found})
        if expected.get(name) != found.get(name)
    )


def by_host_class(records: Sequence[TrialRecord]) -> dict[str, tuple[TrialRecord, ...]]:
    """Records by class of host, for a sweep over unlike hosts: one comparison each.

    A trial of which nothing was seen, since it was skipped, does not know its class: it goes with
    its host's other trials, else with the first class.
    """
    seen = [r for r in sorted(records, key=_place) if r.host_class != UNSEEN]
    of_host = {r.host: r.host_class for r in reversed(seen)}
    classes = list(dict.fromkeys(r.host_class for r in seen)) or [UNSEEN]
    known = [
        r.host_class if r.host_class != UNSEEN else of_host.get(r.host, classes[0]) for r in records
    ]
    return {
        name: tuple(r for r, own in zip(records, known, strict=True) if own == name)
        for name in classes
    }


def why(record: TrialRecord) -> str:
    """Why a trial has no speed, in one line."""
    if record.failure is not None:
        return f"{record.failure.stage}: {record.failure.failure_class}"
    if record.findings:
        return ", ".join(dict.fromkeys(finding.name for finding in record.findings))
    return "; ".join(record.notes) or record.status


def _with_equal_facts(
    records: Sequence[TrialRecord],
) -> tuple[list[TrialRecord], list[Refusal]]:
    kept, refused = _with_one_acceptance(records)
    equal, different = _with_the_facts_of_most(kept)
    return equal, refused + different


def _with_one_acceptance(
    records: Sequence[TrialRecord],
) -> tuple[list[TrialRecord], list[Refusal]]:
    """Pretended acceptance stands beside none or beside its like, and never beside a real one."""
    real = next((r for r in records if acceptance(r) == "real"), None)
    if real is None:
        return list(records), []
    wrong = Difference(fact="acceptance", expected="real", found="simulated")
    kept = [r for r in records if acceptance(r) != "simulated"]
    return kept, [_refusal(r, real, (wrong,)) for r in records if acceptance(r) == "simulated"]


def _refusal(record: TrialRecord, judge: TrialRecord, wrong: tuple[Difference, ...]) -> Refusal:
    return Refusal(
        trial=record.trial,
        arm=record.arm,
        levels=record.levels,
        block=record.block,
        host=record.host,
        against=judge.trial,
        differences=wrong,
    )


def _with_the_facts_of_most(
    records: Sequence[TrialRecord],
) -> tuple[list[TrialRecord], list[Refusal]]:
    judges = [r for r in records if r.baseline] or list(records)
    if not judges:
        return [], []
    measure = _most(judges)
    judge = next(r for r in judges if facts(r) == measure)
    expected = {engine_of(measure): measure}
    kept, refused = [], []
    for record in records:
        kind = engine_of(facts(record))
        if kind not in expected:
            expected[kind] = _across(measure, [r for r in records if engine_of(facts(r)) == kind])
        wrong = differences(expected[kind], facts(record))
        if wrong:
            refused.append(_refusal(record, judge, wrong))
        else:
            kept.append(record)
    return kept, refused


def _most(records: Sequence[TrialRecord]) -> dict[str, str]:
    """The facts that most of some trials have."""
    votes = Counter(tuple(sorted(facts(r).items())) for r in records)
    return dict(votes.most_common(1)[0][0])


def _across(measure: Mapping[str, str], records: Sequence[TrialRecord]) -> dict[str, str]:
    """What trials of another engine must have: their engine's own as most of them, the rest equal.

    Which engine an arm runs on is what is asked about; that its trials all ran on one release of
    it is not.
    """
    own = {name: value for name, value in _most(records).items() if _is_own(name)}
    return {name: value for name, value in measure.items() if not _is_own(name)} | own


def engine_of(found: Mapping[str, str]) -> str:
    """The engine that facts are of, without its version; empty where they do not say."""
    return found.get("engine", "").partition(" ")[0]


def _is_own(fact: str) -> bool:
    return fact in ENGINES_OWN or fact.startswith("patch:")


def _excluded(record: TrialRecord, reason: str) -> Excluded:
    return Excluded(
        trial=record.trial,
        attempt=record.attempt,
        arm=record.arm,
        levels=record.levels,
        block=record.block,
        host=record.host,
        status=record.status,
        why=reason,
    )


def _place(record: TrialRecord) -> tuple[str, str, int, int, str, int]:
    """Where a trial stands in the night; the same for any order of the records."""
    return (
        record.sweep_run,
        record.host,
        record.block,
        record.order,
        record.trial,
        record.attempt,
    )
