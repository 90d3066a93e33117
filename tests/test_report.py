"""The report: the decision on top, everything it rests on below, and nothing misread as Markdown."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tasks.compare import compare
from tasks.decision import interval, percent, users
from tasks.figures import draw_figures
from tasks.record import KindAcceptance, TrialRecord
from tasks.report import render_report
from tasks.report_tables import comparison_rows, figure, quantity, seconds, table
from tests.builders import failure, finding, measurement, patch_outcome, record

PNG = b"\x89PNG\r\n\x1a\n"
SPEEDS = {
    "base": {1: 50.0, 16: 40.0, 64: 20.0},
    "eagle-b": {1: 90.0, 16: 55.2, 64: 17.0},
}


def night(**fields) -> list[TrialRecord]:
    """Three blocks of two arms, with kinds of text and a rung where the drafter loses."""
    rng = np.random.default_rng(3)
    records = []
    for block in (1, 2, 3):
        for arm, ladder in SPEEDS.items():
            length = 1.0 if arm == "base" else 2.26
            kind = KindAcceptance(
                name="code", requests=8, verify_steps=100, accepted=126, accept_length=2.26
            )
            measured = tuple(
                measurement(
                    concurrency=c,
                    user_tok_s=speed * math.exp(rng.normal() * 0.003),
                    accept_length=length,
                    by_kind=() if arm == "base" else (kind,),
                    output_shas={"p1": "aa", "p2": arm},
                )
                for c, speed in ladder.items()
            )
            records.append(record(arm, block, measured, **fields))
    return records


def report(records: list[TrialRecord], **arguments) -> str:
    return render_report(compare(records), records, **arguments)


def test_the_decision_comes_first():
    text = report(night(), question="Does EAGLE-3 pay?")
    head = text.split("\n## ")[0]
    assert head.startswith("# kimi\n\nDoes EAGLE-3 pay?\n\n**Deploy eagle-b: +3")
    assert "at 16 users against base on the same host; break-even at 4" in head
    assert "6 trials on h1 (H200 x8): 6 ok." in head


def test_a_rehearsal_says_so_before_anything_else():
    text = report(night(rehearsal=True))
    assert text.startswith("> **REHEARSAL: no claim about any GPU.**")


def test_every_part_is_there():
    records = [
        *night(),
        record("eagle-c", 1, (), status="failed", failure=failure(), order=1),
        record("eagle-c", 2, (), status="failed", failure=failure(), order=2, attempt=2),
        record("eagle-w", 1, status="suspect", findings=(finding(),)),
        record("eagle-x", 1, (), status="skipped", notes=("host busy until morning",)),
        record("eagle-y", 1, must_match={"target": "k2", "engine": "sglang 0.5.9"}),
    ]
    text = report(records, figures=("speed-load.png", "acceptance-load.png", "steps-load.png"))
    sections = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert sections == [
        "Speed against concurrency",
        "Against base",
        "Where it breaks even",
        "Where the time goes",
        "Acceptance",
        "Absolute figures",
        "Traffic and answers",
        "Findings",
        "Failed trials",
        "Left out",
        "How to reproduce",
        "How the verdicts were reached",
    ]
    assert "with intervals and break-even: load](speed-load.png)\n" in text
    assert "| eagle-b | 16 | 88" in text
    assert "faster up to about 4" in text
    assert "x 2.26" in text
    assert "| code |" in text
    assert "eagle-b, load at 1 user: 3 of 6" in text
    assert "- b01-eagle-w, load c8: accept length 1.00" in text
    assert (
        "### target_lacks_eagle3_hook: b01-eagle-c and 1 more\n\n"
        "At wait_ready, engine at draft, first on TP0: b01-eagle-c, b02-eagle-c (attempt 2)" in text
    )
    assert "Traceback (most recent call last):" in text
    assert "b01-eagle-x, attempt 1 (skipped): host busy until morning" in text
    assert "| b01-eagle-y | b01-base | target | kimi-k2.5 | k2 |" in text


def test_each_setting_can_be_started_again_from_the_report():
    patched = night(patches=(patch_outcome(),))
    text = report(patched)
    assert "### base (baseline)" in text
    assert "NCCL_PROTO=LL \\\n  python3 -m sglang.launch_server \\\n" in text
    assert "  --model-path '/models/kimi k2.5'\n```" in text
    assert "Patch kimi-k25-eagle3 on `/opt/sglang/srt/models/kimi_k25.py`: insert" in text
    assert text.count("+    def set_eagle3_layers_to_capture(self):") == 1
    assert "Same diff as in b01-base." in text


def test_the_trial_that_was_ok_is_the_one_to_reproduce():
    records = [
        record("base", 1, status="failed", failure=failure(), command=("broken",)),
        record("base", 2),
        record("eagle-b", 2),
    ]
    text = report(records)
    assert "As in b02-base" in text
    assert "broken" not in text


def test_a_report_without_any_comparison_still_tells_what_happened():
    text = report([record("base", status="failed", failure=failure(first_lines=()))])
    assert "**No comparison: no trial of the baseline arm base is ok" in text
    assert "## Failed trials" in text
    assert "## Against" not in text
    assert render_report(compare([]), []).startswith("# Sweep\n\n**No comparison: there are no")


def test_long_evidence_is_cut_and_says_so():
    long = failure(first_lines=tuple(f"line {i}" for i in range(20)))
    text = report([record("base", status="failed", failure=long)])
    assert "line 11\n... 8 more lines in the record" in text


def test_factors_have_a_table_of_their_own():
    records = []
    for block in (1, 2):
        for arm in ("base", "b"):
            for level, gain in (("default", 1.0), ("ll", 1.1)):
                speed = 50.0 * gain * (1.2 if arm == "b" else 1.0) * (1 + 0.001 * block)
                records.append(
                    record(arm, block, (measurement(user_tok_s=speed),), levels={"nccl": level})
                )
    text = report(records)
    assert "Each against nccl=default within the same arm." in text
    assert "| b, nccl=ll |" in text


def test_rows_for_terminal_and_artifact():
    rows = comparison_rows(compare(night()))
    assert len(rows) == 6
    first = rows[0]
    assert list(first) == [
        "probe",
        "figure",
        "setting",
        "against",
        "users",
        "value",
        "reference",
        "change",
        "interval",
        "verdict",
    ]
    assert (first["setting"], first["users"], first["verdict"]) == ("eagle-b", "1", "better")
    assert all(isinstance(value, str) for row in rows for value in row.values())
    single = comparison_rows(compare(night()[:2]))
    assert single[0]["verdict"] == "undecided (one block)"
    assert single[0]["interval"] == "[no interval]"


def test_text_cannot_break_a_table():
    assert table(("a",), [("x|y\nz",)]).splitlines()[-1] == "| x\\|y z |"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.004, "0.00"), (9.876, "9.88"), (34.56, "34.6"), (12345.6, "12,346")],
)
def test_figures_have_about_three_places(value, text):
    assert figure(value) == text


def test_units_suit_the_size():
    assert seconds(0.0123) == "12.3 ms"
    assert seconds(2.5) == "2.50 s"
    assert seconds(None) == "-"
    assert quantity(0.5, "ttft_s") == "500 ms"
    assert quantity(0.5, "draft_accept_rate") == "0.50"
    assert quantity(1500.0, "output_tok_s") == "1,500 tokens/s"


def test_changes_and_intervals_in_words():
    assert (percent(1.384), percent(0.988), percent(2.0)) == ("+38 %", "-1.2 %", "+100 %")
    (cell, *_) = compare(night()).cells
    wide = cell.model_copy(update={"low": 1.34, "high": 1.42})
    narrow = cell.model_copy(update={"low": 0.995, "high": 1.021})
    assert (interval(wide), interval(narrow)) == ("[+34, +42]", "[-0.5, +2.1]")
    assert (users(1), users(41.4)) == ("1 user", "41 users")


def test_figures_are_png_and_the_same_each_time():
    comparison = compare(night())
    figures = draw_figures(comparison)
    assert sorted(figures) == ["acceptance-load.png", "speed-load.png", "steps-load.png"]
    assert all(data.startswith(PNG) for data in figures.values())
    assert draw_figures(comparison) == figures


def test_figures_with_levels_one_block_or_nothing():
    one_block = [
        record(arm, 1, (measurement(user_tok_s=s),), levels={"nccl": level})
        for arm, s in (("base", 50.0), ("b", 60.0))
        for level in ("default", "ll")
    ]
    assert sorted(draw_figures(compare(one_block))) == ["speed-load.png", "steps-load.png"]
    assert draw_figures(compare([])) == {}
    unknown = compare([record(measurements=(measurement(user_tok_s=None),))])
    assert draw_figures(unknown) == {}


def test_a_probes_name_becomes_a_file_name():
    odd = [record(measurements=(measurement(probe="long / chat"),))]
    assert sorted(draw_figures(compare(odd))) == ["speed-long-chat.png"]
