"""A sweep stops when enough is known or its hours are over, and says so; looking has its price."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from configs.problems import ConfigError
from configs.read import parse_sweep
from configs.sweep import Sweep
from tasks.compare import compare
from tasks.looks import confidence_of_look
from tasks.stopping import enough_known
from tests import sweeping
from tests.builders import speeds
from tests.sweeps import TEXT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sweeping import Ground


def until(text: str) -> Sweep:
    whole = "\n".join(line for line in TEXT.splitlines() if not line.startswith("blocks:"))
    return parse_sweep(f"{whole}\n{text}\n", "t.yaml")


def test_it_says_how_many_blocks_there_may_be_and_survives_json():
    sweep = until("until: {half_width: 0.03, max_blocks: 6, hours: 9}")
    assert sweep.until is not None
    assert (sweep.blocks, sweep.until.looks) == (6, 4)
    assert Sweep.model_validate_json(sweep.model_dump_json()) == sweep


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("until: {max_blocks: 6}\nblocks: 4", "blocks: until.max_blocks says 6"),
        ("until: {max_blocks: 2}", "until.max_blocks: is below min_blocks (3)"),
        ("until: {min_blocks: 1}", "until.min_blocks: "),
        ("until: {half_width: 0}", "until.half_width: "),
    ],
)
def test_what_makes_no_sense_is_told(text, says):
    with pytest.raises(ConfigError) as caught:
        until(text)
    assert says in str(caught.value)


def steady(wobble: float):
    ladder = {b: {1: 50.0 + b, 8: 30.0 + b} for b in range(1, 5)}
    fast = {
        b: {c: 1.3 * v * (1 + wobble * (-1) ** b) for c, v in rung.items()}
        for b, rung in ladder.items()
    }
    return speeds("base", ladder) + speeds("fast", fast, accept_length=2.0)


def test_enough_is_known_when_every_interval_is_narrow():
    found = compare(steady(0.003))
    widest = max((c.high or 9) / (c.low or 1) for c in found.cells)
    assert 1.005 < widest < 1.05
    assert enough_known(found, 0.03) == "every interval of output_tok_s is within 3.0% either way"
    assert enough_known(found, 0.002) is None
    assert enough_known(compare(steady(0.1)), 0.03) is None


def test_one_block_or_no_arm_at_all_is_never_enough():
    assert enough_known(compare([r for r in steady(0.0) if r.block == 1]), 0.4) is None
    assert enough_known(compare([r for r in steady(0.0) if r.arm == "base"]), 0.4) is None


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    with sweeping.ground(tmp_path_factory.mktemp("until")) as ground:
        yield ground


def asked(name: str, **changed: object) -> Sweep:
    sweep = sweeping.sweep(name, arms="base+tuned+custom", blocks=4)
    words = sweep.model_dump() | {
        "until": {"half_width": 0.45, "min_blocks": 2, "max_blocks": 4, **changed},
        "tolerate": {"client_was_the_bottleneck": "this is not about speed"},
    }
    return Sweep.model_validate(words)


def folders(path: Path) -> list[str]:
    return sorted(each.name for each in (path / "trials").iterdir())


@pytest.mark.long
def test_a_sweep_ends_when_it_knows_enough(ground: Ground) -> None:
    outcome = ground.run(asked("enough"))
    ended = [record for record in outcome.records if record.status in sweeping.MEASURED]
    left = [record for record in outcome.records if record.status == "skipped"]
    last = max(record.block for record in ended)
    assert last in {2, 3}, "a noisy machine takes one more"
    assert {record.block for record in left} == set(range(last + 1, 5))
    (reason,) = {note for record in left for note in record.notes}
    assert reason.startswith(f"enough is known after {last} blocks: every interval")
    compared = outcome.report.comparison
    assert (compared.looks, compared.confidence) == (3, confidence_of_look(3))
    assert "over the 3 looks" in outcome.report.markdown
    before = folders(outcome.run.path)
    again = ground.run(asked("enough"))
    assert folders(again.run.path) == before


def test_after_its_hours_nothing_is_started(ground: Ground) -> None:
    outcome = ground.run(asked("late", hours=1e-9))
    assert {record.status for record in outcome.records} == {"skipped"}
    assert {record.notes for record in outcome.records} == {("the 1e-09 hours are over",)}
    assert not ground.engines()
