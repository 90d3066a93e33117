"""Measures our load client beside bench_serving, aiperf and guidellm, against one endpoint.

`make client-bench`, or `python -m benchmarks.client [--repeats 3] [--cells 1,8] [--table FILE]`.
The endpoint (infra/rehearsal/paced.py) keeps its own account of every request; each client's
report is held against it. Endpoint and clients have cores of their own, and the clients take
turns within each round, so that whatever else the machine does falls on all of them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import client_cpu, client_table
from benchmarks.client_peers import CLIENTS, QUIET, Asked, Client, lay_out
from infra.rehearsal.paced import Pace
from infra.rehearsal.pacing import Paced, pacing, truth
from tests.wheels import file_in_wheel

TOOLS = Path(".venv-peers")
SGLANG = "0.5.9"


@dataclass(frozen=True)
class Cell:
    """One load."""

    streams: int
    requests: int
    pace: Pace


CELLS = (
    Cell(1, 6, Pace(step_s=0.005, first_s=0.15, first_spread_s=0.05)),
    Cell(8, 24, Pace(step_s=0.01, first_s=0.15, first_spread_s=0.05)),
    Cell(64, 192, Pace(step_s=0.01, first_s=0.4, first_spread_s=0.2)),
    Cell(256, 512, Pace(step_s=0.02, first_s=1.0, first_spread_s=0.5, shortest=64, longest=96)),
    Cell(256, 512, Pace(step_s=0.01, first_s=1.0, first_spread_s=0.5)),
)


def measured(cell: Cell, client: Client, endpoint: Paced, cores: set[int]) -> client_table.Row:
    """One run of one client; a client that fails is a row that says so."""
    endpoint.set_pace(cell.pace)
    name = f"{client.name}, {cell.streams} streams"
    with tempfile.TemporaryDirectory(prefix="client-bench-") as folder:
        asked = Asked(
            url=endpoint.url,
            requests=cell.requests,
            streams=cell.streams,
            longest=cell.pace.longest,
            folder=Path(folder),
            tools=TOOLS.resolve(),
        )
        environment = dict(QUIET + client.environment)
        row = client_table.Row(client.name, cell.streams, 1 / cell.pace.step_s)
        try:
            spent = client_cpu.run(client.command(asked), asked.folder, cores, environment)
            told = client.read(asked)
        except (client_cpu.Failed, OSError, ValueError, KeyError) as fault:
            print(f"{name}: {type(fault).__name__} {fault}", flush=True)
            return client_table.Row(**{**asdict(row), "fault": f"{type(fault).__name__}: {fault}"})
        true = truth(endpoint.account())
    row = client_table.row(row, cell.requests, told, true, spent)
    print(f"{name}: {client_table.line(row)}", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cells", help="numbers of the cells, from 0; default: all")
    parser.add_argument("--clients", help="names; default: all")
    parser.add_argument("--table", type=Path, help="Markdown file to write")
    asked = parser.parse_args()
    first, *others = sorted(os.sched_getaffinity(0))
    if not others:
        parser.error("two cores are needed: one for the endpoint, one for its clients")
    single = file_in_wheel("sglang", SGLANG, "bench_serving.py")
    if single is None:
        parser.error(f"sglang {SGLANG} has no bench_serving.py")
    (TOOLS / "bench_serving.py").write_bytes(single)
    lay_out(TOOLS)
    os.sched_setaffinity(0, {first})  # it only watches, beside the endpoint
    cells = [CELLS[int(n)] for n in asked.cells.split(",")] if asked.cells else list(CELLS)
    clients = [c for c in CLIENTS if not asked.clients or c.name in asked.clients.split(",")]
    said = client_table.versions(TOOLS, SGLANG)
    rows: list[client_table.Row] = []
    with (
        tempfile.TemporaryDirectory(prefix="client-bench-endpoint-") as folder,
        pacing(Path(folder), core=first) as endpoint,
    ):
        for turn in range(asked.repeats):
            order = clients[turn % len(clients) :] + clients[: turn % len(clients)]
            for cell in cells:
                rows += [measured(cell, one, endpoint, set(others[:1])) for one in order]
            # After each round, so that a run that is cut off leaves the rounds before.
            if asked.table:
                asked.table.write_text(client_table.table(rows, turn + 1, said))


if __name__ == "__main__":
    main()
