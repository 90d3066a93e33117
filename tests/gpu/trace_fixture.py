"""Cuts a real profile to a few steps, small enough for a repository, and prints what it says.

    python tests/gpu/trace_fixture.py KEPT_OR_TRACE OUT.jsonl.gz [--steps 4] [--drafting]

KEPT_OR_TRACE is ``profiles/profile-<probe>-c<users>.jsonl.gz`` of a trial's folder, or a trace as
the engine wrote it (``*.trace.json.gz``). OUT has the layout of the former: names, rows of GPU
events, calls and ranges of whole steps from the middle of the recording, the largest kernels and
those that no line of tasks/kernel_table.py knows are printed. OUT goes to tests/fixtures/profiles/
with a line on its origin (GPU, engine version, model, parallelism, users).
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from infra.agent.sieve import Rows, sieve
from tasks.kernel_table import category_of
from tasks.profile_rows import Trace, read_trace, unpack
from tasks.profile_shares import reduce_trace
from tasks.profile_steps import find_steps

MOST_BYTES = 300_000


def kept_of(path: Path) -> bytes:
    """The kept rows of a file of either sort."""
    if not path.name.endswith(".trace.json.gz"):
        return path.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "kept"
        sieve(str(path), str(out))
        return out.read_bytes()


def window(trace: Trace, steps: int, *, drafting: bool) -> tuple[int, int]:
    """Begin and end (ns) of so many steps in the middle, with the step before and after them."""
    edges = find_steps(trace, drafting=drafting).edges
    if len(edges) < 2:
        raise SystemExit("no step was found: keep the whole file and look at its names")
    first = max(0, (len(edges) - steps) // 2 - 1)
    last = min(len(edges) - 1, first + steps + 2)
    return int(edges[first]), int(edges[last])


def cut(trace: Trace, begin: int, end: int, out: Path) -> None:
    """Writes the rows of a stretch of time, and the calls and ranges that they need."""
    gpu, calls, spans = trace.gpu, trace.calls, trace.spans
    inside = (gpu.start >= begin) & (gpu.start < end)
    wanted = np.isin(calls.correlation, gpu.correlation[inside])
    when = calls.start[wanted]
    low, high = (int(when.min()), int(when.max())) if len(when) else (begin, end)
    marked = (spans.start + spans.length >= low) & (spans.start <= high)
    with gzip.open(out, "wt", encoding="ascii", compresslevel=9) as file:
        rows = Rows(file)
        rows.say({"profile": 1, "file": trace.file})
        rows.say({"names": trace.names})
        for name, columns, mask in (
            ("gpu", gpu, inside),
            ("calls", calls, wanted),
            ("spans", spans, marked),
        ):
            if mask.any():
                rows.put(name, [column[mask].tolist() for column in columns])
        rows.say({"end": {"events": int(inside.sum()), "rows": int(inside.sum()), "whole": True}})


def show(trace: Trace, *, drafting: bool) -> None:
    """What the rows say."""
    found = reduce_trace(trace, drafting=drafting)
    print(json.dumps({"steps": found.steps, "step_us": found.step_us, "told_by": found.told_by}))
    print("shares ", found.shares, "idle", found.idle, "overlap", found.overlap)
    print("drafter", found.drafter)
    time: Counter[tuple[str, str]] = Counter()
    for name, spent in zip(trace.gpu.name.tolist(), trace.gpu.length.tolist(), strict=True):
        kind, text = trace.names[name]
        time[category_of(kind, text), text[:110]] += spent
    whole = sum(time.values()) or 1
    for (category, text), spent in time.most_common(40):
        print(f"{spent / whole:6.1%} {category:10} {text}")
    print(
        "other:", *(text for (category, text), _ in time.items() if category == "other"), sep="\n  "
    )
    print(
        "ranges:", *sorted({trace.names[n][1] for n in trace.spans.name.tolist()})[:40], sep="\n  "
    )


def main() -> None:
    """Cuts, writes, shows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--drafting", action="store_true")
    asked = parser.parse_args()
    trace = read_trace(unpack(kept_of(asked.source)))
    show(trace, drafting=asked.drafting)
    cut(trace, *window(trace, asked.steps, drafting=asked.drafting), asked.out)
    size = asked.out.stat().st_size
    again = reduce_trace(read_trace(unpack(asked.out.read_bytes())), drafting=asked.drafting)
    print(f"{asked.out}: {size} bytes, {again.steps} whole steps")
    if size > MOST_BYTES:
        raise SystemExit(f"more than {MOST_BYTES} bytes: ask for fewer --steps")


if __name__ == "__main__":
    main()
