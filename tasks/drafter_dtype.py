"""The number types of a drafter: as its config says, as its weights are, and as the target runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tasks.drafter_verdict import DrafterProblem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tasks.drafter_config import DrafterConfig, Findings
    from tasks.drafter_verdict import EngineFacts, TargetFacts
    from tasks.safetensors_header import Tensor

_USUAL: Final = frozenset({"bfloat16", "float16", "half", "auto"})
_SAME: Final = {"half": "float16", "float": "float32"}
# Matrices of these types need scales, which a plain Linear of llama_eagle3.py does not take.
_PACKED: Final = frozenset({"F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "I8", "U8", "I32"})


def declared_dtype(data: Mapping[str, Any]) -> str | None:
    """The number type that a config.json names; None where it names none."""
    found = data.get("dtype", data.get("torch_dtype"))
    return _SAME.get(found, found) if isinstance(found, str) else None


def loaded_dtype(declared: str | None, asked: str | None) -> str:
    """The number type in which SGLang loads a model.

    ``--dtype auto`` takes the config's, and float16 where that is float32 or absent
    (model_config.py ``_get_and_verify_dtype``; the same in 0.5.9, 0.5.12 and 0.5.23).
    """
    if asked is not None and asked != "auto":
        return _SAME.get(asked, asked)
    return declared if declared not in {None, "float32", "auto"} else "float16"


def check_dtype(
    config: DrafterConfig,
    headers: Mapping[str, Tensor] | None,
    target: TargetFacts,
    engine: EngineFacts,
) -> Findings:
    """Find number types that do not go together.

    A drafter that takes the target's hidden states must be loaded in their type. SGLang checks
    nothing of it and dies as the draft's graph is captured, after the whole target was loaded (seen
    on 0.5.12: docs/evidence/h200/drafters.md). A draft model of its own (STANDALONE) takes none.
    """
    raw = config.data.get("dtype", config.data.get("torch_dtype"))
    ours = loaded_dtype(declared_dtype(config.data), engine.dtype)
    theirs = None if target.dtype is None else loaded_dtype(target.dtype, engine.dtype)
    joined = engine.framework == "sglang" and engine.speculative_algorithm != "STANDALONE"
    if joined and {ours, theirs} == {"bfloat16", "float16"}:
        yield DrafterProblem(
            reason="dtype_mismatch",
            message=f"dtype is {raw or 'absent'}: SGLang loads the drafter as {ours} and the target "
            f"as {theirs}, whose hidden states it cannot multiply",
            hint=f'write "dtype": "{theirs}" in the drafter\'s config.json, or pass --dtype',
        )
    elif raw is not None and str(raw) not in _USUAL:
        yield f"dtype is {raw}: slower than bfloat16, and a mixture with the target may fail"
    packed = sorted(
        {t.dtype for t in (headers or {}).values() if len(t.shape) > 1 and t.dtype in _PACKED}
    )
    if packed and not config.data.get("quantization_config"):
        yield (
            f"weights are of type {', '.join(packed)}, and config.json has no quantization_config: "
            "they would be taken for plain numbers"
        )
