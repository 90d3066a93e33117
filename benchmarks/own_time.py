"""What a sweep takes beside engine starts and traffic: time, round trips, bytes, memory.

    make own-time            # about eight minutes on two quiet cores

On rehearsal hosts of its own, over SSH; writes docs/evidence/own-time.md. Every time is the median
of its runs; the smallest and largest stand beside it, and the machine's load average. `--only NAME`
measures one part again, in the place of what it said before.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks import own_scale, own_trials

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "own-time.md"
LAST = Path(__file__).parents[1] / "build" / "own-time.json"
RTT_MS = 30.0
SLOW_RTT_MS = 200.0
LEASE_S = 10.0
TEN_MINUTES_S = 600.0


class Line(NamedTuple):
    """One row of the page."""

    what: str
    seen: str
    goal: str
    met: bool | None
    """None: no goal was set."""


def spread(values: list[float]) -> str:
    """A median with its range."""
    middle = statistics.median(values)
    if len(values) == 1:
        return f"{middle:.2f} s (1 run)"
    return f"{middle:.2f} s ({min(values):.2f} to {max(values):.2f}, {len(values)} runs)"


def timed(what: str, values: list[float], goal_s: float) -> Line:
    return Line(what, spread(values), f"<= {goal_s:g} s", statistics.median(values) <= goal_s)


def trials(place: Path) -> list[Line]:
    """Whole trials with 30 ms round trips."""
    seen = own_trials.measure(place, RTT_MS / 2, runs=5)
    own = statistics.median(one.own_s for one in seen)
    calls = [one.calls for one in seen]
    middle = sorted(calls, key=lambda one: one.total)[len(calls) // 2]
    stages = {
        name: statistics.median(one.stages.get(name, 0.0) for one in seen)
        for name in seen[0].stages
    }
    parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in stages.items())
    return [
        timed("ready line to first warm-up request", [one.to_warm_up_s for one in seen], 0.5),
        timed("our own share of a trial", [one.own_s for one in seen], 3.0),
        Line(
            "the same as a share of a ten-minute trial (computed)",
            f"{own / TEN_MINUTES_S:.2%}",
            "<= 1 %",
            own / TEN_MINUTES_S <= 0.01,
        ),
        Line(
            "SSH round trips of a trial",
            f"{middle.total}: {middle.commands} commands, {middle.puts} files written, "
            f"{middle.gets} read; {middle.received / 1000:.0f} kB received",
            "",
            None,
        ),
        Line("of these trials, each stage (median, s)", parts, "", None),
    ]


def deaths(place: Path) -> list[Line]:
    """The engine is killed in the middle of a probe."""
    seen = own_trials.deaths(place, RTT_MS / 2, runs=5)
    return [
        timed("engine death to its class and first cause", [one.known_s for one in seen], 1.0),
        timed("engine death to record.json (GPUs freed before)", [o.record_s for o in seen], 1.0),
    ]


def lease(place: Path) -> list[Line]:
    """Renewal over a slow line."""
    seen = own_trials.leases(place, SLOW_RTT_MS / 2, LEASE_S, runs=2)
    margin = min(one.least_left_s for one in seen)
    return [
        Line(
            f"least time left of a lease of {LEASE_S:g} s, round trips of {SLOW_RTT_MS:g} ms",
            f"{margin:.1f} s ({min(one.renewals for one in seen)} renewals or more a trial, "
            f"{len(seen)} trials)",
            "> 0 s",
            margin > 0,
        )
    ]


def log(place: Path, megabytes: int) -> list[Line]:
    """A large start log, followed from its first byte."""
    seen = own_scale.follow_log(place, megabytes)
    return [
        Line(
            f"start log of {megabytes} MB",
            f"{seen.received / 1e6:.0f} MB received in {seen.polls} polls and {seen.seconds:.0f} s "
            f"({seen.received / seen.size:.2f} bytes a byte); ready line "
            f"{'found' if seen.ready else 'NOT found'}; memory grew by {seen.grew_mb:.0f} MB",
            "each byte once",
            seen.ready and seen.received < 1.5 * seen.size,
        )
    ]


def memory(place: Path) -> list[Line]:
    """What stays in the process from trial to trial."""
    real = own_scale.real_trials(place / "real", 24)
    kept = own_scale.published(place / "kept", 500)
    return [
        Line(
            "memory after real trials",
            f"{real.after_mb:.0f} MB after {real.trials} trials; {real.slope_kb:+.0f} kB a trial "
            f"over the last {real.counted}, so {real.slope_kb / 1000 * 500:+.0f} MB after 500 "
            "(extrapolated)",
            "flat (<= 50 MB)",
            real.slope_kb / 1000 * 500 <= 50,
        ),
        Line(
            "memory while 500 records are written, held and published to MLflow (SQLite)",
            f"{kept.slope_kb:+.0f} kB a record over the last {kept.counted}, "
            f"so {kept.slope_kb / 1000 * 500:+.0f} MB after 500",
            "flat (<= 50 MB)",
            kept.slope_kb / 1000 * 500 <= 50,
        ),
    ]


def many(place: Path) -> list[Line]:
    """Ten thousand recorded trials."""
    seen = own_scale.ten_thousand(place, runs=3)
    parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in seen.parts.items())
    return [
        timed(f"plan of {seen.trials} trials (the command, from start to end)", seen.plan_s, 2.0),
        timed(
            f"resume with {seen.trials - 1} recorded trials, until the next begins",
            seen.resume_s,
            2.0,
        ),
        Line("parts of that resume (s, one run)", parts, "", None),
        Line("size of a record", f"{seen.record_bytes / 1000:.1f} kB", "", None),
    ]


def load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


class Part(NamedTuple):
    """One part of the page, as it was measured last."""

    at: str
    """UTC."""
    load: str
    lines: list[Line]


def page(parts: dict[str, Part]) -> str:
    marks = {True: "yes", False: "**no**", None: ""}
    text = [
        "# Our own time",
        "",
        "    make own-time",
        "",
        f"{os.cpu_count()} cores. On the rehearsal host, round trips of {RTT_MS:g} ms put on all SSH",
        "traffic unless said otherwise; the pretend engine and its load client run on the same cores.",
        "Times are medians, the range beside them. The last two columns say when a part was measured",
        "(UTC) and the machine's load average then (1 minute): on two cores, times under a load of",
        "more than two are those of a machine that is busy with something else.",
        "",
        "| what | measured | goal | met | at | load |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for part in parts.values():
        text += [
            f"| {o.what} | {o.seen} | {o.goal} | {marks[o.met]} | {part.at} | {part.load} |"
            for o in part.lines
        ]
    return "\n".join([*text, ""])


def recall() -> dict[str, Part]:
    """The parts as they were measured last on this machine."""
    if not LAST.exists():
        return {}
    found = json.loads(LAST.read_text(encoding="utf-8"))
    return {
        name: Part(at, load, [Line(*line) for line in lines])
        for name, (at, load, lines) in found.items()
    }


def keep(parts: dict[str, Part]) -> None:
    LAST.parent.mkdir(exist_ok=True)
    LAST.write_text(json.dumps(parts), encoding="utf-8")
    PAGE.write_text(page(parts), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only")
    parser.add_argument("--log-mb", type=int, default=500)
    asked = parser.parse_args()
    ways: dict[str, Callable[[Path], list[Line]]] = {
        "memory": memory,  # first: what the others leave would hide it
        "trials": trials,
        "deaths": deaths,
        "lease": lease,
        "many": many,
        "log": lambda place: log(place, asked.log_mb),
    }
    known = recall() if asked.only else {}
    for name, way in ways.items():
        if asked.only in (None, name):
            with tempfile.TemporaryDirectory(prefix="own-time-") as folder:
                lines = way(Path(folder))
            known[name] = Part(f"{datetime.now(UTC):%Y-%m-%d %H:%M}", load(), lines)
            # After each part: a run that is cut off leaves what it measured.
            keep({one: known[one] for one in ways if one in known})
            for line in lines:
                print(f"{line.what}: {line.seen}  [{line.goal}]", flush=True)


if __name__ == "__main__":
    main()
