"""Intervals over several hosts: they hold for hosts of the kind, and one host changes nothing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.compare import compare
from tasks.host_effect import (
    Square,
    between_differences,
    between_hosts,
    further_hosts,
    over_hosts,
    widened,
)
from tasks.intervals import Estimate, Judged, alone, contrast, further_blocks, holm, noise, verdict
from tests.hosting import pool, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.host_effect import HostSpread

    Table = dict[int, dict[tuple[int, int], float]]

BASE = {1: 50.0, 16: 40.0}


def host_of(block: tuple[int, int]) -> int:
    return block[0]


def spread_of(found: Table) -> HostSpread:
    spread = between_hosts(found, host_of)
    assert spread is not None
    return spread


def estimates(found: Table, *, hosts: bool = True) -> list[Estimate]:
    """Every arm against setting 0."""
    spread, between = noise(found), between_hosts(found, host_of)
    seen = [
        over_hosts(
            contrast(found, arm, 0, spread),
            (arm, 0),
            [host_of(block) for block in found[arm] if block in found[0]],
            between if hosts else None,
        )
        for arm in list(found)[1:]
    ]
    return [estimate for estimate in seen if estimate is not None]


def holds(estimate: Estimate, truth: float = 0.0) -> bool:
    """Whether its interval holds the truth; one that says nothing does."""
    low, high = alone(estimate, 0.95)
    return low is None or high is None or low <= truth <= high


def none_found(found: Sequence[Estimate]) -> bool:
    """Whether a family finds nothing."""
    return all(
        one.p is None or one.confidence is None or one.p > 1 - one.confidence
        for one in holm(found, 0.95)
    )


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 5), st.integers(2, 6))
def test_on_a_single_host_nothing_changes(seed, arms, blocks):
    found = table(np.random.default_rng(seed), [blocks], arms, 1.0, together=False)
    assert between_hosts(found, host_of) is None
    differences = {arm: {b: found[arm][b] - found[0][b] for b in found[0]} for arm in found if arm}
    assert between_differences(differences, host_of) == {}
    assert widened(Square(0.1, 3), ()) == Square(0.1, 3)
    plain = [contrast(found, arm, 0, noise(found)) for arm in list(found)[1:]]
    assert estimates(found) == plain  # to the last bit


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(2, 5),
    st.lists(st.integers(1, 3), min_size=2, max_size=5),
    st.sampled_from([0.0, 1.0, 4.0]),
)
def test_hosts_only_ever_widen(seed, arms, blocks, between):
    found = table(np.random.default_rng(seed), blocks, arms, between, together=True)
    for wide, plain in zip(estimates(found), estimates(found, hosts=False), strict=True):
        assert wide.effect == plain.effect
        assert wide.sd is not None
        assert plain.sd is not None
        assert wide.sd >= plain.sd * (1 - 1e-12)
        assert wide.df <= plain.df
        assert wide.between >= 0


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_the_names_and_the_order_of_hosts_do_not_matter(seed):
    found = table(np.random.default_rng(seed), [3, 2, 2, 1], 4, 1.0, together=False)
    renamed = {
        arm: {(7 - host, block): y for (host, block), y in reversed(series.items())}
        for arm, series in found.items()
    }
    for a, b in zip(estimates(found), estimates(renamed), strict=True):
        assert a.sd == pytest.approx(b.sd)
        assert a.df == pytest.approx(b.df)


def test_equal_blocks_give_the_mean_squares_of_the_textbook():
    rng = np.random.default_rng(2)
    found = table(rng, [3, 3, 3], 4, 1.0, together=False)
    y = np.array([list(series.values()) for series in found.values()])
    rest = y - y.mean(0) - y.mean(1, keepdims=True) + y.mean()
    hosts = rest.reshape(4, 3, 3).mean(2)
    between = 3 * (hosts**2).sum()
    spread = spread_of(found)
    assert spread.between.value == pytest.approx(between / 6)
    assert spread.within.value == pytest.approx(((rest**2).sum() - between) / 18)
    assert (spread.between.df, spread.within.df) == (6, 18)
    assert spread.share == pytest.approx(3)
    two = {arm: found[arm] for arm in (0, 1)}
    alike = spread_of(two)
    # Of two settings nobody can say which one varies.
    assert list(alike.own.values()) == [pytest.approx(alike.between.value)] * 2
    assert spread.variance == pytest.approx(max(between / 6 - spread.within.value, 0) / 3)


def test_a_host_that_is_fast_for_all_settings_alike_is_no_spread():
    found = table(np.random.default_rng(3), [2, 2, 2], 3, 0.0, together=False)
    fast = {
        arm: {(host, block): y + host for (host, block), y in series.items()}
        for arm, series in found.items()
    }
    for a, b in zip(estimates(found), estimates(fast), strict=True):
        assert a.sd == pytest.approx(b.sd)


# Share of intervals of one ratio that hold the truth for hosts of the kind; 400 sweeps of three
# ratios. The whole table, with power: docs/evidence/host-effect.md.
@pytest.mark.parametrize("between", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("blocks", [(4, 4), (2, 2, 2, 2), (3, 2, 2, 1), (1,) * 8], ids=str)
def test_intervals_hold_for_hosts_of_the_kind(blocks, between):
    draw = np.random.default_rng(11)
    held = wrong = 0
    for _ in range(150):
        found = estimates(table(draw, blocks, 4, between, together=False))
        held += sum(map(holds, found))
        wrong += not none_found(found)
    assert held / 450 >= 0.93
    assert wrong / 150 <= 0.05 + 2.5 * math.sqrt(0.05 * 0.95 / 150)


def test_without_the_hosts_they_would_not():
    draw = np.random.default_rng(12)
    held = 0
    for _ in range(100):
        found = table(draw, (4, 4), 4, 2.0, together=False)
        held += sum(map(holds, estimates(found, hosts=False)))
    assert held / 300 <= 0.8


def test_a_host_that_is_unlike_for_the_baseline_alone_is_seen_in_every_ratio():
    draw = np.random.default_rng(13)
    held = 0
    for _ in range(150):
        found = table(draw, (2, 2, 2, 2), 4, 1.0, together=True)
        held += sum(map(holds, estimates(found)))
    assert held / 450 >= 0.92


def judged(effect: float, **fields: Any) -> Judged:
    values: dict[str, Any] = {
        "blocks": 8,
        "sd": 0.02,
        "df": 6.0,
        "df_per_block": 3.0,
        "own_noise": False,
    }
    return holm([Estimate(effect, **(values | fields))], 0.95)[0]


def test_more_blocks_on_the_same_hosts_do_not_make_hosts_alike():
    one = judged(0.022, hosts=4, between=0.02**2)
    assert verdict(one, 0.02) == "undecided"
    assert further_blocks(one, 0.02) is None
    assert one.estimate.later(1000).se == pytest.approx(one.estimate.se)
    more = further_hosts(one, 0.02)
    assert more is not None
    assert more > 0
    noisy = judged(0.022, hosts=4, between=0.0)
    assert further_blocks(noisy, 0.02) is not None
    assert further_hosts(judged(0.022), 0.02) is None  # a single host


def test_what_would_decide_is_said():
    truth = {"base": BASE, "x": {users: speed * 1.045 for users, speed in BASE.items()}}
    on = {("host-a", "x"): 1.03, ("host-b", "x"): 0.97, ("host-c", "x"): 1.02}
    cells = compare(pool(truth, on=on)).cells
    assert {cell.hosts for cell in cells} == {4}
    open_ones = [cell for cell in cells if cell.verdict == "undecided"]
    assert open_ones
    for cell in open_ones:
        assert cell.further_blocks is None
        assert f"about {cell.further_hosts} further host" in cell.why
    decided = compare(pool(truth, blocks=(8,))).cells
    assert {(cell.hosts, cell.further_hosts) for cell in decided} == {(1, 0)}


def test_boots_of_a_host_that_is_unlike_the_others_are_no_outliers():
    truth = dict.fromkeys(("base", "x", "y", "z"), BASE)
    comparison = compare(pool(truth, on={("host-c", "x"): 0.9}))
    assert comparison.outliers == ()
    assert comparison.between_hosts is not None
    assert comparison.between_hosts.odd[0].host == "host-c"
    slow = pool(truth, blocks=(4, 4))
    measured = [
        m.model_copy(update={"output_tok_s": 0.85 * (m.output_tok_s or 0)})
        for m in slow[1].measurements
    ]
    slow[1] = slow[1].model_copy(update={"measurements": tuple(measured)})
    assert [o.trial for o in compare(slow).outliers] == [slow[1].trial]
