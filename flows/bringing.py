"""What MLflow missed while it was down is brought to it later, by the reaper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.runs import read_records, read_run_sweep
from infra.errors import WorldError
from infra.places import runs_folder
from infra.run_locks import RunHeld
from infra.store import Store
from infra.tracking import Tracker, tracking_uri
from tasks.publish import has_missed, nothing_missed, publish_missing

if TYPE_CHECKING:
    from collections.abc import Callable

    from infra.store import RunFolder


def bring_missed(
    say: Callable[[str], None], store: Store | None = None, tracker: Tracker | None = None
) -> int:
    """Writes into MLflow what it did not take of ended runs; returns how many runs it now has.

    Args:
        say: Shows what is done.
        store: All run folders; those of this machine, if nothing else is said.
        tracker: The MLflow; that of this machine, if nothing else is said.
    """
    uri = tracker.uri if tracker else tracking_uri()
    if uri is None:
        return 0
    store = store or Store(runs_folder())
    missed = [run for run in store.all_runs() if has_missed(run, uri)]
    if not missed:
        return 0
    tracker, brought = tracker or Tracker(uri, note=say), 0
    for run in missed:
        try:
            with run.alone():
                brought += _bring(run, tracker, say, latest=_is_latest(store, run))
        except RunHeld:
            continue  # it is being run, and publishes at its end
        except WorldError as error:
            say(f"{run.id}: its report is not in MLflow yet: {error}")
    return brought


def _is_latest(store: Store, run: RunFolder) -> bool:
    return store.runs(run.path.parent.name)[-1].path == run.path


def _bring(run: RunFolder, tracker: Tracker, say: Callable[[str], None], *, latest: bool) -> bool:
    # Here: what draws figures costs a second, and the reaper seldom has anything to bring.
    from tasks.reporting import kept_comparisons, publish_report

    if publish_missing(run, tracker, say):
        return False
    comparisons = kept_comparisons(run)
    if comparisons:
        records = read_records(run)
        publish_report(run, read_run_sweep(run), comparisons, records, tracker, latest=latest)
    nothing_missed(run)
    say(f"{run.id}: MLflow has what it missed")
    return True
