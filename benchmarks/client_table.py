"""From single runs to the page of evidence: medians, spread, and which limits were met."""

from __future__ import annotations

import datetime as dt
import os
import platform
import subprocess
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.client_cpu import Spent
    from benchmarks.client_peers import Figures
    from infra.rehearsal.pacing import Truth

CLIENT_BUSY = 0.9
"""Share of its core from which a client counts as the limit."""
ENDPOINT_BUSY = 0.9
ENDPOINT_LATE = 0.5
"""Steps that begin later than this share of a step: the endpoint itself was the limit."""

_HEADS = (
    "streams | steps/s | client | true tokens/s | tokens/s error % | TTFT error % | TPOT error % | "
    "CPU s per M tokens, traffic | CPU s per M tokens, whole | core used | limit"
)
ERRORS = ("output_tok_s", "ttft_s", "tpot_s")


@dataclass(frozen=True)
class Row:
    """One run of one client at one load; errors are (told - true) / true."""

    client: str
    streams: int
    steps_per_s: float
    """Of the endpoint: tokens per second and stream, as it was asked."""
    fault: str | None = None
    tok_s: float | None = None
    """True rate over the whole run."""
    output_tok_s: float | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None
    true_ttft_s: float | None = None
    true_tpot_s: float | None = None
    traffic_cpu: float | None = None
    """CPU seconds per million tokens from the first request's arrival to the last token."""
    whole_cpu: float | None = None
    """The same from the start of the process to its end, with what its figures cost afterwards."""
    busy: float | None = None
    """Share of its core that the client used during the traffic."""
    endpoint_busy: float | None = None
    endpoint_late: float | None = None
    """99th percentile of how late steps began, in steps."""
    load: float = 0.0
    """Load average of the machine over the last minute."""


def row(start: Row, requests: int, told: Figures, true: Truth, spent: Spent) -> Row:
    """One run, held against the endpoint's account."""
    true_tpot_s = true.tpot_by_token_s if told.tpot_by_token else true.tpot_s
    fault = None
    if (told.requests, true.requests, true.broken) != (requests, requests, 0):
        fault = f"{requests} asked, {told.requests} told, {true.requests} written"
    cpu_s = spent.between(true.began, true.ended)
    return Row(
        start.client,
        start.streams,
        start.steps_per_s,
        fault,
        tok_s=true.output_tok_s,
        output_tok_s=told.output_tok_s / true.output_tok_s - 1,
        ttft_s=told.ttft_s / true.ttft_s - 1,
        tpot_s=told.tpot_s / true_tpot_s - 1,
        true_ttft_s=true.ttft_s,
        true_tpot_s=true_tpot_s,
        traffic_cpu=1e6 * cpu_s / true.tokens,
        whole_cpu=1e6 * (spent.cpu_s + told.after_cpu_s) / true.tokens,
        busy=cpu_s / (true.ended - true.began),
        endpoint_busy=true.cpu_share,
        endpoint_late=true.late_p99_s * start.steps_per_s,
        load=os.getloadavg()[0],
    )


def line(one: Row) -> str:
    """One run in a line, for whoever watches."""
    if one.fault:
        return one.fault
    errors = ", ".join(f"{name} {100 * (getattr(one, name) or 0):+.2f} %" for name in ERRORS)
    return (
        f"{one.tok_s:.0f} tokens/s true; {errors}; CPU {one.traffic_cpu:.1f} s/M tokens, with "
        f"start and end {one.whole_cpu:.1f}; client {one.busy:.0%} busy, endpoint "
        f"{one.endpoint_busy:.0%}, late {one.endpoint_late:.2f} steps; load {one.load:.1f}"
    )


def versions(tools: Path, sglang: str) -> list[str]:
    """What was compared, as installed."""
    ask = "from importlib.metadata import version; print('{0}', version('{0}'))"
    said = [f"sglang {sglang} (`bench_serving.py` alone)"]
    for venv, name in (("aiperf", "aiperf"), ("guidellm", "guidellm"), ("aiperf", "aiohttp")):
        python = tools.resolve() / venv / "bin/python"
        done = subprocess.run(
            [python, "-c", ask.format(name)], capture_output=True, text=True, check=True
        )
        said.append(done.stdout.strip())
    return said


def _cell(rows: Sequence[Row], name: str, form: str, scale: float = 1.0) -> str:
    """The median, and the lowest and highest where there are several."""
    values = sorted(scale * v for one in rows if (v := getattr(one, name)) is not None)
    if not values:
        return "-"
    text = format(median(values), form)
    return f"{text} ({values[0]:{form}} … {values[-1]:{form}})" if len(values) > 1 else text


def _limits(rows: Sequence[Row]) -> str:
    """Whose limit the runs met, if any."""
    said = []
    if any(one.fault for one in rows):
        said.append(f"failed: {next(one.fault for one in rows if one.fault)}".replace("\n", " "))
    if _median(rows, "busy") >= CLIENT_BUSY:
        said.append("client")
    if (
        _median(rows, "endpoint_busy") >= ENDPOINT_BUSY
        or _median(rows, "endpoint_late") >= ENDPOINT_LATE
    ):
        said.append("endpoint")
    return ", ".join(said) or "none"


def _median(rows: Sequence[Row], name: str) -> float:
    values = [v for one in rows if (v := getattr(one, name)) is not None]
    return median(values) if values else 0.0


def _groups(rows: Sequence[Row]) -> dict[tuple[int, float], dict[str, list[Row]]]:
    found: dict[tuple[int, float], dict[str, list[Row]]] = {}
    for one in rows:
        cell = found.setdefault((one.streams, one.steps_per_s), {})
        cell.setdefault(one.client, []).append(one)
    return found


def _verdict(cells: dict[tuple[int, float], dict[str, list[Row]]]) -> list[str]:
    """The goal, cell by cell."""
    heads = "streams | steps/s | largest error, ours | peers' smallest largest error"
    costs = "CPU of traffic, ours / best peer | whole CPU, ours / best peer"
    out = [f"| {heads} | {costs} |", "|---|---|---|---|---|---|"]
    for (streams, rate), by_client in cells.items():
        worst = {
            name: max(abs(_median(rows, error)) for error in ERRORS)
            for name, rows in by_client.items()
            if not any(one.fault for one in rows)
        }
        ours, peers = worst.pop("ours", None), worst
        if ours is None or not peers:
            continue
        best = min(peers, key=lambda name: peers[name])
        ratios = []
        for name in ("traffic_cpu", "whole_cpu"):
            mine = _median(by_client["ours"], name)
            least = min(peers, key=lambda peer: _median(by_client[peer], name))
            other = _median(by_client[least], name)
            ratios.append(f"{mine / other:.2f} ({mine:.1f} / {other:.1f}, {least})")
        out.append(
            f"| {streams} | {rate:g} | {100 * ours:.2f} % | {100 * peers[best]:.2f} % ({best}) | "
            f"{ratios[0]} | {ratios[1]} |"
        )
    return out


def table(rows: Sequence[Row], repeats: int, said: Sequence[str]) -> str:
    """The whole page."""
    cells = _groups(rows)
    out = [
        "# The load client beside its peers",
        "",
        _WHAT.format(
            date=dt.datetime.now(tz=dt.UTC).date(),
            python=platform.python_version(),
            repeats=repeats,
            low=min(one.load for one in rows),
            high=max(one.load for one in rows),
            versions=", ".join(said),
        ),
        "## Against the goal",
        "",
        *_verdict(cells),
        "",
        "## Every client",
        "",
        f"| {_HEADS} |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (streams, rate), by_client in cells.items():
        for name, runs in by_client.items():
            errors = [_cell(runs, error, "+.2f", 100) for error in ERRORS]
            out.append(
                f"| {streams} | {rate:g} | {name} | {_cell(runs, 'tok_s', '.0f')} | "
                + " | ".join(errors)
                + f" | {_cell(runs, 'traffic_cpu', '.1f')} | {_cell(runs, 'whole_cpu', '.1f')} | "
                f"{100 * _median(runs, 'busy'):.0f} % | {_limits(runs)} |"
            )
    out += ["", "The endpoint in these runs:", "", *_endpoint(cells)]
    return "\n".join([*out, "", _HOW])


def _endpoint(cells: dict[tuple[int, float], dict[str, list[Row]]]) -> list[str]:
    out = [
        "| streams | steps/s | mean TTFT | mean TPOT | its core used | p99 lateness of a step |",
        "|---|---|---|---|---|---|",
    ]
    for (streams, rate), by_client in cells.items():
        runs = [one for rows in by_client.values() for one in rows]
        out.append(
            f"| {streams} | {rate:g} | {1000 * _median(runs, 'true_ttft_s'):.0f} ms | "
            f"{1000 * _median(runs, 'true_tpot_s'):.2f} ms | "
            f"{100 * _median(runs, 'endpoint_busy'):.0f} % | "
            f"{1000 * _median(runs, 'endpoint_late') / rate:.2f} ms |"
        )
    return out


_WHAT = """\
Written by `make client-bench` on {date}: two cores, Python {python}, rounds: {repeats}, load average
{low:.1f} … {high:.1f} (the runs themselves make about 1.5). Compared: {versions}.
One endpoint (`infra/rehearsal/paced.py`) on one core, one client at a time on the other, all clients in turn
within each round. Figures are medians over the rounds, in brackets the lowest and the highest.
"""

_HOW = """\
## What is compared with what

The endpoint writes one token per step to every running stream, decides the length of each answer
itself (the same sequence for every client), and notes when each request arrived and when it wrote
each token, with the monotonic clock of the same machine. Error: (told - true) / true.

| figure | truth | ours | bench_serving | aiperf | guidellm |
|---|---|---|---|---|---|
| tokens/s | all tokens / (last write - first arrival) | `full_output_tok_s` | `output_throughput` | `output_token_throughput.avg` | `output_tokens_per_second.successful.mean` |
| TTFT | mean of first write - arrival | mean of `first - sent` in `samples.jsonl` | `mean_ttft_ms` | `time_to_first_token.avg` | `time_to_first_token_ms.successful.mean` |
| TPOT | mean of (last - first write) / (tokens - 1); for guidellm weighted by tokens, as it does | mean of `(last - first) / (tokens - 1)` | `mean_tpot_ms` | `inter_token_latency.avg` | `inter_token_latency_ms.successful.mean` |

- Ours and bench_serving ask `/generate`, whose events repeat the whole text and all ids so far, as
  SGLang's do; aiperf and guidellm ask `/v1/completions`, whose events are small.
- Ours is the agent file's own process (`run-job`), as the controller starts it on a host; its
  figures are worked out from `samples.jsonl` by the controller's own code.
- CPU, traffic: each process's own CPU clock, read every 20 ms over the whole process tree, between
  the first arrival and the last write. Whole: user and system time of the tree as `wait4` gives it,
  with start and end; for ours with the controller's reading and measuring. The runs are short, so
  the whole is mostly start; a long run comes down
  to the traffic.
- aiperf and guidellm each run one worker process, since their clients have one core here; no
  client warms up. aiperf and bench_serving share an environment without torch.
- Limit: a client that used 90 % of its core was its own limit. "Endpoint" says that the endpoint
  used 90 % of its own, or began a step in a hundred later than half a step, mostly because the
  machine was busy with other work: the pace was not quite as asked. The truth is what it wrote and
  when, so the errors stand; what a busy machine keeps from a client is in them, for all clients.
- The endpoint notes an arrival when it reads it; if the kernel says that the request lay there for
  more than 10 ms (`TCP_INFO`), then from when it came. What is below that, such as a request that
  comes while a step is written to 256 streams, every client sees as a longer TTFT.
"""
