"""The statistics: never significant by default, and right as often as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.intervals import (
    NOISE_FLOOR,
    Estimate,
    Judged,
    contrast,
    detectable,
    further_blocks,
    holm,
    noise,
    verdict,
)

MARGIN = 0.02


def judged_one(effect: float, sd: float | None = 0.01, blocks: int = 3, df: float = 6) -> Judged:
    return holm([Estimate(effect, blocks, sd, df, 3, own_noise=False)], 0.95)[0]


def simulate(
    rng: np.random.Generator,
    spreads: list[float],
    blocks: int,
    cells: int = 3,
    effect: float = 0.0,
) -> list[str]:
    """Verdicts of one sweep of arms with these spreads; arm 1 has the effect."""
    estimates = []
    for _ in range(cells):
        values = rng.normal(size=(len(spreads), blocks)) * np.array(spreads)[:, None]
        values += rng.normal(size=blocks) * 0.05
        values[1] += effect
        table = {a: dict(enumerate(row.tolist())) for a, row in enumerate(values)}
        spread = noise(table)
        estimates += [contrast(table, a, 0, spread) for a in range(1, len(spreads))]
    return [verdict(j, MARGIN) for j in holm([e for e in estimates if e], 0.95)]


@pytest.mark.parametrize("blocks", [2, 3, 5])
def test_sweeps_of_copies_are_rarely_called_better_or_worse(blocks):
    rng = np.random.default_rng(7)
    sweeps = 300
    wrong = sum(
        any(v in ("better", "worse") for v in simulate(rng, [0.03] * 4, blocks))
        for _ in range(sweeps)
    )
    # 5 % is promised; three standard errors of 300 sweeps are added.
    assert wrong / sweeps <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / sweeps)


def test_a_noisy_arm_does_not_borrow_the_steadiness_of_the_others():
    rng = np.random.default_rng(8)
    sweeps = 300
    wrong = sum(
        any(v in ("better", "worse") for v in simulate(rng, [0.02] * 3 + [0.06], 3))
        for _ in range(sweeps)
    )
    assert wrong / sweeps <= 0.10


def test_own_noise_widens_the_interval_of_the_noisy_one_only():
    quiet = {b: 0.001 * (-1) ** b for b in range(4)}
    table = {
        "a": quiet,
        "b": {b: 0.5 - v for b, v in quiet.items()},
        "c": quiet,
        "d": {b: 0.03 * (-1) ** (b // 2) for b in range(4)},
    }
    spread = noise(table)
    calm, wild = contrast(table, "b", "a", spread), contrast(table, "d", "a", spread)
    assert calm is not None
    assert wild is not None
    assert (calm.own_noise, wild.own_noise) == (False, True)
    assert calm.sd == spread.sd
    assert wild.sd is not None
    assert wild.sd > spread.sd
    assert wild.df < calm.df


def test_two_blocks_with_several_quiet_arms_decide():
    rng = np.random.default_rng(9)
    found = [simulate(rng, [0.003] * 4, 2, effect=math.log(1.2))[0] for _ in range(50)]
    assert found.count("better") >= 45
    assert "worse" not in found


def test_pooled_noise_is_the_two_way_residual():
    table = {"a": {1: 0.0, 2: 0.3}, "b": {1: 0.1, 2: 0.2}, "c": {1: 0.2, 2: 0.4}}
    grid = np.array([[0.0, 0.3], [0.1, 0.2], [0.2, 0.4]])
    rest = grid - grid.mean(0) - grid.mean(1, keepdims=True) + grid.mean()
    spread = noise(table)
    assert spread.df == 2
    assert spread.sd == pytest.approx(math.sqrt((rest**2).sum() / 2))
    assert spread.df_per_block == 2


def test_two_settings_alone_share_their_noise():
    rng = np.random.default_rng(4)
    for _ in range(20):
        table = {a: dict(enumerate(rng.normal(size=3).tolist())) for a in "ab"}
        estimate = contrast(table, "b", "a", noise(table))
        assert estimate is not None
        assert not estimate.own_noise
        paired = np.array(list(table["b"].values())) - np.array(list(table["a"].values()))
        assert estimate.se == pytest.approx(paired.std(ddof=1) / math.sqrt(3))


def test_a_block_that_lacks_an_arm_still_serves_the_others():
    table = {"a": {1: 0.0, 2: 0.1, 3: 0.0}, "b": {1: 0.5, 3: 0.5}, "c": {1: 0.2, 2: 0.3, 3: 0.25}}
    spread = noise(table)
    assert spread.df == 3
    estimate = contrast(table, "b", "a", spread)
    assert estimate is not None
    assert (estimate.blocks, estimate.effect) == (2, 0.5)


def test_without_a_shared_block_there_is_no_estimate():
    table = {"a": {1: 0.0}, "b": {2: 0.5}}
    assert contrast(table, "b", "a", noise(table)) is None
    assert contrast(table, "z", "a", noise(table)) is None
    assert noise({}).df == 0


def test_one_block_gives_a_ratio_but_no_interval_and_no_verdict():
    table = {"a": {1: 0.0}, "b": {1: 0.5}}
    estimate = contrast(table, "b", "a", noise(table))
    assert estimate is not None
    (judged,) = holm([estimate], 0.95)
    assert (judged.low, judged.high, judged.p) == (None, None, None)
    assert verdict(judged, MARGIN) == "undecided"
    assert further_blocks(judged, MARGIN) is None
    assert detectable(judged, MARGIN) is None


def test_identical_repetitions_do_not_prove_everything():
    table = {"a": {1: 0.0, 2: 0.0}, "b": {1: 0.005, 2: 0.005}}
    spread = noise(table)
    assert spread.sd == NOISE_FLOOR
    estimate = contrast(table, "b", "a", spread)
    assert estimate is not None
    assert verdict(holm([estimate], 0.95)[0], MARGIN) == "same"


@pytest.mark.parametrize(
    ("low", "effect", "high", "says"),
    [
        (-0.019, 0.0, 0.019, "same"),
        (-0.021, 0.0, 0.019, "undecided"),
        (0.001, 0.03, 0.06, "better"),
        (-0.001, 0.03, 0.06, "undecided"),
        (0.001, 0.015, 0.03, "undecided"),
        (0.001, 0.01, 0.019, "same"),
        (-0.06, -0.03, -0.001, "worse"),
        (None, 0.5, None, "undecided"),
    ],
)
def test_the_four_verdicts(low, effect, high, says):
    judged = Judged(Estimate(effect, 3, 0.01, 6, 3, own_noise=False), 0.95, 0.01, low, high)
    assert verdict(judged, MARGIN) == says
    mirror = {"better": "worse", "worse": "better"}
    assert verdict(judged, MARGIN, higher_is_better=False) == mirror.get(says, says)


@given(
    st.lists(
        st.tuples(st.floats(-0.5, 0.5), st.floats(0.001, 0.1), st.integers(1, 12)),
        min_size=1,
        max_size=12,
    ),
    st.floats(0.8, 0.99),
)
def test_interval_and_holm_never_contradict_each_other(rows, confidence):
    estimates = [Estimate(e, 3, sd, df, 3, own_noise=False) for e, sd, df in rows]
    judged = holm(estimates, confidence)
    alpha = 1 - confidence
    ordered = sorted(j.p for j in judged if j.p is not None)
    rejected = 0
    while rejected < len(ordered) and ordered[rejected] <= alpha / (len(ordered) - rejected):
        rejected += 1
    excluded = [j for j in judged if j.low is not None and j.high and (j.low > 0 or j.high < 0)]
    stated = [j for j in judged if j.low is not None]
    assert len(excluded) <= rejected
    assert rejected - len(excluded) <= len(judged) - len(stated)


def test_more_comparisons_widen_the_intervals():
    one = Estimate(0.03, 3, 0.01, 6, 3, own_noise=False)
    alone = holm([one], 0.95)[0]
    among = holm([one] + [one._replace(effect=0.0)] * 9, 0.95)[0]
    assert alone.low is not None
    assert among.low is not None
    assert among.low < alone.low


def test_an_interval_that_says_nothing_is_not_stated():
    judged = judged_one(0.1, sd=0.5, blocks=2, df=1)
    assert judged.low is None
    assert verdict(judged, MARGIN) == "undecided"


def test_further_blocks_are_those_that_decide():
    undecided = judged_one(0.03, sd=0.02)
    more = further_blocks(undecided, MARGIN)
    assert more is not None
    assert more > 0
    later = judged_one(0.03, sd=0.02, blocks=3 + more, df=6 + 3 * more)
    assert verdict(later, MARGIN) == "better"
    sooner = judged_one(0.03, sd=0.02, blocks=2 + more, df=3 + 3 * more)
    assert verdict(sooner, MARGIN) == "undecided"
    assert further_blocks(judged_one(0.0195, sd=0.05), MARGIN) is None


def test_the_smallest_detectable_effect_is_found_four_times_in_five():
    size = detectable(judged_one(0.0, sd=0.02), MARGIN)
    assert size is not None
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(400):
        estimate = size + rng.normal() * 0.02 * math.sqrt(2 / 3)
        sd = 0.02 * math.sqrt(rng.chisquare(6) / 6)
        hits += verdict(judged_one(estimate, sd=sd), MARGIN) == "better"
    assert 0.72 <= hits / 400 <= 0.88
    assert detectable(judged_one(0.0, sd=0.001), MARGIN) == pytest.approx(math.log(1.02))


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0])
def test_confidence_must_be_a_share(confidence):
    with pytest.raises(ValueError, match="confidence"):
        holm([], confidence)
