"""The report of the real run that lies in docs/evidence is the one that its records give today."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import h200_report
from tests.test_report_page import h200

if TYPE_CHECKING:
    from pathlib import Path


def test_the_evidence_is_what_the_product_says(tmp_path: Path) -> None:
    from configs.read import read_sweep
    from tasks.reporting import write_files

    sweep = read_sweep(str(h200_report.ROOT / "tests/gpu/configs/sweeps/h200.yaml"))
    write_files(tmp_path, sweep, h200())
    for name in ("report.md", "comparison.json"):
        kept = (h200_report.EVIDENCE / name).read_text()
        assert (tmp_path / name).read_text() == kept, f"run benchmarks/h200_report.py: {name}"
