"""What the pretend GPU is busy with in a decode step: kernels by name, in shares that are known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from infra.rehearsal import truth

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infra.rehearsal.truth import Arm

REST: Final = {
    "attention": 0.24,
    "gemm": 0.50,
    "norm": 0.10,
    "sampling": 0.05,
    "memory": 0.03,
    "idle": 0.08,
}
"""Of what is not all-reduce, in the target's part of a step. Made up; of the size that serving
runs on PCIe cards show."""
DRAFT_REST: Final = {"attention": 0.30, "gemm": 0.60, "norm": 0.10}
LAYERS: Final = 12
_NAMES: Final = {
    "all_reduce": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "attention": "_fwd_grouped_kernel_stage1",
    "gemm": "fused_moe_kernel",
    "norm": "void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*, "
    "__nv_bfloat16*, __nv_bfloat16*, unsigned int, unsigned int, unsigned int, float, float)",
    "sampling": "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, "
    "at::native::ArgMaxOps<float>, unsigned int, long, 4, 4> >(at::native::ReduceOp<float, "
    "at::native::ArgMaxOps<float>, unsigned int, long, 4, 4>)",
    "memory": "Memcpy DtoD (Device -> Device)",
}
_LAYER: Final = ("norm", "gemm", "attention", "gemm", "all_reduce", "norm", "gemm", "all_reduce")


@dataclass(frozen=True)
class Launch:
    """One call of CUDA and what it runs: a whole graph, or one kernel.

    Attributes:
        graph: id of the graph that is replayed; 0 for a kernel of its own.
        kernels: (name, share of the step) in order.
        gap: share of the step that passes before the next one with nothing running.
    """

    graph: int
    kernels: tuple[tuple[str, float], ...]
    gap: float = 0.0


def all_reduce_share(arm: Arm) -> float:
    """Share of a step that is all-reduce, in target and drafter alike."""
    factor = truth.all_reduce_factor(arm.nccl_proto)
    return (truth.ALL_REDUCE_SHARE - (1 - factor)) / factor


def drafter_share(arm: Arm, batch: float) -> float:
    """Share of a step in which the drafter works."""
    if not arm.speculation:
        return 0.0
    return 1 - truth.step_s(replace(arm, num_steps=0), batch) / truth.step_s(arm, batch)


def shares(arm: Arm, batch: float) -> dict[str, float]:
    """Category -> share of a step, idle time included; they add up to one."""
    summed, own, drafts = all_reduce_share(arm), 1.0, drafter_share(arm, batch)
    own -= drafts
    found = {"all_reduce": summed}
    for name, share in REST.items():
        found[name] = (1 - summed) * (own * share + drafts * DRAFT_REST.get(name, 0.0))
    return found


def launches(arm: Arm, batch: int) -> Iterator[Launch]:
    """The calls of one step, in the order in which SGLang makes them: draft, verify, choose."""
    summed, drafts = all_reduce_share(arm), drafter_share(arm, batch)
    own = 1 - drafts
    if drafts:
        part = {n: drafts * (1 - summed) * share for n, share in DRAFT_REST.items()}
        # Graphs are captured per batch size and model: ids of their own.
        yield Launch(1000 + batch, _layers(max(1, arm.num_steps), part, drafts * summed))
    part = {name: own * (1 - summed) * share for name, share in REST.items()}
    yield Launch(batch, _layers(LAYERS, part, own * summed), part["idle"] / 2)
    yield Launch(0, ((_NAMES["sampling"], part["sampling"]),), part["idle"] / 2)
    yield Launch(0, ((_NAMES["memory"], part["memory"]),))


def _layers(count: int, part: dict[str, float], summed: float) -> tuple[tuple[str, float], ...]:
    """So many layers, every kind's share evenly over its kernels."""
    whole = {**part, "all_reduce": summed}
    each = {name: whole[name] / (count * _LAYER.count(name)) for name in set(_LAYER)}
    return tuple((_NAMES[name], each[name]) for name in _LAYER) * count
