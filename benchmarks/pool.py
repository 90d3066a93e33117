"""One sweep on one rehearsal host and on four at once, through Prefect: the time of each.

    python -m benchmarks.pool            # writes docs/evidence/pool.md

Starts are slow here and the pretend engines do little, so that what is measured is how the work is
shared, and not how many pretend engines two cores can carry.
"""

from __future__ import annotations

import argparse
import os
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from flows.runs import read_records
from tests import pooling, sweeping
from tests.deployed import deployed

if TYPE_CHECKING:
    from tests.deployed import Server
    from tests.pooling import Several

_START_S: Final = 20.0
_BLOCKS: Final = 8
_LONGEST_S: Final = 1800.0
_PAGE: Final = Path(__file__).parents[1] / "docs" / "evidence" / "pool.md"


class Seen(NamedTuple):
    """One sweep."""

    hosts: int
    seconds: float
    """Of the sweep's flow run, from its start to its end."""
    trials: int
    ok: int
    median_s: float
    """Of a trial."""
    shares: dict[str, int]
    """Host -> blocks that it took."""
    busy: float
    """Share of the hosts' time in which they measured."""


def measured(server: Server, several: Several, hosts: list[str]) -> Seen:
    """Runs the sweep on some of the hosts."""
    name = f"pool-{len(hosts)}"
    asked = sweeping.sweep(name, arms="base+tuned", blocks=_BLOCKS)
    files = dict(zip(several.grounds, several.host_files().split(","), strict=True))
    run = server.start(
        sweep=str(several.sweep_file(asked)), host=",".join(files[host] for host in hosts)
    )
    ended = server.ended(run, _LONGEST_S)
    if ended["state_type"] != "COMPLETED":
        raise RuntimeError(ended["state"])
    folder = several.runs.latest(name)
    if folder is None:
        raise RuntimeError(name)
    records = read_records(folder)
    took = sorted(_between(record.started_at, record.ended_at) for record in records)
    seconds = _between(ended["start_time"], ended["end_time"])
    blocks = {record.block: record.host for record in records}
    return Seen(
        hosts=len(hosts),
        seconds=seconds,
        trials=len(records),
        ok=sum(record.status in sweeping.MEASURED for record in records),
        median_s=took[len(took) // 2],
        shares={host: list(blocks.values()).count(host) for host in sorted(set(blocks.values()))},
        busy=sum(took) / (seconds * len(hosts)),
    )


def _between(began: str, ended: str) -> float:
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()


def page(one: Seen, four: Seen) -> str:
    """The evidence."""
    rows = "\n".join(
        f"| {seen.hosts} | {seen.seconds:.0f} s | {seen.ok} of {seen.trials} | "
        f"{seen.median_s:.1f} s | {seen.busy:.0%} | "
        f"{', '.join(f'{host} {count}' for host, count in seen.shares.items())} |"
        for seen in (one, four)
    )
    return f"""# Four hosts against one

`make pool` runs one sweep ({_BLOCKS} blocks of two arms, {one.trials} trials) through a Prefect server and one
worker, first on one rehearsal host and then on four at once. The pretend engines take
{_START_S:.0f} s to start, as slowly as on a real clock, and have little traffic: measured is how the work is
shared, by a machine of {os.cpu_count()} cores that also carries the hosts.

| hosts | sweep | measured | a trial (median) | hosts at work | blocks |
|---|---|---|---|---|---|
{rows}

**{four.seconds / one.seconds:.2f}** of the time with four hosts (a quarter would be 0.25; {four.seconds - one.seconds / 4:.0f} s more than a quarter).
What is above a quarter is the time until the lanes' processes have started and reached their hosts,
the last block of whoever began it last, and the report at the end; it does not grow with the length
of a trial.
"""


def main() -> None:
    """Measures, then writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, default=_PAGE)
    given: Any = parser.parse_args()
    with (
        TemporaryDirectory() as place,
        pooling.several(Path(place), 4, start_s=_START_S, time_scale=1.0) as several,
        deployed(several) as server,
    ):
        names = list(several.grounds)
        one, four = (measured(server, several, names[:count]) for count in (1, 4))
    given.page.write_text(page(one, four), encoding="utf-8")


if __name__ == "__main__":
    main()
