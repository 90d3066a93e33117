"""Which all-reduce decode uses: the engine's own kernels, or NCCL; from what the engine says.

The order is that of SGLang's GroupCoordinator.all_reduce (0.5.9 to 0.5.23, distributed/
parallel_state.py): symmetric memory of NCCL, custom all-reduce, mscclpp, torch's symmetric memory,
NCCL. FlashInfer's fusion comes before all of them (layers/communicator.py). Unknown is None.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from configs.values import Value
from configs.version import within

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PathKind = Literal[
    "none",
    "flashinfer_fusion",
    "nccl_symmetric",
    "custom",
    "custom_v2",
    "mscclpp",
    "torch_symmetric",
    "nccl",
]
"""none: one GPU, nothing to add up. custom_v2 is the JIT kernel (SGLang 0.5.12 and later), whose
small sizes go through one-shot push."""

BY_NCCL: Final = frozenset({"nccl", "nccl_symmetric"})
"""Paths on which NCCL's variables can matter."""
WORDS: Final[dict[str, str]] = {
    "none": "no all-reduce at all",
    "flashinfer_fusion": "FlashInfer's all-reduce fused with the norm",
    "nccl_symmetric": "NCCL over symmetric memory",
    "custom": "SGLang's custom all-reduce",
    "custom_v2": "SGLang's custom all-reduce v2 (JIT)",
    "mscclpp": "mscclpp",
    "torch_symmetric": "torch's symmetric memory",
    "nccl": "NCCL",
}

MIB: Final = 1 << 20
_CUSTOM_MAX: Final = 8 * MIB  # custom_all_reduce.py: _MAX_CAR_SIZE on CUDA
_V2_MAX: Final = 16 * MIB  # custom_all_reduce_v2.py: max_pull_size
_V2_MAX_VARIABLE: Final = "SGLANG_CUSTOM_ALL_REDUCE_V2_MAX_SIZE_KB"  # KiB; 0.5.23
_V2_SWITCH: Final = "SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2"
_V2_IN: Final = ">=0.5.12"
_FUSED_ROWS: Final = 2048  # communicator.py: FUSE_ALLREDUCE_MAX_BATCH_SIZE
_MSCCLPP_MAX: Final = MIB  # pymscclpp.py: SGLANG_MSCCLPP_MAX_BYTES
_TORCH_MAX: Final = {2: 64 * MIB, 4: 64 * MIB, 6: 128 * MIB, 8: 128 * MIB}  # all_reduce_utils.py
_WORLDS: Final = {2, 4, 6, 8}
_OFF: Final = {"0", "false", "no", "off", ""}

_DISABLED: Final = re.compile(
    r"(?:Custom allreduce|CustomAll[Rr]educe(?:V2)?) is disabled (?:because|due to)\s?(.{0,200})"
)
_FAILED: Final = re.compile(r"Setup Custom allreduce failed with (.{0,200})")
_INITIALISED: Final = re.compile(r"Custom allreduce v2 initialized successfully")
_REGISTERED: Final = re.compile(r"Registering (\d{1,7}) cuda graph addresses")
_NO_FUSION: Final = re.compile(r"flashinfer\.comm is not available")
_ARGS: Final = re.compile(r"server_args=ServerArgs\((.*)\)$")
_SETTING: Final = re.compile(
    r"(?:^|, )(\w{1,80})=('[^']{0,500}'|\"[^\"]{0,500}\"|[^,()\[\]{}]{0,80})"
)
_LONGEST: Final = 200_000


class Said(NamedTuple):
    """What the log of a start says about it."""

    settings: Mapping[str, str]
    """Server settings by argparse name, as text (True, False, None, 2, ...)."""
    disabled: str | None
    """Why the engine's own all-reduce is off, in its words."""
    v2_ready: bool
    """It said that v2 was set up."""
    no_fusion: bool
    """FlashInfer's collective kernels are not there."""
    registered: int | None = None
    """Buffers of CUDA graphs that custom all-reduce reads directly; 0: no graph uses it."""


class Step(Value):
    """One path, up to a size."""

    kind: PathKind
    up_to_bytes: int | None
    """Largest message; None: no limit."""
    why: str


class ReducePath(Value):
    """What carries an all-reduce, by size of the message."""

    steps: tuple[Step, ...]
    """The first one whose limit is not exceeded; the last has none."""
    proven: bool
    """From a start of this very arm; else told from its flags."""
    sure: bool = True
    """Whether it is known that the machine can do it: from a start with custom all-reduce on, or
    because the flags leave NCCL alone."""

    def at(self, size_bytes: int) -> Step:
        """The path of a message."""
        return next(
            step
            for step in self.steps
            if step.up_to_bytes is None or size_bytes <= step.up_to_bytes
        )

    def kinds(self, sizes: Iterable[int]) -> tuple[PathKind, ...]:
        """The paths of these sizes, each once, in the order of the sizes."""
        return tuple(dict.fromkeys(self.at(size).kind for size in sizes))


def read_said(lines: Iterable[str]) -> Said:
    """What a start log says about all-reduce; other lines are passed over."""
    settings: dict[str, str] = {}
    disabled: str | None = None
    registered: int | None = None
    ready = no_fusion = False
    for line in lines:
        text = line[:_LONGEST].rstrip()
        if not settings and (found := _ARGS.search(text)):
            settings = {name: value.strip("'\"") for name, value in _SETTING.findall(found[1])}
        elif found := _DISABLED.search(text) or _FAILED.search(text):
            disabled = disabled or found[1].partition(" To silence")[0].strip().rstrip(".")
        elif found := _REGISTERED.search(text):
            registered = max(registered or 0, int(found[1]))
        ready = ready or _INITIALISED.search(text) is not None
        no_fusion = no_fusion or _NO_FUSION.search(text) is not None
    return Said(settings, disabled, ready, no_fusion, registered)


def reduce_path(
    said: Said,
    env: Mapping[str, str],
    *,
    version: str | None,
    tp: int,
    row_bytes: int | None,
    proven: bool = True,
) -> ReducePath:
    """Which all-reduce carries which size.

    Args:
        said: What the engine's start log says.
        env: What was added to the engine's environment.
        version: Of SGLang; decides between the two custom kernels.
        tp: GPUs that share a layer.
        row_bytes: Bytes of one token's row; None: the fusion's limit, in rows, is not known.
        proven: Whether the log is of this very arm.
    """
    if tp == 1:
        return ReducePath(
            steps=(Step(kind="none", up_to_bytes=None, why="one GPU"),), proven=proven
        )
    steps: list[Step] = []
    if _on(said, "enable_flashinfer_allreduce_fusion") and not said.no_fusion:
        limit = _FUSED_ROWS * row_bytes if row_bytes else _CUSTOM_MAX
        steps.append(_step("flashinfer_fusion", limit, "enable_flashinfer_allreduce_fusion is on"))
    if _on(said, "enable_symm_mem"):
        steps.append(_step("nccl_symmetric", None, "enable_symm_mem is on"))
        return ReducePath(steps=tuple(steps), proven=proven)
    custom, why_not = _custom(said, env, version, tp)
    steps += [custom] if custom else []
    if _on(said, "enable_mscclpp"):
        steps.append(_step("mscclpp", _MSCCLPP_MAX, "enable_mscclpp is on"))
    if _on(said, "enable_torch_symm_mem") and tp in _TORCH_MAX:
        steps.append(_step("torch_symmetric", _TORCH_MAX[tp], "enable_torch_symm_mem is on"))
    rest = why_not or f"larger than {steps[-1].up_to_bytes or 0:,} bytes"
    steps.append(_step("nccl", None, rest))
    return ReducePath(steps=_rising(steps), proven=proven)


def _custom(
    said: Said, env: Mapping[str, str], version: str | None, tp: int
) -> tuple[Step | None, str]:
    """The engine's own kernel, or why it is off."""
    if _on(said, "disable_custom_all_reduce"):
        return None, "disable_custom_all_reduce is set"
    if said.disabled is not None:
        return None, f"the engine says: custom all-reduce is off: {said.disabled}"
    if tp not in _WORLDS and not said.v2_ready:
        return None, f"custom all-reduce is for 2, 4, 6 or 8 GPUs, not {tp}"
    switched_off = env.get(_V2_SWITCH, "1").lower() in _OFF
    if said.v2_ready or (not switched_off and _has_v2(version)):
        asked = env.get(_V2_MAX_VARIABLE, "")
        limit = int(asked) * 1024 if asked.isdecimal() else _V2_MAX
        why = (
            "the engine says: custom all-reduce v2 is set up"
            if said.v2_ready
            else f"custom all-reduce v2 is this release's default, {_evidence(said)}"
        )
        return _step("custom_v2", limit, why), ""
    return _step("custom", _CUSTOM_MAX, f"custom all-reduce is on, {_evidence(said)}"), ""


def _has_v2(version: str | None) -> bool:
    try:
        return version is not None and within(version, _V2_IN)
    except ValueError:
        return False


def _evidence(said: Said) -> str:
    if said.registered:
        return f"and {said.registered} of its buffers were registered for CUDA graphs"
    return "and nothing in the log is against it"


def _step(kind: PathKind, up_to_bytes: int | None, why: str) -> Step:
    return Step(kind=kind, up_to_bytes=up_to_bytes, why=why)


def _on(said: Said, name: str) -> bool:
    return said.settings.get(name) == "True"


def _rising(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Without those whose limit is below that of one that comes before: they get nothing."""
    kept: list[Step] = []
    for step in steps:
        highest = kept[-1].up_to_bytes if kept else 0
        if step.up_to_bytes is None or (highest is not None and step.up_to_bytes > highest):
            kept.append(step)
    return tuple(kept)
