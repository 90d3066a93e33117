"""A block that is not whole: the report says what is missing, and what the rest still counts for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tasks.blocks import blocks_section
from tasks.compare import compare
from tasks.report import render_report
from tests.builders import failure, record

if TYPE_CHECKING:
    from tasks.record import TrialRecord


def section(records: list[TrialRecord]) -> str:
    return blocks_section(compare(records), records)


def whole(*arms: str, blocks: int = 2, **fields: Any) -> list[TrialRecord]:
    return [record(arm, block, **fields) for block in range(1, blocks + 1) for arm in arms]


def lost(arm: str, block: int, name: str = "cancelled") -> TrialRecord:
    known = failure(stage="probe", failure_class=name)
    return record(arm, block, (), status="failed", failure=known)


def test_whole_blocks_need_no_word():
    assert section(whole("base", "tuned")) == ""
    assert "## Blocks that are not whole" not in render_report(
        compare(whole("base", "tuned")), whole("base", "tuned")
    )


def test_a_block_without_its_baseline_gives_no_ratio_to_it():
    records = [*whole("base", "tuned"), lost("base", 3), record("tuned", 3)]
    text = section(records)
    assert (
        "- Block 3 on h1 lacks base (probe: cancelled): tuned has no baseline there "
        "and no ratio to it." in text
    )
    (cell,) = (c for c in compare(records).cells if c.metric == "user_tok_s")
    assert cell.blocks == 2
    assert "## Blocks that are not whole" in render_report(compare(records), records)


def test_a_block_without_an_arm_counts_for_the_others():
    records = [*whole("base", "tuned", "custom"), *whole("base", "tuned", blocks=3)[4:]]
    assert "- Block 3 on h1 lacks custom (not run yet): the others are paired as usual." in section(
        records
    )


def test_only_the_levels_without_their_baseline_lose_their_partner():
    ways: list[dict[str, str]] = [{"nccl": "ll"}, {"nccl": "simple"}]
    records = [r for way in ways for r in whole("base", "tuned", levels=way)]
    records = [r for r in records if r.trial != "b02-base-ll"]
    text = section(records)
    assert "Block 2 on h1 lacks base, nccl=ll (not run yet): tuned, nccl=ll has no baseline" in text
    assert text.endswith("and no ratio to it, the others are paired as usual.")


def test_an_arm_that_never_ran_well_is_no_gap_of_every_block():
    records = [*whole("base", "tuned"), lost("custom", 1, "hang"), lost("custom", 2, "hang")]
    assert section(records) == ""


def test_refused_trials_are_gaps_too():
    other = {"target": "kimi-k2.5", "engine": "sglang 0.5.9", "driver": "590.01"}
    records = [*whole("base", "tuned", blocks=3), record("base", 4, must_match=other)]
    text = section([*records, record("tuned", 4, must_match=other)])
    assert (
        "- Block 4 on h1 lacks base (refused: other facts), tuned (refused: other facts): "
        "nothing of it counts." in text
    )


def at(begin: str, end: str) -> dict[str, Any]:
    return {
        "started_at": f"2026-03-0{begin}:00+00:00",
        "ended_at": f"2026-03-0{end}:00+00:00",
    }


def test_a_block_that_was_completed_later_says_so():
    records = whole("base", "tuned", blocks=1)
    late = record("tuned", 2, attempt=2, **at("2T07:00", "2T07:20"))
    text = section([*records, record("base", 2, **at("1T22:00", "1T22:20")), late])
    assert (
        "- b02-tuned is attempt 2, begun 2026-03-02T07:00:00+00:00; the rest of its block ended "
        "2026-03-01T22:20:00+00:00" in text
    )


@pytest.mark.parametrize(
    ("base", "tuned"),
    [
        (("1T22:00", "1T22:20"), ("1T22:42", "1T23:02")),  # the second, tried again at once
        (("1T22:42", "1T23:02"), ("1T22:20", "1T22:40")),  # the first of its block
    ],
)
def test_what_was_tried_again_at_once_needs_no_word(base, tuned):
    again = record("tuned", 1, attempt=2, **at(*tuned))
    assert section([record("base", 1, **at(*base)), again]) == ""
