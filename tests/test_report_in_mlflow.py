"""A report in MLflow: its ratios stand there under the names that were meant."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from infra.store import RunFolder, write_text
from infra.tracking import Tracker
from tasks.reporting import write_report
from tests.builders import speeds
from tests.scripted_mlflow import ScriptedMlflow
from tests.sweeps import sweep

if TYPE_CHECKING:
    from pathlib import Path


def test_ratios_of_a_sweep_with_factors_need_no_other_names(tmp_path: Path) -> None:
    ladder = {block: {1: 50.0 + block, 16: 40.0 + block} for block in range(1, 4)}
    records = [
        one
        for arm in ("base", "fast")
        for level in ("default", "ll")
        for one in speeds(arm, ladder, levels={"nccl": level})
    ]
    notes: list[str] = []
    client = ScriptedMlflow()
    folder = tmp_path / "runs" / "two" / "0001"
    write_text(folder / "run.json", json.dumps({"uid": "abc"}))
    tracker = Tracker("http://mlflow", note=notes.append, client=client)
    write_report(RunFolder(folder), sweep(), records, tracker, pytest.fail)
    assert notes == []
    for level in ("default", "ll"):
        points = client.points[f"load/fast_{level}/output_tok_s_ratio"]
        assert {point.step for point in points} == {1, 16}
