"""A record's row in MLflow: what people search for, and charts over concurrency."""

from __future__ import annotations

import json

import pytest

from infra.fits_mlflow import fit
from tasks import entry
from tests.builders import failure, finding, measurement, patch_outcome, record


def points(trial) -> dict[tuple[str, int], float | None]:
    return {(name, step): value for name, value, step in entry.metrics_of(trial)}


def test_throughput_is_drawn_over_concurrency_and_stands_in_tables_too():
    trial = record(
        measurements=(
            measurement(concurrency=1, user_tok_s=60.0),
            measurement(concurrency=8, user_tok_s=40.0),
        )
    )
    found = points(trial)
    assert found["load/user_tok_s", 1] == 60.0
    assert found["load/user_tok_s", 8] == 40.0
    assert found["load/c1_user_tok_s", 0] == 60.0
    assert found["load/c8_user_tok_s", 0] == 40.0
    assert found["load/ttft_s_p99", 8] == 0.2
    assert found["start/start_s", 0] == 300.0


def test_an_unknown_figure_stays_unknown_and_is_never_logged_as_a_number():
    trial = record(measurements=(measurement(user_tok_s=None, accept_length=None),))
    assert points(trial)["load/user_tok_s", 8] is None
    fitted = fit({}, entry.metrics_of(trial), {})
    assert not any(name == "load/user_tok_s" for name, _, _ in fitted.metrics)


def test_every_name_that_we_log_is_one_that_mlflow_takes():
    trial = record(
        "k25-tuned",
        levels={"nccl": "ll"},
        measurements=(measurement(probe="long-prompts", accept_length=2.4),),
        patches=(patch_outcome(),),
    )
    fitted = fit(entry.params_of(trial), entry.metrics_of(trial), entry.tags_of(trial))
    assert fitted.renamed == {}
    assert fitted.warnings == []


def test_asked_and_effective_settings_have_names_of_their_own():
    trial = record(asked={"num-steps": "3"}, effective={"num-steps": "5"})
    found = entry.params_of(trial)
    assert (found["asked.num-steps"], found["eff.num-steps"]) == ("3", "5")


def test_the_command_keeps_its_words_apart():
    trial = record(command=("python3", "--model-path", "/models/kimi k2.5", "--json", '{"a": 1}'))
    assert entry.params_of(trial)["command"] == (
        """python3 --model-path '/models/kimi k2.5' --json '{"a": 1}'"""
    )


def test_a_failed_trial_is_found_by_its_class_and_says_what_to_do():
    trial = record(status="failed", failure=failure(), measurements=())
    tags = entry.tags_of(trial)
    assert tags["status"] == "failed"
    assert tags["failure_class"] == "target_lacks_eagle3_hook"
    assert tags["failure_stage"] == "wait_ready"
    assert "apply the patch" in tags["mlflow.note.content"]
    assert entry.run_status(trial) == "FAILED"


def test_a_good_trial_says_none_so_that_filters_need_no_missing_tags():
    tags = entry.tags_of(record())
    assert (tags["failure_class"], tags["findings"], tags["baseline"]) == ("none", "none", "true")
    assert json.dumps(tags)


def test_findings_are_named_once_each_and_explained():
    tags = entry.tags_of(record(findings=(finding(), finding(where="load c64"))))
    assert tags["findings"] == "drafter_not_working"
    assert "load c64" in tags["mlflow.note.content"]


def test_the_rehearsal_says_so():
    tags = entry.tags_of(record(rehearsal=True))
    assert tags["rehearsal"] == "true"
    assert "REHEARSAL" in tags["mlflow.note.content"]


@pytest.mark.parametrize(
    ("failed_as", "status"),
    [(None, "FINISHED"), ("cancelled", "KILLED"), ("out_of_memory", "FAILED")],
)
def test_a_cancelled_trial_is_killed_not_failed(failed_as, status):
    broken = failure(failure_class=failed_as) if failed_as else None
    assert entry.run_status(record(failure=broken)) == status


def test_names_sort_by_night_first():
    nights = [
        record(sweep_run=f"nightly-{number:04d}-5c1f9e22", order=order)
        for number in (3, 12)
        for order in (0, 7, 11)
    ]
    names = [entry.run_name(each) for each in nights]
    assert names == sorted(names)
    assert names[1] == "0003/0007 b01-base"


def test_a_trial_leads_to_the_prefect_run_that_ran_it():
    known = {
        "prefect": [
            {"id": "one", "url": "http://p/one", "began": "2026-03-01T21:00:00+00:00"},
            {"id": "two", "url": "", "began": "2026-03-02T21:00:00+00:00"},
        ]
    }
    first = entry.flow_run_at(known, "2026-03-01T22:00:00+00:00")
    tags = entry.linked(entry.tags_of(record()), first)
    assert tags["prefect_flow_run"] == "one"
    assert tags["mlflow.note.content"].endswith("[Prefect run](http://p/one)")
    later = entry.linked(entry.tags_of(record()), entry.flow_run_at(known, "2026-03-02T22:00:00Z"))
    assert later["prefect_flow_run"] == "two"
    assert "Prefect" not in later["mlflow.note.content"]
    assert entry.flow_run_at(known, "2026-02-01T22:00:00+00:00") is None
    assert entry.linked({"a": "b"}, None) == {"a": "b"}
    assert entry.latest_flow_url(known) == ""
    assert entry.latest_flow_url({}) == ""


def test_names_sort_as_trials_ran_and_a_second_attempt_is_another_run():
    first, second = (record(block=b) for b in (1, 2))
    assert entry.run_name(first) < entry.run_name(second)
    again = record(attempt=2)
    assert entry.run_name(again).endswith(".a2")
    assert entry.key_of(again) != entry.key_of(first)
    assert entry.key_of(record()) == entry.key_of(record())


def test_settings_are_grouped_by_arm_and_levels_together():
    assert entry.setting_name(record("tuned", levels={"nccl": "ll"})) == "tuned+ll"


def test_moments_are_milliseconds_of_the_epoch():
    assert entry.millis("1970-01-01T00:00:01+00:00") == 1000
    assert entry.millis("1970-01-01T01:00:01+01:00") == 1000
