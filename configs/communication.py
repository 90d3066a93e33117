"""Which factors change nothing but how GPUs talk to each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from configs.flags import canonical

if TYPE_CHECKING:
    from configs.sweep import Level, Sweep

# SGLang 0.5.9 to 0.5.23: which path serves an all-reduce, not what is added up.
_FLAGS: Final = frozenset(
    {
        "disable-custom-all-reduce",
        "enable-mscclpp",
        "enable-nccl-nvls",
        "enable-symm-mem",
        "enable-torch-symm-mem",
        "pre-warm-nccl",
    }
)
_VARIABLES: Final = (
    "NCCL_",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE",
    "SGLANG_PCIE_IPC_",
    "SGLANG_CUSTOM_ALL_REDUCE_",
    "SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2",
)


def communication_factors(sweep: Sweep) -> frozenset[str]:
    """Factors whose levels, one and all, set communication alone; the model's numbers stay."""
    return frozenset(
        factor for factor, levels in sweep.factors.items() if all(map(_is_one, levels.values()))
    )


def _is_one(level: Level) -> bool:
    return all(canonical(flag) in _FLAGS for flag in level.flags) and all(
        name.startswith(_VARIABLES) for name in level.env
    )
