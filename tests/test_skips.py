"""A sweep that is run again does what is missing, and records what was interrupted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from configs.plan import Trial, make_plan
from configs.read import read_sweep
from flows.runs import read_records
from flows.skips import reconcile, why_skip
from infra.store import RunFolder, Store, write_json, write_value
from tests.builders import failure, record

if TYPE_CHECKING:
    from tasks.record import TrialRecord


def trial(**fields: Any) -> Trial:
    values = {
        "id": "b02-base",
        "arm": "base",
        "levels": {},
        "block": 2,
        "order": 5,
        "host": "h1",
        "intent": "i" * 12,
    }
    return Trial(**(values | fields))


def skip(*records: TrialRecord, wanted: str = "f" * 12, of: Trial | None = None):
    return why_skip(of or trial(), wanted, {each.trial: each for each in records})


@pytest.mark.parametrize("status", ["ok", "suspect"])
def test_what_is_done_is_not_done_again(status):
    found = skip(record(trial="b02-base", status=status))
    assert found is not None
    assert (found.reason, found.leaves_record) == (
        f"done already ({status}), same fingerprint",
        False,
    )


def test_what_was_done_with_another_fingerprint_is_done_again():
    assert skip(record(trial="b02-base"), wanted="e" * 12) is None


def test_a_trial_of_another_block_is_not_this_one():
    assert skip(record(trial="b01-base", block=1)) is None


def failed(name: str = "b02-base", **fields: Any) -> TrialRecord:
    return record(trial=name, status="failed", failure=failure(**fields), measurements=())


def test_a_setting_that_cannot_start_is_not_started_again_in_the_next_block():
    found = skip(failed("b01-base", retry="no"))
    assert found is not None
    assert found.leaves_record
    assert "this setting failed in block 1: target_lacks_eagle3_hook" in found.reason


def test_its_own_failure_that_would_come_again_stands():
    found = skip(failed(retry="after_change"))
    assert found is not None
    assert not found.leaves_record


@pytest.mark.parametrize("retry", ["same_once", "after_gpus_free"])
def test_a_failure_that_may_pass_is_tried_again(retry):
    assert skip(failed(retry=retry)) is None
    assert skip(failed("b01-base", retry=retry)) is None


@pytest.mark.parametrize(
    "name", ["cancelled", "ssh_lost", "host_rebooted", "lease_expired", "disk_full"]
)
def test_a_night_that_was_disturbed_is_gone_on_with(name):
    assert skip(failed(failure_class=name, retry="after_change")) is None
    assert skip(failed("b01-base", failure_class=name, retry="no")) is None


@pytest.mark.parametrize("stage", ["claim", "survey", "clean_gpus", "tear_down"])
def test_a_host_that_was_busy_once_does_not_condemn_the_setting(stage):
    busy = {"stage": stage, "failure_class": "foreign_gpu_process", "retry": "after_change"}
    assert skip(failed("b01-base", **busy)) is None
    assert skip(failed(**busy)) is None


def test_a_trial_that_was_skipped_is_looked_at_anew():
    assert skip(record(trial="b02-base", status="skipped", measurements=())) is None


def test_ten_thousand_recorded_trials_are_looked_through_at_once():
    """Every trial against every record took 18 s."""
    records = {f"b{n}-base": record(trial=f"b{n}-base", measurements=()) for n in range(10_000)}
    began = time.process_time()
    found = [why_skip(trial(id=name), "f" * 12, records) for name in records]
    assert time.process_time() - began < 2
    assert all(found)


@pytest.fixture
def run(tmp_path) -> RunFolder:
    """A run of the rehearsal sweep that has only begun."""
    sweep = read_sweep("rehearsal")
    made = Store(tmp_path).new_run("rehearsal")
    write_value(made.path / "sweep.json", sweep)
    write_value(made.path / "plan.json", make_plan(sweep))
    return made


def test_an_attempt_without_a_record_becomes_one_that_will_run_again(run):
    plan = make_plan(read_sweep("rehearsal"))
    killed = run.next_attempt(plan.trials[0].id)
    killed.append("server.log", b"loading")
    write_json(run.path / "run.json", {"id": run.id, "uid": "1a2b3c4d"})
    (said,) = reconcile(run)
    assert said == f"{plan.trials[0].id}.a1 was interrupted: recorded, will run again"
    (found,) = read_records(run)
    assert (found.status, found.failure and found.failure.failure_class) == ("failed", "cancelled")
    assert why_skip(plan.trials[0], found.fingerprint, {found.trial: found}) is None
    assert list(reconcile(run)) == []
    assert run.next_attempt(plan.trials[0].id).attempt == 2


def test_folders_of_trials_that_the_plan_does_not_know_are_left_alone(run):
    stranger = run.next_attempt("b99-gone")
    assert list(reconcile(run)) == []
    assert not stranger.finished
