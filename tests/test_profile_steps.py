"""Steps and models are told where a trace tells them, and left unknown where it does not."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tasks.profile_rows import read_trace, unpack
from tasks.profile_shares import Reduced, reduce_trace
from tests.traces import as_kineto, call, kernel, sieved, span

AR, GEMM, ARGMAX = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL()", "fused_moe_kernel", "ArgMaxOps"


class Script:
    """A trace that is written down call by call; times in µs."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.at, self.number = 1000.0, 0

    def launch(self, *kernels: tuple[str, float], graph: int = -1) -> None:
        """One call, and what it runs; a graph where it has an id."""
        self.number += 1
        self.events.append(
            call("cudaGraphLaunch" if graph >= 0 else "cudaLaunchKernel", self.at - 50, self.number)
        )
        for name, length in kernels:
            self.events.append(kernel(name, self.at, length, self.number, graph=graph))
            self.at += length

    def target(self, mark: str | None = None, graph: int = 1) -> None:
        """60 µs of all-reduce and 40 of GEMM in eight kernels."""
        if mark:
            self.events.append(span(mark, self.at - 55, 20))
        self.launch(*[(AR, 15.0), (GEMM, 10.0)] * 4, graph=graph)

    def drafter(self, graph: int = 2, mark: str | None = None) -> None:
        """20 µs of GEMM and 5 of all-reduce."""
        if mark:
            self.events.append(span(mark, self.at - 55, 20))
        self.launch((GEMM, 20.0), (AR, 5.0), graph=graph)

    def eager(self, *kernels: tuple[str, float]) -> None:
        """Each kernel with a call of its own."""
        for one in kernels:
            self.launch(one)

    def idle(self, length: float) -> None:
        """Nothing happens."""
        self.at += length

    def reduced(self, folder: Path, *, drafting: bool) -> Reduced:
        """What the trace says."""
        return reduce_trace(sieved(folder, as_kineto(self.events)), drafting=drafting)


def speculative(steps: int, mark: str | None, /, **drafter: Any) -> Script:
    """Draft 25, verify 100, choose 5, idle 20: 150 µs a step."""
    script = Script()
    for _ in range(steps):
        script.drafter(**drafter)
        script.target(mark)
        script.eager((ARGMAX, 5.0))
        script.idle(20.0)
    return script


@pytest.mark.parametrize(
    ("mark", "told_by"),
    [("step[TARGET_VERIFY bs=8]", "ranges"), ("step[VERIFY bs=8]", "ranges"), (None, "graphs")],
)
def test_target_and_drafter_apart(tmp_path, mark, told_by):
    found = speculative(5, mark).reduced(tmp_path, drafting=True)
    assert (found.steps, found.told_by, found.left_out) == (4, told_by, 0)
    assert found.step_us == pytest.approx(150)
    assert found.shares is not None
    assert found.drafter is not None
    assert found.shares.all_reduce == pytest.approx(65 / 150)
    assert found.drafter.all_reduce == pytest.approx(5 / 150)
    assert found.drafter.gemm == pytest.approx(20 / 150)
    assert found.shares.sampling == pytest.approx(5 / 150)
    assert found.idle == pytest.approx(20 / 150)
    assert found.shares.total + (found.idle or 0) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("stage", ["DRAFT_EXTEND", "DRAFT_EXTEND_V2", "DRAFT", "DECODE"])
def test_a_drafter_outside_graphs_is_known_by_its_mark(tmp_path, stage):
    script = speculative(4, "step[TARGET_VERIFY bs=1]", graph=-1, mark=f"step[{stage} bs=1]")
    found = script.reduced(tmp_path, drafting=True)
    assert found.drafter is not None
    assert found.drafter.total == pytest.approx(25 / 150)


@pytest.mark.parametrize("mark", ["step[DECODE bs=2]", None])
def test_without_speculation_every_step_is_the_targets(tmp_path, mark):
    script = Script()
    for _ in range(3):
        script.target(mark)
        script.eager((ARGMAX, 20.0))
    found = script.reduced(tmp_path, drafting=False)
    assert (found.steps, found.step_us, found.idle, found.drafter) == (2, 120.0, 0.0, None)
    assert found.shares is not None
    assert found.shares.all_reduce == pytest.approx(0.5)


@pytest.mark.parametrize("mark", [True, False])
def test_a_step_with_a_prefill_in_it_is_left_out(tmp_path, mark):
    script = Script()
    for step in range(6):
        script.target("step[DECODE bs=2]" if mark else None)
        script.eager((ARGMAX, 20.0))
        if step == 2:
            if mark:
                script.events.append(span("step[EXTEND bs=1 toks=900]", script.at - 55, 500))
            script.eager(*[(GEMM, 50.0)] * 12)
    found = script.reduced(tmp_path, drafting=False)
    assert (found.steps, found.left_out, found.step_us) == (4, 1, 120.0)
    assert found.shares is not None
    assert found.shares.all_reduce == pytest.approx(0.5)


def test_a_drafter_as_large_as_its_target_is_not_told_without_marks(tmp_path):
    script = Script()
    for _ in range(4):
        script.target(graph=2)
        script.target()
    found = script.reduced(tmp_path, drafting=True)
    assert (found.steps, found.shares, found.drafter, found.told_by) == (0, None, None, "nothing")


def test_outside_graphs_and_without_marks_there_are_no_steps(tmp_path):
    script = Script()
    script.eager(*[(AR, 10.0), (GEMM, 10.0)] * 9)
    assert script.reduced(tmp_path, drafting=False).shares is None


def test_outside_graphs_marks_tell_the_steps(tmp_path):
    script = Script()
    for _ in range(3):
        script.events.append(span("step[DECODE bs=1]", script.at - 55, 30))
        script.eager((AR, 10.0), (GEMM, 10.0))
    found = script.reduced(tmp_path, drafting=False)
    assert (found.steps, found.step_us, found.told_by) == (2, 20.0, "ranges")


def test_what_the_table_does_not_know_is_named(tmp_path):
    script = Script()
    for _ in range(3):
        script.target()
        script.eager(("void strange_thing<4>(int)", 25.0))
    found = script.reduced(tmp_path, drafting=False)
    assert found.shares is not None
    assert found.shares.other == pytest.approx(0.2)
    (unknown,) = found.unknown
    assert unknown.name == "void strange_thing<4>(int)"
    assert unknown.share == pytest.approx(0.2)


def test_another_device_and_its_copies_do_not_count(tmp_path):
    script = speculative(4, None)
    script.events.append(kernel("Memcpy PtoP", 1000, 400, 999, cat="gpu_memcpy", device=1))
    found = script.reduced(tmp_path, drafting=True)
    assert found.shares is not None
    assert found.shares.memory == 0


def test_an_empty_trace_says_nothing(tmp_path):
    assert Script().reduced(tmp_path, drafting=True).shares is None


def test_calls_whose_threads_are_numbered_otherwise_are_told_by_time(tmp_path):
    script = speculative(5, "step[TARGET_VERIFY bs=8]")
    for event in script.events:
        if event["cat"] == "user_annotation":
            event["tid"] = 7
    found = script.reduced(tmp_path, drafting=True)
    assert (found.steps, found.told_by) == (4, "ranges")


def test_a_real_recording_can_be_cut_to_a_fixture_that_says_the_same(tmp_path):
    whole = tmp_path / "1-TP-0.trace.json.gz"
    whole.write_bytes(gzip.compress(as_kineto(speculative(20, "step[TARGET_VERIFY bs=8]").events)))
    script = Path(__file__).parent / "gpu" / "trace_fixture.py"
    words = [str(whole), str(tmp_path / "cut.jsonl.gz"), "--drafting", "--steps", "4"]
    done = subprocess.run(
        [sys.executable, str(script), *words], capture_output=True, text=True, check=True
    )
    assert "fused_moe_kernel" in done.stdout
    assert "step[TARGET_VERIFY bs=8]" in done.stdout
    kept = read_trace(unpack((tmp_path / "cut.jsonl.gz").read_bytes()))
    found = reduce_trace(kept, drafting=True)
    assert found.steps >= 4
    assert found.step_us == pytest.approx(150)
    assert found.drafter is not None
    assert found.drafter.total == pytest.approx(25 / 150)


FIXTURES = sorted((Path(__file__).parent / "fixtures" / "profiles").glob("*.jsonl.gz"))


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.name)
def test_recordings_of_real_engines_are_understood(path):
    """Of files called ``<engine>-<gpu>-<arm>.jsonl.gz``; an arm called base does not speculate."""
    drafting = not path.name.endswith("-base.jsonl.gz")
    found = reduce_trace(read_trace(unpack(path.read_bytes())), drafting=drafting)
    assert found.steps >= 2
    assert found.shares is not None
    assert found.idle is not None
    assert found.shares.total + found.idle == pytest.approx(1, abs=1e-9)
    assert found.shares.other < 0.05, found.unknown
    assert (found.drafter is not None) == drafting
