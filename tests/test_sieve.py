"""What is kept of an engine's trace is what stands in it, in any layout and however it ends."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.agent import kineto, sieve
from infra.agent.refusal import Refusal
from tasks.profile_rows import BadProfileError, read_trace, unpack
from tests.traces import as_json, as_kineto, call, kernel, sieved, span

NAMES = st.sampled_from(
    [
        "fused_moe_kernel",
        "void at::native::elementwise_kernel<128, 4, {lambda()#3}::operator()() const>(int)",
        'quoted "name" with \\ and } and ],',
        "Kernel\n  }",
        "ядро",
        '"traceEvents": [',
    ]
)
TIMES = st.integers(0, 10**13).map(lambda ns: ns / 1000)
GPU = st.builds(
    kernel,
    NAMES,
    TIMES,
    TIMES,
    st.integers(0, 2**31),
    graph=st.integers(-1, 9),
    cat=st.sampled_from(["kernel", "gpu_memcpy", "gpu_memset"]),
)
OTHERS = st.sampled_from(
    [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "python"}},
        {"ph": "X", "cat": "cpu_op", "name": "aten::add", "ts": 1, "dur": 1, "args": {}},
        {"ph": "s", "id": 3, "pid": 1, "tid": 1, "ts": 2.0, "cat": "ac2g", "name": "ac2g"},
        {"ph": "X", "cat": "kernel", "name": "without a time"},
        {"ph": "i", "s": "g", "cat": "kernel", "name": "no length", "ts": 3, "pid": 0, "tid": 0},
    ]
)
EVENTS = st.lists(
    GPU
    | st.builds(call, st.just("cudaGraphLaunch"), TIMES, st.integers(0, 9))
    | st.builds(span, NAMES, TIMES, TIMES)
    | OTHERS,
    min_size=1,
    max_size=12,
)


def rows_of(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The GPU rows, naively."""
    return [
        (
            e["cat"],
            e["name"],
            round(e["ts"] * 1000),
            round(e["dur"] * 1000),
            e["args"]["correlation"],
            e["args"].get("graph id", -1),
        )
        for e in events
        if e.get("cat") in kineto.GPU and e.get("ph") == "X" and "dur" in e
    ]


@given(EVENTS, st.sampled_from([as_kineto, as_json]), st.integers(1, 400), st.booleans())
@settings(max_examples=120, deadline=None)
def test_every_row_is_kept_as_it_stands(tmp_path_factory, events, layout, size, packed):
    folder = tmp_path_factory.mktemp("trace")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kineto, "_OUT", size)  # every event is torn somewhere
        patch.setattr(kineto, "_READ", size)
        trace = sieved(folder, layout(events), packed=packed)
    assert trace.whole
    assert trace.events == len(events)
    gpu = trace.gpu
    seen = [
        (*trace.names[n], *rest)
        for n, *rest in zip(
            *(c.tolist() for c in (gpu.name, gpu.start, gpu.length, gpu.correlation, gpu.graph)),
            strict=True,
        )
    ]
    assert seen == rows_of(events)
    assert len(trace.calls.start) == sum(e.get("cat") == "cuda_runtime" for e in events)
    assert len(trace.spans.start) == sum(e.get("cat") == "user_annotation" for e in events)


def test_times_lose_no_nanosecond_even_as_an_epoch(tmp_path):
    text = as_json([kernel("k", 1, 1, 3)]).replace(b'"ts": 1,', b'"ts": 1764470000123456.789,')
    trace = sieved(tmp_path, text.replace(b'"dur": 1,', b'"dur": 0.001,'))
    assert (trace.gpu.start[0], trace.gpu.length[0]) == (1764470000123456789, 1)


@pytest.mark.parametrize("layout", [as_kineto, as_json])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_trace_that_is_cut_off_says_so_and_gives_what_is_there(tmp_path, layout, share):
    events = [kernel(f"k{i % 7}", i, 0.5, i) for i in range(400)]
    packed = gzip.compress(layout(events))
    path = tmp_path / "torn"
    path.write_bytes(packed[: int(share * len(packed))])
    done = sieve.sieve(str(path), str(tmp_path / "kept"))
    assert not done.whole
    assert 0 < done.rows < len(events)
    assert not read_trace(unpack((tmp_path / "kept").read_bytes())).whole
    whole = layout(events)
    path.write_bytes(gzip.compress(whole[: int(share * len(whole))]))
    done = sieve.sieve(str(path), str(tmp_path / "kept"))
    assert not done.whole
    assert 0 < done.rows < len(events)


@pytest.mark.parametrize("data", [b"", b"{}", b'{"traceEvents": 3}', b"<html>"])
def test_what_is_no_trace_is_refused(tmp_path, data):
    path = tmp_path / "x"
    path.write_bytes(data)
    with pytest.raises(Refusal, match="no traceEvents"):
        sieve.sieve(str(path), str(tmp_path / "kept"))


def test_a_file_that_breaks_off_at_once_is_torn_and_empty(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"\x1f\x8bnothing")
    done = sieve.sieve(str(path), str(tmp_path / "kept"))
    assert (done.whole, done.rows) == (False, 0)


def test_damage_in_the_middle_is_refused(tmp_path):
    data = as_kineto([kernel("k", 1, 1, 3), kernel("l", 2, 1, 4)]).replace(
        b'"ts": 1.000', b'"ts" 1'
    )
    with pytest.raises(Refusal, match="bad_trace"):
        sieved(tmp_path, data)


def test_gzip_in_several_members_is_one_trace(tmp_path):
    data = as_kineto([kernel(f"k{i}", i, 1, i) for i in range(40)])
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(data[:900]) + gzip.compress(data[900:]))
    assert sieve.sieve(str(path), str(tmp_path / "kept")).rows == 40


NAMELESS = json.dumps({"gpu": [[9, 1, "AA=="]] * 7})


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["x"],
        ["[]"],
        ['{"profile": 1, "file": "a"}'],
        ['{"profile": 2, "file": "a"}', '{"end": {"events": 0, "whole": true}}'],
        [
            '{"profile": 1, "file": "a"}',
            '{"gpu": [[0, 1, "AA=="]]}',
            '{"end": {"events": 0, "whole": true}}',
        ],
        [
            '{"profile": 1, "file": "a"}',
            NAMELESS,
            '{"end": {"events": 0, "whole": true}}',
        ],
    ],
)
def test_a_kept_file_that_is_none_is_known(lines):
    with pytest.raises(BadProfileError):
        read_trace(lines)


def test_a_trace_without_a_gpu_is_empty_and_whole(tmp_path):
    trace = sieved(tmp_path, json.dumps({"traceEvents": []}).encode())
    assert trace.whole
    assert trace.gpu.size == 0
