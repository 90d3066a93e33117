"""The host's clock against ours: only what no delay of the connection explains counts."""

from __future__ import annotations

import pytest

from tasks.host_clock import HostClock, Span, ours


def test_one_answer_says_nothing():
    clock = HostClock()
    assert clock.span() is None
    clock.note(10.0, 12.0, 500.0)
    assert clock.span() is None


def test_slow_answers_widen_what_is_not_known():
    clock = HostClock()
    for asked, answered, host in ((10.0, 12.0, 500.0), (50.0, 51.0, 545.0), (110.0, 113.0, 601.0)):
        clock.note(asked, answered, host)
    span = clock.span()
    assert span == Span(host_s=101.0, least_s=98.0, most_s=103.0)
    assert span.off_s == 0.0


@pytest.mark.parametrize(
    ("host_s", "off_s"), [(103.0, 0.0), (103.5, 0.5), (98.0, 0.0), (90.0, -8.0)]
)
def test_what_is_surely_fast_or_slow(host_s, off_s):
    assert Span(host_s, 98.0, 103.0).off_s == pytest.approx(off_s)


def test_our_clock_goes_on():
    assert ours() <= ours()
