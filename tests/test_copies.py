"""Copies of an arm: what differs between them is noise, and the product says so."""

from __future__ import annotations

import pytest

from configs.copies import calibration_of
from configs.problems import ConfigError
from configs.read import parse_sweep, read_sweep
from flows.question import pose
from tasks.compare import compare
from tasks.decision import decision_sentence
from tasks.noise_floor import BLOCKS, noise_floor
from tasks.report import render_report
from tests.builders import speeds
from tests.sweeps import TEXT


def with_arm(lines: str) -> str:
    return TEXT.replace("arms:\n", f"arms:\n{lines}\n", 1)


def test_a_copy_has_the_settings_of_its_original_and_one_intent():
    sweep = parse_sweep(with_arm("  again: {replicate_of: base}"), "t.yaml")
    assert sweep.arms["again"].speculation == sweep.arms["base"].speculation
    assert sweep.arms["again"].flags == sweep.arms["base"].flags


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("  again: {replicate_of: nobody}", "arms.again.replicate_of: no other arm is called"),
        ("  again: {replicate_of: again}", "arms.again.replicate_of: no other arm is called"),
        ("  again: {replicate_of: base, flags: {tp-size: 2}}", "arms.again.flags: a copy of base"),
        (
            "  more: {replicate_of: again}\n  again: {replicate_of: base}",
            "arms.more.replicate_of: again is a copy itself: name base",
        ),
    ],
)
def test_a_wrong_copy_is_told(line, says):
    with pytest.raises(ConfigError) as caught:
        parse_sweep(with_arm(line), "t.yaml")
    assert says in str(caught.value)


def test_declared_copies_are_no_mistake_and_calibrate_asks_for_two_of_the_baseline():
    question = pose(calibration_of(read_sweep("rehearsal"), 3))
    assert list(question.sweep.arms) == ["base", "base-copy"]
    assert [len(levels) for levels in question.sweep.factors.values()] == [1]
    assert len(question.plan.trials) == 6
    assert not any("exactly the same" in warning for warning in question.warnings)


def a_and_a(shift: float = 1.0):
    ladder = {b: {1: 50.0 + b, 8: 30.0 + b / 2} for b in range(1, 6)}
    wobble = {
        b: {c: v * shift * (1 + 0.004 * (-1) ** (b + c)) for c, v in rung.items()}
        for b, rung in ladder.items()
    }
    return speeds("base", ladder) + speeds("again", wobble)


def test_copies_alone_are_called_noise_and_never_deployed():
    found = compare(a_and_a(), copies={"again": "base"})
    assert {cell.contrast for cell in found.cells} == {"copy"}
    assert decision_sentence(found).startswith("A copy of base is at ")
    assert decision_sentence(found).endswith("noise")
    assert "## Copies" in render_report(found, a_and_a())


def test_a_copy_that_differs_is_an_alarm():
    records = a_and_a(1.2)
    found = compare(records, copies={"again": "base"})
    assert decision_sentence(found).endswith("more than the noise should do")
    assert "Trust no verdict of this size here" in render_report(found, records)


def test_a_copy_is_compared_with_its_original_alone():
    records = a_and_a() + speeds(
        "fast", {b: {1: 80.0 + b, 8: 50.0 + b / 2} for b in range(1, 6)}, accept_length=2.0
    )
    fast_again = [r.model_copy(update={"arm": "fast-again"}) for r in records if r.arm == "fast"]
    found = compare([*records, *fast_again], copies={"again": "base", "fast-again": "fast"})
    of = {(c.arm, c.reference_arm) for c in found.cells}
    assert of == {("again", "base"), ("fast", "base"), ("fast-again", "fast")}
    assert decision_sentence(found).startswith("Deploy fast: ")


def test_the_noise_floor_is_the_boots_spread_and_more_blocks_find_less():
    floors = noise_floor(a_and_a(), ("output_tok_s",))
    assert [(f.probe, f.concurrency, f.boots) for f in floors] == [("load", 1, 10), ("load", 8, 10)]
    for floor in floors:
        assert 0.001 < floor.varies < 0.01
        assert len(floor.finds) == len(BLOCKS)
        found = [size or 9.0 for size in floor.finds]
        assert found == sorted(found, reverse=True)
    assert noise_floor([r for r in a_and_a() if r.block == 1], ("output_tok_s",)) == ()
