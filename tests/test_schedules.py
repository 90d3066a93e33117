"""When the night begins: the local hour stays, whatever is done to the clocks."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from flows.schedules import next_fires, policy
from tests.case_schedule import schedule


def fires(cron: str, zone: str | None, after: str, count: int):
    return next_fires(cron, zone, datetime.fromisoformat(after), count)


def utc(found) -> list[str]:
    return [f"{fire.at:%d %H:%M}" for fire in found]


def test_the_local_hour_stays_over_both_changes_of_clocks():
    spring = fires("0 22 * * *", "Europe/Berlin", "2026-03-27T22:00:00+01:00", 3)
    assert utc(spring) == ["28 21:00", "29 20:00", "30 20:00"]
    autumn = fires("0 22 * * *", "Europe/Berlin", "2026-10-23T22:00:00+02:00", 3)
    assert utc(autumn) == ["24 20:00", "25 21:00", "26 21:00"]
    assert policy(autumn) == "local hour stays 22:00"


def test_a_time_in_the_gap_is_moved_by_its_length_and_runs_once():
    found = fires("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00+01:00", 3)
    assert utc(found) == ["28 01:30", "29 01:30", "30 00:30"]
    assert [fire.clock for fire in found] == ["plain", "moved", "plain"]
    assert "later by the length of the gap (03:30 local on 2026-03-29)" in policy(found)


def test_a_time_that_comes_twice_runs_the_first_time_only():
    found = fires("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00+02:00", 2)
    assert utc(found) == ["25 00:30", "26 01:30"]
    assert [fire.clock for fire in found] == ["first_of_two", "plain"]
    assert "at the first occurrence (02:30 CEST on 2026-10-25)" in policy(found)


def test_two_times_that_fall_together_in_the_gap_are_one_run():
    found = fires("30 2,3 * * *", "Europe/Berlin", "2026-03-29T00:00:00+01:00", 2)
    assert utc(found) == ["29 01:30", "30 00:30"]


def test_an_hourly_schedule_pauses_in_the_hour_that_comes_twice():
    found = fires("0 * * * *", "Europe/Berlin", "2026-10-25T01:30:00+02:00", 3)
    assert utc(found) == ["25 00:00", "25 02:00", "25 03:00"]


def test_zones_without_change_and_with_half_an_hour():
    assert utc(fires("0 22 * * *", "Asia/Kolkata", "2026-03-28T00:00:00+05:30", 2)) == [
        "28 16:30",
        "29 16:30",
    ]
    assert utc(fires("0 22 * * *", None, "2026-03-28T00:00:00+00:00", 1)) == ["28 22:00"]


def test_months_without_the_day_are_left_out_and_lists_are_read():
    months = fires("0 0 31 * *", "UTC", "2026-01-31T00:00:00+00:00", 3)
    assert [fire.at.month for fire in months] == [3, 5, 7]
    days = fires("0 22 * * 1-5", "UTC", "2026-03-27T22:00:00+00:00", 1)
    assert utc(days) == ["30 22:00"]


def test_a_day_of_the_month_or_a_day_of_the_week_is_enough():
    found = fires("0 0 13 * 5", "UTC", "2026-03-07T00:00:00+00:00", 2)
    assert utc(found) == ["13 00:00", "20 00:00"]
    assert utc(fires("0 0 14 * 5", "UTC", "2026-03-07T00:00:00+00:00", 2)) == [
        "13 00:00",
        "14 00:00",
    ]


def test_the_moment_itself_is_past():
    at = "2026-03-27T22:00:00+00:00"
    assert fires("0 22 * * *", "UTC", at, 1)[0].at - datetime.fromisoformat(at) == timedelta(days=1)


@pytest.mark.parametrize(
    ("cron", "zone"),
    [
        ("61 2 * * *", "UTC"),
        ("nonsense", "UTC"),
        ("0 2 * * *", "Europe/Atlantis"),
        ("H 2 * * *", "UTC"),
    ],
)
def test_what_prefect_refuses_is_refused_with_its_words(cron, zone):
    with pytest.raises(ValueError, match=r"(?i)invalid|unsupported|no time zone|unknown"):
        fires(cron, zone, "2026-03-27T22:00:00+00:00", 1)


def test_the_shipped_schedules_never_fall_into_a_change_of_clocks():
    text = Path(__file__).parents[1].joinpath("prefect.yaml").read_text(encoding="utf-8")
    shipped = [
        s for d in YAML(typ="safe").load(text)["deployments"] for s in d.get("schedules", [])
    ]
    assert shipped
    for entry in shipped:
        year = fires(entry["cron"], entry["timezone"], "2026-01-01T00:00:00+00:00", 400)
        assert {fire.clock for fire in year} == {"plain"}


def test_the_recorded_gap_is_answered_as_prefect_does_it():
    """Decided otherwise than the recorded case says: docs/decided-otherwise.md."""
    found = schedule(Path(__file__).parent / "fixtures/schedules/275-schedule-spring-gap", {})
    assert found["fires_utc"][1] == "2026-03-29T01:30:00Z"
    page = Path(__file__).parents[1].joinpath("docs", "decided-otherwise.md")
    assert "275-schedule-spring-gap" in page.read_text(encoding="utf-8")
