"""Levels of known effect: main effects, interactions and the finding on acceptance find the truth."""

from __future__ import annotations

import io
import itertools
import math
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from configs.communication import communication_factors
from flows.show import verdicts_text
from tasks.compare import compare, log_series
from tasks.factor_effects import level_effects
from tasks.judge import Terms
from tasks.report import render_report
from tests.builders import measurement, record
from tests.sweeps import sweep

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tasks.comparison import Comparison
    from tasks.level_values import Interaction, LevelEffect
    from tasks.record import TrialRecord

LEVELS = {"nccl": ("default", "ll"), "attention": ("triton", "fa3")}


def night(
    effects: dict[tuple[str, str], float],
    *,
    accepts: dict[tuple[str, str], float] | None = None,
    blocks: int = 4,
    noise: float = 0.0,
    seed: int = 0,
    without: frozenset[tuple[int, str, str, str]] = frozenset(),
    factors: Mapping[str, tuple[str, ...]] = LEVELS,
) -> list[TrialRecord]:
    """Records of two crossed factors: speed of a user = arm x levels' effects x block x noise.

    Args:
        effects: (arm, level) -> what the level does to the speed of that arm; else 1.
        accepts: (arm, level) -> what it does to the accept length of that arm; else 1.
        without: (block, arm, level, level) that were not run.
    """
    draw = random.Random(seed)
    records = []
    for block in range(1, blocks + 1):
        drift = math.exp(draw.gauss(0, 0.1))
        for arm, *levels in itertools.product(("base", "tuned"), *factors.values()):
            jitter = math.exp(draw.gauss(0, noise)) if noise else 1.0
            if (block, arm, *levels) in without:
                continue
            speed = 100.0 * (1.6 if arm == "tuned" else 1.0) * drift * jitter
            length = 2.5 if arm == "tuned" else 1.0
            for level in levels:
                speed *= effects.get((arm, level), 1.0)
                length *= (accepts or {}).get((arm, level), 1.0)
            length *= math.exp(draw.gauss(0, noise / 10)) if arm == "tuned" else 1.0
            probed = measurement(user_tok_s=speed, accept_length=length)
            named = dict(zip(factors, levels, strict=True))
            records.append(record(arm, block, (probed,), levels=named))
    return records


def judged(records: list[TrialRecord], **more: Any) -> Comparison:
    return compare(records, factors={f: list(ls) for f, ls in LEVELS.items()}, **more)


def effect(comparison: Comparison, arm: str, level: str, metric: str = "user_tok_s") -> LevelEffect:
    (found,) = [e for e in comparison.effects if (e.arm, e.level, e.metric) == (arm, level, metric)]
    return found


def interaction(comparison: Comparison, level: str, metric: str = "user_tok_s") -> Interaction:
    (found,) = [i for i in comparison.interactions if (i.level, i.metric) == (level, metric)]
    return found


ratios = st.floats(0.5, 2.0)


@settings(max_examples=30)
@given(ratios, ratios, ratios, ratios, st.randoms(use_true_random=False))
def test_without_noise_the_truth_comes_out_whatever_the_blocks_and_the_other_factor_do(
    base_ll, tuned_ll, base_fa3, tuned_fa3, order
):
    truth = {
        ("base", "ll"): base_ll, ("tuned", "ll"): tuned_ll,
        ("base", "fa3"): base_fa3, ("tuned", "fa3"): tuned_fa3,
    }  # fmt: skip
    records = night(truth)
    order.shuffle(records)
    found = judged(records)
    for (arm, level), ratio in truth.items():
        main = effect(found, arm, level)
        assert main.ratio == pytest.approx(ratio, rel=1e-9)
        assert (main.blocks, main.over) == (4, 2)
        assert effect(found, arm, level, "step_s").ratio == pytest.approx(1 / ratio, rel=1e-9)
    for level, ratio in (("ll", tuned_ll / base_ll), ("fa3", tuned_fa3 / base_fa3)):
        assert interaction(found, level).ratio == pytest.approx(ratio, rel=1e-9)
    assert found.findings == ()


@settings(max_examples=40)
@given(
    st.sets(
        st.tuples(
            st.integers(1, 4),
            st.sampled_from(["base", "tuned"]),
            st.sampled_from(LEVELS["nccl"]),
            st.sampled_from(LEVELS["attention"]),
        ),
        max_size=8,
    )
)
def test_trials_that_are_missing_bend_nothing(without):
    found = judged(night({("tuned", "ll"): 1.2}, without=frozenset(without)))
    for main in found.effects:
        truth = 1.2 if (main.arm, main.level) == ("tuned", "ll") else 1.0
        truth = (
            1 / truth
            if main.metric == "step_s"
            else 1.0
            if main.metric == "accept_length"
            else truth
        )
        assert main.ratio == pytest.approx(truth, rel=1e-9)
    for one in found.interactions:
        truth = 1.2 if one.level == "ll" else 1.0
        assert one.ratio == pytest.approx(1 / truth if one.metric == "step_s" else truth, rel=1e-9)


def _holds(one: LevelEffect | Interaction, truth: float) -> bool:
    assert one.low is not None
    assert one.high is not None
    return one.low < truth < one.high


def test_intervals_hold_the_truth_as_often_as_they_say():
    """Of 300 nights with noise; the bounds are those of 300 draws at 95 %, four deviations wide."""
    held = {"main": 0, "apart": 0}
    nights = 300
    for seed in range(nights):
        records = night({("tuned", "ll"): 1.07}, noise=0.02, seed=seed)
        series = {
            ("user_tok_s", *at): table for at, table in log_series(records, "user_tok_s").items()
        }
        effects, interactions = level_effects(series, "base", Terms(0.02, 0.95, LEVELS, {}))
        (main,) = [e for e in effects if (e.arm, e.level) == ("tuned", "ll")]
        (apart,) = [i for i in interactions if i.level == "ll"]
        held["main"] += _holds(main, 1.07)
        held["apart"] += _holds(apart, 1.07)
    for count in held.values():
        assert 0.90 <= count / nights <= 0.995


def test_a_single_factor_has_the_effect_of_its_level_and_one_block_no_interval():
    one = {"nccl": ("default", "ll")}
    found = compare(
        night({("tuned", "ll"): 1.1}, factors=one, blocks=1), factors={"nccl": ["default", "ll"]}
    )
    main = effect(found, "tuned", "ll")
    assert (main.over, main.blocks, main.low, main.high) == (1, 1, None, None)
    assert main.ratio == pytest.approx(1.1)


def test_the_baseline_has_no_accept_length_to_judge_and_copies_no_interaction():
    records = night({}, noise=0.01)
    records += [
        r.model_copy(update={"arm": "again", "baseline": False}) for r in records if r.baseline
    ]
    found = judged(records, copies={"again": "base"})
    assert {e.arm for e in found.effects if e.metric == "accept_length"} == {"tuned"}
    assert {i.arm for i in found.interactions} == {"tuned"}
    assert all(i.metric != "accept_length" for i in found.interactions)


def test_an_accept_length_that_moves_with_a_communication_level_is_a_finding():
    records = night({}, accepts={("tuned", "ll"): 0.95}, noise=0.01)
    (found,) = judged(records).findings
    assert found.name == "accept_length_moved_with_level"
    assert found.where == "tuned, nccl=ll, load c8"
    assert found.evidence.startswith("accept length x 0.95")
    assert found.evidence.endswith("of that at nccl=default, over 4 blocks")
    assert judged(records, communication={"attention"}).findings == ()
    assert judged(records, communication={"nccl"}).findings == (found,)


@pytest.mark.parametrize("moves", [1.0, 1.008, 1 / 1.008])
def test_less_than_one_percent_is_no_finding_in_any_of_fifty_nights(moves):
    for seed in range(50):
        records = night({}, accepts={("tuned", "ll"): moves}, noise=0.02, seed=seed)
        assert judged(records).findings == ()


def test_one_block_or_a_wide_interval_is_no_finding():
    moved = {("tuned", "ll"): 0.9}
    assert judged(night({}, accepts=moved, blocks=1)).findings == ()
    assert judged(night({}, accepts=moved, noise=1.0, blocks=2)).findings == ()


def test_which_factors_are_communication_is_known_from_their_levels():
    asked = sweep(
        (
            "    ll: {env: {NCCL_PROTO: LL}}",
            (
                "    ll: {NCCL_PROTO: LL, disable-custom-all-reduce: true}\n"
                "  attention:\n    triton: {attention-backend: triton}\n    fa3: {attention-backend: fa3}\n"
                "  mixed:\n    off: {}\n    both: {NCCL_MIN_CTAS: '8', page-size: 64}"
            ),
        )
    )
    assert communication_factors(asked) == {"nccl"}


def test_the_report_shows_the_levels_and_leads_with_the_finding():
    records = night({("tuned", "ll"): 1.1}, accepts={("tuned", "ll"): 0.95}, noise=0.004)
    text = render_report(judged(records), records)
    section = text.split("## What the levels do\n")[1].split("\n## ")[0]
    assert section.strip().startswith(
        "- **accept_length_moved_with_level** (tuned, nccl=ll, load c8)"
    )
    assert "averaged over the levels of the other factors" in section
    assert "Probe load: nccl against default." in section
    row = next(line for line in section.splitlines() if line.startswith("| tuned | ll | 8 |"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[3].startswith("x 1.10 [1.0")
    assert cells[5].startswith("x 0.86 [")
    assert cells[6].startswith("x 0.95")
    assert "divided by what it does for base" in section
    head = next(line for line in section.splitlines() if line.startswith("| arm |"))
    assert head == (
        "| arm | level | users | tokens/s | tokens/s per user | step time | accept length | blocks |"
    )


def test_the_terminal_says_the_finding_before_the_decision():
    records = night({}, accepts={("tuned", "ll"): 0.95}, noise=0.01)
    out = io.StringIO()
    Console(file=out, width=100).print(verdicts_text([judged(records)], "Deploy it"))
    lines = out.getvalue().splitlines()
    at = next(
        n for n, line in enumerate(lines) if line.startswith("accept_length_moved_with_level")
    )
    assert "tuned, nccl=ll, load c8" in lines[at]
    assert lines.index("Deploy it") > at


def test_without_factors_there_is_no_such_section():
    records = [record(arm, block) for arm in ("base", "a") for block in (1, 2)]
    assert "What the levels do" not in render_report(compare(records), records)
