"""How long a large engine trace takes to read, and in how much memory.

Makes a trace of a speculating decode in Kineto's layout, of about as many MB of gzip as asked for,
in a folder of its own; then sieves and reduces it as a sweep does, each in a process of its own,
and prints what it took. ``--layout braces`` writes the same events on one line, as tools do that
write a trace anew.

    python -m benchmarks.profile_trace --mb 300
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

LAYERS = 61
NORM = (
    "void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*, "
    "__nv_bfloat16*, __nv_bfloat16*, unsigned int, unsigned int, unsigned int, float, float)"
)
ROTARY = (
    "void flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheKernel<true, 128u, 8u, 16u, "
    "__nv_bfloat16, long>(...)"
)
REDUCE = (
    "void sglang::cross_device_reduce_1stage<__nv_bfloat16, 8>(sglang::RankData*, "
    "sglang::RankSignals, sglang::Signal*, __nv_bfloat16*, int, int)"
)
KERNELS = (
    (NORM, 3.1),
    ("nvjet_hsh_64x8_64x16_4x1_v_bz_TNT", 9.4),
    (ROTARY, 2.2),
    ("_fwd_grouped_kernel_stage1", 11.0),
    ("_fwd_kernel_stage2", 3.0),
    ("nvjet_hsh_32x64_64x16_4x1_v_bz_splitK_TNN", 6.0),
    (REDUCE, 14.0),
    ("void moe_align_block_size_kernel<int>(int const*, int*, int*, int*, int, int)", 3.0),
    ("fused_moe_kernel", 28.0),
    ("void flashinfer::activation::act_and_mul_kernel<__nv_bfloat16, &silu>(...)", 3.3),
    ("fused_moe_kernel", 17.0),
    (REDUCE, 14.0),
)
OPS = (
    "aten::empty",
    "aten::copy_",
    "aten::to",
    "aten::_to_copy",
    "aten::slice",
    "aten::as_strided",
)
GRAPHS = ((9_001, 3), (7_001, LAYERS), (8_001, 1))


def gpu(name: str, at: float, length: float, number: int, *, graph: int, node: int) -> str:
    """A kernel as Kineto writes it: some seven hundred characters."""
    return (
        f'{{\n    "ph": "X", "cat": "kernel", "name": {json.dumps(name)}, "pid": 0, "tid": 7,\n'
        f'    "ts": {at:.3f}, "dur": {length:.3f},\n    "args": {{\n'
        f'      "External id": {number}, "queued": 0, "device": 0, "context": 1, "stream": 7, '
        f'"correlation": {number}, "registers per thread": {32 + node % 96}, "shared memory": '
        f'{1024 * (node % 200)}, "blocks per SM": {node % 977 / 132:.6f}, "warps per SM": '
        f'{node % 1733 / 33:.6f}, "grid": [{1 + node % 311}, 1, 1], "block": [128, 1, 1], '
        f'"est. achieved occupancy %": {node % 101}, "graph id": {graph}, "graph node id": '
        f"{graph * 4_294_967_296 + node}\n    }}\n  }}"
    )


def host(cat: str, name: str, at: float, length: float, number: int) -> str:
    """What the host did."""
    return (
        f'{{\n    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": 4711, "tid": 4711,\n'
        f'    "ts": {at:.3f}, "dur": {length:.3f},\n    "args": {{\n      "External id": {number},'
        f'"Record function id": 0, "Ev Idx": {number}, "correlation": {number}\n    }}\n  }}'
    )


def step(at: float, number: int, draw: random.Random) -> tuple[list[str], float, int]:
    """The events of one speculative step; the time at its end, and the next number."""
    events = []
    for graph, layers in GRAPHS:
        number += 1
        if layers == LAYERS:
            events.append(host("user_annotation", "step[TARGET_VERIFY bs=8]", at - 60, 50, number))
        events.append(host("cuda_runtime", "cudaGraphLaunch", at - 40, 9.5, number))
        for node in range(layers * len(KERNELS)):
            name, usual = KERNELS[node % len(KERNELS)]
            length = usual * (0.9 + 0.2 * draw.random())
            events.append(gpu(name, at, length, number, graph=graph, node=node))
            at += length + 0.4 * draw.random()
        for _ in range(300):
            number += 1
            events.append(host("cpu_op", draw.choice(OPS), at + draw.random(), 1.5, number))
    return events, at + 20.0, number


def make(path: Path, megabytes: float, layout: str) -> tuple[int, int]:
    """Writes a trace; returns how many steps and bytes of JSON it has."""
    draw, number, at = random.Random(5), 0, 5_000_000.0
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    written = unpacked = steps = 0
    between = ",\n  "
    with path.open("wb") as file:

        def put(text: str) -> None:
            nonlocal written, unpacked
            plain = text if layout == "kineto" else " ".join(text.split())
            unpacked += len(plain)
            written += file.write(packer.compress(plain.encode()))

        put('{\n  "schemaVersion": 1,\n  "traceEvents": [\n  ')
        while written < megabytes * 1e6:
            events, at, number = step(at, number, draw)
            put((between if steps else "") + between.join(events))
            steps += 1
        put('\n  ],\n  "traceName": "made"\n}\n')
        file.write(packer.flush())
    return steps, unpacked


def read(path: Path, kept: Path) -> None:
    """Sieves and reduces; prints what came out and what it took."""
    from infra.agent.sieve import sieve
    from tasks.profile_rows import read_trace, unpack
    from tasks.profile_shares import reduce_trace

    clock = time.monotonic()
    began = time.process_time()
    sieved = sieve(str(path), str(kept))
    between = time.process_time()
    found = reduce_trace(read_trace(unpack(kept.read_bytes())), drafting=True)
    took = time.process_time() - between
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"CPU time: sieve {between - began:.1f} s, reduce {took:.1f} s; peak {peak:.0f} MiB, {sieved}"
    )
    print(f"wall time {time.monotonic() - clock:.1f} s")
    print(f"{found.steps} steps of {found.step_us:.0f} us, idle {found.idle:.1%}, {found.shares}")
    print(f"kept {kept.stat().st_size / 1e6:.1f} MB")


def main() -> None:
    """Makes a trace and reads it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, default=300.0)
    parser.add_argument("--layout", choices=["kineto", "braces"], default="kineto")
    parser.add_argument("--read", type=Path)
    asked = parser.parse_args()
    if asked.read:
        read(asked.read, asked.read.with_suffix(".kept"))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made-TP-0.trace.json.gz"
        steps, unpacked = make(path, asked.mb, asked.layout)
        size = path.stat().st_size / 1e6
        print(f"{size:.0f} MB of gzip, {unpacked / 1e6:.0f} MB of JSON, {steps} steps", flush=True)
        command = [sys.executable, "-m", "benchmarks.profile_trace", "--read", str(path)]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
