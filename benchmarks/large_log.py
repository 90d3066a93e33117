"""Streams a generated log through the readers of start and decode lines: time and peak memory.

`python benchmarks/large_log.py [--gigabytes 1.0]`. The log is made while it is read and never
stored: eight ranks that start, then decode and prefill lines, access lines, a progress bar
without newlines, colours, bytes that are not UTF-8, logged prompts of many kilobytes, and a
request's traceback now and then.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tasks.decode_log import DecodeLog
from tasks.start_log import StartLog

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK = 1 << 20
BEGIN = datetime(2026, 3, 4, 9, 12, 1)  # noqa: DTZ001 - the log prints no zone
TRACEBACK = (
    "Traceback (most recent call last):\n"
    '  File "/opt/sglang/srt/entrypoints/http_server.py", line 300, in generate_request\n'
    "    raise ValueError(reason)\n"
    "ValueError: the input is longer than the model's context\n"
)


def start_lines() -> Iterator[str]:
    """What eight ranks print until the server is ready."""
    stamp = "2026-03-04 09:12:01"
    yield f"[{stamp}] server_args=ServerArgs(model_path='/m/t', speculative_algorithm='EAGLE3')\n"
    for text in (
        "Init torch distributed begin.",
        "Load weight begin. avail mem=138.20 GB",
        "Load weight end. elapsed=449.7 s, type=Target, dtype=torch.bfloat16, avail mem=63.1 GB",
        "KV Cache is allocated. #tokens: 402112, KV size: 26.30 GB",
        "Capture cuda graph begin. This can take up to several minutes. avail mem=30.00 GB",
        "Capture cuda graph end. Time elapsed: 28.70 s. mem usage=1.90 GB. avail mem=28.10 GB.",
    ):
        for rank in range(8):
            yield f"[{stamp} TP{rank}] {text}\n"
    yield f"[{stamp}] The server is fired up and ready to roll!\n"


def serving_lines(seed: int) -> Iterator[str]:
    """One stretch of serving, different with each number."""
    now = BEGIN + timedelta(seconds=600 + 3 * seed)
    stamp = f"{now:%Y-%m-%d %H:%M:%S}"
    for rank in range(2):
        yield (
            f"[{stamp} DP{rank} TP{rank}] Decode batch, #running-req: 8, #token: {9000 + seed}, "
            f"token usage: 0.02, accept len: {2 + seed % 10 / 10:.2f}, accept rate: 0.58, "
            f"cuda graph: True, gen throughput (token/s): {1200 + seed % 90}.00, #queue-req: 0\n"
        )
    yield (
        f"[{stamp} DP0 TP0] Prefill batch, #new-seq: 1, #new-token: 31, #cached-token: 0, "
        "token usage: 0.00, #running-req: 7, #queue-req: 0, \n"
    )
    for port in range(40000, 40012):
        yield f'[{stamp}] INFO:     127.0.0.1:{port} - "POST /generate HTTP/1.1" 200 OK\n'
    if seed % 10 == 0:
        yield (
            "\x1b[33mCapturing batches: "
            + f"{seed % 100}%|###      | 3/8 [00:01<00:02]\x1b[0m\r" * 20
        )
    if seed % 100 == 0:
        yield f"[{stamp}] Receive: obj=GenerateReqInput(text='{'word ' * 12_000}')\n"
        yield f"[{stamp}] ERROR: a request failed\n{TRACEBACK}"


def chunks(limit: int) -> Iterator[bytes]:
    """The log in pieces of a megabyte, up to a number of bytes."""
    pending, made = bytearray(), 0
    numbers = itertools.count()
    stretches = itertools.chain([start_lines()], (serving_lines(n) for n in numbers))
    for stretch in stretches:
        for line in stretch:
            pending += line.encode()
        pending += b"\xff\xfe torn bytes \x80\n"
        while len(pending) >= CHUNK:
            yield bytes(pending[:CHUNK])
            made += CHUNK
            del pending[:CHUNK]
            if made >= limit:
                return


def peak_mb() -> float:
    """Most memory that this process held so far, in MB (Linux counts it in KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    limit = int(parser.parse_args().gigabytes * 1e9)
    start, decode = StartLog("sglang"), DecodeLog()
    spent = {"making the log": 0.0, "StartLog": 0.0, "DecodeLog": 0.0}
    read = step = 0
    print(f"{'read':>9} {'peak memory':>12}")
    stream = chunks(limit)
    while True:
        begun = time.perf_counter()
        chunk = next(stream, None)
        if chunk is None:
            break
        made = time.perf_counter()
        start.feed(chunk)
        started = time.perf_counter()
        decode.feed(chunk)
        decoded = time.perf_counter()
        spent["making the log"] += made - begun
        spent["StartLog"] += started - made
        spent["DecodeLog"] += decoded - started
        read += len(chunk)
        if read >= step:
            print(f"{read / 1e6:>6.0f} MB {peak_mb():>9.1f} MB", flush=True)
            step += limit // 10
    facts, summary = start.finish(ended=False), decode.finish()
    print(f"{read / 1e6:>6.0f} MB {peak_mb():>9.1f} MB")
    for name, seconds in spent.items():
        print(f"{name}: {seconds:.1f} s ({read / 1e6 / max(seconds, 1e-9):.0f} MB/s)")
    print(
        f"ready {facts.ready}, failure {facts.failure}, {facts.undecodable_bytes} undecodable bytes, "
        f"{summary.samples} decode lines, accept length {summary.accept_len_mean:.2f}"
    )


if __name__ == "__main__":
    main()
