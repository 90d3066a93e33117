"""A deadline is the next time that it is so late, in a zone that is stated."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.deadline import next_deadline, split_clock
from configs.problems import ConfigError
from configs.read import parse_sweep
from configs.sweep import Sweep, Until
from flows.budget import deadline_of
from tests.sweeps import TEXT

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("now", "clock", "then", "says"),
    [
        ("2026-11-30T22:00", "06:30", "2026-12-01T05:30", "06:30 CET on Tuesday, 1 December"),
        ("2026-12-01T06:29", "06:30", "2026-12-01T05:30", "06:30 CET on Tuesday, 1 December"),
        ("2026-12-01T06:30", "06:30", "2026-12-02T05:30", "06:30 CET on Wednesday, 2 December"),
        # Clocks go forward at 02:00: 02:30 is not there, and comes later by the gap.
        ("2026-03-28T22:00", "02:30", "2026-03-29T01:30", "03:30 CEST on Sunday, 29 March"),
        ("2026-03-28T22:00", "06:30", "2026-03-29T04:30", "06:30 CEST on Sunday, 29 March"),
        # Clocks go back at 03:00: 02:30 comes twice, and the first counts.
        ("2026-10-24T22:00", "2:30", "2026-10-25T00:30", "02:30 CEST on Sunday, 25 October"),
    ],
)
def test_it_is_the_next_time_that_it_is_so_late(now, clock, then, says):
    found = next_deadline(clock, "Europe/Berlin", at(now))
    assert found.at.astimezone(UTC) == datetime.fromisoformat(then).replace(tzinfo=UTC)
    assert found.text == f"{says} (Europe/Berlin)"


@given(
    st.integers(1_704_000_000, 1_893_000_000),
    st.integers(0, 23),
    st.integers(0, 59),
    st.sampled_from(["Europe/Berlin", "UTC", "America/Los_Angeles", "Asia/Kolkata"]),
)
def test_it_lies_ahead_and_within_a_day_and_a_gap(now, hour, minute, zone):
    here = datetime.fromtimestamp(now, tz=UTC)
    found = next_deadline(f"{hour:02}:{minute:02}", zone, here).at
    assert timedelta(0) < found - here <= timedelta(hours=25)


def test_without_a_zone_it_is_this_machines_and_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(os.environ, "TZ", "Asia/Kolkata")
    time.tzset()
    try:
        found = next_deadline("06:30", None, datetime(2026, 11, 30, 22, tzinfo=UTC))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert found.at.astimezone(UTC) == datetime(2026, 12, 1, 1, tzinfo=UTC)
    assert found.text == "06:30 IST on Tuesday, 1 December (this machine's zone)"


def asked(text: str) -> Sweep:
    whole = "\n".join(line for line in TEXT.splitlines() if not line.startswith("blocks:"))
    return parse_sweep(f"{whole}\n{text}\n", "t.yaml")


def test_a_sweep_names_it_with_and_without_quotes():
    for text in ("until: {time: 06:30}", 'until: {time: "06:30", zone: Europe/Berlin}'):
        sweep = asked(text)
        assert sweep.until is not None
        assert (sweep.until.time, sweep.blocks) == ("06:30", 8)
        assert Sweep.model_validate_json(sweep.model_dump_json()) == sweep


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('until: {time: "24:00"}', "until.time: '24:00' is no time of day: write \"06:30\""),
        ('until: {time: "06:30", zone: Berlin}', "until.zone: 'Berlin' is no time zone: write a"),
        ('until: {time: "06:30", zone: ../x}', "until.zone: '../x' is no time zone"),
        (
            "until: {zone: UTC}",
            'until.zone: is that of time, which is not given: add time: "06:30"',
        ),
    ],
)
def test_what_is_no_time_is_told(text, says):
    with pytest.raises(ConfigError) as caught:
        asked(text)
    assert says in str(caught.value)


def test_a_deadline_alone_pays_for_no_look():
    assert Until(half_width=None, time="06:30").looks == 1
    assert Until(time="06:30").looks == 6


def test_what_is_typed_goes_before_what_the_file_says():
    sweep = asked('until: {time: "06:30", zone: UTC}')
    now = at("2026-11-30T22:00")
    typed = deadline_of(sweep, "7:15 Europe/Berlin", now)
    assert typed is not None
    assert typed.text == "07:15 CET on Tuesday, 1 December (Europe/Berlin)"
    own = deadline_of(sweep, None, now)
    assert own is not None
    assert own.text == "06:30 UTC on Tuesday, 1 December (UTC)"
    assert deadline_of(asked("blocks: 2"), None, now) is None
    with pytest.raises(ConfigError, match="no time zone"):
        deadline_of(sweep, "06:30 Nowhere", now)
    assert split_clock(" 06:30 ") == ("06:30", None)
