"""Evidence of a sweep on several GPUs, from the run folders that tests/gpu/run.sh brings back.

.venv/bin/python -m benchmarks.many_gpus runs.tgz docs/evidence/h200-x8

Writes README.md (shares of all-reduce, the screen's ranking against the trials', our own share of
the time) and, as the product is now, the report with its figures; takes the screen's page and the
records along. Comments on what was seen are for a person to add below the tables.
"""

from __future__ import annotations

import argparse
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.own_share import share_table, shares
from flows.runs import read_records, read_run_sweep
from flows.screen_key import screen_name
from infra.store import RunFolder, Store, write_bytes, write_text
from tasks.comparison import setting_label
from tasks.decision import decision_sentence
from tasks.inside import side_by_side
from tasks.report_tables import UNKNOWN, seconds, table
from tasks.reporting import PAGE, write_files
from tasks.screen_kept import read_screen
from tasks.screen_rank import agreements
from tasks.screen_report import agreement_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from configs.sweep import Sweep
    from tasks.comparison import Comparison
    from tasks.inside import Inside
    from tasks.record import TrialRecord
    from tasks.screen import Screen

EVIDENCE = Path(__file__).parents[1] / "docs" / "evidence"
_MEASURED = ("ok", "suspect")


class Found(NamedTuple):
    """A run, read."""

    run: RunFolder
    sweep: Sweep
    records: list[TrialRecord]
    screen: Screen | None


def read(runs: Path, sweep: str) -> Found:
    """The latest run of a sweep.

    Args:
        runs: A folder of run folders.
        sweep: Its name.
    """
    run = Store(runs).latest(sweep)
    if run is None:
        there = ", ".join(sorted(path.name for path in runs.iterdir())) or "nothing"
        raise SystemExit(f"{runs}: no run of {sweep}; there is {there}")
    return Found(run, read_run_sweep(run), read_records(run), read_screen(run.path))


def write(found: Found, runs: Path, out: Path) -> None:
    """Everything that belongs into the evidence of this run."""
    out.mkdir(parents=True, exist_ok=True)
    (comparison, *_), _ = write_files(out, found.sweep, found.records, found.screen)
    (out / PAGE).unlink()  # the same text with the same figures, half a megabyte of it
    screened = Store(runs).latest(screen_name(found.sweep.name))
    names = ("screen.md", "screen.json", "screen.png")
    pages = [screened.path / name for name in names] if screened else []
    kept = [page for page in pages if page.is_file()]
    for path in kept:
        write_bytes(out / path.name, path.read_bytes())
    for record in found.records:
        name = f"{record.trial}.a{record.attempt}.json"
        write_text(out / "records" / name, record.model_dump_json() + "\n")
    write_text(out / "README.md", page(found, comparison, [path.name for path in kept]))


def page(found: Found, comparison: Comparison, screened: Sequence[str]) -> str:
    """The overview, with links to what lies beside it."""
    records = [r for r in found.records if r.status in _MEASURED]
    parallel = found.sweep.engine.flags.get("tp-size", 1)
    links = ["[report](report.md)"]
    links += ["[screen](screen.md)"] if "screen.md" in screened else []
    parts = [
        f"# {found.sweep.name}: tensor parallelism {parallel}",
        f"**{decision_sentence(comparison)}**",
        f"{found.sweep.question} {_made(records)} {_counted(found)} {', '.join(links)}.",
        "## All-reduce in a step",
        inside_text(side_by_side(found.records)),
        "## The screen's ranking against the trials'",
        _ranking(found.screen, comparison),
        "## Our own share of the time",
        _own(found),
    ]
    return "\n\n".join(parts) + "\n"


def inside_text(lines: Sequence[Inside]) -> str:
    """What all-reduce takes of a step, by setting; of the drafter's part as far as it is known."""
    if not lines:
        return "No trial brought a profile."
    rows = [
        (
            setting_label(line.arm, line.levels),
            str(line.concurrency),
            f"{line.shares.all_reduce:.1%}",
            UNKNOWN if line.drafter is None else f"{line.drafter.all_reduce:.1%}",
            seconds(line.shares.all_reduce * line.step_us / 1e6),
            f"{line.shares.gemm:.1%}",
            f"{line.shares.attention:.1%}",
            f"{line.idle:.1%}",
            seconds(line.step_us / 1e6),
            str(line.trials),
            str(line.steps),
        )
        for line in lines
    ]
    head = (
        *("setting", "users", "all-reduce", "of it drafter", "all-reduce of a step", "GEMM"),
        *("attention", "idle", "step while recorded", "trials", "steps"),
    )
    return (
        f"{table(head, rows)}\n\nMeans over trials, first rank; an all-reduce also waits for the "
        "slowest rank. Recording slows a server down, so a step here is no figure of speed; a dash "
        "stands where there is no drafter, or none that could be told apart."
    )


def _ranking(screen: Screen | None, comparison: Comparison) -> str:
    if screen is None:
        return "No screen fits this run."
    text = agreement_text(agreements(screen, comparison), screen)
    return text or f"No arm has two levels in both. Timed: {screen.timed_note}."


def _own(found: Found) -> str:
    known = shares(found.records, found.run.path)
    if not known:
        return "No samples were kept."
    return (
        f"{share_table(known)}\n\nMeans over the measured trials of a setting. *Traffic* goes from "
        "the first request sent to the last one done; *ours* is what is left of a trial, with "
        "the way between stages (known to a second). Our reading of the log during the start is "
        "in *engine's start*: it goes on while the engine loads, and "
        "[own-time.md](../own-time.md) says how soon its last line is noticed."
    )


def _made(records: Sequence[TrialRecord]) -> str:
    if not records:
        return ""
    one = records[0]
    about = [
        f"{name} {one.versions[name]}"
        for name in ("sglang", "torch", "driver")
        if name in one.versions
    ]
    begin, end = min(r.started_at for r in records), max(r.ended_at for r in records)
    words = f"{one.must_match.get('gpus', 'GPUs unknown')}, {', '.join(about)}; {begin} to {end}."
    return f"REHEARSAL, no claim about any GPU: {words}" if one.rehearsal else words


def _counted(found: Found) -> str:
    states: dict[str, int] = {}
    for record in found.records:
        states[record.status] = states.get(record.status, 0) + 1
    blocks = {record.block for record in found.records if record.status in _MEASURED}
    told = ", ".join(f"{count} {status}" for status, count in sorted(states.items()))
    alone = "" if len(blocks) > 1 else " One block alone gives no intervals, hence no verdict."
    return f"{len(found.records)} trials: {told}.{alone}"


def main() -> None:
    """Reads an archive or a folder of run folders."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("runs", type=Path, help="runs.tgz, or the folder that it holds")
    ask.add_argument("out", type=Path)
    ask.add_argument("--sweep", help="its name; that of the folder OUT unless said")
    given = ask.parse_args()
    with tempfile.TemporaryDirectory() as place:
        runs = given.runs
        if runs.is_file():
            with tarfile.open(runs) as archive:
                archive.extractall(place, filter="data")
            runs = Path(place) / "runs"
        found = read(runs, given.sweep or given.out.name)
        if given.out.resolve().is_relative_to(EVIDENCE) and any(r.rehearsal for r in found.records):
            sys.exit(f"{given.out}: a rehearsal is no evidence of a GPU: name a folder elsewhere")
        write(found, runs, given.out)
    print(given.out / "README.md")


if __name__ == "__main__":
    main()
