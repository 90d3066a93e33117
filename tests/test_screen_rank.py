"""The screen's ranking is held against the trials', and the report prints both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tasks.compare import compare
from tasks.reduce_path import ReducePath, Step
from tasks.report import render_report
from tasks.screen import LevelScreen, Screen, SizeTime
from tasks.screen_rank import agreements
from tasks.screen_sizes import Sizes
from tests.builders import measurement, record

if TYPE_CHECKING:
    from tasks.record import TrialRecord

STEPS = {"default": 0.020, "ll": 0.018, "ll128": 0.019, "simple": 0.024}


def records(
    steps: dict[str, float] = STEPS, arms: tuple[str, ...] = ("base", "b")
) -> list[TrialRecord]:
    return [
        record(
            arm,
            block,
            (measurement(step_s=step * (1 + 0.001 * block), user_tok_s=1 / step),),
            levels={"nccl": level},
        )
        for block in (1, 2)
        for arm in arms
        for level, step in steps.items()
    ]


def screen(times: dict[str, float], **more: Any) -> Screen:
    by_nccl = ReducePath(steps=(Step(kind="nccl", up_to_bytes=None, why="x"),), proven=True)
    own = ReducePath(steps=(Step(kind="custom", up_to_bytes=None, why="x"),), proven=True)
    values: dict[str, Any] = {
        "sweep": "s",
        "run": "s.screen-0001",
        "key": "k",
        "made_at": "2026-11-30T02:10:00+00:00",
        "host": "box",
        "host_class": "2x",
        "rehearsal": False,
        "factor": "nccl",
        "reference": "default",
        "keep": 3,
        "baseline": "base",
        "tp": 2,
        "versions": {},
        "sizes": Sizes(hidden=4096, dtype="bfloat16", rows=(1,)),
        "timed_by": "nccl",
        "timed_note": "torch.distributed over NCCL 2.28.9",
        "levels": tuple(
            LevelScreen(
                level=name,
                env={},
                times=(
                    SizeTime(
                        size_bytes=8192, rows=1, median_us=us, low_us=us, high_us=us, rounds=16
                    ),
                ),
            )
            for name, us in times.items()
        ),
        "paths": {"base": by_nccl, "b": own},
        "findings": (),
        "kept": tuple(times),
        "dropped": {"tree": "the engine does not start: no tree"},
        **more,
    }
    return Screen(**values)


GOOD = {"default": 12.0, "ll": 9.0, "ll128": 11.0, "simple": 20.0}


def test_the_same_order_agrees_wholly():
    first, second = agreements(screen(GOOD), compare(records()))
    assert (first.arm, first.by_nccl, second.by_nccl) == ("base", True, False)
    assert first.kendall == pytest.approx(1.0)
    assert first.spearman == pytest.approx(1.0)
    assert [name for name, _ in first.screen] == ["ll", "ll128", "default", "simple"]
    assert [name for name, _ in first.trials] == ["ll", "ll128", "default", "simple"]
    assert dict(first.trials)["ll"] == pytest.approx(0.9)


def test_the_opposite_order_disagrees_wholly():
    wrong = {"default": 12.0, "ll": 20.0, "ll128": 15.0, "simple": 9.0}
    found = agreements(screen(wrong), compare(records()))[0]
    assert found.kendall == pytest.approx(-1.0)


def test_levels_that_only_one_of_them_knows_are_left_out():
    few = {name: STEPS[name] for name in ("default", "ll")}
    found = agreements(screen(GOOD), compare(records(few)))[0]
    assert [name for name, _ in found.screen] == ["ll", "default"]
    assert found.kendall == pytest.approx(1.0)
    assert found.spearman is None


def test_without_two_levels_or_without_times_there_is_nothing_to_hold_against():
    lone = compare(records({"default": 0.02}))
    assert agreements(screen(GOOD), lone) == ()
    assert agreements(screen(GOOD, timed_by="nothing"), compare(records())) == ()
    assert agreements(screen(GOOD, timed_by="gloo"), compare(records())) == ()


def test_the_report_prints_what_was_left_out_and_both_rankings():
    found = records()
    text = render_report(compare(found), found, screen=screen(GOOD))
    assert "## Screen" in text
    assert "nccl=tree is left out: the engine does not start: no tree" in text
    assert (
        "- base: screen ll (0.750) < ll128 (0.917) < default (1.000) < simple (1.667); trials "
        "ll (0.900) < ll128 (0.950) < default (1.000) < simple (1.200); Kendall +1.00, Spearman "
        "+1.00 over 4 levels"
    ) in text
    assert "- b (its all-reduces do not go through NCCL):" in text
    assert "## Screen" not in render_report(compare(found), found)
