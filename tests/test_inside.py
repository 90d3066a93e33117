"""Profiles in the record, the report, the figures and MLflow: side by side, and nowhere in a ratio."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.check_profile import PROFILE_GUARDS, TOLERATED, check_profiles
from tasks.compare import compare
from tasks.entry import metrics_of
from tasks.inside import side_by_side
from tasks.inside_figure import inside_figures, inside_pictures
from tasks.kernel_table import CATEGORIES, MEANINGS
from tasks.profile_record import Named, Shares, StepProfile
from tasks.record import TrialRecord
from tasks.report import render_report
from tasks.report_inside import inside_section
from tests.builders import record
from tests.test_papers import ROOT

BASE = Shares(all_reduce=0.515, attention=0.1, gemm=0.3, norm=0.04, sampling=0.02, memory=0.01)
TUNED = Shares(all_reduce=0.38, attention=0.1, gemm=0.42, norm=0.04, sampling=0.02, memory=0.01)
DRAFTER = Shares(all_reduce=0.08, gemm=0.07)


def profile(shares: Shares | None = BASE, **fields: Any) -> StepProfile:
    values: dict[str, Any] = {
        "probe": "inside",
        "concurrency": 8,
        "steps": 20,
        "step_us": 16_000.0,
        "shares": shares,
        "idle": 1 - shares.total if shares else None,
        "ranks": 8,
        "ranks_asked": 8,
    }
    return StepProfile(**(values | fields))


def pair() -> list[TrialRecord]:
    drafted = profile(TUNED, drafter=DRAFTER, drafter_asked=True, step_us=32_000.0)
    return [record("base", profiles=(profile(),)), record("tuned", profiles=(drafted,))]


def test_a_record_of_before_is_read_and_one_with_profiles_reads_back():
    old = record().model_dump(mode="json")
    del old["profiles"]
    old["schema_version"] = 2
    assert TrialRecord.model_validate(old).profiles == ()
    (_, new) = pair()
    assert TrialRecord.model_validate_json(new.model_dump_json()) == new


def test_profiles_change_no_verdict_and_no_figure_of_speed():
    records = pair()
    bare = [r.model_copy(update={"profiles": ()}) for r in records]
    assert compare(records) == compare(bare)


def test_target_and_drafter_and_idle_are_all_of_a_step():
    line = side_by_side(pair())[1]
    assert line.drafter is not None
    assert line.target.total + line.drafter.total + line.idle == pytest.approx(1)
    assert line.target.all_reduce == pytest.approx(0.30)


def test_means_are_over_trials_and_failed_ones_do_not_count():
    records = [
        record("base", block=1, profiles=(profile(),)),
        record("base", block=2, profiles=(profile(TUNED),), status="suspect"),
        record("base", block=3, profiles=(profile(DRAFTER),), status="failed"),
        record("base", block=4, profiles=(profile(None, trouble="no", steps=0, step_us=None),)),
    ]
    (line,) = side_by_side(records)
    assert (line.trials, line.steps) == (2, 40)
    assert line.shares.all_reduce == pytest.approx((0.515 + 0.38) / 2)
    assert line.shares.total + line.idle == pytest.approx(1)


def test_the_report_sets_the_arms_side_by_side():
    records = pair()
    text = render_report(compare(records), records, figures=("inside-inside.png",))
    assert "## Inside a step" in text
    assert "![Shares of the GPU time of a decode step: inside](inside-inside.png)" in text
    assert (
        "tuned at 8 users, against base: all-reduce 51.5 % → 38.0 % of a step, 8.24 ms → 12.2 ms"
    ) in text
    assert "| tuned | 8 | drafter | 8.0% |" in text
    assert "| base (baseline) | 8 | 16.0 ms | 51.5% |" in text
    assert "| none | 20 |" in text


def test_a_drafter_that_is_not_known_is_a_dash_and_not_nothing():
    records = [record("tuned", profiles=(profile(TUNED, drafter_asked=True),), baseline=True)]
    assert "| - | 20 |" in inside_section(records)


def test_without_profiles_the_report_says_nothing_of_them():
    records = [record("base"), record("tuned")]
    assert inside_section(records) == ""
    assert inside_figures(compare(records), records) == {}


def test_one_figure_a_profile_in_both_looks():
    records = pair()
    comparison = compare(records)
    figures = inside_figures(comparison, records)
    assert list(figures) == list(inside_pictures(comparison, records)) == ["inside-inside.png"]
    assert figures["inside-inside.png"].startswith(b"\x89PNG")


def test_mlflow_gets_the_shares_with_users_as_step():
    (_, tuned) = pair()
    points = {(name, step): value for name, value, step in metrics_of(tuned)}
    assert points["inside/share_all_reduce", 8] == 0.38
    assert points["inside/c8_share_all_reduce", 0] == 0.38
    assert points["inside/share_drafter", 8] == pytest.approx(0.15)
    assert points["inside/step_gpu_us", 8] == 32_000.0


TRIPS: dict[str, dict[str, Any]] = {
    "profile_failed": {"trouble": "/start_profile: 404", "shares": None},
    "profile_no_steps": {"shares": None, "steps": 0, "step_us": None},
    "profile_cut": {"whole": False},
    "profile_ranks_missing": {"ranks": 7},
    "profile_other": {
        "shares": BASE.model_copy(update={"other": 0.05}),
        "unknown": (Named(name="strange", share=0.05),),
    },
    "profile_drafter_unknown": {"drafter_asked": True},
}


@pytest.mark.parametrize("name", TRIPS)
def test_each_guard_is_tripped_by_what_it_is_for(name):
    (found,) = check_profiles([profile(**TRIPS[name])])
    assert (found.name, found.where, found.tolerated) == (name, "inside c8", TOLERATED)
    assert found.evidence
    assert found.advice


def test_a_good_profile_trips_none_and_every_guard_is_tried():
    assert check_profiles([profile(), profile(BASE.model_copy(update={"other": 0.0499}))]) == ()
    assert set(TRIPS) == {guard.name for guard in PROFILE_GUARDS}


def test_the_page_names_every_finding_and_every_kind_of_kernel():
    page = (ROOT / "docs" / "profile.md").read_text(encoding="utf-8")
    assert [g.name for g in PROFILE_GUARDS if f"`{g.name}`" not in page] == []
    assert [c for c in CATEGORIES if f"`{c}`" not in page or MEANINGS[c] not in page] == []
