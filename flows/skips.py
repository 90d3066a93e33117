"""What need not be run again, and what an interrupted run left unrecorded."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from flows.runs import read_run_plan, read_run_sweep
from infra.store import write_value
from tasks.record_trial import bare_record
from tasks.venue import failed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from configs.plan import Trial
    from infra.store import RunFolder, TrialFolder
    from tasks.record import Failure, TrialRecord

# Failures that say nothing of the setting: the trial is run again when the sweep is.
_PASSING = {
    "cancelled",
    "ssh_lost",
    "host_rebooted",
    "lease_expired",
    "host_claimed",
    "disk_full",
    "unknown_exception",
    "tracking_down",
}
_FEW = 20  # a page of lines is read, ten thousand are not
# Stages that try nothing of the setting: what fails there is the host's state.
_OF_THE_HOST = {"claim", "survey", "clean_gpus", "tear_down"}


class Skip(NamedTuple):
    """Why a trial is not run."""

    trial: str
    reason: str
    leaves_record: bool
    """Whether the skip itself goes on record (the trial has none)."""


class SkipLines:
    """Says which trials are skipped: each of a few, else how many for each reason."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._held: list[tuple[str, str]] = []

    def add(self, trial: str, reason: str) -> None:
        """Keeps one until the next :meth:`flush`."""
        self._held.append((trial, reason))

    def flush(self) -> None:
        """Says what is held: before something else happens, and at the end."""
        held, self._held = self._held, []
        if len(held) <= _FEW:
            for trial, reason in held:
                self._say(f"{trial}: skipped: {reason}")
            return
        for reason, number in Counter(reason for _trial, reason in held).items():
            trials = [trial for trial, why in held if why == reason]
            which = trials[0] if number == 1 else f"{number:,} trials, {trials[0]} to {trials[-1]}"
            self._say(f"{which}: skipped: {reason}")


def why_skip(trial: Trial, wanted: str, records: Mapping[str, TrialRecord]) -> Skip | None:
    """Whether a trial need not be run.

    Args:
        trial: The trial.
        wanted: Its fingerprint now, with the host as it is.
        records: The last finished attempts of this run, by trial.
    """
    own = records.get(trial.id)
    # A block stays on its host: what another one measured cannot be paired with what is to come.
    there = own is not None and own.fingerprint == wanted and own.host == trial.host
    if own is not None and there and is_final(own):
        return Skip(trial.id, f"done already ({own.status}), same fingerprint", False)
    for record in records.values():
        # A setting that cannot start will not start in the next block either.
        failure = record.failure
        if (
            failure is not None
            and record.trial != trial.id
            and record.fingerprint == wanted
            and of_the_setting(failure)
        ):
            return Skip(
                trial.id,
                f"this setting failed in block {record.block}: {failure.failure_class}",
                True,
            )
    return None


def is_final(record: TrialRecord) -> bool:
    """Whether a record stands as the trial's result when the sweep is run again."""
    if record.status == "skipped":
        return False
    return record.failure is None or of_the_setting(record.failure)


def of_the_setting(failure: Failure) -> bool:
    """Whether a failure would come again with the same setting on the same host."""
    return (
        failure.retry in {"no", "after_change"}
        and failure.failure_class not in _PASSING
        and failure.stage not in _OF_THE_HOST
    )


def unfinished(run: RunFolder, of: Collection[str] | None = None) -> list[TrialFolder]:
    """Attempts without a record.

    Args:
        run: The run.
        of: Trials; None: all.
    """
    return [
        folder
        for folder in run.trials()
        if not folder.finished and (of is None or folder.trial in of)
    ]


def reconcile(run: RunFolder, of: Collection[str] | None = None) -> Iterator[str]:
    """Records attempts that ended without a record: their process was killed.

    Args:
        run: The run.
        of: Trials; None: of all, since nobody else is at work on the run.

    Yields:
        One sentence for each.
    """
    cut_off = unfinished(run, of)
    if not cut_off:
        return
    plan = {trial.id: trial for trial in read_run_plan(run).trials}
    sweep = read_run_sweep(run)
    for folder in cut_off:
        trial = plan.get(folder.trial)
        if trial is None:
            continue
        failure = failed(
            "unknown", "cancelled", "the process that ran this attempt was killed"
        ).failure
        record = bare_record(sweep, trial, run.holder, folder.attempt, datetime.now(UTC))
        write_value(
            folder.record, record.model_copy(update={"status": "failed", "failure": failure})
        )
        yield f"{folder.path.name} was interrupted: recorded, will run again"
