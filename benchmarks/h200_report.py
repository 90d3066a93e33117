"""Writes the report of the real run anew from its records, as the product is now.

.venv/bin/python -m benchmarks.h200_report
"""

from __future__ import annotations

from pathlib import Path

from configs.read import read_sweep
from tasks.decision import decision_of
from tasks.record import TrialRecord
from tasks.reporting import PAGE, write_files

ROOT = Path(__file__).parents[1]
EVIDENCE = ROOT / "docs" / "evidence" / "h200"


def main() -> None:
    """The last attempt of every trial, compared as its sweep asks."""
    sweep = read_sweep(str(ROOT / "tests/gpu/configs/sweeps/h200.yaml"))
    found = [
        TrialRecord.model_validate_json(path.read_bytes())
        for path in (EVIDENCE / "records").glob("*.json")
    ]
    last = {record.trial: record for record in sorted(found, key=lambda r: r.attempt)}
    records = sorted(last.values(), key=lambda record: record.order)
    comparisons, _ = write_files(EVIDENCE, sweep, records)
    (EVIDENCE / PAGE).unlink()  # the same text with the same figures, half a megabyte of it
    print(decision_of(comparisons))


if __name__ == "__main__":
    main()
