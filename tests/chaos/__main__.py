"""`make chaos`: every fault of the table, or faults drawn at random over whole sweeps.

python -m tests.chaos                      the table; writes docs/evidence/chaos.md
python -m tests.chaos --seed 7 --faults 50 random faults; prints the broken invariants
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.chaos.table import FAULTS

_EVIDENCE = Path(__file__).parents[2] / "docs" / "evidence" / "chaos.md"
_LAST = Path(__file__).parents[2] / "build" / "chaos.json"
_HEAD = """# Faults, and what held

`make chaos` on {machine}: real processes, real SSH, real signals against the rehearsal host. {summary} Seconds are those of the whole row: host, sweep, fault, and the proof of what must hold. What is printed under *what held* was measured in this run.

"""


class Line(NamedTuple):
    """One row of the printed table."""

    fault: str
    moment: str
    outcome: str
    held: str
    seconds: float
    run: str
    """When the run began that played it, UTC."""


class Table:
    """A pytest plugin that collects the rows as they end."""

    def __init__(self, known: dict[str, Line]) -> None:
        self.known = known
        self._began = datetime.now(UTC).isoformat(" ", "minutes").removesuffix("+00:00")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Takes one row; a skip comes as it is set up or called, a result as it is called."""
        fault, colon, moment = report.nodeid.partition("[")[2].removesuffix("]").partition(": ")
        if not colon or (report.when != "call" and not report.skipped and not report.failed):
            return
        held = dict(report.user_properties).get("held", "")
        if report.skipped:
            held = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else "skipped"
        elif report.failed:
            said = str(report.longreprtext).strip().splitlines()
            shown = (line[1:].strip() for line in said if line.startswith("E "))
            held = next(shown, said[-1])[:300]
        line = Line(fault, moment, report.outcome, str(held), report.duration, self._began)
        self.known[f"{fault}: {moment}"] = line
        _keep(self.known)  # after each row: a run that is cut off leaves what it saw
        print(f"\n{line.outcome:8} {line.seconds:6.1f} s  {fault}: {moment}: {held}", flush=True)


def table(words: list[str]) -> int:
    """Plays the table; the whole of it becomes the evidence."""
    # A part that is played again takes the place of its earlier rows.
    seen = Table(_recall() if words else {})
    where = str(Path(__file__).parent / "test_chaos.py")
    code = pytest.main(["-q", "-p", "no:xdist", "-m", "slow", where, *words], plugins=[seen])
    print(markdown(list(seen.known.values())))
    return int(code)


def _keep(known: dict[str, Line]) -> None:
    _LAST.parent.mkdir(exist_ok=True)
    _LAST.write_text(json.dumps(list(known.values())), encoding="utf-8")
    _EVIDENCE.write_text(markdown(list(known.values())), encoding="utf-8")


def _recall() -> dict[str, Line]:
    """The rows as they were played last on this machine."""
    if not _LAST.exists():
        return {}
    lines = [Line(*row) for row in json.loads(_LAST.read_text(encoding="utf-8"))]
    return {f"{one.fault}: {one.moment}": one for one in lines}


def markdown(lines: list[Line]) -> str:
    """The evidence as a page."""
    machine = (
        f"Linux {platform.release()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )
    out = [_HEAD.format(machine=machine, summary=_summary(lines))]
    for key, (fault, must) in FAULTS.items():
        rows = [one for one in lines if one.fault == key]
        if not rows:
            continue
        out.append(f"## {fault[0].upper()}{fault[1:]}\n\nMust hold: {must}.\n\n")
        out.append("| moment | | what held | s |\n|---|---|---|---|\n")
        for one in rows:
            mark = {"passed": "held", "failed": "**broken**"}.get(one.outcome, one.outcome)
            said = " ".join(one.held.split()).replace("|", "/")
            out.append(f"| {one.moment} | {mark} | {said} | {one.seconds:.1f} |\n")
        out.append("\n")
    return "".join(out).rstrip() + "\n"


def _summary(lines: list[Line]) -> str:
    """How many rows held, what was not played, and whether it was one run."""
    from tests.chaos.rows import ROWS  # earlier, pytest could not show what an assertion saw

    counts = Counter(one.outcome for one in lines)
    held = f"{counts['passed']} of {len(lines)} rows held"
    said = [f"{held}, {counts['failed']} did not." if counts["failed"] else f"{held}."]
    runs = Counter(one.run for one in lines)
    if len(runs) == 1:
        said.append(f"One run, begun {lines[0].run} UTC.")
    else:
        parts = ", ".join(f"{count} in that of {run} UTC" for run, count in sorted(runs.items()))
        said.append(f"Rows come from {len(runs)} runs: {parts}.")
    played = {f"{one.fault}: {one.moment}" for one in lines}
    missing = [one.id for one in ROWS if one.id not in played]
    if missing:
        said.append(f"**Not played: {'; '.join(missing)}.**")
    return " ".join(said)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--only", help="rows whose name holds this (pytest -k)")
    asked = parser.parse_args()
    if asked.seed is None:
        return table(["-k", asked.only] if asked.only else [])
    from tests.chaos.lottery import play

    with tempfile.TemporaryDirectory(prefix="eagle3-chaos-") as folder:
        return play(Path(folder), asked.seed, asked.faults)


if __name__ == "__main__":
    sys.exit(main())
