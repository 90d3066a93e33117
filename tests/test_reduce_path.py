"""Which all-reduce decode uses is told from the engine's own words, size by size."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.reduce_path import MIB, read_said, reduce_path

REAL = Path(__file__).parent / "fixtures" / "real" / "nccl"
ROW = 7168 * 2


def args(**settings: object) -> str:
    shown = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    return f"[2026-11-29 16:55:10] server_args=ServerArgs(model_path='/a, b', {shown})"


def found(*lines: str, version: str | None = "0.5.9", tp: int = 8, env=None):
    return reduce_path(read_said(lines), env or {}, version=version, tp=tp, row_bytes=ROW)


def kinds(*lines: str, **more):
    return tuple(step.kind for step in found(*lines, **more).steps)


def test_a_real_start_with_custom_all_reduce_switched_off():
    lines = (REAL / "nccl-default.log").read_text().splitlines()
    said = read_said(lines)
    assert said.settings["disable_custom_all_reduce"] == "True"
    assert said.settings["tp_size"] == "2"
    path = reduce_path(said, {}, version="0.5.12.post1", tp=2, row_bytes=8192)
    assert [step.kind for step in path.steps] == ["nccl"]
    assert "disable_custom_all_reduce" in path.steps[0].why


def test_one_gpu_adds_nothing_up():
    assert kinds(args(tp_size=1), tp=1) == ("none",)


@pytest.mark.parametrize(
    ("version", "env", "kind", "limit"),
    [
        ("0.5.9", {}, "custom", 8 * MIB),
        ("0.5.12.post1", {}, "custom_v2", 16 * MIB),
        ("0.5.23", {"SGLANG_CUSTOM_ALL_REDUCE_V2_MAX_SIZE_KB": "64"}, "custom_v2", 65536),
        ("0.5.23", {"SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2": "0"}, "custom", 8 * MIB),
        (None, {}, "custom", 8 * MIB),
    ],
)
def test_the_engines_own_kernel_and_its_limit(version, env, kind, limit):
    path = found(args(disable_custom_all_reduce=False), version=version, env=env)
    assert (path.steps[0].kind, path.steps[0].up_to_bytes) == (kind, limit)
    assert path.at(limit).kind == kind
    assert path.at(limit + 16).kind == "nccl"


@pytest.mark.parametrize(
    "line",
    [
        "Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs. To silence this warning, specify disable_custom_all_reduce=True explicitly.",
        "CustomAllReduceV2 is disabled because your platform lacks GPU P2P capability or P2P test failed. To silence this warning, specify disable_custom_all_reduce=True explicitly.",
        "CustomAllreduce is disabled due to an unsupported world size: 5.",
        "Setup Custom allreduce failed with out of handles. To silence this warning, specify",
    ],
)
def test_a_kernel_that_says_that_it_is_off_is_off(line):
    path = found(args(disable_custom_all_reduce=False), f"[x TP0] {line}", version="0.5.23")
    assert [step.kind for step in path.steps] == ["nccl"]
    assert path.steps[0].why.startswith("the engine says: ")
    assert "To silence" not in path.steps[0].why


def test_three_gpus_are_for_nccl_unless_v2_says_that_it_is_there():
    assert kinds(args(), tp=3) == ("nccl",)
    ready = "[x TP0] Custom allreduce v2 initialized successfully"
    assert kinds(args(), ready, tp=3) == ("custom_v2", "nccl")


def test_what_was_registered_for_graphs_is_said():
    path = found(args(), "[x TP0] Registering 122 cuda graph addresses")
    assert "122 of its buffers" in path.steps[0].why


def test_fusion_comes_first_and_only_where_it_is_there():
    on = args(enable_flashinfer_allreduce_fusion=True)
    path = found(on)
    assert [step.kind for step in path.steps] == ["flashinfer_fusion", "nccl"]
    assert path.steps[0].up_to_bytes == 2048 * ROW
    missing = "[x] flashinfer.comm is not available, falling back to standard implementation"
    assert kinds(on, missing) == ("custom", "nccl")


def test_the_other_paths_in_sglangs_order():
    off = {"disable_custom_all_reduce": True}
    assert kinds(args(enable_symm_mem=True)) == ("nccl_symmetric",)
    assert kinds(args(**off, enable_mscclpp=True)) == ("mscclpp", "nccl")
    both = args(**off, enable_mscclpp=True, enable_torch_symm_mem=True)
    assert kinds(both) == ("mscclpp", "torch_symmetric", "nccl")
    # Where the engine's own kernel takes larger messages, mscclpp gets none.
    assert kinds(args(enable_mscclpp=True)) == ("custom", "nccl")


def test_sizes_are_sorted_to_their_paths():
    path = found(args())
    assert path.kinds([ROW, 64 * ROW, 10 * MIB]) == ("custom", "nccl")
