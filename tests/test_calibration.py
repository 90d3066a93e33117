"""A few of the simulated nights of `make calibrate`: the machinery errs as rarely as it says."""

from __future__ import annotations

import pytest

from benchmarks.calibration import SCENES, broken, night, nights, page, tally

NOTHING, FASTER = SCENES[0], SCENES[1]


@pytest.fixture(scope="module")
def nothing():
    return tally(nights(NOTHING, range(24)))


@pytest.fixture(scope="module")
def faster():
    return tally(nights(FASTER, range(24)))


def test_where_nothing_differs_nothing_is_found(nothing):
    assert nothing.wrong <= 3 / 24  # at the promised 5 % more would come once in forty
    assert 0.88 <= nothing.covered <= 1


def test_what_is_faster_is_found(faster):
    assert faster.found >= 15 / 24  # at the promised 80 % fewer would come once in forty
    assert faster.wrong <= 3 / 24


def test_a_night_is_the_same_every_time():
    assert night(FASTER, 5) == night(FASTER, 5)


def test_a_limit_that_is_not_kept_is_told(nothing):
    assert broken(NOTHING, nothing._replace(wrong=0.06, covered=0.95)) == [
        "nothing differs: 6.0% of nights hold a wrong verdict"
    ]
    assert broken(FASTER, nothing._replace(wrong=0.0, covered=0.95, found=0.79)) == [
        "one arm is 5 % faster: found in 79.0%"
    ]
    assert broken(FASTER, nothing._replace(wrong=0.05, covered=0.95, found=0.8)) == []


def test_the_page_says_how_it_was_made(nothing):
    text = page([(NOTHING, nothing)], 9, 61)
    assert "make calibrate SEED=9 N=24" in text
    assert "| nothing differs | " in text
