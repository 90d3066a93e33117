"""Several hosts in a report: they agree, or the one that is unlike the others is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tasks.compare import compare
from tasks.hosts_apart import FALSE_ALARMS, compare_hosts
from tasks.report import render_report
from tests.hosting import pool, table

if TYPE_CHECKING:
    from tasks.judge import Series, Setting

BASE = {1: 50.0, 16: 40.0}
TRUTH = {"base": BASE, "x": {1: 75.0, 16: 50.0}, "y": {1: 60.0, 16: 44.0}}


def test_a_single_host_is_not_compared_with_itself():
    comparison = compare(pool(TRUTH, blocks=(4,)))
    assert comparison.between_hosts is None
    assert "## Between hosts" not in render_report(comparison, pool(TRUTH, blocks=(4,)))


def test_hosts_that_agree():
    records = pool(TRUTH)
    comparison = compare(records)
    found = comparison.between_hosts
    assert found is not None
    assert found.hosts == ("host-a", "host-b", "host-c", "host-d")
    assert found.odd == ()
    assert found.apart is not None
    assert found.sentence == f"the hosts agree within {found.apart * 100:.1f} %"
    at16 = [r for r in found.ratios if (r.arm, r.concurrency) == ("x", 16)]
    assert [(r.host, r.blocks) for r in at16] == [(host, 2) for host in found.hosts]
    assert all(1.2 < r.ratio < 1.3 for r in at16)
    report = render_report(comparison, records)
    assert "## Between hosts" in report
    assert (
        "| setting | users | host-a | host-b | host-c | host-d | between hosts | wider |" in report
    )
    assert "| setting | users | host-a | host-b | host-c | host-d |\n" in report
    assert report.count("\n| base | 16 |") == 1
    assert f"Runs: run1. Hosts: the hosts agree within {found.apart * 100:.1f} %." in report
    assert "The blocks ran on 4 hosts" in report


def test_the_host_that_is_unlike_the_others_is_named():
    records = pool(TRUTH, on={("host-c", "x"): 0.94})
    found = compare(records).between_hosts
    assert found is not None
    assert [(odd.host, odd.arm) for odd in found.odd] == [("host-c", "x")]
    assert 0.92 < found.odd[0].ratio < 0.96
    assert found.sentence.startswith("host-c is ")
    assert found.sentence.endswith(" % below the others in x: look at it")
    spread = next(s for s in found.spreads if s.concurrency == 16)
    assert spread.sd is not None
    assert 0.005 < spread.sd < 0.05
    assert spread.widens is not None
    assert spread.widens > 1


def test_of_two_hosts_nobody_knows_which_is_right():
    found = compare(pool(TRUTH, blocks=(3, 3), on={("host-b", "x"): 0.9})).between_hosts
    assert found is not None
    assert found.sentence.startswith("host-a and host-b differ by 11 % in x: look at both")
    assert "Two hosts cannot tell how far hosts of this kind differ" in found.sentence


def test_one_block_a_host_tells_no_host_from_a_boot():
    found = compare(pool(TRUTH, blocks=(1, 1, 1, 1))).between_hosts
    assert found is not None
    assert found.odd == ()
    assert {spread.sd for spread in found.spreads} == {None}
    assert found.sentence.startswith("every host ran one block")


def test_a_noisy_night_is_not_called_agreement():
    found = compare(pool(TRUTH, sd=0.06)).between_hosts
    assert found is not None
    assert "which is no more than boots of one host may" in found.sentence


def test_equal_hosts_are_rarely_called_unlike():
    draw = np.random.default_rng(21)
    alarms = 0
    for _ in range(400):
        found = table(draw, (2, 2, 2, 2), 4, 0.0, together=False)
        series: Series = {
            (f"arm-{arm}", ()): {("run", f"h{host}", block): y for (host, block), y in rows.items()}
            for arm, rows in found.items()
        }
        pairs: list[tuple[Setting, Setting]] = [
            ((f"arm-{arm}", ()), ("arm-0", ())) for arm in (1, 2, 3)
        ]
        compared = compare_hosts({("p", 1): series}, {("p", 1): pairs}, "output_tok_s", 1e-6, 0.95)
        assert compared is not None
        alarms += bool(compared.odd)
    assert FALSE_ALARMS == 0.01
    assert alarms <= 9  # of 400 at 1 %, more would come once in fifty
